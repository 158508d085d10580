//! The event of each record, and the field name of each expected value.

pub mod catapult;
pub mod fibratus;
pub mod snail;

use super::Decoded;
use super::decoded::{DecodedValue, Fields};

/// The interpretation of a record.
pub struct Reading {
    /// The index of the record in the file.
    pub record: usize,
    /// The name of the record in the project.
    pub name: &'static str,
    pub event: Event,
    /// Names in the project and in this crate. The first table that contains a name is used.
    pub rows: &'static [&'static [(&'static str, Ours)]],
}

/// The kind of a record.
#[derive(Clone, Copy)]
pub enum Event {
    /// Hook id and version.
    HookId(u16, u8),
    /// Class and opcode.
    Class(&'static str, u8),
    /// A header of the container.
    Container(fn(&[u8]) -> Fields),
    /// Not a kernel event, with the reason.
    NotKernel(&'static str),
}

/// The location of an expected value in the decoded fields.
#[derive(Clone, Copy)]
pub enum Ours {
    /// In the field with this name.
    Is(&'static str),
    /// In an element of this field.
    At(&'static str, usize),
    /// The number of elements in this field.
    Count(&'static str),
    /// Computed from the fields.
    By(fn(&Decoded<'_>) -> DecodedValue),
    /// In this field, formatted differently by the project: its text and ours.
    Shown(&'static str, &'static str, &'static str),
    /// In this field, as a number that the project names: its name and the number.
    Constant(&'static str, &'static str, i128),
    /// True if the fields cover the whole payload.
    Whole,
    /// In none: the value is a property of the project's code, not of the payload.
    NoValue,
    /// The expected value is wrong. This field of the payload has this number; the last element is
    /// the reason.
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
