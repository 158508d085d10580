//! Resolves addresses to frames, in the address space of the [`StackOwner`] at the time of the
//! event.

use std::sync::Arc;

use stackhound_schema::kernel::{hook_id, is_sample};
use stackhound_stacks::Delivered;
use stackhound_system::{Completeness, Evidence, ProcessId, System};
use stackhound_trace::{Event, TraceTime};
use stackhound_types::{Address, AddressKind, Mode, PointerSize};

use crate::cache::{Circumstances, FrameCache, FrameKey, StackKey};
use crate::creator::StackOwner;
use crate::frame::{Code, Frame};
use crate::module::{LoadedModule, LoadedModules, Modules};
use crate::process::{ProcessContext, ProcessContexts};
use crate::region::{Region, RegionKind};

/// Resolves the addresses of one trace to frames. Keeps the modules and processes of the trace, and
/// optionally a cache of resolved frames.
#[derive(Debug, Default)]
pub struct FrameResolver {
    modules: Modules,
    loaded: LoadedModules,
    processes: ProcessContexts,
    cache: Option<FrameCache>,
    /// Memory for the frames of one stack.
    scratch: Vec<Frame>,
}

impl FrameResolver {
    /// A resolver that starts with the modules of earlier traces.
    pub fn new(modules: Modules) -> FrameResolver {
        FrameResolver { modules, ..FrameResolver::default() }
    }

    /// Enables or disables the cache of frames and stacks. Enable it only in the second pass over a
    /// trace, when the known state of the past no longer changes.
    pub fn keep_frames(&mut self, keep: bool) {
        self.cache = keep.then(FrameCache::default);
    }

    /// Number of frames from the cache, and of frames that were resolved.
    pub fn hits_and_misses(&self) -> (u64, u64) {
        self.cache.as_ref().map(FrameCache::hits_and_misses).unwrap_or_default()
    }

    /// The modules found so far.
    pub fn modules(&self) -> &Modules {
        &self.modules
    }

    /// The modules found so far, for the resolver of the next trace.
    pub fn into_modules(self) -> Modules {
        self.modules
    }

    /// Properties of a module in the state of the trace.
    #[inline]
    pub fn loaded(&mut self, system: &System, module: stackhound_system::ModuleId) -> LoadedModule {
        self.loaded.get(system, &mut self.modules, module)
    }

    /// The context of a process at a time, and a number that changes whenever the context does.
    pub fn process(
        &mut self,
        system: &System,
        pointer_size: PointerSize,
        process: Option<ProcessId>,
        time: TraceTime,
    ) -> (&ProcessContext, u32) {
        let FrameResolver { modules, loaded, processes, .. } = self;
        processes.get(system, (modules, loaded), pointer_size, process, time)
    }

    /// The module of a process's program.
    pub fn program(
        &mut self,
        system: &System,
        pointer_size: PointerSize,
        process: ProcessId,
        time: TraceTime,
    ) -> Option<stackhound_system::ModuleId> {
        self.process(system, pointer_size, Some(process), time);
        self.processes.last_program(process)
    }

    /// The modules found so far, and the context of a process at a time.
    pub fn modules_and_process(
        &mut self,
        system: &System,
        pointer_size: PointerSize,
        process: Option<ProcessId>,
        time: TraceTime,
    ) -> (&Modules, &ProcessContext) {
        self.process(system, pointer_size, process, time);
        (&self.modules, self.processes.last(process))
    }

    /// Resolves frames of an owner's stacks at a time, in a session with this pointer size.
    pub fn at<'s>(
        &'s mut self,
        system: &'s System,
        owner: StackOwner,
        time: TraceTime,
        pointer_size: PointerSize,
    ) -> Frames<'s> {
        Frames { resolver: self, system, owner, time, pointer_size, context: None }
    }

    /// Resolves frames of an event's stack.
    pub fn of<'s>(&'s mut self, system: &'s System, delivered: &Delivered<'_>) -> Frames<'s> {
        let event = &delivered.event;
        let owner = StackOwner::of(delivered, system);
        self.at(system, owner, event.time(), event.block().session().pointer_size)
    }
}

/// Everything that the resolution of an address depends on in addition to modules and memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResolutionContext {
    /// Whether the process runs 32-bit code on 64-bit Windows.
    pub is_wow64: bool,
    /// Whether all modules of the process are known.
    pub all_modules: bool,
    /// Whether all drivers are known.
    pub all_drivers: bool,
    /// Whether all JIT-compiled methods of the process are known, as far as methods are recorded.
    pub all_methods: bool,
}

impl ResolutionContext {
    fn of(
        resolver: &mut FrameResolver,
        system: &System,
        pointer_size: PointerSize,
        process: Option<ProcessId>,
        time: TraceTime,
    ) -> ResolutionContext {
        let (context, _) = resolver.process(system, pointer_size, process, time);
        ResolutionContext {
            is_wow64: context.is_wow64(),
            all_modules: process.is_some_and(|process| knows_all(system, process, time))
                && context.is_built(),
            all_drivers: knows_all(system, ProcessId::SYSTEM, time),
            all_methods: process.is_some_and(|process| system.methods_complete_in(process, time))
                || context.has_runtime == Some(false),
        }
    }
}

