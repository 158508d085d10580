//! Whether a module map can be trusted.

use std::fmt;

/// Events that are known to be missing from a recording.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Losses {
    /// Events that Windows could not write.
    pub events: u64,
    /// Buffers that were lost, or whose numbers are missing.
    pub buffers: u64,
}

/// Whether every module of a process at a time is known.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Completeness {
    /// An address that no module covers belongs to none.
    Complete,
    /// It may belong to a module that is not known.
    Incomplete(Gap),
}

/// Why a module map cannot be trusted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Gap {
    /// No process is known to have the id at the time.
    UnknownProcess,
    /// Neither was the process seen to start, with its loads recorded, nor did a rundown list its modules.
    NoRundown,
    /// There was too much of it to be remembered in a session without end, so that all was forgotten.
    Forgotten,
    /// The events that would tell may be among those that are missing.
    Lost(Losses),
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Gap::UnknownProcess => f.write_str("the process is not known"),
            Gap::NoRundown => {
                f.write_str("neither the loads of all its modules nor a rundown of them was recorded")
            }
            Gap::Forgotten => f.write_str("there was too much of it to be remembered"),
            Gap::Lost(Losses { events, buffers }) => {
                write!(f, "{events} events and {buffers} buffers are missing from the recording")
            }
        }
    }
}
