//! A second decoder that follows the specification one byte at a time. Tests and benchmarks compare
//! [`super::decompress`] with it.

use super::{DecompressError, Problem};

/// See [`super::decompress`].
pub fn decompress(input: &[u8], output: &mut [u8]) -> Result<(), DecompressError> {
    let mut at = 0;
    let mut written = 0;
    let mut flags = 0;
    let mut flag_count = 0;
    let mut nibble_at = None;

    while written < output.len() {
        let u16_at = |at: usize| Some(u32::from(*input.get(at)?) | u32::from(*input.get(at + 1)?) << 8);
        let u32_at = |at: usize| Some(u16_at(at)? | u16_at(at + 2)? << 16);
        let fail = |at, problem| DecompressError { offset: at, written, problem };

        if flag_count == 0 {
            flags = u32_at(at).ok_or(fail(at, Problem::InputEnded))?;
            flag_count = 32;
            at += 4;
        }
        let ended = fail(at, Problem::InputEnded);
        flag_count -= 1;
        if flags >> flag_count & 1 == 0 {
            output[written] = *input.get(at).ok_or(ended)?;
            written += 1;
            at += 1;
            continue;
        }

        let word = u16_at(at).ok_or(ended)?;
        let distance = (word >> 3) as usize + 1;
        let mut length = word & 7;
        let mut end = at + 2;
        if length == 7 {
            length = match nibble_at.take() {
                None => {
                    nibble_at = Some(end);
                    end += 1;
                    u32::from(input.get(end - 1).ok_or(ended)? & 15)
                }
                Some(position) => u32::from(input[position] >> 4),
            };
            if length == 15 {
                length = u32::from(*input.get(end).ok_or(ended)?);
                end += 1;
                if length == 255 {
                    length = u16_at(end).ok_or(ended)?;
                    end += 2;
                    if length == 0 {
                        length = u32_at(end).ok_or(ended)?;
                        end += 4;
                    }
                    if length < 15 + 7 {
                        return Err(fail(at, Problem::LengthForm { encoded: length, least: 15 + 7 }));
                    }
                    length -= 15 + 7;
                }
                length += 15;
            }
            length += 7;
        }
        let length = (length as usize).saturating_add(3);

        if distance > written {
            return Err(fail(at, Problem::DistanceBeforeStart { distance }));
        }
        if length > output.len() - written {
            return Err(fail(at, Problem::MatchBeyondEnd { length }));
        }
        for _ in 0..length {
            output[written] = output[written - distance];
            written += 1;
        }
        at = end;
    }
    Ok(())
}
