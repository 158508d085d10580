//! One frame of a stack, in the address space of its owner at the time of its event.

use std::sync::Arc;

use stackhound_etl::{Address, PointerSize};
use stackhound_stacks::Delivered;
use stackhound_symbols::AddressKind;
use stackhound_system::{Completeness, MethodId, ModuleId, System};
use stackhound_trace::{Event, TraceTime};

use crate::cache::{Circumstances, FrameCache, FrameKey, StackKey};
use crate::creator::StackOwner;
use crate::region::{Region, RegionKind};

/// Whether a frame is in the kernel's half of the address space.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
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

/// Whether code at an address comes from an image.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Backing {
    /// It does, or a runtime compiled it.
    Backed,
    /// It does not: all modules of the process at the time are known, and none is there.
    Unbacked,
    /// The recording does not tell of all modules.
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

/// One frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    /// The address as recorded.
    pub address: Address,
    /// What the address is. A return address is looked up one byte before, where the call is.
    pub kind: AddressKind,
    /// Kernel or user.
    pub mode: Mode,
    /// The module that was loaded there at the time of the event, and the offset of `address` in it.
    pub module: Option<(ModuleId, u64)>,
    /// The compiled method that it is in. Native images have methods too.
    pub method: Option<MethodId>,
    /// The memory it lies in. Of kernel frames, only images are known.
    pub region: Region,
    /// Whether its code comes from an image.
    pub backing: Backing,
}

/// Gives meaning to the frames of one stack.
#[derive(Clone, Copy, Debug)]
pub struct Frames<'s> {
    system: &'s System,
    owner: StackOwner,
    time: TraceTime,
    session: PointerSize,
    is_complete: bool,
}

impl<'s> Frames<'s> {
    /// For stacks of this owner at this time, in a session of this pointer size.
    pub fn new(system: &'s System, owner: StackOwner, time: TraceTime, session: PointerSize) -> Frames<'s> {
        let complete = |process| system.map_complete_in(process) == Completeness::Complete;
        Frames { system, owner, time, session, is_complete: owner.process.is_some_and(complete) }
    }

    /// For the stack of an event.
    pub fn of(system: &'s System, delivered: &Delivered<'_>) -> Frames<'s> {
        let event = &delivered.event;
        let owner = StackOwner::of(delivered, system);
        Frames::new(system, owner, event.time(), event.block().session().pointer_size)
    }

    /// Whose stack it is.
    pub fn owner(&self) -> StackOwner {
        self.owner
    }

    /// The module that an address lies in, as [`frame`](Frames::frame) tells it, and the offset of the address in it; nothing
    /// else is looked up.
    pub fn module(&self, address: Address, kind: AddressKind) -> Option<(ModuleId, u64)> {
        let (looked_up, back) = looked_up(address, kind);
        let (module, rva) = if address.is_kernel(self.session) {
            let (module, rva) = self.system.kernel_module_at(looked_up, self.time)?;
            (module.id(), rva)
        } else {
            let (_, module, rva) = Region::of_module(self.system, self.owner.process?, looked_up, self.time)?;
            (module, rva)
        };
        Some((module, rva + back))
    }

    /// One frame.
    pub fn frame(&self, address: Address, kind: AddressKind) -> Frame {
        let (looked_up, back) = looked_up(address, kind);
        if address.is_kernel(self.session) {
            self.kernel_frame(address, kind, looked_up, back)
        } else {
            self.user_frame(address, kind, looked_up, back)
        }
    }

    fn kernel_frame(&self, address: Address, kind: AddressKind, looked_up: Address, back: u64) -> Frame {
        let found = self.system.kernel_module_at(looked_up, self.time);
        let region = found.map_or(Region::UNKNOWN, |(module, _)| Region {
            kind: RegionKind::Image,
            extent: Some((module.base(), module.size())),
            ..Region::UNKNOWN
        });
        Frame {
            address,
            kind,
            mode: Mode::Kernel,
            module: found.map(|(module, rva)| (module.id(), rva + back)),
            method: None,
            region,
            backing: if found.is_some() { Backing::Backed } else { Backing::Unknown },
        }
    }

