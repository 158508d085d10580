//! Virtual addresses, offsets in modules, pointer sizes, and the mode that an address belongs to.

use std::fmt;

/// A virtual address of the traced machine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Address(pub u64);

impl Address {
    /// Whether the address is in the kernel part of the address space, which is its upper half, on
    /// a system of the given pointer size. 32-bit systems that were started with `/3GB` are not
    /// recognized.
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

/// The size of a pointer in a record's payload. It is a property of each record, not of the file.
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

/// An offset in a module, in bytes from its load address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Rva(pub u32);

impl fmt::Display for Rva {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// The kind of an address in a stack.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum AddressKind {
    /// The address of an instruction that is about to run: the innermost frame of a sample.
    Instruction,
    /// A return address. The call can be the last instruction of its function, so the address is
    /// looked up one byte earlier.
    Return,
}

impl AddressKind {
    /// The offset to look up. Offsets within a function are still counted to the address itself.
    pub fn looked_up(self, rva: Rva) -> Rva {
        match self {
            AddressKind::Instruction => rva,
            AddressKind::Return => Rva(rva.0.saturating_sub(1)),
        }
    }
}

/// The part of the address space that a frame is in. It follows from the address alone, whether or
/// not a module is known.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Mode {
    /// The upper half of the address space.
    Kernel,
    /// The lower half of the address space.
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
