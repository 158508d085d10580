//! Security identifiers.

use std::fmt;

/// The bytes of a security identifier. Prints as `S-1-5-…`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Sid<'a>(pub &'a [u8]);

impl fmt::Display for Sid<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(([revision, _, authority @ ..], rest)) = self.0.split_first_chunk::<8>() else {
            return Ok(());
        };
        let authority = authority.iter().fold(0_u64, |number, &byte| number << 8 | u64::from(byte));
        // Windows shows authorities that need more than 32 bits in hexadecimal.
        if authority <= u32::MAX.into() {
            write!(f, "S-{revision}-{authority}")?;
        } else {
            write!(f, "S-{revision}-{authority:#014x}")?;
        }
        let (sub_authorities, _) = rest.as_chunks::<4>();
        sub_authorities.iter().try_for_each(|&number| write!(f, "-{}", u32::from_le_bytes(number)))
    }
}
