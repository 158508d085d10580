//! The state of the whole machine: recording of statements, and queries.

use std::borrow::Cow;

use stackhound_etl::LogfileHeader;
use stackhound_trace::{LossMap, OpenTrace, TraceTime};
use stackhound_types::{Address, PdbIdentity, Pid, PointerSize, Tid};

use crate::file::{FileKey, FileNameEvent, FileNames, FileObject};
use crate::forget::{Forgetting, ForgottenEarly};
use crate::image_version::{ImageVersion, ImageVersions};
use crate::managed_module::ManagedModules;
use crate::method::{MethodFacts, MethodId, MethodRef, Methods};
use crate::module::{ModuleFacts, ModuleId, ModuleRef, Modules, Owner};
use crate::process::{ProcessDetails, ProcessFacts, ProcessId, ProcessRef, Processes};
use crate::ranges::ValidityId;
use crate::region::{Allocation, AllocationFacts, Region, Regions};
use crate::registry::{KeyControlBlock, KeyNameEvent, KeyNames, RegistryPath};
use crate::span::{Phase, Span};
use crate::text::{Text, Texts};
use crate::thread::{ThreadFacts, ThreadId, ThreadRef, Threads};
use crate::view::{View, ViewFacts, Views};
use crate::volume::Volumes;

/// The kind of a statement about memory of a process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AllocationEvent {
    /// The memory is reserved or committed.
    Allocate,
    /// The memory is decommitted or released.
    Free,
    /// The memory exists when the trace begins or ends.
    Rundown,
}

/// A name and the time of the statement that gives it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StatedName<'s> {
    /// The name.
    pub text: &'s str,
    /// The time of the statement. It can be later than the time of a query: a rundown at the end
    /// lists names that were given before.
    pub stated: TraceTime,
}

/// A machine has one page. A trace of several boots could report more.
const HYPERCALL_PAGES_MAX: usize = 64;
const PAGE_SIZE: u64 = 0x1000;
/// The page begins with `vmcall` or `vmmcall`, which take three bytes (Hypervisor Top Level
/// Functional Specification).
const AFTER_HYPERCALL: u64 = 3;

/// Counters of a [`System`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct SystemStats {
    /// Events that were recorded.
    pub observed: u64,
    /// Events whose payload could not be read.
    pub malformed: u64,
    /// Events that do not state their process or thread. They add no facts.
    pub without_process: u64,
    /// Unloads of unknown modules at addresses where another module was loaded before.
    pub unplaced_unloads: u64,
    /// PDB identities for which no module was found.
    pub unclaimed_pdbs: u64,
    /// Objects that were over and are [forgotten](System::forget_before).
    pub forgotten: u64,
    /// State that was forgotten because of [`Limits`](crate::Limits).
    pub forgotten_early: ForgottenEarly,
}

/// The state of the traced machine at any time of the trace.
///
/// Memory grows by 50 to 500 bytes with each recorded event, plus its distinct texts. Nothing is
/// forgotten unless [`forget_before`](System::forget_before) is called or [limits](System::limited)
/// are set. The cost of every call grows with the logarithm of the stored state, for any events.
#[derive(Debug)]
pub struct System {
    pub(crate) texts: Texts,
    pub(crate) processes: Processes,
    pub(crate) threads: Threads,
    pub(crate) modules: Modules,
    pub(crate) image_versions: ImageVersions,
    pub(crate) methods: Methods,
    pub(crate) managed_modules: ManagedModules,
    pub(crate) regions: Regions,
    pub(crate) views: Views,
    pub(crate) files: FileNames,
    pub(crate) registry: KeyNames,
    volumes: Volumes,
    /// The bases of the pages through which the kernel calls the hypervisor, if the trace reports
    /// them.
    hypercall_pages: Vec<Address>,
    pointer_size: PointerSize,
    /// Where records are missing.
    pub(crate) losses: LossMap,
    /// See [`System::revision`].
    pub(crate) revision: u64,
    pub(crate) stats: SystemStats,
    pub(crate) forgetting: Forgetting,
    /// A buffer for the text of the current event.
    pub(crate) scratch: String,
}

