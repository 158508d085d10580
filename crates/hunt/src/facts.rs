//! The facts in the payloads of events that detections evaluate.

use stackhound_detect::Load;
use stackhound_frames::{CHANGES_MAX, Code, FrameResolver, Role, StackOwner};
use stackhound_pipeline::{EventView, slots};
use stackhound_schema::kernel::view;
use stackhound_system::{Evidence, ProcessId, ValidityId};
use stackhound_types::{Address, Pid, PointerSize};

use super::HuntSession;
use super::context::{StackContext, code_in};
use super::kind::{Kind, PayloadKind, Source};
use super::services::Service;

/// The facts of an event in addition to its stack.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EventFacts {
    pub service: Option<Service>,
    pub target: Option<TargetFacts>,
    pub start: Option<ThreadStartFacts>,
    pub load: Option<Load>,
    /// Whether the event reports a change of memory.
    pub has_change: bool,
    /// Whether events that are missing can have changed these facts.
    pub is_lossy: bool,
}

/// The target process.
#[derive(Clone, Copy, Debug)]
pub(super) struct TargetFacts {
    pub process: Option<ProcessId>,
    /// Number of the known facts about the process.
    pub number: u32,
    pub is_other: bool,
    pub access: Option<u32>,
}

/// The start address of a thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct ThreadStartFacts {
    pub pid: Pid,
    pub address: Address,
    pub code: Code,
    pub is_remote: bool,
}

impl EventFacts {
    /// The kind of facts: none, a service or a target. An event never has both.
    pub fn tag(&self) -> u32 {
        match (self.service, self.target) {
            (None, None) => 0,
            (Some(_), _) => 1,
            (None, Some(_)) => 2,
        }
    }

    /// Whether other events with the same facts are unlikely, so that caching the evaluation is not
    /// useful.
    pub fn is_single(&self) -> bool {
        self.start.is_some() || self.load.is_some() || self.has_change
    }
}

impl Kind {
    /// Whether detections evaluate events of this kind without a stack.
    pub fn is_evaluated_alone(self) -> bool {
        matches!(self.payload, PayloadKind::ThreadStart(_) | PayloadKind::ImageLoad | PayloadKind::Target)
    }
}

impl HuntSession {
    /// The facts of an event. Payloads that cannot be parsed have none.
    pub(super) fn facts(
        &mut self,
        view: &EventView<'_>,
        resolver: &mut FrameResolver,
        kind: Kind,
        stack_context: &StackContext,
    ) -> EventFacts {
        let (owner, pointer_size) = (stack_context.owner, stack_context.pointer_size);
        let mut facts = EventFacts { has_change: self.histories.has_change(view), ..EventFacts::default() };
        match kind.payload {
            PayloadKind::Nothing => {}
            PayloadKind::Service => facts.service = self.service(view, resolver, stack_context.kernel),
            PayloadKind::Target => {
                let access = number(view, "DesiredAccess").and_then(|access| access.try_into().ok());
                let pid = number(view, "TargetProcessId").or_else(|| number(view, "TargetProcessID"));
                facts.target =
                    pid.and_then(|pid| self.target(view, resolver, owner, Pid(pid.try_into().ok()?), access));
            }
            PayloadKind::Allocation => {
                let record = view.event().record();
                let parsed =
                    view::VirtualAllocation::parse(record.payload(), record.version(), record.pointer_size());
                let target = parsed.ok().map(|allocation| allocation.process_id);
                facts.target = target
                    .filter(|pid| owner.pid.is_some_and(|owner| owner != *pid))
                    .and_then(|pid| self.target(view, resolver, owner, pid, None));
            }
            PayloadKind::ThreadStart(source) => {
                self.reported_thread_start((view, resolver), source, owner, pointer_size, &mut facts);
            }
            PayloadKind::ImageLoad => facts.load = self.load(view, resolver, pointer_size),
        }
        facts
    }

    fn service(
        &mut self,
        view: &EventView<'_>,
        resolver: &mut FrameResolver,
        kernel: ValidityId,
    ) -> Option<Service> {
        // Only files name routines, and reading the payload costs as much as everything else.
        if self.binaries.is_none() {
            return None;
        }
        let record = view.event().record();
        let parsed = view::SysCallEnter::parse(record.payload(), record.version(), record.pointer_size());
        let address = parsed.ok()?.sys_call_address;
        let (system, files) = (view.trace_state().system(), (resolver, &mut self.binaries));
        self.services.at(system, files, address, (kernel, view.time()))
    }

