//! For every record its event, and for every expected value our name of it.

pub mod catapult;
pub mod fibratus;
pub mod snail;

use super::Decoded;
use super::decoded::{DecodedValue, Fields};

/// How a record is to be read.
pub struct Reading {
    /// Its place in the file.
    pub record: usize,
    /// What the project calls it.
    pub name: &'static str,
    pub event: Event,
    /// Their names and ours. The first table that has a name counts.
    pub rows: &'static [&'static [(&'static str, Ours)]],
}

/// What a record is.
#[derive(Clone, Copy)]
pub enum Event {
    /// Hook and version.
    Hook(u16, u8),
    /// Class and opcode.
    Class(&'static str, u8),
    /// A header of the container.
    Container(fn(&[u8]) -> Fields),
    /// No event of the kernel.
    NotHere(&'static str),
}

/// Where we have an expected value.
#[derive(Clone, Copy)]
pub enum Ours {
    /// In the field of this name.
    Is(&'static str),
    /// In an element of this field.
    At(&'static str, usize),
    /// As the number of this field's elements.
    Count(&'static str),
    /// Computed.
    By(fn(&Decoded<'_>) -> DecodedValue),
    /// In this field, shown in other words: theirs, ours.
    Shown(&'static str, &'static str, &'static str),
    /// In this field, as a number for which they have a name.
    Constant(&'static str, &'static str, i128),
    /// In that the fields take up the whole payload.
    Whole,
    /// Nowhere: what is checked is their program, not the payload.
    NoValue,
    /// Nowhere: theirs is wrong. In this field, the payload has this number; the reason of their error.
    Wrong(&'static str, i128, &'static str),
}

fn number(decoded: &Decoded<'_>, name: &str) -> i128 {
    match decoded.fields.get(name) {
        Some(DecodedValue::Number(number)) => *number,
        other => panic!("{name} is {other:?}"),
    }
}

const fn reading(
    record: usize,
    name: &'static str,
    event: Event,
    rows: &'static [&'static [(&'static str, Ours)]],
) -> Reading {
    Reading { record, name, event, rows }
}
