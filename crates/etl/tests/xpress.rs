//! XPRESS on buffers that Windows compressed, undamaged and damaged.

mod chunks;
use stackhound_corpus as corpus;
#[path = "../src/compress/xpress/oracle.rs"]
mod oracle;

use stackhound_etl::compress::{DecompressError, Problem, xpress};

/// Whether the top byte of the first word is that of a record.
fn starts_with_a_record(bytes: &[u8]) -> bool {
    bytes[3] == 0xc0 || bytes[3] == 0x90
}

#[test]
fn buffers_of_windows_are_expanded() {
    for (name, count) in [
        ("perfview-net452-x64.etl", 359),
        ("dotnetperf-vs-gconly.etl", 321),
        ("msbuild-PerfViewData.etl", 29),
    ] {
        let Some(etl_file) = corpus::etl_file(name) else { return };
        let chunks = chunks::compressed(&etl_file);
        assert_eq!(chunks.len(), count);
        for (input, size) in chunks {
            let (mut fast, mut slow) = (vec![0xee; size], vec![0xdd; size]);
            xpress::decompress(input, &mut fast).unwrap();
            oracle::decompress(input, &mut slow).unwrap();
            assert!(fast == slow && starts_with_a_record(&fast));

            let again = xpress::compress(&fast);
            xpress::decompress(&again, &mut slow).unwrap();
            assert!(fast == slow);

            // A length that the chunk does not reach is an error, and all expanded bytes stay
            // valid.
            let mut longer = vec![0; size + 1];
            let problem = Problem::InputEnded;
            let ended = DecompressError { offset: input.len(), written: size, problem };
            assert_eq!(xpress::decompress(input, &mut longer), Err(ended));
            assert!(longer[..size] == fast);
        }
    }
}

#[test]
fn damaged_buffers_match_the_oracle() {
    let Some(etl_file) = corpus::etl_file("perfview-net452-x64.etl") else { return };
    // A fixed sequence of pseudo-random numbers (a linear congruential generator).
    let mut state = 1u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let mut failures = 0;
    for (input, size) in chunks::compressed(&etl_file) {
        let mut input = input.to_vec();
        for _ in 0..random(4) {
            let at = random(input.len());
            input[at] = random(256) as u8;
        }
        input.truncate(input.len() - random(2) * random(input.len()));
        let (mut fast, mut slow) = (vec![0xee; size], vec![0xdd; size]);
        let result = xpress::decompress(&input, &mut fast);
        assert_eq!(result, oracle::decompress(&input, &mut slow));
        let valid = match result {
            Err(DecompressError { written, .. }) => written,
            _ => size,
        };
        assert!(fast[..valid] == slow[..valid]);
        failures += usize::from(result.is_err());
    }
    assert!(failures > 100, "only {failures} of the damaged buffers were noticed");
}
