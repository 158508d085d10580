//! Code locations and their display.

use std::fmt;

use stackhound_types::Address;

use crate::Trace;
use crate::id::{LocationId, ModuleId};

/// A code location: the start of a function, or the address at which a frame was first observed.
#[derive(Clone, Copy)]
pub struct Location<'t> {
    trace: &'t Trace,
    number: u32,
}

/// The module of a location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Module<'t> {
    /// The number of the module.
    pub id: ModuleId,
    /// The name in `module!symbol`.
    pub name: &'t str,
    /// The path of its file, if known.
    pub path: Option<&'t str>,
    /// The address at which it was loaded, if known.
    pub base: Option<Address>,
}

impl<'t> Location<'t> {
    pub(crate) fn new(trace: &'t Trace, number: u32) -> Self {
        Self { trace, number }
    }

    /// Returns its number.
    pub fn id(&self) -> LocationId {
        LocationId(self.number)
    }

    /// Returns the module that contains it, if known.
    pub fn module(&self) -> Option<Module<'t>> {
        let number = self.trace.index.tables.location(self.number).1?;
        let (name, path, base) = self.trace.index.tables.module(number);
        Some(Module { id: ModuleId(number), name, path, base })
    }

    /// Returns the symbol at or before it, if known.
    pub fn symbol(&self) -> Option<&'t str> {
        self.trace.index.tables.location(self.number).3
    }

    /// Returns the offset from the symbol. It is not 0 if the frame was first observed in the
    /// middle of a function.
    pub fn symbol_offset(&self) -> u64 {
        self.trace.index.tables.location(self.number).4
    }

    /// Returns the offset from the base of the module, if known.
    pub fn rva(&self) -> Option<u64> {
        self.trace.index.tables.location(self.number).2
    }

    /// Returns its address, if known.
    pub fn address(&self) -> Option<Address> {
        self.trace.index.tables.location(self.number).0.map(Address)
    }

    /// Returns the stub, such as an entry of a procedure linkage table, that the frames of this
    /// location were called at, before they jumped to it. `None` if they were called directly, or if
    /// it is not known.
    pub fn stub(&self) -> Option<Location<'t>> {
        let number = self.trace.index.tables.stub(self.number)?;
        Some(Location::new(self.trace, number))
    }

    /// Returns its name, for example `ntoskrnl!KeWaitForSingleObject+0x10`: the known parts, or
    /// `???` if nothing is known.
    pub fn name(&self) -> Name<'t> {
        Name(Some(*self))
    }
}

/// Two locations are equal if they have the same number in the same trace.
impl PartialEq for Location<'_> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.trace, other.trace) && self.number == other.number
    }
}

/// For example `Location(binary='usbhub', symbol='UsbhDecHubBusy', symbol_offset=0x0, address=0x…,
/// rva=0xc010)`.
impl fmt::Display for Location<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Location(")?;
        if let Some(module) = self.module() {
            write!(f, "binary='{}', ", module.name)?;
        }
        if let Some(symbol) = self.symbol() {
            write!(f, "symbol='{symbol}', symbol_offset={:#x}, ", self.symbol_offset())?;
        }
        match (self.address(), self.rva()) {
            (Some(address), Some(rva)) => write!(f, "address={address}, rva={rva:#x})"),
            (Some(address), None) => write!(f, "address={address})"),
            (None, Some(rva)) => write!(f, "rva={rva:#x})"),
            (None, None) => f.write_str("address=unknown)"),
        }
    }
}

impl fmt::Debug for Location<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The name of a function, with the known parts.
#[derive(Clone, Copy)]
pub struct Name<'t>(pub(crate) Option<Location<'t>>);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(location) = self.0 else { return f.write_str("???") };
        match (location.module(), location.symbol()) {
            (module, Some(symbol)) => {
                if let Some(module) = module {
                    write!(f, "{}!", module.name)?;
                }
                f.write_str(symbol)?;
                match location.symbol_offset() {
                    0 => Ok(()),
                    offset => write!(f, "+{offset:#x}"),
                }
            }
            (Some(module), None) => match (location.rva(), location.address()) {
                (Some(rva), _) => write!(f, "{}+{rva:#x}", module.name),
                (None, Some(address)) => write!(f, "{}!{address}", module.name),
                (None, None) => write!(f, "{}!???", module.name),
            },
            (None, None) => match location.address() {
                Some(address) => write!(f, "{address}"),
                None => f.write_str("???"),
            },
        }
    }
}

impl fmt::Debug for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
