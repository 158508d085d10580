//! Decompresses arbitrary bytes.

use stackhound_etl::compress::{Algorithm, DecompressError, Problem, decompress, xpress};

/// A second XPRESS decoder, which follows the text of the specification.
#[path = "../../etl/src/compress/xpress/oracle.rs"]
mod oracle;

/// Expands bytes by every algorithm to several sizes, and compresses them.
///
/// The first three bytes select one of the sizes.
pub fn decompression(bytes: &[u8]) {
    let Some((&[low, middle, high], input)) = bytes.split_first_chunk() else { return };
    let chosen = u32::from_le_bytes([low, middle, high, 0]) as usize % (1 << 17);
    for size in [0, 1, chosen, 4096] {
        for algorithm in Algorithm::ALL {
            let (mut first, mut second) = (vec![0xaa; size], vec![0x55; size]);
            let result = decompress(algorithm, input, &mut first);
            assert_eq!(result, decompress(algorithm, input, &mut second));
            let valid = result.map_or_else(|error| error.written, |()| size);
            // The valid bytes do not depend on the previous contents of the output.
            assert!(first[..valid] == second[..valid], "{}", algorithm.name());
            if algorithm == Algorithm::Xpress {
                assert_eq!(result, oracle::decompress(input, &mut second));
                assert!(first[..valid] == second[..valid], "the oracle has another result");
            }
        }
    }
    let compressed = xpress::compress(input);
    let mut expanded = vec![0; input.len()];
    assert_eq!(xpress::decompress(&compressed, &mut expanded), Ok(()));
    assert!(expanded == input);
}
