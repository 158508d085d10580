//! Numbers that JSON has as texts.

use std::fmt;

use serde::ser::{Serialize, Serializer};

/// A number as `0x…`: addresses, offsets and masks, which are more than what JSON's readers take for numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hex(pub u64);

impl fmt::Display for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl Serialize for Hex {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
