//! Resolves the addresses of a stack.

use stackhound_frames::{Backing, Region};
use stackhound_pipeline::ShownName;
use stackhound_symbols::{FrameNumber, Symbolizer};
use stackhound_types::{Address, AddressKind, Mode, PointerSize, Rva};

use super::modules::Modules;
use crate::{FrameLocation, StackFrame};

/// The modules and memory of one process.
pub(super) struct ProcessMap<'s> {
    /// Modules of the kernel; empty if the system does not list them.
    pub kernel: &'s Modules,
    /// Modules of the process; empty if they are not available or were not requested.
    pub user: &'s Modules,
    /// The backing of the memory at an address outside all modules.
    pub memory: &'s dyn Fn(u64) -> Backing,
}

/// A frame whose name may be requested.
pub(super) struct ResolvedFrame {
    address: Address,
    mode: Mode,
    location: Option<FrameLocation>,
    backing: Backing,
    number: Option<FrameNumber>,
}

impl ProcessMap<'_> {
    /// Looks up the modules and requests the names.
    ///
    /// All addresses are treated as return addresses. The address at which an interrupt stopped a
    /// thread is not one; it gets the name of the previous function only if it is the first byte of
    /// its own.
    pub fn resolve_all(&self, addresses: &[u64], mut naming: Option<&mut Symbolizer>) -> Vec<ResolvedFrame> {
        let resolve = |&address| self.resolve(address, naming.as_deref_mut());
        addresses.iter().map(resolve).collect()
    }

    fn resolve(&self, address: u64, naming: Option<&mut Symbolizer>) -> ResolvedFrame {
        let is_kernel = Address(address).is_kernel(PointerSize::Eight);
        let (mode, modules) = if is_kernel { (Mode::Kernel, self.kernel) } else { (Mode::User, self.user) };
        let found = modules.at(address);
        let backing = match (found, mode) {
            (Some(_), _) => Backing::Backed,
            (None, Mode::Kernel) if modules.is_empty() => Backing::Unknown,
            (None, Mode::Kernel) => Backing::Unbacked,
            (None, Mode::User) => (self.memory)(address),
        };
        let number = found.zip(naming).map(|((module, rva), naming)| {
            let number = naming.module(&module.identity());
            naming.request(number, Rva(rva), AddressKind::Return)
        });
        let location = found.map(|(module, rva)| FrameLocation {
            module: module.file_name().to_owned(),
            rva: Some(rva.into()),
        });
        ResolvedFrame { address: Address(address), mode, location, backing, number }
    }
}

impl ResolvedFrame {
    /// The frame with its name; the caller must wait for the name first.
    pub fn named(self, naming: Option<&Symbolizer>) -> StackFrame {
        let names = naming.zip(self.number).and_then(|(naming, number)| naming.frame(number));
        StackFrame {
            address: Some(self.address),
            mode: self.mode,
            location: self.location,
            backing: self.backing,
            is_wow64: false,
            region: Region::UNKNOWN,
            name: names.and_then(ShownName::of_files).map(ShownName::into_owned),
            names: names.cloned(),
            stated: None,
        }
    }
}
