//! All views, with the names of their fields in the tables.

mod io;
mod machine;
mod samples;

use stackhound_types::{PointerSize, Tid};

use super::decoded::{DecodedValue, Row};
use super::{Case, Source};
use io::IO;
use machine::MACHINE;
use samples::SAMPLES;

/// A field with its name in the tables.
fn row(name: &'static str, value: impl Into<DecodedValue>) -> Row {
    (name, value.into())
}

/// A 32-bit number that old versions store pointer-sized, in the form of the tables.
fn widened(payload: &[u8], at: usize, pointer: PointerSize, low: u32) -> DecodedValue {
    let stored = match pointer {
        PointerSize::Four => return low.into(),
        PointerSize::Eight => payload[at..].first_chunk().map(|bytes| u64::from_le_bytes(*bytes)),
    };
    assert_eq!(stored.map(|number| number as u32), Some(low));
    stored.into()
}

/// The thread of a file operation: the second pointer after `at` in old versions.
fn thread(payload: &[u8], at: usize, version: u8, pointer: PointerSize, thread: Tid) -> DecodedValue {
    if version >= 3 { thread.into() } else { widened(payload, at + pointer.bytes(), pointer, thread.0) }
}

const fn hook_ids(hook_ids: &'static [u16]) -> Source {
    Source::HookIds(hook_ids)
}

pub fn all() -> impl Iterator<Item = &'static Case> {
    [MACHINE, SAMPLES, IO].into_iter().flatten()
}
