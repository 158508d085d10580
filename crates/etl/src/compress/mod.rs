//! Decompression of buffer payloads: one chunk of bytes that expands to a known length.
//!
//! This module implements the byte streams of MS-XCA; it does not depend on buffers. The caller
//! provides the output and its size, so no input can cause an allocation. The bytes that were
//! decoded before an error are valid; the error states their number.

mod lznt1;
pub mod xpress;
mod xpress_huffman;

#[cfg(test)]
mod elements;

/// The compression of the buffers of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Algorithm {
    /// LZNT1, in chunks of 4 KiB.
    Lznt1,
    /// XPRESS, plain LZ77. The only algorithm found in known traces.
    Xpress,
    /// XPRESS with Huffman coding, in chunks of 64 KiB.
    XpressHuffman,
}

impl Algorithm {
    /// All algorithms, the one found in known traces first.
    pub const ALL: [Algorithm; 3] = [Algorithm::Xpress, Algorithm::XpressHuffman, Algorithm::Lznt1];

    /// The algorithm for the state of the first buffer, whose low half is a `COMPRESSION_FORMAT_*`
    /// number.
    ///
    /// XPRESS is 3, which is also the usual state of a buffer. Therefore, all unknown numbers are
    /// also treated as XPRESS.
    pub const fn from_state(state: u32) -> Algorithm {
        match state & 0xffff {
            2 => Algorithm::Lznt1,
            4 => Algorithm::XpressHuffman,
            _ => Algorithm::Xpress,
        }
    }

    /// The usual name.
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::Lznt1 => "LZNT1",
            Algorithm::Xpress => "XPRESS (plain LZ77)",
            Algorithm::XpressHuffman => "XPRESS-Huffman",
        }
    }
}

/// Offset and reason of a failure to expand a chunk to the expected length.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{problem}, at {offset:#x} of the compressed data and {written:#x} of the expanded data")]
pub struct DecompressError {
    /// Offset in the chunk of the element that cannot be expanded, in bytes.
    pub offset: usize,
    /// Number of valid bytes at the start of the output.
    pub written: usize,
    /// The problem of that element.
    pub problem: Problem,
}

/// A problem of an element of a compressed chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Problem {
    /// The chunk ends before the expected length is reached.
    #[error("the compressed data ends before the expected length is reached")]
    InputEnded,
    /// A match refers to bytes before the start of the output.
    #[error("a match refers back by {distance} bytes, to before the start")]
    DistanceBeforeStart {
        /// Distance in bytes.
        distance: usize,
    },
    /// A match is longer than the rest of the expected length.
    #[error("a match of {length} bytes exceeds the expected length")]
    MatchBeyondEnd {
        /// Length of the match in bytes.
        length: usize,
    },
    /// A match length in a 16-bit or 32-bit form is less than the minimum of that form.
    #[error("an extended match length of {encoded}, expected at least {least}")]
    LengthForm {
        /// The stored length.
        encoded: u32,
        /// The minimum.
        least: u32,
    },
    /// A table of code lengths that does not define a prefix code.
    #[error("the code lengths do not define a prefix code")]
    CodeLengths,
    /// Bits that are not the code of any symbol.
    #[error("a code without a symbol")]
    Code,
}

/// Expands `input` into `output`.
///
/// On an error, the first `written` bytes of `output` are valid, and the rest is arbitrary. Linear
/// in the length of the output; does not allocate.
pub fn decompress(algorithm: Algorithm, input: &[u8], output: &mut [u8]) -> Result<(), DecompressError> {
    match algorithm {
        Algorithm::Lznt1 => lznt1::decompress(input, output),
        Algorithm::Xpress => xpress::decompress(input, output),
        Algorithm::XpressHuffman => xpress_huffman::decompress(input, output),
    }
}

/// The bytes at an offset of the input, if there are enough.
#[inline]
fn read<const N: usize>(input: &[u8], at: usize) -> Option<[u8; N]> {
    input.get(at..)?.first_chunk().copied()
}

/// Appends `length` bytes at `written`, each a copy of the byte `distance` before it.
fn repeat_bytewise(output: &mut [u8], written: usize, distance: usize, length: usize) {
    for at in written..written + length {
        output[at] = output[at - distance];
    }
}

/// Checks a match against the written and the remaining length.
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