fn knows_all(system: &System, process: ProcessId, time: TraceTime) -> bool {
    system.map_complete_in(process, time) == Completeness::Complete
}

/// Resolves the frames of one stack.
#[derive(Debug)]
pub struct Frames<'s> {
    resolver: &'s mut FrameResolver,
    system: &'s System,
    owner: StackOwner,
    time: TraceTime,
    pointer_size: PointerSize,
    context: Option<ResolutionContext>,
}

impl Frames<'_> {
    /// The process and thread of the stack.
    pub fn owner(&self) -> StackOwner {
        self.owner
    }

    fn context(&mut self) -> ResolutionContext {
        let Frames { resolver, system, owner, time, pointer_size, context } = self;
        *context.get_or_insert_with(|| {
            ResolutionContext::of(resolver, system, *pointer_size, owner.process, *time)
        })
    }

    /// Like [`frame`](Frames::frame), but only if the address is in a module. Of the region, only
    /// the kind is set.
    pub fn in_module(&mut self, address: Address, kind: AddressKind) -> Option<Frame> {
        let (looked_up, back) = looked_up(address, kind);
        let (mode, module, rva) = if address.is_kernel(self.pointer_size) {
            let (module, rva) = self.system.kernel_module_at(looked_up, self.time)?;
            (Mode::Kernel, module.id(), rva)
        } else {
            let (_, module, rva) = Region::of_module(self.system, self.owner.process?, looked_up, self.time)?;
            (Mode::User, module, rva)
        };
        let region = Region { kind: RegionKind::Image, ..Region::UNKNOWN };
        Some(self.image_frame((address, kind), mode, region, (module, rva + back)))
    }

    fn image_frame(
        &mut self,
        (address, kind): (Address, AddressKind),
        mode: Mode,
        region: Region,
        (module, rva): (stackhound_system::ModuleId, u64),
    ) -> Frame {
        let known = self.resolver.loaded(self.system, module);
        Frame {
            address: Some(address),
            kind,
            mode,
            is_wow64: mode == Mode::User && !known.is_64_bit_part && self.context().is_wow64,
            code: Code::Image(known.index, rva),
            region,
            loaded: Some(module),
            method: None,
            is_uncertain: !self.system.is_module_certain(module, self.time),
        }
    }

    /// Resolves one address.
    pub fn frame(&mut self, address: Address, kind: AddressKind) -> Frame {
        let (looked_up, back) = looked_up(address, kind);
        if address.is_kernel(self.pointer_size) {
            self.kernel_frame((address, kind), looked_up, back)
        } else {
            self.user_frame((address, kind), looked_up, back)
        }
    }

    fn kernel_frame(&mut self, at: (Address, AddressKind), looked_up: Address, back: u64) -> Frame {
        let (address, kind) = at;
        if let Some((module, rva)) = self.system.kernel_module_at(looked_up, self.time) {
            let region = Region {
                kind: RegionKind::Image,
                extent: Some((module.base(), module.size())),
                ..Region::UNKNOWN
            };
            return self.image_frame(at, Mode::Kernel, region, (module.id(), rva + back));
        }
        // An address outside of all drivers can still belong to the system.
        let may_be_of_system = is_of_hal(address.0) || self.system.may_be_hypercall(address);
        let is_known = !may_be_of_system && knows_all(self.system, ProcessId::SYSTEM, self.time);
        let code = if is_known { Code::Unbacked } else { Code::Unknown };
        Frame { address: Some(address), kind, mode: Mode::Kernel, ..Frame::user(code) }
    }

    fn user_frame(&mut self, at: (Address, AddressKind), looked_up: Address, back: u64) -> Frame {
        let (system, time, (address, kind)) = (self.system, self.time, at);
        let frame = |code| Frame { address: Some(address), kind, ..Frame::user(code) };
        let Some(process) = self.owner.process else { return frame(Code::Unknown) };
        let method = system.method_in(process, looked_up, time);
        if let Some((region, module, rva)) = Region::of_module(system, process, looked_up, time) {
            let in_image = self.image_frame(at, Mode::User, region, (module, rva + back));
            return Frame { method: method.map(|method| method.id()), ..in_image };
        }
        let ResolutionContext { is_wow64, all_modules, all_methods, .. } = self.context();
        let (region, code) = match method {
            Some(method) => (Region::of_method(system, process, method, time), Code::Jit(method.runtime())),
            None => {
                let region = Region::without_module(system, process, looked_up, time);
                // Memory whose allocation was observed is not an image, even if modules are
                // missing.
                let was_allocated = region.kind == RegionKind::Private
                    && matches!(region.evidence, Some((_, Evidence::Observed)));
                let is_known = (all_modules || was_allocated) && all_methods;
                (region, if is_known { Code::Unbacked } else { Code::Unknown })
            }
        };
        let is_wow64 = is_wow64 && address.0 <= u64::from(u32::MAX);
        Frame { is_wow64, region, method: method.map(|method| method.id()), ..frame(code) }
    }

    /// All frames of an event's stack, innermost first.
    pub fn all(&mut self, delivered: &Delivered<'_>) -> Arc<[Frame]> {
        let Frames { system, owner, time, pointer_size, .. } = *self;
        let Some(stack) = delivered.stack else { return Arc::default() };
        if self.resolver.cache.is_none() {
            return addresses(pointer_size, delivered)
                .map(|(address, kind)| self.frame(address, kind))
                .collect();
        }
        let process = owner.process;
        let now = Circumstances {
            user: process.map(|process| system.validity_id(Some(process), time)).unwrap_or_default(),
            kernel: system.validity_id(None, time),
            all_modules: process.is_some_and(|process| knows_all(system, process, time)),
            all_drivers: knows_all(system, ProcessId::SYSTEM, time),
            flags: process.and_then(|process| system.process(process).flags()),
        };
        let key = StackKey { stack, process, first: First::of(&delivered.event) };
        if let Some(frames) = self.resolver.cache.as_mut().and_then(|cache| cache.stack(&key, now)) {
            return frames;
        }
        let mut resolved = std::mem::take(&mut self.resolver.scratch);
        resolved.clear();
        for (address, kind) in addresses(pointer_size, delivered) {
            let process = process.filter(|_| !address.is_kernel(pointer_size));
            let key = FrameKey { address, kind, process, circumstances: now.of(process) };
            let known = self.resolver.cache.as_mut().and_then(|cache| cache.frame(&key));
            resolved.push(known.unwrap_or_else(|| {
                let frame = self.frame(address, kind);
                self.resolver.cache.iter_mut().for_each(|cache| cache.keep_frame(key, frame));
                frame
            }));
        }
        let frames: Arc<[Frame]> = resolved[..].into();
        self.resolver.scratch = resolved;
        self.resolver.cache.iter_mut().for_each(|cache| cache.keep(key, now, &frames));
        frames
    }
}

