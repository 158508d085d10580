//! XPRESS, plain LZ77.

use super::DecompressError;

pub(super) fn decompress(input: &[u8], output: &mut [u8]) -> Result<(), DecompressError> {
    let (mut at, mut out) = (0, 0);
    let (mut flags, mut count) = (0u32, 0);
    let mut nibble: Option<usize> = None;
    let damaged = |offset, what| DecompressError::Damaged { offset, what };
    let byte = |at: usize| input.get(at).copied().ok_or(damaged(at, "input ends"));
    while out < output.len() {
        if count == 0 {
            let word = input.get(at..at + 4).ok_or(damaged(at, "input ends"))?;
            flags = u32::from_le_bytes(word.try_into().expect("four bytes"));
            at += 4;
            count = 32;
        }
        count -= 1;
        if flags >> count & 1 == 0 {
            output[out] = byte(at)?;
            at += 1;
            out += 1;
            continue;
        }
        let token = usize::from(u16::from_le_bytes([byte(at)?, byte(at + 1)?]));
        at += 2;
        let distance = (token >> 3) + 1;
        let mut length = token & 7;
        if length == 7 {
            length = match nibble.take() {
                Some(place) => usize::from(byte(place)? >> 4),
                None => {
                    nibble = Some(at);
                    at += 1;
                    usize::from(byte(at - 1)? & 15)
                }
            };
            if length == 15 {
                length = usize::from(byte(at)?);
                at += 1;
                if length == 255 {
                    length = usize::from(u16::from_le_bytes([byte(at)?, byte(at + 1)?]));
                    at += 2;
                    if length == 0 {
                        let word = input.get(at..at + 4).ok_or(damaged(at, "input ends"))?;
                        length = u32::from_le_bytes(word.try_into().expect("four bytes")) as usize;
                        at += 4;
                    }
                    length = length.checked_sub(22).ok_or(damaged(at, "length too small"))?;
                }
                length += 15;
            }
            length += 7;
        }
        length += 3;
        if distance > out || length > output.len() - out {
            return Err(damaged(at, "match out of bounds"));
        }
        for to in out..out + length {
            output[to] = output[to - distance];
        }
        out += length;
    }
    Ok(())
}
