//! Process and thread ids.

use std::fmt;

/// A process id. It identifies a process during its lifetime; Windows reuses ids.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Pid(pub u32);

/// A thread id. It identifies a thread during its lifetime; Windows reuses ids.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Tid(pub u32);

/// Windows writes this id if the process or thread is unknown.
const UNKNOWN_ID: u32 = u32::MAX;

impl Pid {
    /// The idle process.
    pub const IDLE: Pid = Pid(0);
    /// The System process, whose threads never leave the kernel.
    pub const SYSTEM: Pid = Pid(4);

    /// Converts an id of a record; `None` for 0xFFFFFFFF, which means "unknown".
    pub fn known(raw: u32) -> Option<Pid> {
        (raw != UNKNOWN_ID).then_some(Pid(raw))
    }

    /// Whether the threads of this process run only in kernel mode.
    pub fn is_kernel_only(self) -> bool {
        self == Pid::IDLE || self == Pid::SYSTEM
    }
}

impl Tid {
    /// Converts an id of a record; `None` for 0xFFFFFFFF, which means "unknown".
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