/// The addresses of an event's stack in a session with this pointer size, innermost first, each
/// with its kind.
pub fn addresses<'d>(
    pointer_size: PointerSize,
    delivered: &Delivered<'d>,
) -> impl Iterator<Item = (Address, AddressKind)> + use<'d> {
    let first = First::of(&delivered.event);
    let table = delivered.table();
    let mut frames = delivered.stack.map(|stack| table.frames(stack).enumerate());
    let mut user_was_seen = false;
    std::iter::from_fn(move || {
        let (depth, address) = frames.as_mut()?.next()?;
        let is_first_user = !user_was_seen && !address.is_kernel(pointer_size);
        user_was_seen |= is_first_user;
        let is_instruction = match first {
            First::Sampled => depth == 0,
            First::Faulting => is_first_user,
            First::Called => false,
        };
        Some((address, if is_instruction { AddressKind::Instruction } else { AddressKind::Return }))
    })
}

/// The address to look up for a frame, and its distance from the frame's address in bytes.
fn looked_up(address: Address, kind: AddressKind) -> (Address, u64) {
    let back = match kind {
        AddressKind::Return => address.0.min(1),
        AddressKind::Instruction => 0,
    };
    (Address(address.0 - back), back)
}

/// The last 4 MB of the address space belong to the hardware abstraction layer (HAL). It maps the
/// hypercall page there, at an address that traces of old systems do not contain.
fn is_of_hal(address: u64) -> bool {
    const SIZE: u64 = 4 << 20;
    address > u64::MAX - SIZE || (u64::from(u32::MAX) - SIZE + 1..=u64::from(u32::MAX)).contains(&address)
}

/// The frame of a stack whose address is an instruction that has not run yet. The addresses of all
/// other frames are return addresses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum First {
    /// The innermost frame: a sampling or counter interrupt occurred there.
    Sampled,
    /// The innermost user frame: it caused a page fault.
    Faulting,
    /// None: the stack was walked in a function that the innermost frame called, and the thread
    /// entered the kernel by a system call. An interrupt at the first byte of a function cannot be
    /// distinguished from this.
    Called,
}

impl First {
    /// The kind of an event's stack.
    #[inline]
    pub fn of(event: &Event<'_>) -> First {
        match event.hook_id() {
            Some(hook_id) if is_sample(hook_id) => First::Sampled,
            Some(
                hook_id::PAGE_FAULT_TRANSITION_FAULT..=hook_id::PAGE_FAULT_ACCESS_VIOLATION
                | hook_id::PAGE_FAULT_HARD_FAULT,
            ) => First::Faulting,
            _ => First::Called,
        }
    }
}
