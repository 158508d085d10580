//! Expands XPRESS chunks (plain LZ77) as described in [MS-XCA] section 2.4.

use crate::bytes;

/// A chunk that was expanded without an error.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Expanded {
    pub bytes: Vec<u8>,
    /// Number of unused bytes at the end of the chunk.
    pub left_over: usize,
}

struct Input<'a> {
    chunk: &'a [u8],
    at: usize,
}

impl Input<'_> {
    fn number(&mut self, size: usize) -> Option<usize> {
        let number = self.chunk.get(self.at..self.at + size)?;
        self.at += size;
        Some(bytes::u32(number, 0) as usize)
    }
}

/// Expands a chunk to exactly `size` bytes. Returns `None` if the chunk is damaged or has another
/// size.
pub(crate) fn expand(chunk: &[u8], size: usize) -> Option<Expanded> {
    let mut input = Input { chunk, at: 0 };
    let mut out = Vec::new();
    let (mut flags, mut flags_left) = (0, 0);
    // Two long matches share one byte, with four bits of the length of each.
    let mut shared = None;
    while out.len() < size {
        if flags_left == 0 {
            flags = input.number(4)?;
            flags_left = 32;
        }
        flags_left -= 1;
        if flags >> flags_left & 1 == 0 {
            out.push(input.number(1)? as u8);
            continue;
        }
        let token = input.number(2)?;
        let start = out.len().checked_sub((token >> 3) + 1)?;
        let length = match token & 7 {
            7 => 7 + long_length(&mut input, &mut shared)?,
            short => short,
        } + 3;
        if length > size - out.len() {
            return None;
        }
        for at in start..start + length {
            out.push(out[at]);
        }
    }
    Some(Expanded { bytes: out, left_over: chunk.len() - input.at })
}

/// Reads the part of a match length that exceeds 7, from as many bytes as necessary.
fn long_length(input: &mut Input<'_>, shared: &mut Option<usize>) -> Option<usize> {
    let four_bits = match shared.take() {
        Some(byte) => byte >> 4,
        None => {
            let byte = input.number(1)?;
            *shared = Some(byte);
            byte & 15
        }
    };
    if four_bits < 15 {
        return Some(four_bits);
    }
    let byte = input.number(1)?;
    if byte < 255 {
        return Some(15 + byte);
    }
    let whole = match input.number(2)? {
        0 => input.number(4)?,
        whole => whole,
    };
    // A length in two or four bytes includes the 15 and the 7.
    Some(whole.checked_sub(15 + 7)? + 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of [MS-XCA] section 3.1: a run of the alphabet, and 300 bytes of a pattern.
    #[test]
    fn published_examples_expand() {
        let alphabet = b"abcdefghijklmnopqrstuvwxyz";
        let chunk = [&[0x3f, 0, 0, 0][..], alphabet].concat();
        assert_eq!(expand(&chunk, 26), Some(Expanded { bytes: alphabet.to_vec(), left_over: 0 }));

        let chunk = [0xff, 0xff, 0xff, 0x1f, b'a', b'b', b'c', 0x17, 0, 0x0f, 0xff, 0x26, 1];
        assert_eq!(expand(&chunk, 300), Some(Expanded { bytes: b"abc".repeat(100), left_over: 0 }));
    }

    #[test]
    fn unused_bytes_are_counted() {
        let chunk = [0, 0, 0, 0, b'a', b'b', 1, 2, 3];
        assert_eq!(expand(&chunk, 2), Some(Expanded { bytes: b"ab".to_vec(), left_over: 3 }));
    }

    #[test]
    fn damaged_chunks_are_rejected() {
        for (chunk, size, reason) in [
            (&[0, 0, 0][..], 1, "no flags"),
            (&[0, 0, 0, 0, b'a'], 2, "no second literal"),
            (&[0, 0, 0, 0x80, 0, 0], 3, "a match before the start"),
            (&[0, 0, 0, 0x40, b'a', 0, 0], 3, "a match beyond the end"),
            (&[0, 0, 0, 0x40, b'a', 7, 0, 15, 255, 6, 0], 99, "a long encoding of a short length"),
        ] {
            assert_eq!(expand(chunk, size), None, "{reason}");
        }
    }
}
