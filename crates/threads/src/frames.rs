//! Frames that own their data.

use std::fmt;

use stackhound_frames::{Backing, Frame, FrameResolver, Region, StackOwner};
use stackhound_pipeline::{Depth, FrameView, Label, Naming, ShownName};
use stackhound_symbols::{FrameNumber, ResolvedFrame};
use stackhound_system::System;
use stackhound_trace::TraceTime;
use stackhound_types::{Address, AddressKind, Mode, PointerSize};

/// The location of a frame in a module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FrameLocation {
    /// The file name of the module, or the runtime of JIT-compiled code.
    pub module: String,
    /// Offset from the start of the module in bytes, if it is a module.
    pub rva: Option<u64>,
}

/// A frame of a thread's stack.
#[derive(Clone, PartialEq, Debug)]
pub struct StackFrame {
    /// The return address; `None` if the system provides names only.
    pub address: Option<Address>,
    /// Kernel mode or user mode.
    pub mode: Mode,
    /// Whether it is 32-bit code of a process on 64-bit Windows.
    pub is_wow64: bool,
    /// The location, if a module is known at the address.
    pub location: Option<FrameLocation>,
    /// Whether the code comes from an image; for kernel frames, whether a module is known.
    pub backing: Backing,
    /// The memory region of the code.
    pub region: Region,
    /// The displayed name, with its origin.
    pub name: Option<ShownName<'static>>,
    /// All names from the files of the module, if names were requested.
    pub names: Option<ResolvedFrame>,
    /// The name that the running kernel gives.
    pub stated: Option<StatedName>,
}

/// A function name given by the running kernel. Other sources cannot confirm it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StatedName {
    /// The function name.
    pub function: String,
    /// Offset from the start of the function in bytes.
    pub offset: u64,
}

impl StatedName {
    /// The spelling of the origin of such names in output.
    pub const ORIGIN: &str = "kernel";
}

impl StackFrame {
    /// A copy of the displayed data of a frame of a trace.
    pub fn of(label: &Label<'_>) -> StackFrame {
        let frame = label.frame;
        let module = label.module().map(|module| module.into_owned());
        StackFrame {
            address: Some(frame.address()),
            mode: frame.mode,
            is_wow64: frame.is_wow64,
            location: module.map(|module| FrameLocation { module, rva: frame.rva() }),
            backing: frame.backing(),
            region: frame.region,
            name: label.name().map(ShownName::into_owned),
            names: label.names.cloned(),
            stated: None,
        }
    }
}

impl fmt::Display for StackFrame {
    /// Same as [`Label`]: `module!function+0x12 [origin]`, without names `module+0x1234`, else the
    /// address. Names given by the running kernel have a module only if the code is not part of the
    /// kernel image.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let module = self.location.as_ref().map(|location| &*location.module);
        if let Some((module, name)) = module.zip(self.name.as_ref()) {
            return write!(f, "{module}!{name}");
        }
        if let Some(StatedName { function, offset }) = &self.stated {
            let (module, mark) = module.map_or(("", ""), |module| (module, "!"));
            return write!(f, "{module}{mark}{function}+{offset:#x} [{}]", StatedName::ORIGIN);
        }
        match (&self.location, self.address) {
            (Some(FrameLocation { module, rva: Some(rva) }), _) => write!(f, "{module}+{rva:#x}")?,
            (Some(FrameLocation { module, rva: None }), _) => f.write_str(module)?,
            (None, Some(address)) => write!(f, "{address}")?,
            (None, None) => f.write_str("?")?,
        }
        match (self.mode, self.backing) {
            (Mode::User, Backing::Unbacked) => f.write_str(" (unbacked)"),
            (Mode::User, Backing::Unknown) => f.write_str(" (unknown memory)"),
            _ => Ok(()),
        }
    }
}

/// The addresses of a thread's stack, and the data needed to resolve them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walked<'a> {
    /// Return addresses, innermost first, of the kernel stack and the user stack.
    pub addresses: &'a [Address],
    /// The thread and process of the stack.
    pub owner: StackOwner,
    pub time: TraceTime,
    /// The pointer size of the system.
    pub pointer_size: PointerSize,
}

/// Frames whose names are not looked up yet.
#[derive(Debug)]
pub(crate) struct Unnamed {
    frames: Vec<(Frame, Option<FrameNumber>)>,
}

impl Unnamed {
    /// Looks up the modules and requests the names. Other requests can be made before the names
    /// arrive.
    pub fn new(
        walked: &Walked<'_>,
        system: &System,
        resolver: &mut FrameResolver,
        depth: Depth,
        mut naming: Option<&mut Naming>,
    ) -> Unnamed {
        let Walked { addresses, owner, time, pointer_size } = *walked;
        let mut frames = resolver.at(system, owner, time, pointer_size);
        let frames = addresses.iter().map(|&address| {
            let facts = frames.frame(address, AddressKind::Return);
            let number = facts
                .in_loaded()
                .filter(|_| depth == Depth::Function)
                .and_then(|(module, rva)| naming.as_mut()?.request(system.module(module), rva, facts.kind));
            (facts, number)
        });
        Unnamed { frames: frames.collect() }
    }

    /// The frames with their names. The caller must wait for the names first.
    pub fn named(&self, system: &System, depth: Depth, naming: Option<&Naming>) -> Vec<StackFrame> {
        let frames = self.frames.iter().map(|&(facts, number)| {
            let frame = FrameView::new(facts, system, depth);
            let names = naming.zip(number).and_then(|(naming, number)| naming.frame(number));
            StackFrame::of(&Label { frame: &frame, names })
        });
        frames.collect()
    }
}
