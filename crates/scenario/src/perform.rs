//! Executes the actions of threads, and logs the events that the kernel would log for them.

use std::io::Write;

use stackhound_etl::write::stack::StackMode;
use stackhound_etl::write::{HeaderSpec, Issuer, ItemSpec, WriteError};
use stackhound_types::{Address, Guid, PointerSize, RawTime};

use crate::event::{self, KernelEvent};
use crate::frames::Frames;
use crate::image::SystemImage;
use crate::machine::{ProcessIndex, Role};
use crate::output::Logged;
use crate::payload;
use crate::provider::{self, Extended, ProviderEvent};
use crate::resources::KEYS;
use crate::simulation::Simulation;
use crate::site::{self, Call, Site, below};
use crate::stacks::{Pending, UserPart};
use crate::thread::{Action, Caller, Mode, Occurrence, Start, ThreadIndex};
use crate::truth::{About, AttackKind, GroundTruth, Region};

impl<W: Write> Simulation<'_, W> {
    /// Executes one action of the thread that runs on a processor.
    pub fn perform(&mut self, on: u16, thread: ThreadIndex, action: Action) -> Result<(), WriteError> {
        match action {
            Action::Compute(ticks) => {
                self.processors[usize::from(on)].next_step = self.out.now() + i64::from(ticks);
            }
            Action::In(functions) => self.threads[thread].functions = Some(functions),
            Action::Enter(call) => {
                let actor = &self.threads[thread];
                let user = match actor.caller {
                    Caller::Loader => actor.loader_frames(&self.machine, call),
                    _ => actor.call_frames(&self.machine, call),
                };
                self.threads[thread].user = user;
                self.threads[thread].kernel.clear();
                self.enter(on, thread, call)?;
            }
            Action::EnterFromCallback(call) => {
                let outer = self.kernel_frames(thread, &site::CALLBACK);
                let user = self.threads[thread].callback_frames(&self.machine, call);
                let actor = &mut self.threads[thread];
                actor.outer = Some((outer, std::mem::replace(&mut actor.user, user)));
                actor.kernel.clear();
                self.enter(on, thread, call)?;
            }
            Action::ReturnToCallback => {
                self.exit_event(on, thread)?;
                let Some((outer, user)) = self.threads[thread].outer.take() else { return Ok(()) };
                self.threads[thread].user = user;
                self.threads[thread].kernel.clear();
                self.threads[thread].kernel.extend(&outer.as_slice()[site::CALLBACK.len()..]);
            }
            Action::Fault => {
                let position = self.random.below(4);
                let user = self.threads[thread].running_frames(&self.machine, position);
                let kernel = self.addresses(&site::PAGE_FAULT);
                let actor = &mut self.threads[thread];
                actor.mode = Mode::Fault(self.out.now());
                actor.user = user;
                actor.kernel.clear();
                actor.kernel.extend(&kernel);
            }
            Action::Leave => {
                if let Mode::Call(_) = self.threads[thread].mode {
                    self.exit_event(on, thread)?;
                }
                self.user_part(on, thread)?;
                self.threads[thread].mode = Mode::User;
            }
            Action::Log(occurrence) => self.log(on, thread, occurrence)?,
            Action::Wait(wake, ticks) => self.wait(on, thread, wake, ticks)?,
            Action::Signal => {
                if let Some(woken) = self.take_signallable() {
                    self.ready_other(on, thread, woken)?;
                }
            }
            Action::Unlock(waiter) => {
                self.unlock();
                self.ready_other(on, thread, waiter)?;
            }
            Action::Spawn(role) => self.spawn(on, thread, role)?,
            Action::StartThread(process, start) => self.start_thread(on, thread, process, start)?,
            Action::AllocateCode(process, region) => self.allocate_code(on, thread, process, region)?,
            Action::LayOut(is_called) => self.threads[thread].lays_out = is_called,
            Action::CallAs(caller) => self.threads[thread].caller = caller,
            Action::Attack(attack) => self.threads[thread].attack = Some(attack),
            Action::AttackEnds => self.progress.end(),
            Action::ExitThread => self.exit_thread(on, thread)?,
            Action::ExitProcess => self.exit_process(on, thread)?,
        }
        Ok(())
    }

    fn enter(&mut self, on: u16, thread: ThreadIndex, call: &'static Call) -> Result<(), WriteError> {
        self.threads[thread].mode = Mode::Call(call);
        if self.out.has_system_calls {
            self.enter_event(on, thread, call)?;
        }
        let variant = self.random.below(2) as u32;
        let kernel = self.addresses(&[call.in_routine(variant), site::SYSTEM_SERVICE]);
        self.threads[thread].kernel.extend(&kernel);
        Ok(())
    }

    fn enter_event(&mut self, on: u16, thread: ThreadIndex, call: &Call) -> Result<(), WriteError> {
        let routine = self.machine.address(call.routine);
        self.out.payload.address(routine);
        let event = event::SYSTEM_CALL_ENTER;
        let logged = self.out.kernel(on, event, self.issuer(thread))?;
        let tid = self.threads[thread].tid;
        self.out.add_ground_truth(logged, GroundTruth::Enter { tid, routine });
        self.kernel_part(on, thread, event.kind(), logged, &site::SYSTEM_SERVICE_ENTRY).map(drop)
    }

    fn exit_event(&mut self, on: u16, thread: ThreadIndex) -> Result<(), WriteError> {
        if !self.out.has_system_calls {
            return Ok(());
        }
        self.out.payload.u32(0);
        let logged = self.out.kernel(on, event::SYSTEM_CALL_EXIT, Issuer::UNKNOWN)?;
        let tid = self.threads[thread].tid;
        self.out.add_ground_truth(logged, GroundTruth::Exit { tid });
        Ok(())
    }

    /// Called when a thread leaves the kernel: logs its user stack for all events since it entered.
    pub fn user_part(&mut self, on: u16, thread: ThreadIndex) -> Result<(), WriteError> {
        let owner = self.owner(thread);
        let mut pending = std::mem::take(&mut self.threads[thread].pending);
        let frames = self.threads[thread].user;
        let record_kept = match self.threads[thread].match_id.take() {
            Some(match_id) => self.user_part_record(on, thread, match_id, &frames)?,
            None => false,
        };
        // The stack record refers to one of the events, usually the first.
        let own_records = |pending: &Pending| !pending.is_extended;
        let named = if self.random.one_in(4) {
            pending.iter().rposition(own_records)
        } else {
            pending.iter().position(own_records)
        };
        let part_kept = match named {
            Some(named) => {
                let event = pending[named].logged;
                self.stacks.part(&mut self.out, on, event, owner, StackMode::User, &frames)?
            }
            None => false,
        };
        for (at, event) in pending.iter().enumerate() {
            let part = UserPart { frames: &frames, kept: record_kept || part_kept };
            self.stacks.settle(event, owner, Some(part), part_kept && named == Some(at));
        }
        pending.clear();
        self.threads[thread].pending = pending;
        Ok(())
    }

    /// Logs the event that carries the user stack of an earlier event.
    fn user_part_record(
        &mut self,
        on: u16,
        thread: ThreadIndex,
        match_id: u64,
        frames: &Frames,
    ) -> Result<bool, WriteError> {
        let identity = provider::USER_STACK;
        let pointer_size = PointerSize::Eight;
        let items = [ItemSpec::StackTrace { pointer_size, match_id, frames: frames.as_slice() }];
        let header = self.event_header(thread, identity, &items);
        let logged = self.out.event(on, identity.kind(), pointer_size, header)?;
        self.stacks.records.extended_parts += u64::from(logged.kept);
        Ok(logged.kept)
    }

    fn event_header<'s>(
        &self,
        thread: ThreadIndex,
        identity: provider::Identity,
        items: &'s [ItemSpec<'s>],
    ) -> HeaderSpec<'s> {
        HeaderSpec::Event {
            provider: identity.provider,
            descriptor: identity.descriptor,
            property: 0,
            issuer: self.issuer(thread),
            activity: Guid::ZERO,
            items,
        }
    }

    /// Logs a kernel event with the prepared payload, and its kernel stack.
    fn event(
        &mut self,
        on: u16,
        thread: ThreadIndex,
        event: KernelEvent,
        below: &[Site],
    ) -> Result<Logged, WriteError> {
        let logged = self.out.kernel(on, event, self.issuer(thread))?;
        self.kernel_part(on, thread, event.kind(), logged, below)?;
        Ok(logged)
    }

    fn log(&mut self, on: u16, thread: ThreadIndex, occurrence: Occurrence) -> Result<(), WriteError> {
        let owner = self.owner(thread);
        let process = self.threads[thread].process;
        let now = self.out.now();
        let about = self.out.notes.subjects.is_some().then(|| self.about(thread, occurrence));
        let mut truth = None;
        let out = &mut self.out.payload;
        let (event, below): (KernelEvent, Option<&[Site]>) = match occurrence {
            Occurrence::FileCreate(irp, file, create) => {
                truth = Some(GroundTruth::FileBegin { tid: owner.tid, request: irp, bytes: 0 });
                payload::file_create(out, irp, file, create, owner.tid, self.resources.path(file.file));
                (event::FILE_CREATE, Some(below::FILE_OPEN))
            }
            Occurrence::FileRead(irp, file, size) => {
                truth = Some(GroundTruth::FileBegin { tid: owner.tid, request: irp, bytes: size });
                payload::file_transfer(out, irp, file, owner.tid, 0, size);
                (event::FILE_READ, Some(below::FILE))
            }
            Occurrence::FileWrite(irp, file, size) => {
                truth = Some(GroundTruth::FileBegin { tid: owner.tid, request: irp, bytes: size });
                payload::file_transfer(out, irp, file, owner.tid, 0, size);
                (event::FILE_WRITE, Some(below::FILE))
            }
            Occurrence::FileCleanup(irp, file) => {
                truth = Some(GroundTruth::FileBegin { tid: owner.tid, request: irp, bytes: 0 });
                payload::file_simple(out, irp, file, owner.tid);
                (event::FILE_CLEANUP, Some(below::FILE))
            }
            Occurrence::FileClose(irp, file) => {
                truth = Some(GroundTruth::FileBegin { tid: owner.tid, request: irp, bytes: 0 });
                payload::file_simple(out, irp, file, owner.tid);
                (event::FILE_CLOSE, Some(below::FILE))
            }
            Occurrence::FileOperationEnd(irp, size) => {
                truth = Some(GroundTruth::FileEnd { request: irp });
                payload::file_operation_end(out, irp, size.into(), 0);
                (event::FILE_OPERATION_END, None)
            }
            Occurrence::FileName(file) => {
                payload::file_name(out, file, self.resources.path(file));
                (event::FILE_NAME_CREATE, None)
            }
            Occurrence::FileNameDelete(file) => {
                payload::file_name(out, file, self.resources.path(file));
                self.resources.delete_file(file);
                (event::FILE_NAME_DELETE, None)
            }
            Occurrence::DiskReadInit(irp) => {
                payload::disk_init(out, irp, owner.tid);
                let is_fault = matches!(self.threads[thread].mode, Mode::Fault(_));
                let below = if is_fault { below::DISK_FOR_PAGE } else { below::DISK_FOR_FILE };
                (event::DISK_READ_INIT, Some(below))
            }
            Occurrence::DiskWriteInit(irp) => {
                payload::disk_init(out, irp, owner.tid);
                (event::DISK_WRITE_INIT, Some(below::WRITE_BEHIND))
            }
            Occurrence::HardFault(mut transfer) => {
                if let Mode::Fault(since) = self.threads[thread].mode {
                    transfer.started = since;
                }
                let (since, tid, bytes) = (RawTime(transfer.started), owner.tid, transfer.size);
                truth = Some(GroundTruth::HardFault { since, tid, bytes });
                let address = self.threads[thread].user.as_slice()[0];
                payload::hard_fault(out, &transfer, address, owner.tid);
                (event::HARD_FAULT, Some(below::FAULT))
            }
            Occurrence::RegistryCreate(key) => {
                let (parent, name) = KEYS[key as usize].relative();
                payload::registry(out, now, parent, name);
                (event::REGISTRY_CREATE, Some(below::REGISTRY_OPEN))
            }
            Occurrence::RegistryOpen(key) => {
                let (parent, name) = KEYS[key as usize].relative();
                payload::registry(out, now, parent, name);
                (event::REGISTRY_OPEN, Some(below::REGISTRY_OPEN))
            }
            Occurrence::RegistryQueryValue(key) => {
                payload::registry(out, now, Some(key.into()), KEYS[key as usize].value);
                (event::REGISTRY_QUERY_VALUE, Some(below::REGISTRY))
            }
            Occurrence::RegistrySetValue(key) => {
                payload::registry(out, now, Some(key.into()), KEYS[key as usize].value);
                (event::REGISTRY_SET_VALUE, Some(below::REGISTRY))
            }
            Occurrence::RegistryClose(key) => {
                self.resources.close_key(key);
                payload::registry(out, now, Some(key.into()), "");
                (event::REGISTRY_CLOSE, Some(below::REGISTRY))
            }
            Occurrence::KeyControlBlock(key) => {
                if !self.resources.open_key(key) {
                    return Ok(());
                }
                payload::registry(out, now, Some(key.into()), KEYS[key as usize].path);
                (event::KCB_CREATE, None)
            }
            Occurrence::KeyControlBlockDelete(key) => {
                if !self.resources.drop_key(key) {
                    return Ok(());
                }
                payload::registry(out, now, Some(key.into()), KEYS[key as usize].path);
                (event::KCB_DELETE, None)
            }
            Occurrence::VirtualAlloc(size) | Occurrence::VirtualKeep(size) => {
                let region = self.machine.processes[process].allocate(size);
                truth = Some(GroundTruth::Allocate { pid: owner.pid, region });
                payload::virtual_memory(out, region.base.0, size, owner.pid, payload::ALLOCATE);
                if let Occurrence::VirtualAlloc(_) = occurrence {
                    self.resources.allocated.push((process, region));
                }
                (event::VIRTUAL_ALLOC, Some(below::MEMORY))
            }
            Occurrence::VirtualFree => {
                let Some(region) = self.resources.take_allocated(process) else { return Ok(()) };
                truth = Some(GroundTruth::Free { pid: owner.pid, region });
                payload::virtual_memory(out, region.base.0, region.size, owner.pid, payload::RELEASE);
                (event::VIRTUAL_FREE, Some(below::MEMORY))
            }
            Occurrence::ImageLoad(image) => {
                self.machine.load(process, image);
                self.machine.image_payload(&mut self.out.payload, process, image);
                (event::IMAGE_LOAD, Some(below::IMAGE))
            }
            Occurrence::ImageUnload(image) => {
                self.machine.unload(process, image);
                self.machine.image_payload(&mut self.out.payload, process, image);
                (event::IMAGE_UNLOAD, Some(below::IMAGE))
            }
            Occurrence::TcpSend(size) => {
                truth = Some(GroundTruth::Network { pid: owner.pid, bytes: size, is_send: true });
                payload::tcp(out, owner.pid, size, owner.pid.0.into(), true, now);
                (event::TCP_SEND, Some(below::SEND))
            }
            Occurrence::Provider(event) => return self.provider_event(on, thread, event),
        };
        self.out.about(|| about.unwrap_or_default());
        let logged = match below {
            Some(below) => self.event(on, thread, event, below)?,
            None => self.out.kernel(on, event, self.issuer(thread))?,
        };
        if let Some(action) = truth {
            self.out.add_ground_truth(logged, action);
        }
        Ok(())
    }

    /// The object that the event for an occurrence is about.
    fn about(&self, thread: ThreadIndex, occurrence: Occurrence) -> About {
        let file = |file: u32| About::File(self.resources.path(file).to_owned());
        let key = |key: u32| About::Key(KEYS[key as usize].path.to_owned(), None);
        let value = |key: u32| {
            let key = &KEYS[key as usize];
            About::Key(key.path.to_owned(), Some(key.value.to_owned()))
        };
        match occurrence {
            Occurrence::FileCreate(_, of, _)
            | Occurrence::FileRead(_, of, _)
            | Occurrence::FileWrite(_, of, _)
            | Occurrence::FileCleanup(_, of)
            | Occurrence::FileClose(_, of) => file(of.file),
            Occurrence::FileName(of) | Occurrence::FileNameDelete(of) => file(of),
            Occurrence::HardFault(transfer) => file(transfer.file),
            Occurrence::RegistryCreate(of)
            | Occurrence::RegistryOpen(of)
            | Occurrence::RegistryClose(of)
            | Occurrence::KeyControlBlock(of)
            | Occurrence::KeyControlBlockDelete(of) => key(of),
            Occurrence::RegistryQueryValue(of) | Occurrence::RegistrySetValue(of) => value(of),
            Occurrence::VirtualAlloc(_) | Occurrence::VirtualKeep(_) | Occurrence::VirtualFree => {
                About::Memory(self.owner(thread).pid)
            }
            Occurrence::ImageLoad(image) | Occurrence::ImageUnload(image) => {
                About::File(self.machine.images[image as usize].path.clone())
            }
            _ => About::Nothing,
        }
    }

    fn provider_event(
        &mut self,
        on: u16,
        thread: ThreadIndex,
        event: ProviderEvent,
    ) -> Result<(), WriteError> {
        let owner = self.owner(thread);
        let actor = &self.threads[thread];
        let attack = actor.shown_attack();
        let extended = event.extended();
        let mut frames = match extended {
            Extended::None => Frames::EMPTY,
            Extended::User => actor.user,
            Extended::User32 => {
                let mut frames = Frames::EMPTY;
                actor.user.as_slice().iter().filter(|frame| is_32_bit(**frame)).for_each(|&f| frames.push(f));
                frames
            }
            Extended::Both => self.kernel_frames(thread, below::AUDIT),
            Extended::Kernel => self.kernel_frames(thread, below::PROVIDER),
        };
        let mut match_id = 0;
        match extended {
            Extended::Both => frames.extend(self.threads[thread].user.as_slice()),
            Extended::Kernel => {
                self.match_ids += 1;
                match_id = self.match_ids;
                self.threads[thread].match_id = Some(match_id);
            }
            _ => {}
        }
        event.payload(&mut self.out.payload, &self.providers, &self.machine);
        let pointer_size = event.pointer_size();
        let mut items = Vec::with_capacity(3);
        if extended != Extended::None {
            // A 64-bit system records 64-bit frames, also for 32-bit processes.
            let pointer_size = PointerSize::Eight;
            items.push(ItemSpec::StackTrace { pointer_size, match_id, frames: frames.as_slice() });
        }
        if let Some((schema, traits)) = event.metadata(&self.providers) {
            items.extend([ItemSpec::ProviderTraits(traits), ItemSpec::Schema(schema)]);
        }
        let machine = &self.machine;
        self.out.about(|| match event {
            ProviderEvent::OpenProcess(pid) => About::Process(pid),
            ProviderEvent::ThreadStart(process, index) => {
                let process = &machine.processes[process].facts;
                About::Thread(process.pid, process.threads[index].tid)
            }
            ProviderEvent::ProcessStart(process, _) => About::Process(machine.processes[process].pid()),
            _ => About::Nothing,
        });
        let identity = event.identity();
        let header = self.event_header(thread, identity, &items);
        let kind = identity.kind();
        let logged = self.out.event(on, kind, pointer_size, header)?;
        match extended {
            Extended::None => {}
            Extended::User | Extended::User32 | Extended::Both => {
                self.stacks.extended_event(kind, logged, owner, &frames, attack);
            }
            Extended::Kernel => {
                self.stacks.records.extended += u64::from(logged.kept);
                let (kernel_kept, is_damaged) = (logged.kept, false);
                let kernel = frames;
                let is_extended = true;
                let event =
                    Pending { event: kind, logged, kernel, kernel_kept, is_damaged, is_extended, attack };
                self.threads[thread].pending.push(event);
            }
        }
        Ok(())
    }

    fn ready_other(&mut self, on: u16, thread: ThreadIndex, woken: ThreadIndex) -> Result<(), WriteError> {
        payload::ready_thread(&mut self.out.payload, self.threads[woken].tid, false);
        let owner = self.owner(woken);
        self.out.about(|| About::Thread(owner.pid, owner.tid));
        let logged = self.event(on, thread, event::READY_THREAD, below::READY)?;
        let (tid, by) = (owner.tid, Some(self.threads[thread].tid));
        self.out.add_ground_truth(logged, GroundTruth::Ready { tid, by });
        self.make_ready(woken)
    }

    fn spawn(&mut self, on: u16, creator: ThreadIndex, role: Role) -> Result<(), WriteError> {
        let parent = self.owner(creator).pid;
        let program = role.code().0.map(SystemImage::index);
        let process = self.machine.new_process(role, program, parent, None);
        payload::process(&mut self.out.payload, &self.machine.processes[process].facts, None);
        let pid = self.machine.processes[process].pid();
        self.out.about(|| About::Process(pid));
        let logged = self.event(on, creator, event::PROCESS_START, below::PROCESS)?;
        self.machine.processes[process].facts.started = Some(logged.time);
        if self.machine.reuses_ids() {
            let time = self.out.utc(logged.time);
            self.provider_event(on, creator, ProviderEvent::ProcessStart(process, time))?;
        }
        let start = Start::Program(0);
        let thread = self.new_thread(on, creator, process, start)?;
        self.plan_startup(thread);
        self.ready_other(on, creator, thread)
    }

    fn start_thread(
        &mut self,
        on: u16,
        creator: ThreadIndex,
        process: ProcessIndex,
        start: Start,
    ) -> Result<(), WriteError> {
        let before = self.threads[creator].attack;
        if let Start::Private(_) = start {
            self.threads[creator].attack = Some(AttackKind::UnbackedThreadStart);
        }
        let thread = self.new_thread(on, creator, process, start)?;
        self.threads[creator].attack = before;
        let event = ProviderEvent::ThreadStart(process, self.threads[thread].index_in_process);
        self.provider_event(on, creator, event)?;
        self.threads[thread].script.push_back(Action::Leave);
        self.plan_first(thread);
        self.ready_other(on, creator, thread)
    }

    /// Adds a thread and logs its start.
    fn new_thread(
        &mut self,
        on: u16,
        creator: ThreadIndex,
        process: ProcessIndex,
        start: Start,
    ) -> Result<ThreadIndex, WriteError> {
        let thread = self.add_thread(process, start, None);
        let index_in_process = self.threads[thread].index_in_process;
        let (pid, facts) = {
            let process = &self.machine.processes[process];
            (process.pid(), process.facts.threads[index_in_process])
        };
        payload::thread(&mut self.out.payload, pid, &facts);
        self.out.about(|| About::Thread(pid, facts.tid));
        let logged = self.event(on, creator, event::THREAD_START, below::THREAD)?;
        self.machine.processes[process].facts.threads[index_in_process].started = Some(logged.time);
        Ok(thread)
    }

    fn allocate_code(
        &mut self,
        on: u16,
        thread: ThreadIndex,
        process: ProcessIndex,
        region: Region,
    ) -> Result<(), WriteError> {
        let pid = self.machine.processes[process].pid();
        self.machine.processes[process].facts.code_regions.push(region);
        payload::virtual_memory(&mut self.out.payload, region.base.0, region.size, pid, payload::ALLOCATE);
        self.out.about(|| About::Memory(pid));
        let logged = self.event(on, thread, event::VIRTUAL_ALLOC, below::MEMORY)?;
        self.out.add_ground_truth(logged, GroundTruth::Allocate { pid, region });
        Ok(())
    }

    fn exit_thread(&mut self, on: u16, thread: ThreadIndex) -> Result<(), WriteError> {
        self.end_thread(on, thread)?;
        self.settle_without_user_part(thread);
        self.retire(on, thread)
    }

    fn end_thread(&mut self, on: u16, thread: ThreadIndex) -> Result<(), WriteError> {
        let actor = &self.threads[thread];
        let (process, index_in_process) = (actor.process, actor.index_in_process);
        let facts = &self.machine.processes[process].facts;
        payload::thread(&mut self.out.payload, facts.pid, &facts.threads[index_in_process]);
        let time = self.event(on, thread, event::THREAD_END, below::END)?.time;
        self.machine.end_thread(process, index_in_process, time);
        Ok(())
    }

    fn exit_process(&mut self, on: u16, thread: ThreadIndex) -> Result<(), WriteError> {
        let process = self.threads[thread].process;
        let pid = self.owner(thread).pid;
        self.out.payload.u32(pid.0);
        self.event(on, thread, event::PROCESS_TERMINATE, below::END)?;
        self.end_thread(on, thread)?;
        for image in self.machine.processes[process].loaded.clone() {
            self.log(on, thread, Occurrence::ImageUnload(image))?;
        }
        payload::process(&mut self.out.payload, &self.machine.processes[process].facts, Some(0));
        let time = self.event(on, thread, event::PROCESS_END, below::END)?.time;
        self.machine.end_process(process, time);
        self.settle_without_user_part(thread);
        self.retire(on, thread)
    }

    /// Settles the pending events of a thread whose user stack will not be logged.
    pub fn settle_without_user_part(&mut self, thread: ThreadIndex) {
        let owner = self.owner(thread);
        for pending in std::mem::take(&mut self.threads[thread].pending) {
            self.stacks.settle(&pending, owner, None, false);
        }
    }
}

/// Whether an address is in the address space of 32-bit processes.
fn is_32_bit(address: Address) -> bool {
    address.0 < 1 << 32
}
