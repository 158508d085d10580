//! Compressed buffer payloads: one chunk of bytes that expands to a length known beforehand.
//!
//! Knows the byte streams of MS-XCA and nothing of buffers. The caller owns the output and its size, so no input can
//! make a decoder allocate. What was decoded before an error is usable: the error says how much that is.

mod lznt1;
pub mod xpress;
mod xpress_huffman;

#[cfg(test)]
mod elements;

/// How the buffers of a recording are compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Algorithm {
    /// LZNT1, in chunks of 4 KiB.
    Lznt1,
    /// XPRESS, plain LZ77. The only one seen in recordings.
    Xpress,
    /// XPRESS with Huffman coding, in chunks of 64 KiB.
    XpressHuffman,
}

impl Algorithm {
    /// All of them, the only one seen in recordings first.
    pub const ALL: [Algorithm; 3] = [Algorithm::Xpress, Algorithm::XpressHuffman, Algorithm::Lznt1];

    /// From the state of the first buffer, whose low half is a `COMPRESSION_FORMAT_*` number.
    ///
    /// XPRESS is 3, which is also the ordinary state of a buffer, so it is what every other number is taken for.
    pub const fn from_state(state: u32) -> Algorithm {
        match state & 0xffff {
            2 => Algorithm::Lznt1,
            4 => Algorithm::XpressHuffman,
            _ => Algorithm::Xpress,
        }
    }

    /// Its usual name.
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::Lznt1 => "LZNT1",
            Algorithm::Xpress => "XPRESS (plain LZ77)",
            Algorithm::XpressHuffman => "XPRESS-Huffman",
        }
    }
}

/// Where and why a chunk does not expand to the expected length.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{problem}, at {offset:#x} of the compressed data and {written:#x} of the expanded")]
pub struct DecompressError {
    /// Where the element begins that cannot be expanded, in bytes of the chunk.
    pub offset: usize,
    /// How many bytes at the start of the output are valid.
    pub written: usize,
    /// What is wrong with that element.
    pub problem: Problem,
}

/// What can be wrong with an element of a compressed chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Problem {
    /// The chunk ends before the expected length is reached.
    #[error("the data ends too early")]
    InputEnded,
    /// A match refers to bytes before the start of the output.
    #[error("a match reaches back by {distance} bytes, before the start")]
    DistanceBeforeStart {
        /// How far back, in bytes.
        distance: usize,
    },
    /// A match is longer than what is left of the expected length.
    #[error("a match of {length} bytes reaches beyond the expected length")]
    MatchBeyondEnd {
        /// The length of the match, in bytes.
        length: usize,
    },
    /// A match length in a wide form is less than what that form starts at.
    #[error("a wide match length of {encoded}, expected at least {least}")]
    LengthForm {
        /// The number that stands there.
        encoded: u32,
        /// The least number that is valid there.
        least: u32,
    },
    /// A table of code lengths that is no prefix code.
    #[error("the code lengths make no prefix code")]
    CodeLengths,
    /// Bits that no symbol is coded with.
    #[error("a code that stands for nothing")]
    Code,
}

/// Fills `output` with what `input` expands to.
///
/// On an error the first `written` bytes of `output` are what the input says, the rest is arbitrary.
/// Linear in the length of the output; does not allocate.
pub fn decompress(algorithm: Algorithm, input: &[u8], output: &mut [u8]) -> Result<(), DecompressError> {
    match algorithm {
        Algorithm::Lznt1 => lznt1::decompress(input, output),
        Algorithm::Xpress => xpress::decompress(input, output),
        Algorithm::XpressHuffman => xpress_huffman::decompress(input, output),
    }
}

/// The bytes at a place of the input, if there are enough.
#[inline]
fn read<const N: usize>(input: &[u8], at: usize) -> Option<[u8; N]> {
    input.get(at..)?.first_chunk().copied()
}

/// Appends `length` bytes at `written`, each a copy of the one `distance` before it.
fn repeat_bytewise(output: &mut [u8], written: usize, distance: usize, length: usize) {
    for at in written..written + length {
        output[at] = output[at - distance];
    }
}

/// Checks a match against what was written and what is left to write.
#[inline]
fn check_match(distance: usize, length: usize, written: usize, left: usize) -> Result<(), Problem> {
    if distance > written {
        Err(Problem::DistanceBeforeStart { distance })
    } else if length > left {
        Err(Problem::MatchBeyondEnd { length })
    } else {
        Ok(())
    }
}
