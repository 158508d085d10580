//! XPRESS with Huffman coding: chunks of 64 KiB, each with its own prefix code for literals and
//! matches.
//!
//! A chunk begins with 512 code lengths of 4 bits. Codes and distances are read from 16-bit words,
//! highest bit first. Longer match lengths are stored as whole bytes between these words, at the
//! current position of the reader of words.

use super::{DecompressError, Problem, check_match, read, repeat_bytewise};

/// Expanded size of a chunk; only the last one may be shorter.
const CHUNK: usize = 64 << 10;
const SYMBOLS: usize = 512;
const CODE_LENGTHS: usize = SYMBOLS / 2;
const CODE_LENGTH_MAX: usize = 15;
/// The first symbol of a match: the high four bits are the size of the distance, the low four bits
/// the length.
const MATCH_SYMBOL: usize = 256;
const MATCH_MIN: usize = 3;
/// The maximum of the length in the symbol, where the byte begins.
const SHORT_LENGTH_MAX: usize = 15;
/// The maximum of the byte, where the 16-bit number begins.
const BYTE_MAX: usize = 255;

/// See [`super::decompress`].
pub(super) fn decompress(input: &[u8], output: &mut [u8]) -> Result<(), DecompressError> {
    let mut at = 0;
    let mut written = 0;
    while written < output.len() {
        let damaged = |offset, problem| DecompressError { offset, written, problem };
        let lengths = read(input, at).ok_or(damaged(at, Problem::InputEnded))?;
        let code = Code::new(&lengths).map_err(|problem| damaged(at, problem))?;
        let end = (written + CHUNK).min(output.len());
        let mut bits = Bits { input, at: at + CODE_LENGTHS, word: 0, count: 0 };
        bits.refill(32);
        while written < end {
            let offset = bits.at;
            // A match may reach into the next chunk, but not beyond the output.
            written += element(&mut bits, &code, output, written).map_err(|problem| DecompressError {
                offset,
                written,
                problem,
            })?;
        }
        // The next chunk follows the words that the reader reads ahead.
        bits.refill(16);
        at = bits.at;
    }
    Ok(())
}

/// Expands one literal or match and returns its length.
fn element(bits: &mut Bits<'_>, code: &Code, output: &mut [u8], written: usize) -> Result<usize, Problem> {
    let symbol = code.symbol(bits)?;
    if symbol < MATCH_SYMBOL {
        output[written] = symbol as u8;
        return Ok(1);
    }
    let distance_bits = (symbol - MATCH_SYMBOL) >> 4;
    let mut length = symbol & 0xf;
    bits.refill(16);
    if length == SHORT_LENGTH_MAX {
        let [byte] = bits.bytes()?;
        length += usize::from(byte);
        if usize::from(byte) == BYTE_MAX {
            // The 16-bit and 32-bit forms contain the whole length minus the minimum; a zero
            // precedes the 32-bit form.
            let mut encoded = u32::from(u16::from_le_bytes(bits.bytes()?));
            if encoded == 0 {
                encoded = u32::from_le_bytes(bits.bytes()?);
            }
            if (encoded as usize) < SHORT_LENGTH_MAX {
                return Err(Problem::LengthForm { encoded, least: SHORT_LENGTH_MAX as u32 });
            }
            length = encoded as usize;
        }
    }
    let length = length.saturating_add(MATCH_MIN);
    let distance = 1 << distance_bits | bits.take(distance_bits)?;
    check_match(distance, length, written, output.len() - written)?;
    repeat_bytewise(output, written, distance, length);
    Ok(length)
}

/// A prefix code in canonical order: shorter codes first, codes of equal length by symbol.
struct Code {
    /// Number of symbols with a code of each length.
    counts: [u16; CODE_LENGTH_MAX + 1],
    symbols: [u16; SYMBOLS],
}

