//! What evaluations rest on beside stacks and payloads: the process, its modules and those of the kernel, the thread, and what
//! is known of all of them. It is looked up once for each thread, and again when something changes.

use stackhound_frames::{Code, FrameResolver, StackOwner};
use stackhound_pipeline::{EventView, slots};
use stackhound_system::{Completeness, Gap, ProcessId, System, ThreadId, ValidityId, ValidityRange};
use stackhound_trace::TraceTime;
use stackhound_types::{Address, AddressKind, Pid, PointerSize, Tid};

use super::HuntSession;
use super::cache::{Interner, NumberSource};
use super::memory::LiveMemory;

/// All about an event that does not stand in its stack or payload.
#[derive(Clone, Copy, Debug)]
pub(super) struct StackContext {
    pub owner: StackOwner,
    /// Of the session that recorded the event.
    pub pointer_size: PointerSize,
    /// Stands for the process, its modules and those of the kernel, and all that is known of them.
    pub module_map_generation: u32,
    /// Stands for the modules of the kernel.
    pub kernel_module_map_generation: u32,
    /// Stands for all that is known of the process beside its modules.
    pub facts: u32,
    /// Stands for where the thread started.
    pub start: u32,
    /// Where the thread started.
    pub thread_start: Option<Code>,
    /// Of the modules of the kernel.
    pub kernel: ValidityId,
    /// Whether all modules of the process are known.
    pub is_complete: bool,
    /// Whether events are missing that could have facts of its modules.
    pub is_lossy: bool,
}

/// The ids that an event states, and of whose session. With live memory also the period of which its answers are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stated {
    pid: Option<Pid>,
    tid: Option<Tid>,
    pointer_size: PointerSize,
    moment: Option<i64>,
}

/// What is known of the one that states them.
#[derive(Clone, Copy, Debug)]
struct CachedContext {
    stated: Stated,
    /// Of the system's knowledge.
    revision: u64,
    validity: ValidityRange,
    /// Where the thread started in no module: in which all memory is as it was.
    memory: Option<ValidityId>,
    around: StackContext,
}

/// What the meaning of a process's frames depends on, beside the memory outside of images.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ModuleMap {
    process: Option<ProcessId>,
    modules: ValidityId,
    kernel: ValidityId,
    facts: u32,
    is_complete: bool,
    is_lossy: bool,
    all_drivers: bool,
    moment: Option<i64>,
}

#[derive(Clone, Copy, Debug)]
struct ThreadStart {
    id: ThreadId,
    modules: ValidityId,
    /// Of code in no module: in which all memory is as it was.
    memory: Option<ValidityId>,
    is_complete: bool,
    code: Code,
}

/// Threads of which it is remembered; each has one place where it can be.
const THREADS: usize = 1 << 11;

/// What was looked up.
#[derive(Debug)]
pub(super) struct ContextCache {
    threads: Box<[Option<CachedContext>]>,
    /// By process, and by the session's pointers: the last one, with its number.
    module_maps: Vec<Option<(ModuleMap, u32)>>,
    /// Of the kernel, by the session's pointers: its stretch, and whether all drivers are known.
    kernels: [Option<(ValidityId, bool, u32)>; 2],
    /// By process: the last stretch of all its memory, with its number.
    memories: Vec<Option<(Option<ProcessId>, ValidityId, u32)>>,
    /// By the system's index of each thread: where it started.
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

/// 0 for none.
fn index(process: Option<ProcessId>) -> usize {
    process.map_or(0, |process| process.index() + 1)
}

impl ContextCache {
    /// Forgets all that has numbers, which begin again.
    pub fn forget(&mut self) {
        *self = ContextCache { starts: std::mem::take(&mut self.starts), ..ContextCache::default() };
    }

    fn module_map_generation(
        &mut self,
        module_map_generation: ModuleMap,
        pointer_size: PointerSize,
        numbers: &mut NumberSource,
    ) -> u32 {
        let location = slots::at(
            &mut self.module_maps,
            2 * index(module_map_generation.process) + pointer_size as usize,
        );
        match location {
            Some((known, number)) if *known == module_map_generation => *number,
            _ => location.insert((module_map_generation, numbers.next())).1,
        }
    }

    fn kernel(
        &mut self,
        validity_id: ValidityId,
        all_drivers: bool,
        pointer_size: PointerSize,
        numbers: &mut NumberSource,
    ) -> u32 {
        let location = &mut self.kernels[pointer_size as usize];
        match location {
            Some((known, all, number)) if (*known, *all) == (validity_id, all_drivers) => *number,
            _ => location.insert((validity_id, all_drivers, numbers.next())).2,
        }
    }

