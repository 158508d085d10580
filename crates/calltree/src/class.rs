//! How a frame started and ended and what it rests on, as one number.

use crate::kind::{EndType, Evidence, StartType};

/// The three together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class {
    pub(crate) start: StartType,
    pub(crate) end: EndType,
    pub(crate) evidence: Evidence,
}

impl Class {
    /// What nearly all frames of an exact trace are; only others are stored.
    pub(crate) const USUAL: Self =
        Self { start: StartType::Call, end: EndType::Return, evidence: Evidence::Exact };

    /// Bits of the number.
    pub(crate) const WIDTH: u32 = 9;

    pub(crate) fn number(self) -> u64 {
        self.start as u64 | (self.end as u64) << 3 | (self.evidence as u64) << 6
    }

    /// Numbers that stand for nothing give what is least specific.
    pub(crate) fn of(number: u64) -> Self {
        let start = match number & 7 {
            0 => StartType::Call,
            1 => StartType::Interrupt,
            2 => StartType::Manual,
            3 => StartType::Damaged,
            _ => StartType::Unknown,
        };
        let end = match number >> 3 & 7 {
            0 => EndType::Return,
            1 => EndType::ReturnElsewhere,
            2 => EndType::InterruptReturn,
            3 => EndType::Unwound,
            4 => EndType::Replaced,
            5 => EndType::Abandoned,
            6 => EndType::TraceEnd,
            _ => EndType::Gone,
        };
        let evidence = match number >> 6 & 7 {
            0 => Evidence::Exact,
            1 => Evidence::Boundary,
            3 => Evidence::Walked,
            4 => Evidence::Stitched,
            _ => Evidence::Snapshot,
        };
        Self { start, end, evidence }
    }
}
