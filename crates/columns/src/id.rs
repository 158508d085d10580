//! Ids that depend on the content of what they identify only, so that they are equal in all files
//! and on all machines: the first 64 bits of a SHA-256.
//!
//! Each id is that of a text with its parts in a stated order, which `docs/convert.md` repeats.

use sha2::{Digest, Sha256};
use twox_hash::XxHash3_128;

/// The parts of an id.
#[derive(Clone, Debug, Default)]
pub(crate) struct IdParts(Vec<u8>);

impl IdParts {
    /// `kind` distinguishes ids of different kinds of objects.
    pub fn new(kind: &str) -> IdParts {
        IdParts::default().text(kind)
    }

    /// Like [`new`](IdParts::new), in the memory of these parts.
    pub fn reused(mut self, kind: &str) -> IdParts {
        self.0.clear();
        self.text(kind)
    }

    pub fn number(mut self, number: u64) -> IdParts {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    /// An absent number is not the same as any number.
    pub fn optional(self, number: Option<u64>) -> IdParts {
        match number {
            Some(number) => self.number(1).number(number),
            None => self.number(0),
        }
    }

    pub fn text(self, text: &str) -> IdParts {
        let mut parts = self.number(text.len() as u64);
        parts.0.extend_from_slice(text.as_bytes());
        parts
    }

    pub fn finish(&self) -> u64 {
        let digest: [u8; 32] = Sha256::digest(&self.0).into();
        let (first, _) = digest.split_first_chunk().unwrap_or((&[0; 8], &[]));
        u64::from_be_bytes(*first)
    }

    /// A hash of the same parts that is much cheaper, and must not leave the process.
    pub fn hash(&self, seed: u64) -> u128 {
        XxHash3_128::oneshot_with_seed(seed, &self.0)
    }
}
