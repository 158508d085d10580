//! Every view, with the names that the tables have for its fields.

mod io;
mod machine;
mod samples;

use stackhound_types::{PointerSize, Tid};

use super::decoded::{DecodedValue, Row};
use super::{Case, Source};
use io::IO;
use machine::MACHINE;
use samples::SAMPLES;

/// A field by the table's name.
fn row(name: &'static str, value: impl Into<DecodedValue>) -> Row {
    (name, value.into())
}

/// A number of 32 bits that old versions store pointer-sized, as the tables see it.
fn widened(payload: &[u8], at: usize, pointer: PointerSize, low: u32) -> DecodedValue {
    let wide = match pointer {
        PointerSize::Four => return low.into(),
        PointerSize::Eight => payload[at..].first_chunk().map(|bytes| u64::from_le_bytes(*bytes)),
    };
    assert_eq!(wide.map(|wide| wide as u32), Some(low));
    wide.into()
}

/// The thread of a file operation: the second pointer behind `at` in old versions.
fn thread(payload: &[u8], at: usize, version: u8, pointer: PointerSize, thread: Tid) -> DecodedValue {
    if version >= 3 { thread.into() } else { widened(payload, at + pointer.bytes(), pointer, thread.0) }
}

const fn hook_ids(hook_ids: &'static [u16]) -> Source {
    Source::Hooks(hook_ids)
}

/// All of them.
pub fn all() -> impl Iterator<Item = &'static Case> {
    [MACHINE, SAMPLES, IO].into_iter().flatten()
}
