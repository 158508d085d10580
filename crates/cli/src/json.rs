//! Values in the forms that JSON output has for them.

use std::fmt::Display;

use serde::ser::{Serialize, Serializer};

/// Anything as a string by its `Display`.
pub struct Shown<T>(pub T);

impl<T: Display> Serialize for Shown<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}
