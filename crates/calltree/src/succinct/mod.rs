//! Compact arrays that are read where they lie, without being loaded: bits with rank and select, numbers of a fixed
//! width, rising numbers (Elias-Fano), balanced parentheses, and a wavelet matrix.
//!
//! Each has a part that is written once into sections of the index, and a reader over those bytes. Readers of damaged
//! bytes give wrong numbers, but never panic and never run on: what is outside reads as zero, and loops are bounded by
//! the sections' lengths. They know nothing of frames.

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

/// Words of 64 bits, little endian, wherever they lie.
#[derive(Clone, Debug, Default)]
pub(crate) struct Words(Bytes);

impl Words {
    pub(crate) fn new(bytes: Bytes) -> Self {
        Self(bytes)
    }

    /// The word with this number; zero outside.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> u64 {
        match index.checked_mul(8).and_then(|at| self.0.get(at..)).and_then(|bytes| bytes.first_chunk()) {
            Some(bytes) => u64::from_le_bytes(*bytes),
            None => 0,
        }
    }

    /// Those from `index` on.
    pub(crate) fn from(&self, index: usize) -> Self {
        Self(self.0.slice((index * 8).min(self.0.len())..))
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len() / 8
    }
}

/// Words on their way into a section.
pub(crate) fn to_bytes(words: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(words.len() * 8);
    for word in words {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes
}
