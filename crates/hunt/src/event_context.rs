//! Evaluated events with all facts that outputs show.

use stackhound_detect::report::{
    EventContext, EventReport, FrameReport, FunctionReport, LossReport, MemoryReport, ProcessReport,
    RegionReport, SourceLocation,
};
use stackhound_detect::{Case, MemoryKind, Part, Services as Ran};
use stackhound_frames::{Code, Region, RegionKind, Summary};
use stackhound_pipeline::{EventView, Missing, NameOrigin, ProcessView, ThreadStart};
use stackhound_stacks::StackState;
use stackhound_system::{Completeness, Gap, ProcessId, Span, System};
use stackhound_trace::TraceTime;
use stackhound_types::{Mode, Pid, Tid};

use super::services::Files;
use super::threat::ThreatEvent;
use super::{HuntSession, services};

impl HuntSession {
    /// All facts about an event for output, with names from the files of the detections. Intended
    /// for findings, because it costs far more than an evaluation.
    pub fn event_context(&mut self, view: &EventView<'_>, location: SourceLocation) -> EventContext {
        // They use the resolver too.
        let (process, target) = (actor(view), target(view));
        let resolver = &mut *view.resolver();
        let all = self.context_of(view, resolver);
        let system = view.trace_state().system();
        let mut summary = Summary::default();
        let (event, stack, has_user_part) =
            self.with_case(view, resolver, &all, |(modules, binaries), case| {
                summary.of(modules, all.states, case.stack.frames);
                let indexes = 0..case.stack.frames.len();
                let stack: Vec<FrameReport> =
                    indexes.map(|index| frame_report(system, (modules, binaries), case, index)).collect();
                let memory = memory_report((modules, &mut *binaries), case);
                let event =
                    EventReport { memory, target, ..event_report(view, (modules, &mut *binaries), case) };
                (event, stack, case.stack.user == Part::Whole)
            });
        EventContext {
            location,
            count: 1,
            time: u64::try_from(view.utc().0).ok(),
            host: String::new(),
            process,
            event,
            summary: summary.user().to_owned(),
            states: all.states.iter().map(StackState::name).collect(),
            kernel_summary: summary.kernel().to_owned(),
            final_user_module: summary.final_user_module(resolver.modules()).map(str::to_owned),
            final_kernel_module: summary
                .final_kernel_module()
                .map(|module| resolver.modules().get(module).name().to_owned()),
            contains_unbacked: summary.contains_unbacked(),
            has_user_part,
            stack,
            created_files: Vec::new(),
            tampering: Vec::new(),
            lost: all.stack_context.owner.process.and_then(|process| loss(view, process)),
        }
    }
}

/// The loss that makes the modules of a process at the time of the event uncertain.
fn loss(view: &EventView<'_>, process: ProcessId) -> Option<LossReport> {
    let state = view.trace_state();
    let Completeness::Incomplete(Gap::Lost { from, until }) =
        state.system().map_complete_in(process, view.time())
    else {
        return None;
    };
    let utc = |time: TraceTime| u64::try_from(state.utc(time).0).ok();
    let process = state.system().process(process);
    Some(LossReport {
        pid: process.pid().0,
        process: process.image_name().to_owned(),
        from: if from == Span::BEGINNING { None } else { utc(from) },
        until: if until == Span::OPEN { None } else { utc(until) },
    })
}

/// The acting process and thread.
fn actor(view: &EventView<'_>) -> ProcessReport {
    report((view.pid(), view.tid()), view.process(), view.thread_start())
}

/// The process and thread that the event acts on.
fn target(view: &EventView<'_>) -> Option<ProcessReport> {
    let target = view.target()?;
    Some(report((target.pid(), target.tid()), target.process(), target.thread_start()))
}

fn report(
    ids: (Option<Pid>, Option<Tid>),
    process: Result<ProcessView<'_>, Missing>,
    start: Result<ThreadStart<'_>, Missing>,
) -> ProcessReport {
    ProcessReport {
        pid: ids.0.map(|pid| pid.0),
        tid: ids.1.map(|tid| tid.0),
        facts: process.map(|process| process.facts().into_owned()).unwrap_or_default(),
        thread: start.map(|start| start.facts().into_owned()).unwrap_or_default(),
    }
}