impl System {
    /// A machine with a known pointer size and no other state.
    pub fn new(pointer_size: PointerSize) -> System {
        let mut texts = Texts::default();
        let processes = Processes::new(&mut texts);
        System {
            texts,
            processes,
            threads: Threads::new(),
            modules: Modules::default(),
            image_versions: ImageVersions::default(),
            methods: Methods::default(),
            managed_modules: ManagedModules::default(),
            regions: Regions::default(),
            views: Views::default(),
            files: FileNames::default(),
            registry: KeyNames::default(),
            volumes: Volumes::default(),
            hypercall_pages: Vec::new(),
            pointer_size,
            losses: LossMap::live(),
            revision: 0,
            stats: SystemStats::default(),
            forgetting: Forgetting::default(),
            scratch: String::new(),
        }
    }

    /// The machine of these sessions, with the pointer size from their headers.
    pub fn of_sessions<'s>(sessions: impl IntoIterator<Item = &'s LogfileHeader>) -> System {
        // A private session of a 32-bit process can be among them.
        let pointer_sizes = sessions.into_iter().map(|session| session.pointer_size);
        System::new(pointer_sizes.max().unwrap_or(PointerSize::Four))
    }

    /// The machine of a trace. Until [`set_losses`](System::set_losses) states where records are
    /// missing, they can be missing anywhere.
    pub fn of(trace: &OpenTrace) -> System {
        let mut system = System::of_sessions(trace.sessions());
        system.losses = LossMap::of(trace);
        let mut sessions = trace.sessions();
        // A map without the blocks does not know of losses that only these state.
        let is_counted = sessions.any(|session| session.events_lost > 0 || session.buffers_lost > 0);
        if is_counted || !system.losses.is_lossless() {
            system.losses.enter_interval(i64::MIN, i64::MAX);
        }
        system
    }

    /// The pointer size of Windows.
    pub fn pointer_size(&self) -> PointerSize {
        self.pointer_size
    }

    /// The counters.
    pub fn stats(&self) -> SystemStats {
        let (forgotten, forgotten_early) = self.forgotten();
        SystemStats {
            forgotten,
            forgotten_early,
            unplaced_unloads: self.modules.unresolved,
            unclaimed_pdbs: self.modules.unclaimed_pdbs(),
            ..self.stats
        }
    }

    // Recording of statements.

    /// Records the statement of an event about a process.
    pub fn take_process(&mut self, phase: Phase, time: TraceTime, facts: &ProcessFacts<'_>) -> ProcessId {
        self.keep_limits();
        self.threads.forget_statements();
        self.revision += 1;
        self.processes.observe(&mut self.texts, phase, time, facts)
    }

    /// Records a statement of Microsoft-Windows-Kernel-Process about a process.
    pub fn take_process_details(
        &mut self,
        phase: Phase,
        time: TraceTime,
        facts: &ProcessFacts<'_>,
        details: &ProcessDetails<'_>,
    ) -> ProcessId {
        self.keep_limits();
        self.threads.forget_statements();
        self.revision += 1;
        self.processes.observe_details(&mut self.texts, phase, time, facts, details)
    }

    /// Records a process that has ended, but whose object still exists when the trace ends
    /// (`Defunct`).
    pub fn take_defunct_process(&mut self, time: TraceTime, facts: &ProcessFacts<'_>) -> ProcessId {
        self.revision += 1;
        self.processes.observe_defunct(&mut self.texts, time, facts)
    }

    /// Records the statement of an event about a thread.
    pub fn take_thread(
        &mut self,
        phase: Phase,
        time: TraceTime,
        (pid, tid): (Pid, Tid),
        facts: &ThreadFacts<'_>,
    ) -> ThreadId {
        self.keep_limits();
        self.revision += 1;
        let process = self.process_for(phase, time, pid);
        self.threads.observe(&mut self.texts, phase, time, (process, tid), facts)
    }

    /// Records a new name of a thread.
    pub fn take_thread_name(&mut self, time: TraceTime, (pid, tid): (Pid, Tid), name: &str) {
        self.keep_limits();
        self.revision += 1;
        let process = self.processes.expect(pid, time);
        let name = self.texts.intern(name);
        self.threads.rename(time, (process, tid), name);
    }

    /// Records that a thread belonged to a process at a time, as an event of the thread or the record
    /// of its stack states it. Costs little if it repeats the last statement about the thread.
    #[inline]
    pub fn take_thread_owner(&mut self, time: TraceTime, pid: Pid, tid: Tid) {
        if tid != Tid(0) && !self.threads.repeats_owner(time, pid, tid) {
            self.take_new_thread_owner(time, pid, tid);
        }
    }

    fn take_new_thread_owner(&mut self, time: TraceTime, pid: Pid, tid: Tid) {
        self.keep_limits();
        // Threads run until after the end of their process was recorded.
        let process = self.process_for(Phase::End, time, pid);
        let processes = &self.processes;
        let since = |other: ProcessId| {
            let is_other = other != process && processes.pid(other) == Some(pid);
            is_other.then(|| Some(processes.span(process)?.from)).flatten()
        };
        let is_new = self.threads.observe_owner(time, (process, pid), tid, since);
        self.revision += u64::from(is_new);
    }

    /// Records the statement of an event about a module. Returns `None` for an unload of a module
    /// whose lifetime cannot be determined.
    pub fn take_module(
        &mut self,
        phase: Phase,
        time: TraceTime,
        facts: &ModuleFacts<'_>,
    ) -> Option<ModuleId> {
        self.keep_limits();
        self.revision += 1;
        let owner = self.owner(phase, time, facts.pid, facts.base);
        let span = owner.and_then(|process| self.processes.span(process));
        let owner_from = span.map_or(Span::BEGINNING, |span| span.from);
        self.volumes.learn_from_image(facts.path);
        self.modules.observe(&mut self.texts, phase, time, (owner, owner_from), facts)
    }

    /// Records the version resource of the images with this time stamp and size.
    pub fn take_image_version(&mut self, time_date_stamp: u32, size: u32, version: &ImageVersion<'_>) {
        self.keep_limits();
        self.revision += 1;
        self.image_versions.observe(&mut self.texts, time_date_stamp, size, version);
    }

    /// Records the signing level of a module, as [`ModuleRef::signing_level`] states it.
    pub fn take_signing_level(&mut self, module: ModuleId, level: u8) {
        self.modules.set_signing_level(module, level);
    }

    /// Records the PDB of the module at `base`, from an event with the same time as the event of
    /// the module.
    pub fn take_pdb(&mut self, time: TraceTime, pid: Pid, base: Address, pdb: &PdbIdentity<&str>) {
        self.keep_limits();
        self.revision += 1;
        let owner = self.owner(Phase::RundownAtEnd, time, pid, base);
        self.modules.identify(&mut self.texts, time, owner, base, pdb);
    }

    /// Whether this code of a method is known, with its name.
    #[inline]
    pub(crate) fn is_known_method(
        &mut self,
        phase: Phase,
        pid: Pid,
        time: TraceTime,
        id: u64,
        start: Address,
        size: u64,
    ) -> bool {
        let Some(process) = self.processes.at(pid, time) else { return false };
        if phase == Phase::RundownAtEnd {
            self.methods.list_at_end(process);
        }
        self.methods.is_known(process, time, id, start, size)
    }

    /// Records the statement of an event about the code of a method.
    pub fn take_method(&mut self, phase: Phase, time: TraceTime, facts: &MethodFacts<'_>) {
        self.keep_limits();
        let process = self.process_for(phase, time, facts.pid);
        self.methods.observe(&mut self.texts, phase, time, process, facts);
    }

    /// Records the statement of an event about a .NET module: its id in the runtime, and the path of
    /// the file with its intermediate language, which is empty if it has none.
    pub fn take_managed_module(&mut self, phase: Phase, time: TraceTime, pid: Pid, id: u64, il_path: &str) {
        self.keep_limits();
        let process = self.process_for(phase, time, pid);
        let path = self.texts.intern(il_path);
        self.managed_modules.observe(phase, time, process, id, path);
    }

    /// Records a statement about memory of a process.
    pub fn take_allocation(&mut self, event: AllocationEvent, time: TraceTime, facts: &AllocationFacts) {
        self.keep_limits();
        let phase = if event == AllocationEvent::Free { Phase::End } else { Phase::Start };
        let process = self.process_for(phase, time, facts.pid);
        match event {
            AllocationEvent::Allocate => self.regions.allocate(time, process, facts),
            AllocationEvent::Free => self.regions.free(time, process, facts),
            AllocationEvent::Rundown => self.regions.run_down(process, facts),
        }
    }

    /// Records that a section is mapped, unmapped, or mapped when the trace begins or ends.
    /// Sections in the kernel address space belong to the file cache and are ignored.
    pub fn take_view(&mut self, phase: Phase, time: TraceTime, facts: &ViewFacts) {
        if facts.base.is_kernel(self.pointer_size) {
            return;
        }
        self.keep_limits();
        let process = self.process_for(phase, time, facts.pid);
        self.views.observe(phase, time, process, facts);
    }

    /// Records the statement of an event about the name of a file.
    pub fn take_file_name(&mut self, event: FileNameEvent, time: TraceTime, name: &str) {
        self.keep_limits();
        let name = self.texts.intern(name);
        self.files.note(time, event, name);
    }

    /// Records the full name of a registry key.
    pub fn take_key_name(
        &mut self,
        event: KeyNameEvent,
        time: TraceTime,
        block: KeyControlBlock,
        name: &str,
    ) {
        self.keep_limits();
        let name = self.texts.intern(name);
        self.registry.note(time, event, block, name);
    }

    /// The volumes of the machine, to add mappings.
    pub fn volumes_mut(&mut self) -> &mut Volumes {
        &mut self.volumes
    }

    /// Records the address of a page through which the kernel calls the hypervisor.
    pub fn take_hypercall_page(&mut self, base: Address) {
        if !self.hypercall_pages.contains(&base) && self.hypercall_pages.len() < HYPERCALL_PAGES_MAX {
            self.revision += 1;
            self.hypercall_pages.push(base);
        }
    }

    /// Whether the kernel can have been interrupted at an address on its hypercall page, which
    /// belongs to no driver. If the trace does not report the page, every address with the page
    /// offset of the instruction after the call is accepted.
    pub fn may_be_hypercall(&self, address: Address) -> bool {
        match self.hypercall_pages.is_empty() {
            true => address.0 % PAGE_SIZE == AFTER_HYPERCALL,
            false => self.hypercall_pages.iter().any(|page| address.0 / PAGE_SIZE == page.0 / PAGE_SIZE),
        }
    }

    fn process_for(&mut self, phase: Phase, time: TraceTime, pid: Pid) -> ProcessId {
        let before = self.processes.len();
        let process = match phase {
            Phase::End => self.processes.expect_until(pid, time),
            _ => self.processes.expect(pid, time),
        };
        self.revision += u64::from(self.processes.len() != before);
        process
    }

    /// The address space that an image event refers to. Drivers are stated with process 0, in
    /// rundowns also 4; but some images that are stated with process 4 are in user space, mapped
    /// into System.
    fn owner(&mut self, phase: Phase, time: TraceTime, pid: Pid, base: Address) -> Owner {
        let is_kernel = match self.pointer_size {
            _ if pid == Pid::IDLE => true,
            PointerSize::Eight => base.is_kernel(self.pointer_size),
            // A 32-bit system can give processes three of its four gigabytes.
            PointerSize::Four => pid == Pid::SYSTEM && base.is_kernel(self.pointer_size),
        };
        (!is_kernel).then(|| self.process_for(phase, time, pid))
    }

    // Queries.

    /// The process that has an id at a time.
    #[inline]
    pub fn process_at(&self, pid: Pid, time: TraceTime) -> Option<ProcessRef<'_>> {
        self.processes.at(pid, time).map(|id| self.process(id))
    }

    /// The process that an event refers to by an id: the process that has the id at the time of the
    /// event, or had it last. Windows reports the end of a process before its last events.
    #[inline]
    pub fn process_of_event(&self, pid: Pid, time: TraceTime) -> Option<ProcessRef<'_>> {
        self.processes.newest_until(pid, time).map(|id| self.process(id))
    }

    /// A process by its id.
    ///
    /// # Panics
    /// The methods of the reference panic if the id is from another system or was forgotten.
    pub fn process(&self, id: ProcessId) -> ProcessRef<'_> {
        ProcessRef { system: self, id }
    }

    /// All processes, ordered by index.
    pub fn processes(&self) -> impl Iterator<Item = ProcessRef<'_>> {
        self.processes.ids().map(|id| self.process(id))
    }

    /// The thread that has an id at a time.
    #[inline]
    pub fn thread_at(&self, tid: Tid, time: TraceTime) -> Option<ThreadRef<'_>> {
        self.threads.at(tid, time).map(|id| self.thread(id))
    }

    /// The thread that an event refers to by an id: the thread that has the id at the time of the
    /// event, or had it last. A thread continues to run for a while after its end was recorded: the
    /// last thread of a process unloads the modules. `None` if no thread is known, or if it is
    /// [not certain](System::is_thread_uncertain).
    #[inline]
    pub fn thread_of_event(&self, tid: Tid, time: TraceTime) -> Option<ThreadRef<'_>> {
        self.threads.of_event(tid, time).map(|id| self.thread(id))
    }

    /// The thread of an event that states a thread and this process: as
    /// [`thread_of_event`](System::thread_of_event) if it belongs to the process, else the next thread
    /// with the id, if it does and its start was not observed. The record of a stack, which states the
    /// process, follows its event.
    pub fn thread_of_process(&self, pid: Pid, tid: Tid, time: TraceTime) -> Option<ThreadRef<'_>> {
        let is_of_process = |thread: &ThreadRef<'_>| thread.pid() == pid;
        let next = || Some(self.thread(self.threads.next_unobserved(tid, time)?));
        self.thread_of_event(tid, time).filter(is_of_process).or_else(|| next().filter(is_of_process))
    }

    /// Whether events contradict each other about the process of a thread at a time. Either one process
    /// is stated before it and another one after it, and no event reports in between that the thread
    /// ended or that another one started; or the thread is [disputed](System::is_owner_disputed).
    pub fn is_thread_uncertain(&self, tid: Tid, time: TraceTime) -> bool {
        self.threads.is_uncertain(tid, time)
    }

    /// Whether an event that states a thread and this process contradicts the thread events: they
    /// state that the id belonged to a thread of another process before and after the event. Costs
    /// nothing in traces without such contradictions.
    #[inline]
    pub fn is_owner_disputed(&self, pid: Pid, tid: Tid, time: TraceTime) -> bool {
        self.threads.has_disputed
            && self.threads.disputed_around(tid, time).any(|process| self.process(process).pid() == pid)
    }

    /// A thread by its id.
    ///
    /// # Panics
    /// The methods of the reference panic if the id is from another system or was forgotten.
    pub fn thread(&self, id: ThreadId) -> ThreadRef<'_> {
        ThreadRef { system: self, id }
    }

    /// All threads, ordered by index.
    pub fn threads(&self) -> impl Iterator<Item = ThreadRef<'_>> {
        self.threads.ids().map(|id| self.thread(id))
    }

    /// A module by its id.
    ///
    /// # Panics
    /// The methods of the reference panic if the id is from another system or was forgotten.
    pub fn module(&self, id: ModuleId) -> ModuleRef<'_> {
        ModuleRef { system: self, id }
    }

    /// All modules, ordered by index.
    pub fn modules(&self) -> impl Iterator<Item = ModuleRef<'_>> {
        self.modules.ids().map(|id| self.module(id))
    }

    /// The module at an address of a process at a time, and the offset of the address in it.
    ///
    /// Kernel addresses are looked up in the kernel address space for every process.
    #[inline]
    pub fn module_at(&self, pid: Pid, address: Address, time: TraceTime) -> Option<(ModuleRef<'_>, u64)> {
        if address.is_kernel(self.pointer_size)
            && let Some(found) = self.modules.at(None, address, time)
        {
            return Some((self.module(found.0), found.1));
        }
        self.module_in(self.processes.at(pid, time)?, address, time)
    }

    /// As [`module_at`](System::module_at), for a known process. Does not find kernel addresses.
    #[inline]
    pub fn module_in(
        &self,
        process: ProcessId,
        address: Address,
        time: TraceTime,
    ) -> Option<(ModuleRef<'_>, u64)> {
        self.processes.span(process)?;
        let (id, rva) = self.modules.at(Some(process), address, time)?;
        Some((self.module(id), rva))
    }

    /// The kernel module at an address at a time, and the offset of the address in it.
    #[inline]
    pub fn kernel_module_at(&self, address: Address, time: TraceTime) -> Option<(ModuleRef<'_>, u64)> {
        let (id, rva) = self.modules.at(None, address, time)?;
        Some((self.module(id), rva))
    }

    /// The known facts about the private memory at an address of a process at a time.
    pub fn region_at(&self, pid: Pid, address: Address, time: TraceTime) -> Option<Region> {
        self.region_in(self.processes.at(pid, time)?, address, time)
    }

    /// As [`region_at`](System::region_at), for a known process.
    pub fn region_in(&self, process: ProcessId, address: Address, time: TraceTime) -> Option<Region> {
        self.processes.span(process)?;
        self.regions.at(process, address, time)
    }

    /// The reservation that [`region_in`](System::region_in) would return, without the commit.
    pub fn reserved_in(&self, process: ProcessId, address: Address, time: TraceTime) -> Option<Allocation> {
        self.processes.span(process)?;
        self.regions.reserved(process, address, time)
    }

    /// Identifies the period around a time in which the modules, JIT-compiled methods, views and
    /// memory of a process do not change; for `None`, the kernel modules. Intended for caches of
    /// lookups.
    #[inline]
    pub fn validity_id(&self, process: Option<ProcessId>, time: TraceTime) -> ValidityId {
        let modules = self.modules.validity_id(process, time).within(self.losses.period(time.0));
        let Some(process) = process else { return modules };
        if self.processes.span(process).is_none() {
            return ValidityId::default();
        }
        let rest =
            self.methods.spaces.validity_id(process, time).and(self.views.spaces.validity_id(process, time));
        modules.and(rest).and(self.regions.validity_id(process, time))
    }

    /// As [`validity_id`](System::validity_id), for the modules of a process only.
    #[inline]
    pub fn module_validity_id(&self, process: ProcessId, time: TraceTime) -> ValidityId {
        match self.processes.span(process) {
            Some(_) => self.modules.validity_id(Some(process), time).within(self.losses.period(time.0)),
            None => ValidityId::default(),
        }
    }

    /// The modules of a process at a time, in no order. `None` if more than `max` changes of its
    /// modules are stored; the cost is proportional to their number.
    pub fn modules_in(
        &self,
        process: ProcessId,
        time: TraceTime,
        max: usize,
    ) -> Option<impl Iterator<Item = ModuleRef<'_>>> {
        Some(self.modules_of(process, max)?.filter(move |module| module.span().touches(time)))
    }

    /// As [`modules_in`](System::modules_in), at any time.
    pub fn modules_of(&self, process: ProcessId, max: usize) -> Option<impl Iterator<Item = ModuleRef<'_>>> {
        self.processes.span(process)?;
        Some(self.modules.of_process(process, max)?.map(|id| self.module(id)))
    }

    /// The JIT-compiled method at an address of a process at a time.
    #[inline]
    pub fn method_in(&self, process: ProcessId, address: Address, time: TraceTime) -> Option<MethodRef<'_>> {
        self.processes.span(process)?;
        self.methods.at(process, address, time).map(|id| self.method(id))
    }

    /// A method by its id.
    ///
    /// # Panics
    /// The methods of the reference panic if the id is from another system or was forgotten.
    pub fn method(&self, id: MethodId) -> MethodRef<'_> {
        MethodRef { system: self, id }
    }

    /// All methods, ordered by index.
    pub fn methods(&self) -> impl Iterator<Item = MethodRef<'_>> {
        self.methods.ids().map(|id| self.method(id))
    }

    /// The section that is mapped at an address of a process at a time. Traces contain mapped
    /// sections only if their kernel group was enabled.
    pub fn view_in(&self, process: ProcessId, address: Address, time: TraceTime) -> Option<View> {
        self.processes.span(process)?;
        self.views.at(process, address, time)
    }

    /// All sections that were mapped into a process, in the order of the statements about them.
    pub fn views_of(&self, process: ProcessId) -> impl Iterator<Item = View> {
        self.views.of(process)
    }

    /// All calls that reserved or committed memory of a process, in their order.
    pub fn allocations_of(&self, process: ProcessId) -> impl Iterator<Item = Allocation> {
        self.regions.of(process)
    }

    /// The name of the file that an operation at a time refers to.
    ///
    /// The names of files that were opened before the trace are in the rundown at its end. In one
    /// pass they are not known before it.
    pub fn file_name(
        &self,
        key: Option<FileKey>,
        object: Option<FileObject>,
        time: TraceTime,
    ) -> Option<&str> {
        self.file_names(key, object, time).next().map(|name| name.text)
    }

    /// The names that statements give to the file that an operation at a time refers to, the most
    /// reliable first. A name applies if no event between its statement and `time` can be missing.
    pub fn file_names(
        &self,
        key: Option<FileKey>,
        object: Option<FileObject>,
        time: TraceTime,
    ) -> impl Iterator<Item = StatedName<'_>> {
        self.files.at(key, object, time).map(|name| self.stated_name(name))
    }

    /// The names that statements give to a registry key, as [`file_names`](System::file_names).
    pub fn key_names(&self, key: KeyControlBlock, time: TraceTime) -> impl Iterator<Item = StatedName<'_>> {
        self.registry.at(key, time).map(|name| self.stated_name(name))
    }

    fn stated_name(&self, (text, stated): (Text, TraceTime)) -> StatedName<'_> {
        StatedName { text: self.texts.get(text), stated }
    }

    /// The path for the key and the name of a registry event.
    ///
    /// In one pass, names that are recorded only by a deletion or by the rundown at the end are not
    /// known before it.
    pub fn registry_path<'a>(
        &'a self,
        key: KeyControlBlock,
        name: &'a str,
        time: TraceTime,
    ) -> RegistryPath<'a> {
        let key = match key {
            KeyControlBlock(0) => Some(""),
            key => self.key_names(key, time).next().map(|name| name.text),
        };
        RegistryPath { key, name }
    }

    /// The mapping of NT paths to drives.
    pub fn volumes(&self) -> &Volumes {
        &self.volumes
    }

    /// As [`Volumes::dos_path`].
    pub fn dos_path<'a>(&self, nt: &'a str) -> Cow<'a, str> {
        self.volumes.dos_path(nt)
    }
}
