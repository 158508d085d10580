//! The model of a frame: everything that is known about an address on a stack.
//!
//! Sources differ in their data. A trace has addresses and loaded modules; Sysmon has modules with
//! offsets and mostly no addresses. Data that the source does not provide is absent and never
//! guessed.

use stackhound_system::{MethodId, ModuleId, Runtime};
use stackhound_types::{Address, AddressKind, Mode};

use crate::module::{ModuleIndex, Modules, Role};
use crate::region::{Region, RegionKind};

/// Whether code at an address comes from an image.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Backing {
    /// It does, or it is JIT-compiled code that its runtime reported.
    Backed,
    /// It does not. Either all modules of the address space at the time are known and none contains
    /// the address, or the allocation of private memory at the address was observed.
    Unbacked,
    /// This cannot be decided, because not all modules are known.
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

/// The origin of a frame's code.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Code {
    /// The module that was loaded at the address at the time, and the offset of the frame's address
    /// from its base, in bytes. In damaged stacks, the offset can be far outside of the module.
    Image(ModuleIndex, u64),
    /// JIT-compiled by a runtime that reported it.
    Jit(Runtime),
    /// See [`Backing::Unbacked`].
    Unbacked,
    /// See [`Backing::Unknown`].
    Unknown,
}

impl Code {
    /// The module, if the code comes from an image.
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

    /// The file name of the module; for other code `jit:` and the runtime, `unbacked`, or
    /// `unknown`.
    pub fn module_name(self, modules: &Modules) -> &str {
        match self {
            Code::Image(module, _) => modules.get(module).name(),
            Code::Jit(runtime) => RegionKind::Jit(runtime).name(),
            Code::Unbacked => Backing::Unbacked.name(),
            Code::Unknown => Backing::Unknown.name(),
        }
    }
}

/// One frame of a stack.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Frame {
    /// The recorded address. `None` if the source has a module and an offset instead.
    pub address: Option<Address>,
    /// Whether the address is an instruction or a return address. For a return address, the
    /// preceding byte is looked up, which belongs to the call.
    pub kind: AddressKind,
    /// Kernel or user.
    pub mode: Mode,
    /// Whether it is 32-bit code of a process on 64-bit Windows.
    pub is_wow64: bool,
    /// The origin of its code.
    pub code: Code,
    /// The memory that contains the address. For kernel frames, only images are known.
    pub region: Region,
    /// The loaded module in the state of the trace, with its base and load time. Frames of traces
    /// have one exactly if their code is from an [image](Code::Image); other sources have no such
    /// state.
    pub loaded: Option<ModuleId>,
    /// The managed method that contains the address. Methods of native images are included.
    pub method: Option<MethodId>,
    /// Whether records that are missing can have put another module, or none, in the place of the
    /// loaded one.
    pub is_uncertain: bool,
}

impl Frame {
    /// A user frame of the native pointer size with a return address, of which only the code is
    /// known.
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
            is_uncertain: false,
        }
    }

    /// Whether its code comes from an image.
    #[inline]
    pub fn backing(&self) -> Backing {
        if self.is_uncertain { Backing::Unknown } else { self.code.backing() }
    }

    /// The loaded module in the state of the trace, and the offset in it.
    #[inline]
    pub fn in_loaded(&self) -> Option<(ModuleId, u64)> {
        match (self.loaded, self.code) {
            (Some(module), Code::Image(_, rva)) => Some((module, rva)),
            _ => None,
        }
    }

    /// The frame without the fields that no detection reads, so that equivalent stacks are
    /// evaluated once. If a detection starts to read another field, this method must keep it.
    ///
    /// Detections read the mode, whether the frame is WoW64 code, whether its address is an
    /// instruction, the code, whether it is certain, and the kind of memory. They read the address of
    /// frames outside of images, and of frames in modules named `ntdll.dll`, because duplicate images
    /// are distinguished by their bases. Unless files are read (`has_files`), all offsets inside an
    /// image are equivalent.
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