impl Code {
    fn new(lengths: &[u8; CODE_LENGTHS]) -> Result<Code, Problem> {
        let length_of = |symbol: usize| usize::from(lengths[symbol / 2] >> (symbol % 2 * 4) & 0xf);
        let mut counts = [0; CODE_LENGTH_MAX + 1];
        for symbol in 0..SYMBOLS {
            counts[length_of(symbol)] += 1;
        }
        counts[0] = 0;
        // A code of length n takes one of 2^n positions.
        let taken: usize =
            (1..).zip(&counts[1..]).map(|(n, &count)| usize::from(count) << (CODE_LENGTH_MAX - n)).sum();
        if taken > 1 << CODE_LENGTH_MAX {
            return Err(Problem::CodeLengths);
        }
        let mut next = [0; CODE_LENGTH_MAX + 1];
        for n in 1..CODE_LENGTH_MAX {
            next[n + 1] = next[n] + usize::from(counts[n]);
        }
        let mut symbols = [0; SYMBOLS];
        for symbol in 0..SYMBOLS {
            let n = length_of(symbol);
            if n > 0 {
                symbols[next[n]] = symbol as u16;
                next[n] += 1;
            }
        }
        Ok(Code { counts, symbols })
    }

    fn symbol(&self, bits: &mut Bits<'_>) -> Result<usize, Problem> {
        bits.refill(16);
        let (mut code, mut first, mut index) = (0, 0, 0);
        for &count in &self.counts[1..] {
            code |= bits.take(1)?;
            let count = usize::from(count);
            if code < first + count {
                return Ok(usize::from(self.symbols[index + code - first]));
            }
            index += count;
            first = (first + count) << 1;
            code <<= 1;
        }
        Err(Problem::Code)
    }
}

/// Reads bits from 16-bit words, and bytes that follow the words read so far.
struct Bits<'a> {
    input: &'a [u8],
    /// Offset of the next word or byte.
    at: usize,
    /// Bits that were not taken yet, from the highest down.
    word: u64,
    count: usize,
}

