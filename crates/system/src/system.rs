//! The whole machine: what is taken in about its parts, and what can be asked.

use std::borrow::Cow;

use stackhound_etl::{Index, LogfileHeader};
use stackhound_trace::{OpenTrace, TraceTime};
use stackhound_types::{Address, PdbIdentity, Pid, PointerSize, Tid};

use crate::completeness::{Completeness, Gap, Losses};
use crate::file::{FileKey, FileNameEvent, FileNames, FileObject};
use crate::forget::{Forgetting, ForgottenEarly};
use crate::method::{MethodFacts, MethodId, MethodRef, Methods};
use crate::module::{ModuleFacts, ModuleId, ModuleRef, Modules, Owner};
use crate::process::{ProcessFacts, ProcessId, ProcessRef, Processes};
use crate::ranges::ValidityId;
use crate::region::{Allocation, AllocationFacts, Region, Regions};
use crate::registry::{KeyControlBlock, KeyNameEvent, KeyNames, RegistryPath};
use crate::span::{Evidence, Phase, Span};
use crate::text::Texts;
use crate::thread::{ThreadFacts, ThreadId, ThreadRef, Threads};
use crate::view::{View, ViewFacts, Views};
use crate::volume::Volumes;

/// What happens to memory of a process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AllocationEvent {
    /// It is reserved or committed.
    Allocate,
    /// It is decommitted or released.
    Free,
    /// It is there when the recording begins or ends.
    Rundown,
}

/// A machine has one; a trace of several boots could report more.
const HYPERCALL_PAGES_MAX: usize = 64;
const PAGE_SIZE: u64 = 0x1000;
/// The page begins with `vmcall` or `vmmcall`, which take three bytes (Hypervisor Top Level Functional Specification).
const AFTER_HYPERCALL: u64 = 3;

/// Counters of a [`System`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct SystemStats {
    /// Events that were taken in.
    pub observed: u64,
    /// Events whose payload could not be read.
    pub malformed: u64,
    /// Events that do not say which process or thread they are about; they tell nothing.
    pub without_process: u64,
    /// Unloads of modules that nothing else is known of, where another module was before.
    pub unplaced_unloads: u64,
    /// PDB identities for which no module was found.
    pub unclaimed_pdbs: u64,
    /// Things that were over and are [forgotten](System::forget_before).
    pub forgotten: u64,
    /// What was forgotten because of [`Limits`](crate::Limits).
    pub forgotten_early: ForgottenEarly,
}

/// The state of the traced machine at any time of the trace.
///
/// Memory grows with the events that are taken in, by 50 to 500 bytes for one, beside its distinct texts; nothing is
/// forgotten, but where that is [asked for](System::forget_before) or [limits](System::limited) are given. Every call takes a time that grows with the logarithm of what is known, whatever the events say.
#[derive(Debug)]
pub struct System {
    pub(crate) texts: Texts,
    pub(crate) processes: Processes,
    pub(crate) threads: Threads,
    pub(crate) modules: Modules,
    pub(crate) methods: Methods,
    pub(crate) regions: Regions,
    pub(crate) views: Views,
    pub(crate) files: FileNames,
    pub(crate) registry: KeyNames,
    volumes: Volumes,
    /// Bases of the pages through which the kernel calls the hypervisor, as far as the trace reports them.
    hypercall_pages: Vec<Address>,
    pointer_size: PointerSize,
    losses: Losses,
    /// See [`System::revision`].
    pub(crate) revision: u64,
    pub(crate) stats: SystemStats,
    pub(crate) forgetting: Forgetting,
    /// For the text of the event that is being taken in.
    pub(crate) scratch: String,
}