fn event_report(view: &EventView<'_>, (modules, _): Files<'_>, case: &Case<'_>) -> EventReport {
    let event = &case.event;
    let start = event.start;
    let threat = ThreatEvent::of(view);
    let start_name = start.map(|start| match (start.function, start.code) {
        (_, Code::Unknown) => String::new(),
        (Some(function), Code::Image(..)) => format!("{}!{function}", start.code.module_name(modules)),
        (None, Code::Image(_, rva)) => format!("{}+{rva:#x}", start.code.module_name(modules)),
        _ => start.code.module_name(modules).to_owned(),
    });
    EventReport {
        name: view.name().into_owned(),
        provider: view.provider().into_owned(),
        service: match event.services {
            Ran::Entered(service) => service.to_owned(),
            Ran::OneOf(_) | Ran::Unknown => String::new(),
        },
        target: None,
        region: threat.as_ref().and_then(region),
        access: event.target.and_then(|target| target.access),
        start_address: start.map(|start| start.address),
        start_name: start_name.unwrap_or_default(),
        memory: None,
    }
}

/// The memory that an operation concerns.
fn region(event: &ThreatEvent) -> Option<RegionReport> {
    Some(RegionReport {
        address: event.base?.0,
        size: event.size,
        protection: event.protection.map(|protection| protection.0),
        old_protection: event.old_protection.map(|protection| protection.0),
    })
}

/// The change of memory that the event reports.
fn memory_report((modules, binaries): Files<'_>, case: &Case<'_>) -> Option<MemoryReport> {
    let change = case.event.memory.change?;
    let location = if let Code::Image(module, rva) = change.code { Some((module, rva)) } else { None };
    let export =
        location.and_then(|location| binaries.export_in(modules, location, change.size).found().flatten());
    Some(MemoryReport {
        kind: change.kind.name(),
        address: change.address,
        size: change.size,
        protection: change.protection,
        previous_protection: change.previous,
        module: location.map(|(module, _)| modules.get(module).path.to_string()).unwrap_or_default(),
        rva: location.map(|(_, rva)| rva),
        export: export.map(|export| export.name.to_string()),
        author: change.author.name(),
        cycles: change.history.cycles,
        period: change.history.period,
    })
}

fn frame_report(
    system: &System,
    (modules, binaries): Files<'_>,
    case: &Case<'_>,
    index: usize,
) -> FrameReport {
    let frame = &case.stack.frames[index];
    let of_file = services::named((modules, binaries), frame).map(|name| FunctionReport {
        text: name.text.to_string(),
        offset: name.offset.into(),
        origin: NameOrigin::Symbols(name.origin).name(),
    });
    let of_runtime = || {
        let (method, address) = (system.method(frame.method?), frame.address?);
        Some(FunctionReport {
            text: method.to_string(),
            offset: address.0.saturating_sub(method.start().0),
            origin: NameOrigin::Method.name(),
        })
    };
    let module = frame.code.module().map(|module| modules.get(module));
    let rva = if let Code::Image(_, rva) = frame.code { Some(rva) } else { None };
    let memory = case.stack.memory(index);
    let (leading_bytes, trailing_bytes) = bytes_around((modules, binaries), case, index);
    FrameReport {
        address: frame.address.map(|address| address.0),
        mode: frame.mode,
        is_wow64: frame.is_wow64,
        module: module.map(|module| module.path.to_string()).unwrap_or_default(),
        image: module.map(|module| module.image.clone()).unwrap_or_default(),
        rva,
        function: of_file.or_else(of_runtime),
        backing: frame.backing(),
        region: match (frame.region.kind, memory.kind) {
            (RegionKind::Unknown, Some(kind)) => Region { kind: read(kind), ..frame.region },
            _ => frame.region,
        },
        page_protection: memory.protection,
        leading_bytes,
        trailing_bytes,
    }
}

/// The kind of memory of the live process.
fn read(kind: MemoryKind) -> RegionKind {
    match kind {
        MemoryKind::Image => RegionKind::Image,
        MemoryKind::Mapped => RegionKind::Mapped,
        MemoryKind::Private => RegionKind::Private,
    }
}

/// Bytes before and after a frame's address: from memory if it was read, otherwise from the image
/// file. Files of the kernel are not used, because the code is modified when they are loaded.
fn bytes_around((modules, binaries): Files<'_>, case: &Case<'_>, index: usize) -> (Vec<u8>, Vec<u8>) {
    let frame = &case.stack.frames[index];
    match (case.stack.bytes(index), frame.code, frame.mode) {
        (Some(bytes), ..) => (bytes.before.to_vec(), bytes.after.to_vec()),
        (None, Code::Image(module, rva), Mode::User) => {
            let around = binaries.bytes_around(modules, (module, rva)).found();
            around.map(|around| (around.before, around.after)).unwrap_or_default()
        }
        _ => (Vec::new(), Vec::new()),
    }
}
