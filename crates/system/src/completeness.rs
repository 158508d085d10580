//! Whether a module map is complete.

use std::fmt;

/// Events that are known to be missing from a trace.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Losses {
    /// Events that Windows could not write.
    pub events: u64,
    /// Buffers that were lost, or whose sequence numbers are missing.
    pub buffers: u64,
}

/// Whether every module of a process at a time is known.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Completeness {
    /// An address that no module covers is in no module.
    Complete,
    /// An address that no module covers may be in an unknown module.
    Incomplete(Gap),
}

/// The reason why a module map is incomplete.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Gap {
    /// No process is known to have the id at the time.
    UnknownProcess,
    /// The start of the process, with its image loads, was not observed, and no rundown listed its
    /// modules.
    NoRundown,
    /// The modules were forgotten because a [limit](crate::System::limited) was exceeded.
    Forgotten,
    /// Events about the modules may be among the missing events.
    Lost(Losses),
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Gap::UnknownProcess => f.write_str("the process is not known"),
            Gap::NoRundown => f.write_str(
                "neither all module loads of the process nor a rundown of its modules was recorded",
            ),
            Gap::Forgotten => f.write_str("its modules were forgotten because a limit was exceeded"),
            Gap::Lost(Losses { events, buffers }) => {
                write!(f, "{events} events and {buffers} buffers are missing from the trace")
            }
        }
    }
}
