//! Plain XPRESS (MS-XCA "plain LZ77"): a flag word for 32 elements, each a literal byte or a match.
//!
//! A match is a 16-bit word, with 13 bits of distance and 3 of length. Longer lengths continue in a
//! nibble (two matches share a byte), a byte, a 16-bit and a 32-bit number. The stream does not
//! store its expanded length.

mod encode;
#[cfg(test)]
mod oracle;
#[cfg(test)]
mod tests;

pub use encode::compress;

use super::{DecompressError, Problem, check_match, read, repeat_bytewise};

/// The minimum length of a match.
const MATCH_MIN: usize = 3;
/// The maximum distance of a match.
const DISTANCE_MAX: usize = 1 << 13;
/// The maximum of the 3-bit length, where the nibble begins.
const SHORT_LENGTH_MAX: usize = 7;
/// The maximum of the nibble, where the byte begins.
const NIBBLE_MAX: usize = 15;
/// The maximum of the byte, where the 16-bit number begins.
const BYTE_MAX: usize = 255;

/// Number of bytes that are moved at once. Most literal runs and matches of event data are shorter.
const STEP: usize = 16;

/// Marks the end of the flags in the flag register: the bit after the last flag.
const FLAGS_END: u64 = 1 << 63;

/// Expands `input` to exactly `output.len()` bytes. Further input is ignored.
///
/// On an error, the first `written` bytes of `output` are valid, and the rest is arbitrary. Linear
/// in the length of the output; does not allocate.
pub fn decompress(input: &[u8], output: &mut [u8]) -> Result<(), DecompressError> {
    let mut at = 0;
    let mut written = 0;
    let mut high_nibble = None;
    // Unread flags from bit 63 down, then the end mark.
    let mut flags = FLAGS_END;

    while written < output.len() {
        if flags == FLAGS_END {
            let word = read(input, at).ok_or(damaged(at, written, Problem::InputEnded))?;
            at += 4;
            flags = u64::from(u32::from_le_bytes(word)) << 32 | FLAGS_END >> 32;
        }

        let literals = flags.leading_zeros() as usize;
        flags <<= literals;
        match (read::<STEP>(input, at), output.get_mut(written..written + STEP)) {
            // Copying too much is faster than copying exactly; later elements overwrite the
            // surplus.
            (Some(source), Some(target)) if literals <= STEP => target.copy_from_slice(&source),
            _ => {
                let room = literals.min(output.len() - written);
                let count = room.min(input.len() - at);
                output[written..written + count].copy_from_slice(&input[at..at + count]);
                if count < room {
                    return Err(damaged(at + count, written + count, Problem::InputEnded));
                }
                if room < literals {
                    return Ok(());
                }
            }
        }
        at += literals;
        written += literals;
        if flags == FLAGS_END || written == output.len() {
            continue;
        }

        flags <<= 1;
        let token = Match::read(input, at, high_nibble).map_err(|problem| damaged(at, written, problem))?;
        check_match(token.distance, token.length, written, output.len() - written)
            .map_err(|problem| damaged(at, written, problem))?;
        repeat(output, written, token.distance, token.length);
        at = token.end;
        high_nibble = token.high_nibble;
        written += token.length;
    }
    Ok(())
}

fn damaged(offset: usize, written: usize, problem: Problem) -> DecompressError {
    DecompressError { offset, written, problem }
}

/// One decoded match element.
struct Match {
    distance: usize,
    length: usize,
    /// Offset of the next element.
    end: usize,
    /// The unused half of the latest length byte that two matches share.
    high_nibble: Option<u8>,
}

impl Match {
    #[inline]
    fn read(input: &[u8], at: usize, high_nibble: Option<u8>) -> Result<Match, Problem> {
        let word = usize::from(read(input, at).map(u16::from_le_bytes).ok_or(Problem::InputEnded)?);
        let token = Match {
            distance: (word >> 3) + 1,
            length: (word & SHORT_LENGTH_MAX) + MATCH_MIN,
            end: at + 2,
            high_nibble,
        };
        if word & SHORT_LENGTH_MAX == SHORT_LENGTH_MAX { token.lengthen(input) } else { Ok(token) }
    }

    /// Reads the continuation of the length.
    #[inline]
    fn lengthen(mut self, input: &[u8]) -> Result<Match, Problem> {
        let nibble = match self.high_nibble.take() {
            Some(nibble) => nibble,
            None => {
                let [byte] = self.take(input)?;
                self.high_nibble = Some(byte >> 4);
                byte & 0xf
            }
        };
        self.length += usize::from(nibble);
        if usize::from(nibble) < NIBBLE_MAX {
            return Ok(self);
        }
        let [byte] = self.take(input)?;
        if usize::from(byte) < BYTE_MAX {
            self.length += usize::from(byte);
            return Ok(self);
        }
        // The 16-bit and 32-bit forms contain the whole length minus the minimum, not the rest of
        // the shorter forms.
        let mut encoded = u32::from(u16::from_le_bytes(self.take(input)?));
        if encoded == 0 {
            encoded = u32::from_le_bytes(self.take(input)?);
        }
        let least = (SHORT_LENGTH_MAX + NIBBLE_MAX) as u32;
        if encoded < least {
            return Err(Problem::LengthForm { encoded, least });
        }
        self.length = (encoded as usize).saturating_add(MATCH_MIN);
        Ok(self)
    }

    fn take<const N: usize>(&mut self, input: &[u8]) -> Result<[u8; N], Problem> {
        let bytes = read(input, self.end).ok_or(Problem::InputEnded)?;
        self.end += N;
        Ok(bytes)
    }
}

/// Appends `length` bytes at `written`, each a copy of the byte `distance` before it.
#[inline]
fn repeat(output: &mut [u8], written: usize, distance: usize, length: usize) {
    let end = written + length;
    let mut from = written - distance;
    let mut to = written;
    if end + STEP > output.len() {
        return repeat_bytewise(output, written, distance, length);
    }
    // A pattern shorter than a step is doubled in place until the source and the target of a step
    // do not overlap.
    while to - from < STEP && to < end {
        output.copy_within(from..from + STEP, to);
        to += to - from;
    }
    while to < end {
        output.copy_within(from..from + STEP, to);
        from += STEP;
        to += STEP;
    }
}
