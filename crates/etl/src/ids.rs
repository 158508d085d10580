//! Small typed integers that every layer shares.

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

/// A virtual address of the traced machine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Address(pub u64);

impl Address {
    /// Whether the address belongs to the kernel half, for a session of the given pointer size
    /// (the upper half of the address space; 32-bit systems started with `/3GB` are not told apart).
    pub fn is_kernel(self, session: PointerSize) -> bool {
        match session {
            PointerSize::Eight => self.0 >> 63 != 0,
            PointerSize::Four => self.0 >= 0x8000_0000,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// How many bytes a pointer takes in a record's payload. A property of each record, not of the file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum PointerSize {
    /// Written by a 32-bit process or kernel.
    Four,
    /// Written by a 64-bit process or kernel.
    Eight,
}

impl PointerSize {
    /// 4 or 8.
    pub const fn bytes(self) -> usize {
        match self {
            PointerSize::Four => 4,
            PointerSize::Eight => 8,
        }
    }
}
