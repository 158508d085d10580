//! The context of an evaluation in addition to the stack and the payload: the process, its modules
//! and those of the kernel, the thread, and the known facts about them. It is looked up once per
//! thread, and again after changes.

use stackhound_frames::{Code, FrameResolver, StackOwner};
use stackhound_pipeline::{EventView, TraceState, slots};
use stackhound_system::{Completeness, Gap, ProcessId, System, ThreadId, ValidityId, ValidityRange};
use stackhound_trace::TraceTime;
use stackhound_types::{Address, AddressKind, Pid, PointerSize, Tid};

use super::HuntSession;
use super::cache::{Interner, NumberSource};
use super::memory::LiveMemory;

/// The facts about an event that are not in its stack or payload.
#[derive(Clone, Copy, Debug)]
pub(super) struct StackContext {
    pub owner: StackOwner,
    /// The pointer size of the session that recorded the event.
    pub pointer_size: PointerSize,
    /// Number of the state of the process, its modules, those of the kernel, and the known facts
    /// about them.
    pub module_map_generation: u32,
    /// Number of the state of the kernel's modules.
    pub kernel_module_map_generation: u32,
    /// Number of the known facts about the process, without its modules.
    pub facts: u32,
    /// Number of the thread's start code.
    pub start: u32,
    /// The code at the thread's start address.
    pub thread_start: Option<Code>,
    /// Validity range of the kernel's modules.
    pub kernel: ValidityId,
    /// Identifies the recorded history of the process's memory; 0 if it has none.
    pub history: u32,
    /// Whether all modules of the process are known.
    pub is_complete: bool,
    /// Whether events about its modules may be missing.
    pub is_lossy: bool,
}

/// The ids that an event states, the pointer size of its session, and the history of the memory;
/// with live memory, also the period of its answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stated {
    pid: Option<Pid>,
    tid: Option<Tid>,
    pointer_size: PointerSize,
    history: u32,
    period: Option<i64>,
}

/// The context of events with these ids.
#[derive(Clone, Copy, Debug)]
struct CachedContext {
    stated: Stated,
    /// Revision of the system state.
    revision: u64,
    validity: ValidityRange,
    /// Validity range of all memory, if the thread started in no module.
    memory: Option<ValidityId>,
    stack_context: StackContext,
}

/// The facts that determine the code of a process's frames, except for memory outside of images.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ModuleMap {
    process: Option<ProcessId>,
    modules: ValidityId,
    kernel: ValidityId,
    facts: u32,
    is_complete: bool,
    is_lossy: bool,
    all_drivers: bool,
    history: u32,
    period: Option<i64>,
}

#[derive(Clone, Copy, Debug)]
struct ThreadStart {
    id: ThreadId,
    modules: ValidityId,
    /// Validity range of all memory, if the code is in no module.
    memory: Option<ValidityId>,
    is_complete: bool,
    code: Code,
}

/// Maximum number of cached threads. Each has one slot.
const THREADS: usize = 1 << 11;

/// Cached contexts.
#[derive(Debug)]
pub(super) struct ContextCache {
    threads: Box<[Option<CachedContext>]>,
    /// By process and pointer size: the last state with its number.
    module_maps: Vec<Option<(ModuleMap, u32)>>,
    /// State of the kernel by pointer size: validity range, whether all drivers are known, and
    /// number.
    kernels: [Option<(ValidityId, bool, u32)>; 2],
    /// By process: the last validity range of all its memory, with its number.
    memories: Vec<Option<(Option<ProcessId>, ValidityId, u32)>>,
    /// By the system's index of each thread: its start.
    starts: Vec<Option<ThreadStart>>,
    start_codes: Interner<Option<Code>>,
}

impl Default for ContextCache {
    fn default() -> ContextCache {
        ContextCache {
            threads: vec![None; THREADS].into_boxed_slice(),
            module_maps: Vec::new(),
            kernels: [None; 2],
            memories: Vec::new(),
            starts: Vec::new(),
            start_codes: Interner::default(),
        }
    }
}

/// The index of a process; 0 for none.
fn index(process: Option<ProcessId>) -> usize {
    process.map_or(0, |process| process.index() + 1)
}

