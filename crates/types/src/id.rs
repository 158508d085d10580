//! Process and thread ids.

use std::fmt;

/// Identifies a process while it lives; numbers are reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Pid(pub u32);

/// Identifies a thread while it lives; numbers are reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Tid(pub u32);

/// Windows writes this number where it does not know the process or thread.
const UNKNOWN_ID: u32 = u32::MAX;

impl Pid {
    /// The idle process.
    pub const IDLE: Pid = Pid(0);
    /// The System process, whose threads never leave the kernel.
    pub const SYSTEM: Pid = Pid(4);

    /// `None` for the number that stands for "unknown".
    pub fn known(raw: u32) -> Option<Pid> {
        (raw != UNKNOWN_ID).then_some(Pid(raw))
    }

    /// Whether threads of this process have no user-mode part.
    pub fn is_kernel_only(self) -> bool {
        self == Pid::IDLE || self == Pid::SYSTEM
    }
}

impl Tid {
    /// `None` for the number that stands for "unknown".
    pub fn known(raw: u32) -> Option<Tid> {
        (raw != UNKNOWN_ID).then_some(Tid(raw))
    }
}

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Tid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
