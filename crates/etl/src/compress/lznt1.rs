//! LZNT1: chunks of 4 KiB, each stored or compressed. In compressed chunks, a flag byte precedes
//! eight elements.
//!
//! A match is a 16-bit word. The number of distance bits and length bits depends on its position in
//! the chunk, because a match never refers outside the chunk.

use super::{DecompressError, Problem, check_match, read, repeat_bytewise};

/// Expanded size of a chunk; only the last one may be shorter.
const CHUNK: usize = 4096;
const MATCH_MIN: usize = 3;
/// Bits of distance at the start of a chunk.
const DISTANCE_BITS_MIN: u32 = 4;

/// See [`super::decompress`].
pub(super) fn decompress(input: &[u8], output: &mut [u8]) -> Result<(), DecompressError> {
    let mut at = 0;
    let mut written = 0;
    while written < output.len() {
        let ended = DecompressError { offset: at, written, problem: Problem::InputEnded };
        let header = read(input, at).map(u16::from_le_bytes).filter(|&header| header != 0).ok_or(ended)?;
        let start = at + 2;
        at = start + usize::from(header & 0xfff) + 1;
        let chunk = &input[start..at.min(input.len())];
        let room = CHUNK.min(output.len() - written);
        let target = &mut output[written..written + room];
        if header & 0x8000 == 0 {
            let count = chunk.len().min(room);
            target[..count].copy_from_slice(&chunk[..count]);
            written += count;
        } else {
            written += expand(chunk, target).map_err(|error| DecompressError {
                offset: start + error.offset,
                written: written + error.written,
                ..error
            })?;
        }
        if at > input.len() {
            return Err(DecompressError { offset: input.len(), written, problem: Problem::InputEnded });
        }
    }
    Ok(())
}

/// Expands a compressed chunk and returns the expanded length.
fn expand(chunk: &[u8], output: &mut [u8]) -> Result<usize, DecompressError> {
    let mut at = 0;
    let mut written = 0;
    while let Some(&flags) = chunk.get(at) {
        at += 1;
        for element in 0..8 {
            let Some(&literal) = chunk.get(at).filter(|_| written < output.len()) else { return Ok(written) };
            if flags >> element & 1 == 0 {
                output[written] = literal;
                written += 1;
                at += 1;
                continue;
            }
            let damaged = |problem| DecompressError { offset: at, written, problem };
            let word = read(chunk, at).map(u16::from_le_bytes).ok_or(damaged(Problem::InputEnded))?;
            // The number of bits for the distance to the start of the chunk.
            let distance_bits =
                (usize::BITS - written.saturating_sub(1).leading_zeros()).max(DISTANCE_BITS_MIN);
            let length_bits = 16 - distance_bits;
            let distance = usize::from(word >> length_bits) + 1;
            let length = usize::from(word & ((1 << length_bits) - 1)) + MATCH_MIN;
            check_match(distance, length, written, output.len() - written).map_err(damaged)?;
            repeat_bytewise(output, written, distance, length);
            written += length;
            at += 2;
        }
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::compress::elements::{Element, elements};

    /// One chunk with as many of the elements as fit, and its expanded form.
    fn chunk(elements: &[Element]) -> (Vec<u8>, Vec<u8>) {
        let mut data = Vec::new();
        let mut flags_at = 0;
        let mut output = Vec::new();
        for (count, element) in elements.iter().enumerate() {
            let length_bits =
                (0..=8).rev().map(|less| 4 + less).find(|bits| output.len() <= 1 << (16 - bits));
            let length_bits = length_bits.expect("a chunk is shorter than the farthest distance");
            let fits = match *element {
                Element::Literal(_) => output.len() < CHUNK,
                Element::Match { length, .. } => {
                    output.len() + length <= CHUNK && length - 3 < 1 << length_bits
                }
            };
            if !fits {
                break;
            }
            if count % 8 == 0 {
                flags_at = data.len();
                data.push(0);
            }
            match *element {
                Element::Literal(byte) => data.push(byte),
                Element::Match { distance, length } => {
                    data[flags_at] |= 1 << (count % 8);
                    let word = (distance - 1) << length_bits | (length - 3);
                    data.extend((word as u16).to_le_bytes());
                }
            }
            element.expand(&mut output);
        }
        let header = 0xb000 | (data.len() as u16 - 1);
        ([&header.to_le_bytes()[..], &data].concat(), output)
    }

    #[test]
    fn the_example_of_the_specification_is_expanded() {
        let compressed = b"\x38\xb0\x88\x46\x23\x20\x00\x20\x47\x20\x41\x00\x10\xa2\x47\x01\xa0\x45\x20\x44\
            \x00\x08\x45\x01\x50\x79\x00\xc0\x45\x20\x05\x24\x13\x88\x05\xb4\x02\x4a\x44\xef\x03\x58\x02\x8c\
            \x09\x16\x01\x48\x45\x00\xbe\x00\x9e\x00\x04\x01\x18\x90\x00";
        let expected = "F# F# G A A G F# E D D E F# F# E E F# F# G A A G F# E D D E F# E D D E E F# D E F# \
            G F# D E F# G F# E D E A F# F# G A A G F# E D D E F# E D D\0";
        let mut output = vec![0; expected.len()];
        decompress(compressed, &mut output).unwrap();
        assert_eq!(output, expected.as_bytes());
    }

    #[test]
    fn stored_chunks_and_the_end_of_the_data() {
        let mut output = [0; 5];
        decompress(b"\x02\x30abc\x01\x30de\0\0", &mut output).unwrap();
        assert_eq!(&output, b"abcde");
        let ended = DecompressError { offset: 9, written: 5, problem: Problem::InputEnded };
        assert_eq!(decompress(b"\x02\x30abc\x01\x30de\0\0", &mut [0; 6]), Err(ended));
        let cut = DecompressError { offset: 4, written: 2, problem: Problem::InputEnded };
        assert_eq!(decompress(b"\x02\x30ab", &mut [0; 6]), Err(cut));
    }

    proptest! {
        #[test]
        fn elements_are_expanded(
            chunks in prop::collection::vec(elements(CHUNK, 200).prop_filter("empty", |e| !e.is_empty()), 1..4),
            cut in 0..100usize, change in any::<(prop::sample::Index, u8)>(),
        ) {
            let (mut input, mut expected) = (Vec::new(), Vec::new());
            for elements in chunks {
                let (data, output) = chunk(&elements);
                input.extend(data);
                expected.extend(output);
            }
            let mut output = vec![0; expected.len()];
            prop_assert_eq!(decompress(&input, &mut output), Ok(()));
            prop_assert_eq!(&output, &expected);

            // Damaged data yields less, but all `written` bytes are valid.
            let whole = input.len();
            input.truncate(whole - cut.min(whole));
            let valid = match decompress(&input, &mut output) {
                Ok(()) => expected.len(),
                Err(error) => error.written,
            };
            prop_assert_eq!(&output[..valid], &expected[..valid]);
            if !input.is_empty() {
                let at = change.0.index(input.len());
                input[at] = change.1;
                let result = decompress(&input, &mut output);
                prop_assert!(result.map_or_else(|error| error.written, |()| 0) <= output.len());
            }
        }
    }
}
