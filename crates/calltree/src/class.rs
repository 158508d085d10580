//! The start type, end type and evidence of a frame, encoded as one number.

use crate::kind::{EndType, Evidence, StartType};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class {
    pub(crate) start: StartType,
    pub(crate) end: EndType,
    pub(crate) evidence: Evidence,
}

impl Class {
    /// The class of nearly all frames of an exact trace. Only other classes are stored.
    pub(crate) const USUAL: Self =
        Self { start: StartType::Call, end: EndType::Return, evidence: Evidence::Exact };

    /// The number of bits of an encoded class.
    pub(crate) const WIDTH: u32 = 9;

    pub(crate) fn number(self) -> u64 {
        self.start as u64 | (self.end as u64) << 3 | (self.evidence as u64) << 6
    }

    /// Decodes a number. Undefined values become the least specific ones.
    pub(crate) fn of(number: u64) -> Self {
        let start = *StartType::ALL.get((number & 7) as usize).unwrap_or(&StartType::Unknown);
        let end = EndType::ALL[(number >> 3 & 7) as usize];
        let evidence = *Evidence::ALL.get((number >> 6 & 7) as usize).unwrap_or(&Evidence::Snapshot);
        Self { start, end, evidence }
    }
}
