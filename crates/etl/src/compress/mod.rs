//! Compressed buffers.

mod xpress;

/// How the buffers of a recording are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// LZNT1.
    Lznt1,
    /// XPRESS, plain LZ77.
    Xpress,
    /// XPRESS with Huffman coding.
    XpressHuffman,
}

impl Algorithm {
    /// From the state of the first buffer, whose low half is an NT compression format.
    pub fn from_state(state: u32) -> Algorithm {
        match state & 0xffff {
            2 => Algorithm::Lznt1,
            4 => Algorithm::XpressHuffman,
            _ => Algorithm::Xpress,
        }
    }

    /// Its usual name.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Lznt1 => "LZNT1",
            Algorithm::Xpress => "XPRESS (plain LZ77)",
            Algorithm::XpressHuffman => "XPRESS-Huffman",
        }
    }
}

/// Why a buffer does not decompress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecompressError {
    /// No decoder.
    #[error("{} is not supported", .0.name())]
    Unsupported(Algorithm),
    /// The data is wrong.
    #[error("the compressed data is damaged at {offset:#x}: {what}")]
    Damaged {
        /// Where in the compressed data.
        offset: usize,
        /// What is wrong.
        what: &'static str,
    },
}

/// Decompresses all of `input` so that it fills `output` exactly.
pub fn decompress(algorithm: Algorithm, input: &[u8], output: &mut [u8]) -> Result<(), DecompressError> {
    match algorithm {
        Algorithm::Xpress => xpress::decompress(input, output),
        other => Err(DecompressError::Unsupported(other)),
    }
}