impl Bits<'_> {
    /// Makes `least` bits available, unless the input ends.
    ///
    /// Bytes may follow the words, so the number of words that are read ahead is a part of the
    /// format.
    fn refill(&mut self, least: usize) {
        while self.count < least {
            let Some(word) = read(self.input, self.at) else { return };
            self.word |= u64::from(u16::from_le_bytes(word)) << (48 - self.count);
            self.count += 16;
            self.at += 2;
        }
    }

    fn take(&mut self, count: usize) -> Result<usize, Problem> {
        if count > self.count {
            return Err(Problem::InputEnded);
        }
        // Two steps, because a shift by all 64 bits is not possible.
        let taken = self.word >> 1 >> (63 - count);
        self.word <<= count;
        self.count -= count;
        Ok(taken as usize)
    }

    /// Reads bytes that follow the words read so far.
    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Problem> {
        // After the last word, no further bytes follow.
        let bytes = read(self.input, self.at).filter(|_| self.count >= 16).ok_or(Problem::InputEnded)?;
        self.at += N;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::compress::elements::{Element, elements};

    /// Writes bits as [`Bits`] reads them: two words are reserved before the bytes that follow.
    #[derive(Default)]
    struct Writer {
        bytes: Vec<u8>,
        /// Offsets of the next two words.
        offsets: [usize; 2],
        word: u32,
        count: usize,
    }

    impl Writer {
        fn new(lengths: &[u8]) -> Writer {
            let at = lengths.len();
            Writer { bytes: [lengths, &[0; 4]].concat(), offsets: [at, at + 2], word: 0, count: 0 }
        }

        fn put(&mut self, value: usize, count: usize) {
            for bit in (0..count).rev() {
                // A reader is two words ahead, and reads another word when it takes the first bit
                // of the next one.
                if self.count == 16 {
                    self.store();
                }
                self.word = self.word << 1 | (value >> bit & 1) as u32;
                self.count += 1;
            }
        }

        fn store(&mut self) {
            let [first, second] = self.offsets;
            self.bytes[first..first + 2].copy_from_slice(&(self.word as u16).to_le_bytes());
            self.offsets = [second, self.bytes.len()];
            self.bytes.extend([0; 2]);
            (self.word, self.count) = (0, 0);
        }

        fn finish(mut self) -> Vec<u8> {
            self.word <<= 16 - self.count;
            self.store();
            self.bytes
        }
    }

    /// A chunk in which all symbols have codes of nine bits, so that each code equals its symbol.
    fn compress(elements: &[Element]) -> (Vec<u8>, Vec<u8>) {
        let mut writer = Writer::new(&[0x99; CODE_LENGTHS]);
        let mut output = Vec::new();
        for element in elements {
            if output.len() >= CHUNK {
                break;
            }
            match *element {
                Element::Literal(byte) => writer.put(byte.into(), 9),
                Element::Match { distance, length } => {
                    let distance_bits = distance.ilog2() as usize;
                    let encoded = length - MATCH_MIN;
                    writer.put(MATCH_SYMBOL + (distance_bits << 4) + encoded.min(15), 9);
                    if encoded >= 15 {
                        writer.bytes.push((encoded - 15).min(255) as u8);
                    }
                    if encoded >= 15 + 255 {
                        let extended = u16::try_from(encoded).unwrap_or(0);
                        writer.bytes.extend(extended.to_le_bytes());
                        if extended == 0 {
                            writer.bytes.extend((encoded as u32).to_le_bytes());
                        }
                    }
                    writer.put(distance - (1 << distance_bits), distance_bits);
                }
            }
            element.expand(&mut output);
        }
        (writer.finish(), output)
    }

    #[test]
    fn the_example_of_the_specification_is_expanded() {
        // 22 letters have codes of 5 bits; the other four and the end have codes of 4.
        let mut compressed = vec![0; CODE_LENGTHS];
        compressed[0x30..0x3e].copy_from_slice(b"\x50\x55\x55\x55\x55\x55\x55\x55\x55\x55\x55\x45\x44\x04");
        compressed[0x80] = 0x04;
        compressed.extend(b"\xd8\x52\x3e\xd7\x94\x11\x5b\xe9\x19\x5f\xf9\xd6\x7c\xdf\x8d\x04\0\0\0\0");
        let mut output = [0; 26];
        decompress(&compressed, &mut output).unwrap();
        assert_eq!(&output, b"abcdefghijklmnopqrstuvwxyz");
    }

    #[test]
    fn chunks_follow_each_other() {
        let literal = Element::Literal(7);
        for length in [CHUNK - 1, CHUNK + 90] {
            for bits_before in 0..16 {
                // Literals move the end of the chunk through all positions within a word.
                let mut elements = vec![literal; 1 + bits_before];
                elements.push(Element::Match { distance: 1, length: length - bits_before });
                let (mut input, mut expected) = compress(&elements);
                let (second, rest) = compress(&[literal, Element::Match { distance: 1, length: 9 }]);
                input.extend(second);
                expected.extend(rest);
                let mut output = vec![0; expected.len()];
                decompress(&input, &mut output).unwrap();
                assert_eq!(output, expected);
            }
        }
    }

    #[test]
    fn impossible_codes_are_refused() {
        let all = |byte| vec![byte; CODE_LENGTHS + 8];
        for (input, offset, problem) in [
            (all(0x11), 0, Problem::CodeLengths),
            (all(0x89), 0, Problem::CodeLengths),
            (all(0x00), 260, Problem::Code),
            (all(0x99)[..100].to_vec(), 0, Problem::InputEnded),
            (all(0x99)[..CODE_LENGTHS].to_vec(), 256, Problem::InputEnded),
        ] {
            let error = DecompressError { offset, written: 0, problem };
            assert_eq!(decompress(&input, &mut [0; 10]), Err(error));
        }
    }

    proptest! {
        #[test]
        fn elements_are_expanded(
            elements in elements(0xffff, 70_000),
            cut in 0..100usize, change in any::<(prop::sample::Index, u8)>(),
        ) {
            let (mut input, expected) = compress(&elements);
            let mut output = vec![0; expected.len()];
            prop_assert_eq!(decompress(&input, &mut output), Ok(()));
            prop_assert_eq!(&output, &expected);

            let whole = input.len();
            input.truncate(whole - cut);
            let valid = match decompress(&input, &mut output) {
                Ok(()) => expected.len(),
                Err(error) => error.written,
            };
            prop_assert_eq!(&output[..valid], &expected[..valid]);
            let at = change.0.index(input.len());
            input[at] = change.1;
            let result = decompress(&input, &mut output);
            prop_assert!(result.map_or_else(|error| error.written, |()| 0) <= output.len());
        }
    }
}