    fn target(
        &mut self,
        view: &EventView<'_>,
        resolver: &mut FrameResolver,
        owner: StackOwner,
        pid: Pid,
        access: Option<u32>,
    ) -> Option<TargetFacts> {
        let (state, time) = (view.trace_state(), view.time());
        let system = state.system();
        let pointer_size = view.event().block().session().pointer_size;
        let process = state.process_of(pid, time).ok().map(|process| process.id());
        let number = self.facts_number((system, resolver), pointer_size, process, time);
        Some(TargetFacts { process, number, is_other: owner.pid != Some(pid), access })
    }

    fn reported_thread_start(
        &mut self,
        (view, resolver): (&EventView<'_>, &mut FrameResolver),
        source: Source,
        owner: StackOwner,
        pointer_size: PointerSize,
        facts: &mut EventFacts,
    ) {
        let read = match source {
            Source::Class => class_start(view),
            Source::Provider => provider_start(view),
        };
        let Some((pid, address)) = read else { return };
        let (system, time) = (view.trace_state().system(), view.time());
        let is_remote =
            owner.pid.is_some_and(|owner| owner != pid) && !self.is_first_thread(view, pid, owner);
        // The first thread, which the creator of a process starts, may be missing.
        let process = system.process_of_event(pid, time).map(|process| process.id());
        facts.is_lossy = owner.pid != Some(pid) && !system.is_gapless_since_start(process, time);
        if is_remote {
            facts.target = self.target(view, resolver, owner, pid, None);
        }
        if address.0 == 0 {
            return;
        }
        let code = code_in((system, resolver), pid, (time, pointer_size), address);
        facts.start = Some(ThreadStartFacts { pid, address, code, is_remote });
    }

    /// Whether a thread is the initial thread of a process: the first one that was seen, started by
    /// the creator of the process.
    fn is_first_thread(&mut self, view: &EventView<'_>, pid: Pid, owner: StackOwner) -> bool {
        let system = view.trace_state().system();
        let Some(process) = system.process_of_event(pid, view.time()) else { return false };
        let id = process.id();
        let was_seen = slots::at(&mut self.has_threads, id.index()).replace(id) == Some(id);
        let by_creator = process.creator().is_some_and(|creator| Some(creator.pid) == owner.pid);
        !was_seen && process.span().start == Evidence::Observed && by_creator
    }

    fn load(
        &mut self,
        view: &EventView<'_>,
        resolver: &mut FrameResolver,
        pointer_size: PointerSize,
    ) -> Option<Load> {
        let record = view.event().record();
        let image = view::Image::parse(record.payload(), record.version(), record.pointer_size()).ok()?;
        let (system, time) = (view.trace_state().system(), view.time());
        if image.image_base.is_kernel(pointer_size) {
            let (module, _) = system.kernel_module_at(image.image_base, time)?;
            let known = resolver.loaded(system, module.id());
            return Some(Load { module: known.index, duplicate: None });
        }
        let process = system.process_of_event(image.process_id?, time)?;
        let (module, _) = system.module_in(process.id(), image.image_base, time)?;
        let known = resolver.loaded(system, module.id());
        let load = Load { module: known.index, duplicate: None };
        // Duplicates of other images do not matter.
        if !known.roles.has(Role::NamedNtdll) {
            return Some(load);
        }
        let is_older = |other: &stackhound_system::ModuleRef<'_>| {
            other.id() != module.id()
                && other.base() != module.base()
                && other.span().from < module.span().from
                && other.span().to > time
                && system.is_module_certain(other.id(), time)
                && other.file_name().eq_ignore_ascii_case(module.file_name())
        };
        let others = system.modules_in(process.id(), time, CHANGES_MAX)?;
        let mut duplicates = others.filter(is_older).map(|other| {
            let other = resolver.loaded(system, other.id());
            (other.is_64_bit_part == known.is_64_bit_part).then_some(other.index)
        });
        Some(Load { duplicate: duplicates.find_map(|duplicate| duplicate), ..load })
    }
}

fn class_start(view: &EventView<'_>) -> Option<(Pid, Address)> {
    let record = view.event().record();
    let thread = view::Thread::parse(record.payload(), record.version(), record.pointer_size()).ok()?;
    let detail = thread.detail?;
    let address = match detail.win32_start_address {
        Address(0) => detail.start_address.unwrap_or(Address(0)),
        address => address,
    };
    Some((thread.process_id, address))
}

fn provider_start(view: &EventView<'_>) -> Option<(Pid, Address)> {
    let pid = Pid(number(view, "ProcessID")?.try_into().ok()?);
    let address = number(view, "Win32StartAddr").filter(|address| *address != 0);
    Some((pid, Address(address.or_else(|| number(view, "StartAddr"))?)))
}

fn number(view: &EventView<'_>, field: &str) -> Option<u64> {
    view.field(field)?.1.as_u64()
}