impl ContextCache {
    /// Clears everything that is identified by numbers, which start again.
    pub fn forget(&mut self) {
        *self = ContextCache { starts: std::mem::take(&mut self.starts), ..ContextCache::default() };
    }

    fn module_map_generation(
        &mut self,
        module_map: ModuleMap,
        pointer_size: PointerSize,
        numbers: &mut NumberSource,
    ) -> u32 {
        let slot = slots::at(&mut self.module_maps, 2 * index(module_map.process) + pointer_size as usize);
        match slot {
            Some((known, number)) if *known == module_map => *number,
            _ => slot.insert((module_map, numbers.next())).1,
        }
    }

    fn kernel(
        &mut self,
        validity_id: ValidityId,
        all_drivers: bool,
        pointer_size: PointerSize,
        numbers: &mut NumberSource,
    ) -> u32 {
        let slot = &mut self.kernels[pointer_size as usize];
        match slot {
            Some((known, all, number)) if (*known, *all) == (validity_id, all_drivers) => *number,
            _ => slot.insert((validity_id, all_drivers, numbers.next())).2,
        }
    }

    /// Number of the state of all memory of a process at a time.
    pub fn memory(
        &mut self,
        system: &System,
        process: Option<ProcessId>,
        time: TraceTime,
        numbers: &mut NumberSource,
    ) -> u32 {
        let validity_id = memory(system, process, time);
        let slot = slots::at(&mut self.memories, index(process));
        match slot {
            Some((id, known, number)) if (*id, *known) == (process, validity_id) => *number,
            _ => slot.insert((process, validity_id, numbers.next())).2,
        }
    }
}

/// The validity range of all memory of a process.
fn memory(system: &System, process: Option<ProcessId>, time: TraceTime) -> ValidityId {
    process.map(|process| system.validity_id(Some(process), time)).unwrap_or_default()
}

impl HuntSession {
    /// The context of an event.
    #[inline]
    pub(super) fn stack_context(
        &mut self,
        view: &EventView<'_>,
        resolver: &mut FrameResolver,
    ) -> StackContext {
        let delivered = view.delivered();
        let stated = Stated {
            pid: delivered.stack_pid(),
            tid: delivered.stack_tid(),
            pointer_size: view.event().block().session().pointer_size,
            history: self.history_of(view),
            period: self.memory.as_ref().map(|_| LiveMemory::period(view.utc())),
        };
        // Thread ids of Windows are multiples of four.
        let slot = stated.tid.map_or(0, |tid| tid.0 as usize / 4) % THREADS;
        let revision = view.trace_state().system().revision();
        if let Some(known) = &self.contexts.threads[slot]
            && known.stated == stated
            && known.revision == revision
            && known.validity.has(view.time())
            && known.memory.is_none_or(|then| {
                then == memory(view.trace_state().system(), known.stack_context.owner.process, view.time())
            })
        {
            return known.stack_context;
        }
        let known = self.look_up_context(view, resolver, stated);
        self.contexts.threads[slot] = Some(known);
        known.stack_context
    }

    /// Identifies the recorded history of the memory of the stack's process.
    #[inline]
    fn history_of(&self, view: &EventView<'_>) -> u32 {
        if self.histories.is_empty() { 0 } else { self.histories.generation(view.stack_owner().pid) }
    }

