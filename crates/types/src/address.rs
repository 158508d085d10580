//! Addresses, and what they say about where code runs.

use std::fmt;

/// A virtual address of the traced machine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Address(pub u64);

impl Address {
    /// Whether the address belongs to the kernel half, on a system of the given pointer size
    /// (the upper half of the address space; 32-bit systems started with `/3GB` are not recognised).
    pub fn is_kernel(self, system: PointerSize) -> bool {
        match system {
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

/// An address in a module: bytes from where it is loaded.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Rva(pub u32);

impl fmt::Display for Rva {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// What an address in a stack is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum AddressKind {
    /// Of an instruction that is about to run: the innermost frame of a sample.
    Instruction,
    /// After a call, which can be the last instruction of its function: looked up one byte before.
    Return,
}

impl AddressKind {
    /// Where to look an address up. Offsets are still counted to the address itself.
    pub fn looked_up(self, rva: Rva) -> Rva {
        match self {
            AddressKind::Instruction => rva,
            AddressKind::Return => Rva(rva.0.saturating_sub(1)),
        }
    }
}

/// In which half of the address space a frame is: by its address alone, never by whether a module is known.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Mode {
    /// The upper half.
    Kernel,
    /// The lower half.
    User,
}

impl Mode {
    /// The spelling in output.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Kernel => "kernel",
            Mode::User => "user",
        }
    }
}