    fn user_frame(&self, address: Address, kind: AddressKind, looked_up: Address, back: u64) -> Frame {
        let Frames { system, time, .. } = *self;
        let mut frame = Frame {
            address,
            kind,
            mode: Mode::User,
            module: None,
            method: None,
            region: Region::UNKNOWN,
            backing: if self.is_complete { Backing::Unbacked } else { Backing::Unknown },
        };
        let Some(process) = self.owner.process else { return frame };
        let method = system.method_in(process, looked_up, time);
        frame.method = method.map(|method| method.id());
        if let Some((region, module, rva)) = Region::of_module(system, process, looked_up, time) {
            (frame.module, frame.region) = (Some((module, rva + back)), region);
            frame.backing = Backing::Backed;
        } else if let Some(method) = method {
            frame.region = Region::of_method(system, process, method, time);
            frame.backing = Backing::Backed;
        } else {
            frame.region = Region::without_module(system, process, looked_up, time);
        }
        frame
    }

    /// All frames of an event's stack, innermost first.
    pub fn all<'d>(&self, delivered: &Delivered<'d>) -> impl Iterator<Item = Frame> + use<'d, 's> {
        let frames = *self;
        frames.addresses(delivered).map(move |(address, kind)| frames.frame(address, kind))
    }

    /// As [`all`](Frames::all), from a cache where the stack or its frames were met before and nothing has changed since.
    pub fn all_in(&self, delivered: &Delivered<'_>, cache: &mut FrameCache) -> Arc<[Frame]> {
        let Frames { system, owner, time, session, is_complete } = *self;
        let Some(stack) = delivered.stack else { return Arc::default() };
        let now = Circumstances {
            user: owner.process.map(|process| system.stretch(Some(process), time)).unwrap_or_default(),
            kernel: system.stretch(None, time),
            is_complete,
        };
        let key = StackKey { stack, process: owner.process, first: First::of(&delivered.event) };
        if let Some(frames) = cache.stack(&key, now) {
            return frames;
        }
        let frame = |(address, kind): (Address, AddressKind)| {
            let key = if address.is_kernel(session) {
                FrameKey { address, kind, process: None, stretch: now.kernel, is_complete: false }
            } else {
                FrameKey { address, kind, process: owner.process, stretch: now.user, is_complete }
            };
            cache.get_or_insert_with(key, || self.frame(address, kind))
        };
        let frames: Arc<[Frame]> = self.addresses(delivered).map(frame).collect();
        cache.keep(key, now, &frames);
        frames
    }

    /// The addresses of an event's stack, innermost first, and what each is.
    pub fn addresses<'d>(
        &self,
        delivered: &Delivered<'d>,
    ) -> impl Iterator<Item = (Address, AddressKind)> + use<'d> {
        let (session, first) = (self.session, First::of(&delivered.event));
        let mut user_was_seen = false;
        delivered.frames().enumerate().map(move |(depth, address)| {
            let is_first_user = !user_was_seen && !address.is_kernel(session);
            user_was_seen |= is_first_user;
            let is_instruction = match first {
                First::Sampled => depth == 0,
                First::Faulting => is_first_user,
                First::Called => false,
            };
            (address, if is_instruction { AddressKind::Instruction } else { AddressKind::Return })
        })
    }
}

/// The address that is looked up for one, and how many bytes it is before that.
fn looked_up(address: Address, kind: AddressKind) -> (Address, u64) {
    let back = match kind {
        AddressKind::Return => address.0.min(1),
        AddressKind::Instruction => 0,
    };
    (Address(address.0 - back), back)
}

/// Which frame of a stack is the place of an instruction that had not run, rather than behind a call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum First {
    /// The innermost, where a sample or counter interrupt came.
    Sampled,
    /// The innermost of user mode, which touched a page.
    Faulting,
    /// None: the stack was taken in a function that the innermost frame called, and user mode was left by a system
    /// call. An interrupt at the first byte of a function is not told from that.
    Called,
}

impl First {
    /// Of an event's stack.
    #[inline]
    pub fn of(event: &Event<'_>) -> First {
        match event.hook() {
            Some(0x0f2e | 0x0f2f) => First::Sampled,
            Some(0x020a..=0x020f | 0x0220) => First::Faulting,
            _ => First::Called,
        }
    }
}
