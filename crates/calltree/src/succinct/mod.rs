//! Compact arrays that are read in place: bits with rank and select, numbers of a fixed width,
//! rising numbers (Elias-Fano), balanced parentheses, and a wavelet matrix.
//!
//! Each of them has a builder, which writes a section of the index once, and a reader over these
//! bytes. Readers of damaged bytes return wrong numbers, but they never panic and always terminate:
//! data outside of the bytes is read as zero, and the lengths of the sections limit all loops. They
//! are independent of frames.

mod bits;
mod elias_fano;
mod packed;
mod parentheses;
mod wavelet;

pub(crate) use bits::{BitBuilder, Bits};
use bits::{OFTEN, SELDOM};
pub(crate) use elias_fano::EliasFano;
pub(crate) use packed::{Packed, width_of};
pub(crate) use parentheses::{Node, Parentheses};
pub(crate) use wavelet::Wavelet;

use bytes::Bytes;

/// Little-endian 64-bit words.
#[derive(Clone, Debug, Default)]
pub(crate) struct Words(Bytes);

impl Words {
    pub(crate) fn new(bytes: Bytes) -> Self {
        Self(bytes)
    }

    /// Returns the word at an index, or zero if it is out of range.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> u64 {
        match index.checked_mul(8).and_then(|at| self.0.get(at..)).and_then(|bytes| bytes.first_chunk()) {
            Some(bytes) => u64::from_le_bytes(*bytes),
            None => 0,
        }
    }

    /// Returns the words from `index` on.
    pub(crate) fn from(&self, index: usize) -> Self {
        Self(self.0.slice((index * 8).min(self.0.len())..))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len() / 8
    }
}

/// Encodes words for a section.
pub(crate) fn to_bytes(words: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(words.len() * 8);
    for word in words {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes
}