    #[cold]
    fn look_up_context(
        &mut self,
        view: &EventView<'_>,
        resolver: &mut FrameResolver,
        stated: Stated,
    ) -> CachedContext {
        let (system, time) = (view.trace_state().system(), view.time());
        let Stated { pointer_size, history, period, .. } = stated;
        let owner = view.stack_owner();
        let completeness = owner.process.map(|process| system.map_complete_in(process, time));
        let facts = self.facts_number((system, resolver), pointer_size, owner.process, time);
        let is_built = resolver.process(system, pointer_size, owner.process, time).0.is_built();
        let is_complete = completeness == Some(Completeness::Complete) && is_built;
        let modules =
            owner.process.map(|process| system.module_validity_id(process, time)).unwrap_or_default();
        let (thread_start, memory) = self.thread_start(
            (view.trace_state(), resolver),
            owner,
            time,
            pointer_size,
            modules,
            is_complete,
        );
        let (kernel, all_drivers) = (
            system.validity_id(None, time),
            system.map_complete_in(ProcessId::SYSTEM, time) == Completeness::Complete,
        );
        let module_map = ModuleMap {
            process: owner.process,
            modules,
            kernel,
            facts,
            is_complete,
            is_lossy: matches!(completeness, Some(Completeness::Incomplete(Gap::Lost { .. })))
                || history != 0 && !system.is_gapless_since_start(owner.process, time),
            all_drivers,
            history,
            period,
        };
        let HuntSession { contexts, numbers, .. } = self;
        let stack_context = StackContext {
            owner,
            pointer_size,
            module_map_generation: contexts.module_map_generation(module_map, pointer_size, numbers),
            kernel_module_map_generation: contexts.kernel(kernel, all_drivers, pointer_size, numbers),
            facts,
            start: contexts.start_codes.of(thread_start, numbers),
            thread_start,
            kernel,
            history,
            is_complete,
            is_lossy: module_map.is_lossy,
        };
        let validity = system.validity((owner.pid, owner.tid), owner.process, time);
        CachedContext { stated, revision: system.revision(), validity, memory, stack_context }
    }

    /// Number of the known facts about a process.
    pub(super) fn facts_number(
        &mut self,
        (system, resolver): (&System, &mut FrameResolver),
        pointer_size: PointerSize,
        process: Option<ProcessId>,
        time: TraceTime,
    ) -> u32 {
        let context = resolver.process(system, pointer_size, process, time);
        self.process_numbers.of(process, context, &mut self.numbers)
    }

    /// The start code of a thread; for code in no module, also the validity range of all memory.
    fn thread_start(
        &mut self,
        (state, resolver): (&TraceState, &mut FrameResolver),
        owner: StackOwner,
        time: TraceTime,
        pointer_size: PointerSize,
        modules: ValidityId,
        is_complete: bool,
    ) -> (Option<Code>, Option<ValidityId>) {
        let system = state.system();
        const NOTHING: (Option<Code>, Option<ValidityId>) = (None, None);
        let Some(process) = owner.process else { return NOTHING };
        let Some(thread) = owner.tid.and_then(|tid| state.thread_of(tid, time).ok()) else {
            return NOTHING;
        };
        // A thread of another process: its facts are outdated or wrong.
        if system.process_of_event(thread.pid(), time).is_none_or(|found| found.id() != process) {
            return NOTHING;
        }
        let known = self.contexts.starts.get(thread.id().index());
        if let Some(&Some(ThreadStart { id, modules: then, memory: known, is_complete: was_complete, code })) =
            known
            && (id, then, was_complete) == (thread.id(), modules, is_complete)
            && known.is_none_or(|known| known == memory(system, owner.process, time))
        {
            return (Some(code), known);
        }
        let is_start = |address: &Address| address.0 != 0 && !address.is_kernel(pointer_size);
        let Some(address) = thread.win32_start_address().filter(is_start) else { return NOTHING };
        let code = code_at((system, resolver), owner, (time, pointer_size), address);
        let memory = code.module().is_none().then(|| memory(system, owner.process, time));
        let start = ThreadStart { id: thread.id(), modules, memory, is_complete, code };
        *slots::at(&mut self.contexts.starts, thread.id().index()) = Some(start);
        (Some(code), memory)
    }
}

/// The code at an address of a process.
fn code_at(
    (system, resolver): (&System, &mut FrameResolver),
    owner: StackOwner,
    (time, pointer_size): (TraceTime, PointerSize),
    address: Address,
) -> Code {
    let frame = resolver.at(system, owner, time, pointer_size).frame(address, AddressKind::Instruction);
    if frame.is_uncertain { Code::Unknown } else { frame.code }
}

/// The code at an address of a process with this id.
pub(super) fn code_in(
    system: (&System, &mut FrameResolver),
    pid: Pid,
    at: (TraceTime, PointerSize),
    address: Address,
) -> Code {
    let process = system.0.process_of_event(pid, at.0).map(|process| process.id());
    code_at(system, StackOwner { pid: Some(pid), tid: None, process }, at, address)
}
