//! Frames that outlive what they were made from.

use std::fmt;

use stackhound_frames::{Backing, Frame, FrameResolver, Region, StackOwner};
use stackhound_pipeline::{Depth, FrameView, Label, Naming, ShownName};
use stackhound_symbols::{FrameNumber, ResolvedFrame};
use stackhound_system::System;
use stackhound_trace::TraceTime;
use stackhound_types::{Address, AddressKind, Mode, PointerSize};

/// Where a frame is in a module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FrameLocation {
    /// The module's file name, or what stands for a module: the runtime of compiled code.
    pub module: String,
    /// Bytes from the module's beginning, if it is one.
    pub rva: Option<u64>,
}

/// A frame of a thread's stack.
#[derive(Clone, PartialEq, Debug)]
pub struct StackFrame {
    /// The return address; `None` where the system gives names only.
    pub address: Option<Address>,
    /// Kernel or user.
    pub mode: Mode,
    /// Whether it is 32-bit code of a process on 64-bit Windows.
    pub is_wow64: bool,
    /// Where it is, if a module is known there.
    pub location: Option<FrameLocation>,
    /// Whether its code comes from an image; of kernel frames, whether a module is known.
    pub backing: Backing,
    /// The memory it is in.
    pub region: Region,
    /// The name to show, with its origin.
    pub name: Option<ShownName<'static>>,
    /// The names in the module's files, side by side, if they were asked for.
    pub names: Option<ResolvedFrame>,
    /// What the running kernel itself calls the place.
    pub stated: Option<StatedName>,
}

/// A function as the running kernel names it, which other sources cannot confirm.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StatedName {
    /// The function.
    pub function: String,
    /// Bytes from its start to the return address.
    pub offset: u64,
}

impl StatedName {
    /// The spelling in output of where such a name comes from.
    pub const ORIGIN: &str = "kernel";
}

impl StackFrame {
    /// What is shown of a frame of a recording.
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
    /// As [`Label`] does: `module!function+0x12 [origin]`, without names `module+0x1234`, else the address. Names that the kernel
    /// gives of itself have a module only where it is not the kernel's own code.
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

/// The addresses of a thread's stack, and all that it takes to say what they are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walked<'a> {
    /// Return addresses, innermost first, kernel and user part.
    pub addresses: &'a [Address],
    /// In whose address space.
    pub owner: StackOwner,
    /// When.
    pub time: TraceTime,
    /// How wide the system's addresses are.
    pub pointer_size: PointerSize,
}

/// Frames that wait for their names.
#[derive(Debug)]
pub(crate) struct Unnamed {
    frames: Vec<(Frame, Option<FrameNumber>)>,
}

impl Unnamed {
    /// Looks up modules, and asks for names, which come while others are asked for.
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

    /// With the names, which were waited for.
    pub fn named(&self, system: &System, depth: Depth, naming: Option<&Naming>) -> Vec<StackFrame> {
        let frames = self.frames.iter().map(|&(facts, number)| {
            let frame = FrameView::new(facts, system, depth);
            let names = naming.zip(number).and_then(|(naming, number)| naming.frame(number));
            StackFrame::of(&Label { frame: &frame, names })
        });
        frames.collect()
    }
}