impl System {
    /// A machine of which nothing is known but its pointer size.
    pub fn new(pointer_size: PointerSize, losses: Losses) -> System {
        let mut texts = Texts::default();
        let processes = Processes::new(&mut texts);
        System {
            texts,
            processes,
            threads: Threads::new(),
            modules: Modules::default(),
            methods: Methods::default(),
            regions: Regions::default(),
            views: Views::default(),
            files: FileNames::default(),
            registry: KeyNames::default(),
            volumes: Volumes::default(),
            hypercall_pages: Vec::new(),
            pointer_size,
            losses,
            revision: 0,
            stats: SystemStats::default(),
            forgetting: Forgetting::default(),
            scratch: String::new(),
        }
    }

    /// The machine that these sessions are about, with what their headers tell of pointer size and losses.
    pub fn of_sessions<'s>(sessions: impl IntoIterator<Item = &'s LogfileHeader>) -> System {
        let mut losses = Losses::default();
        let mut pointer_size = PointerSize::Four;
        for session in sessions {
            losses.events += u64::from(session.events_lost);
            losses.buffers += u64::from(session.buffers_lost);
            // A private session of a 32-bit process can be among them.
            pointer_size = pointer_size.max(session.pointer_size);
        }
        System::new(pointer_size, losses)
    }

    /// The machine that a trace is about, with all that is known to be missing from its recordings.
    pub fn of(trace: &OpenTrace) -> System {
        let mut system = System::of_sessions(trace.sessions());
        let buffers = trace.indexes().iter().map(Index::missing_buffers).sum();
        system.add_losses(Losses { events: 0, buffers });
        system
    }

    /// Takes in that events are missing, beside those that were known to be.
    pub fn add_losses(&mut self, losses: Losses) {
        self.revision += 1;
        self.losses.events += losses.events;
        self.losses.buffers += losses.buffers;
    }

    /// What was counted.
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

    // What is taken in.

    /// Takes in what an event says of a process.
    pub fn take_process(&mut self, phase: Phase, time: TraceTime, facts: &ProcessFacts<'_>) -> ProcessId {
        self.keep_limits();
        self.revision += 1;
        self.processes.sight(&mut self.texts, phase, time, facts)
    }

    /// Takes in a process that has ended but whose object is still there when the recording ends (`Defunct`).
    pub fn take_defunct_process(&mut self, time: TraceTime, facts: &ProcessFacts<'_>) -> ProcessId {
        self.revision += 1;
        self.processes.sight_defunct(&mut self.texts, time, facts)
    }

    /// Takes in what an event says of a thread.
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
        self.threads.sight(&mut self.texts, phase, time, (process, tid), facts)
    }

    /// Takes in that a thread is given a name.
    pub fn take_thread_name(&mut self, time: TraceTime, (pid, tid): (Pid, Tid), name: &str) {
        self.keep_limits();
        self.revision += 1;
        let process = self.processes.expect(pid, time);
        let name = self.texts.intern(name);
        self.threads.rename(time, (process, tid), name);
    }

    /// Takes in what an event says of a module. `None` where an unload tells of a module that cannot be placed.
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
        self.modules.sight(&mut self.texts, phase, time, (owner, owner_from), facts)
    }

    /// Takes in the PDB of the module at `base`, as an event of the same time as the module's own tells it.
    pub fn take_pdb(&mut self, time: TraceTime, pid: Pid, base: Address, pdb: &PdbIdentity<&str>) {
        self.keep_limits();
        self.revision += 1;
        let owner = self.owner(Phase::RundownAtEnd, time, pid, base);
        self.modules.identify(&mut self.texts, time, owner, base, pdb);
    }

    /// Whether this code of a method is known, with its name.
    pub(crate) fn is_known_method(
        &self,
        pid: Pid,
        time: TraceTime,
        id: u64,
        start: Address,
        size: u64,
    ) -> bool {
        let process = self.processes.at(pid, time);
        process.is_some_and(|process| self.methods.is_known(process, time, id, start, size))
    }

    /// Takes in what an event says of the code of a method.
    pub fn take_method(&mut self, phase: Phase, time: TraceTime, facts: &MethodFacts<'_>) {
        self.keep_limits();
        let process = self.process_for(phase, time, facts.pid);
        self.methods.sight(&mut self.texts, phase, time, process, facts);
    }

    /// Takes in what happens to memory of a process.
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

    /// Takes in that a section is mapped, unmapped, or mapped when the recording begins or ends. Those in the kernel's
    /// half, which are the file cache's, are ignored.
    pub fn take_view(&mut self, phase: Phase, time: TraceTime, facts: &ViewFacts) {
        if facts.base.is_kernel(self.pointer_size) {
            return;
        }
        self.keep_limits();
        let process = self.process_for(phase, time, facts.pid);
        self.views.sight(phase, time, process, facts);
    }

    /// Takes in what an event says of a file's name.
    pub fn take_file_name(&mut self, event: FileNameEvent, time: TraceTime, name: &str) {
        self.keep_limits();
        let name = self.texts.intern(name);
        self.files.note(time, event, name);
    }

    /// Takes in the whole name of a registry key.
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

    /// What is known of the machine's volumes, to add to.
    pub fn volumes_mut(&mut self) -> &mut Volumes {
        &mut self.volumes
    }

    /// Takes in where a page is through which the kernel calls the hypervisor.
    pub fn take_hypercall_page(&mut self, base: Address) {
        if !self.hypercall_pages.contains(&base) && self.hypercall_pages.len() < HYPERCALL_PAGES_MAX {
            self.revision += 1;
            self.hypercall_pages.push(base);
        }
    }

    /// Whether the kernel can have been interrupted at an address on its page for calls of the hypervisor, which belongs
    /// to no driver. Where the trace does not report the page, any address can be meant that is as far into its page as
    /// the instruction after the call.
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

    /// Whose address space an image event means. Drivers are stated with process 0, in rundowns also 4; but some of
    /// what is stated with process 4 is in the user half, mapped into System.
    fn owner(&mut self, phase: Phase, time: TraceTime, pid: Pid, base: Address) -> Owner {
        let is_kernel = match self.pointer_size {
            _ if pid == Pid::IDLE => true,
            PointerSize::Eight => base.is_kernel(self.pointer_size),
            // A 32-bit system can give processes three of its four gigabytes.
            PointerSize::Four => pid == Pid::SYSTEM && base.is_kernel(self.pointer_size),
        };
        (!is_kernel).then(|| self.process_for(phase, time, pid))
    }

    // What can be asked.

    /// The process that has an id at a time.
    #[inline]
    pub fn process_at(&self, pid: Pid, time: TraceTime) -> Option<ProcessRef<'_>> {
        self.processes.at(pid, time).map(|id| self.process(id))
    }

    /// The process that an event of a time means by an id: the one that has it, or had it last. Windows tells of the
    /// end of a process before its last events.
    #[inline]
    pub fn process_of_event(&self, pid: Pid, time: TraceTime) -> Option<ProcessRef<'_>> {
        self.processes.newest_until(pid, time).map(|id| self.process(id))
    }

    /// A process by its number.
    ///
    /// # Panics
    /// The references' methods do if the number is of another system, or of what was forgotten.
    pub fn process(&self, id: ProcessId) -> ProcessRef<'_> {
        ProcessRef { system: self, id }
    }

    /// All processes, in the order of their numbers.
    pub fn processes(&self) -> impl Iterator<Item = ProcessRef<'_>> {
        self.processes.ids().map(|id| self.process(id))
    }

    /// The thread that has an id at a time.
    #[inline]
    pub fn thread_at(&self, tid: Tid, time: TraceTime) -> Option<ThreadRef<'_>> {
        self.threads.at(tid, time).map(|id| self.thread(id))
    }

    /// The thread that an event of a time means by an id: the one that has it, or had it last. A thread runs on for
    /// a while after its end was recorded: it is the last one of a process that unloads the modules.
    #[inline]
    pub fn thread_of_event(&self, tid: Tid, time: TraceTime) -> Option<ThreadRef<'_>> {
        self.threads.newest_until(tid, time).map(|id| self.thread(id))
    }

    /// A thread by its number.
    ///
    /// # Panics
    /// The references' methods do if the number is of another system, or of what was forgotten.
    pub fn thread(&self, id: ThreadId) -> ThreadRef<'_> {
        ThreadRef { system: self, id }
    }

    /// All threads, in the order of their numbers.
    pub fn threads(&self) -> impl Iterator<Item = ThreadRef<'_>> {
        self.threads.ids().map(|id| self.thread(id))
    }

    /// A module by its number.
    ///
    /// # Panics
    /// The references' methods do if the number is of another system, or of what was forgotten.
    pub fn module(&self, id: ModuleId) -> ModuleRef<'_> {
        ModuleRef { system: self, id }
    }

    /// All modules, in the order of their numbers.
    pub fn modules(&self) -> impl Iterator<Item = ModuleRef<'_>> {
        self.modules.ids().map(|id| self.module(id))
    }

    /// The module at an address of a process at a time, and how many bytes into it the address is.
    ///
    /// Addresses of the kernel's half are looked up in the kernel, whatever the process.
    #[inline]
    pub fn module_at(&self, pid: Pid, address: Address, time: TraceTime) -> Option<(ModuleRef<'_>, u64)> {
        if address.is_kernel(self.pointer_size)
            && let Some(found) = self.modules.at(None, address, time)
        {
            return Some((self.module(found.0), found.1));
        }
        self.module_in(self.processes.at(pid, time)?, address, time)
    }

    /// As [`module_at`](System::module_at), for a process that is known already; not for addresses of the kernel.
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

    /// The kernel's module at an address at a time, and how many bytes into it the address is.
    #[inline]
    pub fn kernel_module_at(&self, address: Address, time: TraceTime) -> Option<(ModuleRef<'_>, u64)> {
        let (id, rva) = self.modules.at(None, address, time)?;
        Some((self.module(id), rva))
    }

    /// Whether all modules of a process at a time are known, so that an address outside them is in none.
    ///
    /// They are if no event is missing and either the process was seen to start, with loads being recorded, or a
    /// rundown listed its modules. For the idle process and System, this is about the kernel's modules. In one pass, the
    /// rundown at the end is known only behind it.
    pub fn map_complete(&self, pid: Pid, time: TraceTime) -> Completeness {
        match self.processes.at(pid, time) {
            Some(process) => self.map_complete_in(process),
            None => Completeness::Incomplete(Gap::UnknownProcess),
        }
    }

    /// As [`map_complete`](System::map_complete), for a process that is known already.
    pub fn map_complete_in(&self, process: ProcessId) -> Completeness {
        let Some(span) = self.processes.span(process) else {
            return Completeness::Incomplete(Gap::UnknownProcess);
        };
        if self.processes.was_shed(process) {
            return Completeness::Incomplete(Gap::Forgotten);
        }
        let owner = (!self.process(process).pid().is_kernel_only()).then_some(process);
        let was_run_down = self.modules.space(owner).is_some_and(|space| space.was_run_down);
        let was_started = span.start == Evidence::Observed;
        if self.losses != Losses::default() {
            Completeness::Incomplete(Gap::Lost(self.losses))
        } else if was_run_down || (was_started && self.modules.loads_are_recorded) {
            Completeness::Complete
        } else {
            Completeness::Incomplete(Gap::NoRundown)
        }
    }

    /// What is known of the private memory at an address of a process at a time.
    pub fn region_at(&self, pid: Pid, address: Address, time: TraceTime) -> Option<Region> {
        self.region_in(self.processes.at(pid, time)?, address, time)
    }

    /// As [`region_at`](System::region_at), for a process that is known already.
    pub fn region_in(&self, process: ProcessId, address: Address, time: TraceTime) -> Option<Region> {
        self.processes.span(process)?;
        self.regions.at(process, address, time)
    }

    /// As [`region_in`](System::region_in), the call that reserved it alone.
    pub fn reserved_in(&self, process: ProcessId, address: Address, time: TraceTime) -> Option<Allocation> {
        self.processes.span(process)?;
        self.regions.reserved(process, address, time)
    }

    /// Around a time, in which stretch modules, compiled methods, views and memory of a process stay as they are; those
    /// of the kernel for `None`. For caches of what is looked up.
    #[inline]
    pub fn validity_id(&self, process: Option<ProcessId>, time: TraceTime) -> ValidityId {
        let modules = self.modules.validity_id(process, time);
        let Some(process) = process else { return modules };
        if self.processes.span(process).is_none() {
            return ValidityId::default();
        }
        let rest =
            self.methods.spaces.validity_id(process, time).and(self.views.spaces.validity_id(process, time));
        modules.and(rest).and(self.regions.validity_id(process, time))
    }

    /// As [`validity_id`](System::validity_id), of the modules of a process alone.
    #[inline]
    pub fn module_validity_id(&self, process: ProcessId, time: TraceTime) -> ValidityId {
        match self.processes.span(process) {
            Some(_) => self.modules.validity_id(Some(process), time),
            None => ValidityId::default(),
        }
    }

    /// The modules of a process at a time, in no order. `None` if more than `max` changes of its modules are remembered:
    /// the cost is that of all of them.
    pub fn modules_in(
        &self,
        process: ProcessId,
        time: TraceTime,
        max: usize,
    ) -> Option<impl Iterator<Item = ModuleRef<'_>>> {
        self.processes.span(process)?;
        let ids = self.modules.of_process(process, max)?;
        Some(ids.map(|id| self.module(id)).filter(move |module| module.span().touches(time)))
    }

    /// The compiled method at an address of a process at a time.
    #[inline]
    pub fn method_in(&self, process: ProcessId, address: Address, time: TraceTime) -> Option<MethodRef<'_>> {
        self.processes.span(process)?;
        self.methods.at(process, address, time).map(|id| self.method(id))
    }

    /// A method by its number.
    ///
    /// # Panics
    /// The references' methods do if the number is of another system, or of what was forgotten.
    pub fn method(&self, id: MethodId) -> MethodRef<'_> {
        MethodRef { system: self, id }
    }

    /// All methods, in the order of their numbers.
    pub fn methods(&self) -> impl Iterator<Item = MethodRef<'_>> {
        self.methods.ids().map(|id| self.method(id))
    }

    /// The section that is mapped at an address of a process at a time. Recordings tell of them if they were asked to.
    pub fn view_in(&self, process: ProcessId, address: Address, time: TraceTime) -> Option<View> {
        self.processes.span(process)?;
        self.views.at(process, address, time)
    }

    /// The name of the file that an operation at a time is on.
    ///
    /// Names of files that were open before the recording stand in the rundown at its end: in one pass they are not
    /// known until then.
    pub fn file_name(
        &self,
        key: Option<FileKey>,
        object: Option<FileObject>,
        time: TraceTime,
    ) -> Option<&str> {
        self.files.at(key, object, time).map(|name| self.texts.get(name))
    }

    /// The path that a registry event's key and name mean together.
    ///
    /// In one pass, names that only a deletion or the rundown at the end tells are not known before.
    pub fn registry_path<'a>(
        &'a self,
        key: KeyControlBlock,
        name: &'a str,
        time: TraceTime,
    ) -> RegistryPath<'a> {
        let key = match key {
            KeyControlBlock(0) => Some(""),
            key => self.registry.at(key, time).map(|name| self.texts.get(name)),
        };
        RegistryPath { key, name }
    }

    /// How NT paths and drives relate.
    pub fn volumes(&self) -> &Volumes {
        &self.volumes
    }

    /// As [`Volumes::dos_path`].
    pub fn dos_path<'a>(&self, nt: &'a str) -> Cow<'a, str> {
        self.volumes.dos_path(nt)
    }
}
