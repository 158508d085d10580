//! The one model of a frame: what is known about an address on a stack.
//!
//! Sources differ in what they know. A trace has addresses and the modules around them; Sysmon has modules with offsets and
//! mostly no addresses. What a source does not state is absent here and never guessed.

use stackhound_system::{MethodId, ModuleId, Runtime};
use stackhound_types::{Address, AddressKind, Mode};

use crate::module::{ModuleIndex, Modules, Role};
use crate::region::{Region, RegionKind};

/// Whether code at an address comes from an image.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Backing {
    /// It does, or a runtime compiled it and reported that.
    Backed,
    /// It does not. Either all modules of the address space at the time are known and none is there, or private memory was
    /// seen to be allocated there.
    Unbacked,
    /// Not all modules are known.
    Unknown,
}

impl Backing {
    /// The spelling in output.
    pub fn name(self) -> &'static str {
        match self {
            Backing::Backed => "backed",
            Backing::Unbacked => "unbacked",
            Backing::Unknown => "unknown",
        }
    }
}

/// Where the code of a frame comes from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Code {
    /// A module that was loaded there at the time, and the offset of the frame's address in it. Damaged stacks have offsets
    /// far outside of the module.
    Image(ModuleIndex, u64),
    /// JIT-compiled by a runtime that reported it.
    Jit(Runtime),
    /// See [`Backing::Unbacked`].
    Unbacked,
    /// See [`Backing::Unknown`].
    Unknown,
}

impl Code {
    /// The module, if it comes from one.
    #[inline]
    pub fn module(self) -> Option<ModuleIndex> {
        match self {
            Code::Image(module, _) => Some(module),
            Code::Jit(_) | Code::Unbacked | Code::Unknown => None,
        }
    }

    /// Whether it comes from an image.
    #[inline]
    pub fn backing(self) -> Backing {
        match self {
            Code::Image(..) | Code::Jit(_) => Backing::Backed,
            Code::Unbacked => Backing::Unbacked,
            Code::Unknown => Backing::Unknown,
        }
    }

    /// The name of the module, or what is written in its place: the module's file name, `jit:` and the runtime, `unbacked`
    /// or `unknown`.
    pub fn module_name(self, modules: &Modules) -> &str {
        match self {
            Code::Image(module, _) => modules.get(module).name(),
            Code::Jit(runtime) => RegionKind::Jit(runtime).name(),
            Code::Unbacked => Backing::Unbacked.name(),
            Code::Unknown => Backing::Unknown.name(),
        }
    }
}

/// One frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Frame {
    /// The address as recorded. `None` where the source names a module and an offset instead.
    pub address: Option<Address>,
    /// What the address is. A return address is looked up one byte before, where the call is.
    pub kind: AddressKind,
    /// Kernel or user.
    pub mode: Mode,
    /// Whether it is 32-bit code of a process on 64-bit Windows.
    pub is_wow64: bool,
    /// Where its code comes from.
    pub code: Code,
    /// The memory it is in. Of kernel frames, only images are known.
    pub region: Region,
    /// The module as the trace's state knows it, with its base and the time it was loaded. Frames of traces have one exactly if
    /// their code is of an [image](Code::Image); other sources have no such state.
    pub loaded: Option<ModuleId>,
    /// The JIT-compiled method it is in. Native images have methods too.
    pub method: Option<MethodId>,
}

impl Frame {
    /// A user frame of the system's own width whose address is returned to, and of which only this is known.
    pub fn user(code: Code) -> Frame {
        Frame {
            address: None,
            kind: AddressKind::Return,
            mode: Mode::User,
            is_wow64: false,
            code,
            region: Region::UNKNOWN,
            loaded: None,
            method: None,
        }
    }

    /// Whether its code comes from an image.
    #[inline]
    pub fn backing(&self) -> Backing {
        self.code.backing()
    }

    /// The module as the trace's state knows it, and the offset in it.
    #[inline]
    pub fn in_loaded(&self) -> Option<(ModuleId, u64)> {
        match (self.loaded, self.code) {
            (Some(module), Code::Image(_, rva)) => Some((module, rva)),
            _ => None,
        }
    }

    /// The frame without what no detection reads, so that stacks that mean the same are evaluated once. A detection that reads
    /// more of a frame changes this.
    ///
    /// Detections read: the mode, the width, whether it is an instruction, the code, the kind of memory, and the address of
    /// frames outside of images and in a module named `ntdll.dll`, two of which are told apart by their bases. Unless files are
    /// read (`has_files`), the offset in an image makes no difference as long as it is inside of it.
    pub fn cache_key(&self, modules: &Modules, has_files: bool) -> Frame {
        let region = Region { kind: self.region.kind, ..Region::UNKNOWN };
        let bare = Frame { region, loaded: None, method: None, ..*self };
        let Code::Image(module, offset) = self.code else { return bare };
        let module_facts = modules.get(module);
        let has_base = module_facts.roles.has(Role::NamedNtdll);
        let size = module_facts.identity.image.map_or(u32::MAX, |image| image.size);
        if has_files || offset >= u64::from(size) {
            return Frame { address: self.address.filter(|_| has_base), ..bare };
        }
        let base = self.address.filter(|_| has_base).map(|address| Address(address.0.wrapping_sub(offset)));
        Frame { address: base, code: Code::Image(module, 0), ..bare }
    }
}