    /// Stands for all memory of a stack's owner at a time.
    pub fn memory(
        &mut self,
        system: &System,
        process: Option<ProcessId>,
        time: TraceTime,
        numbers: &mut NumberSource,
    ) -> u32 {
        let validity_id = memory(system, process, time);
        let location = slots::at(&mut self.memories, index(process));
        match location {
            Some((id, known, number)) if (*id, *known) == (process, validity_id) => *number,
            _ => location.insert((process, validity_id, numbers.next())).2,
        }
    }
}

/// The stretch in which all memory of a process stays as it is.
fn memory(system: &System, process: Option<ProcessId>, time: TraceTime) -> ValidityId {
    process.map(|process| system.validity_id(Some(process), time)).unwrap_or_default()
}

impl HuntSession {
    /// What is around an event.
    #[inline]
    pub(super) fn around(&mut self, view: &EventView<'_>, resolver: &mut FrameResolver) -> StackContext {
        let delivered = view.delivered();
        let stated = Stated {
            pid: delivered.stack_pid(),
            tid: delivered.stack_tid(),
            pointer_size: view.event().block().session().pointer_size,
            moment: self.memory.as_ref().map(|_| LiveMemory::moment(view.utc())),
        };
        // Windows gives every fourth number to a thread.
        let location = stated.tid.map_or(0, |tid| tid.0 as usize / 4) % THREADS;
        let revision = view.trace_state().system().revision();
        if let Some(known) = &self.contexts.threads[location]
            && known.stated == stated
            && known.revision == revision
            && known.validity.has(view.time())
            && known.memory.is_none_or(|then| {
                then == memory(view.trace_state().system(), known.around.owner.process, view.time())
            })
        {
            return known.around;
        }
        let known = self.look_up_context(view, resolver, stated);
        self.contexts.threads[location] = Some(known);
        known.around
    }

    #[cold]
    fn look_up_context(
        &mut self,
        view: &EventView<'_>,
        resolver: &mut FrameResolver,
        stated: Stated,
    ) -> CachedContext {
        let (system, time) = (view.trace_state().system(), view.time());
        let Stated { pointer_size, moment, .. } = stated;
        let owner = view.stack_owner();
        let completeness = owner.process.map(|process| system.map_complete_in(process));
        let facts = self.facts_number((system, resolver), pointer_size, owner.process, time);
        let is_built = resolver.process(system, pointer_size, owner.process, time).0.is_built();
        let is_complete = completeness == Some(Completeness::Complete) && is_built;
        let modules =
            owner.process.map(|process| system.module_validity_id(process, time)).unwrap_or_default();
        let (thread_start, memory) =
            self.thread_start((system, resolver), owner, time, pointer_size, modules, is_complete);
        let (kernel, all_drivers) = (
            system.validity_id(None, time),
            system.map_complete_in(ProcessId::SYSTEM) == Completeness::Complete,
        );
        let module_map_generation = ModuleMap {
            process: owner.process,
            modules,
            kernel,
            facts,
            is_complete,
            is_lossy: matches!(completeness, Some(Completeness::Incomplete(Gap::Lost(_)))),
            all_drivers,
            moment,
        };
        let HuntSession { contexts, numbers, .. } = self;
        let around = StackContext {
            owner,
            pointer_size,
            module_map_generation: contexts.module_map_generation(
                module_map_generation,
                pointer_size,
                numbers,
            ),
            kernel_module_map_generation: contexts.kernel(kernel, all_drivers, pointer_size, numbers),
            facts,
            start: contexts.start_codes.of(thread_start, numbers),
            thread_start,
            kernel,
            is_complete,
            is_lossy: module_map_generation.is_lossy,
        };
        let validity = system.validity((owner.pid, owner.tid), owner.process, time);
        CachedContext { stated, revision: system.revision(), validity, memory, around }
    }

    /// The number of what is known of a process.
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

    /// Where a thread of a process started; in no module, also the stretch in which all memory is as it is.
    fn thread_start(
        &mut self,
        (system, resolver): (&System, &mut FrameResolver),
        owner: StackOwner,
        time: TraceTime,
        pointer_size: PointerSize,
        modules: ValidityId,
        is_complete: bool,
    ) -> (Option<Code>, Option<ValidityId>) {
        const NOTHING: (Option<Code>, Option<ValidityId>) = (None, None);
        let Some(process) = owner.process else { return NOTHING };
        let Some(thread) = owner.tid.and_then(|tid| system.thread_of_event(tid, time)) else {
            return NOTHING;
        };
        // A thread of another process: what is known of it is old, or wrong.
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

/// What is at an address of a process.
fn code_at(
    (system, resolver): (&System, &mut FrameResolver),
    owner: StackOwner,
    (time, pointer_size): (TraceTime, PointerSize),
    address: Address,
) -> Code {
    resolver.at(system, owner, time, pointer_size).frame(address, AddressKind::Instruction).code
}

/// What is at an address of a process that is known by its id.
pub(super) fn code_in(
    system: (&System, &mut FrameResolver),
    pid: Pid,
    at: (TraceTime, PointerSize),
    address: Address,
) -> Code {
    let process = system.0.process_of_event(pid, at.0).map(|process| process.id());
    code_at(system, StackOwner { pid: Some(pid), tid: None, process }, at, address)
}
