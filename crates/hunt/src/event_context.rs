//! Evaluated events with all facts that outputs show.

use stackhound_detect::report::{
    EventContext, EventReport, FrameReport, FunctionReport, MemoryReport, ProcessReport, RegionReport,
    SourceLocation,
};
use stackhound_detect::{Case, MemoryKind, Part, Services as Ran};
use stackhound_frames::{Code, ProcessContext, Region, RegionKind, Summary};
use stackhound_pipeline::{EventView, NameOrigin};
use stackhound_stacks::StackState;
use stackhound_system::{Span, System};
use stackhound_types::{Mode, RawTime, Tid};

use super::services::Files;
use super::threat::ThreatEvent;
use super::{CaseContext, HuntSession, services};

impl HuntSession {
    /// All facts about an event for output, with names from the files of the detections. Intended
    /// for findings, because it costs far more than an evaluation.
    pub fn event_context(&mut self, view: &EventView<'_>, location: SourceLocation) -> EventContext {
        let resolver = &mut *view.resolver();
        let all = self.context_of(view, resolver);
        let (system, stack_context) = (view.trace_state().system(), &all.stack_context);
        let (_, context) = resolver.modules_and_process(
            system,
            stack_context.pointer_size,
            stack_context.owner.process,
            view.time(),
        );
        let process = self.process_report(view, &all, context);
        let target_pid = all.facts.target.map(|target| target.pid.0);
        let mut summary = Summary::default();
        let (event, stack, has_user_part) =
            self.with_case(view, resolver, &all, |(modules, binaries), case| {
                summary.of(modules, all.states, case.stack.frames);
                let indexes = 0..case.stack.frames.len();
                let stack: Vec<FrameReport> =
                    indexes.map(|index| frame_report(system, (modules, binaries), case, index)).collect();
                let memory = memory_report((modules, &mut *binaries), case);
                let event =
                    EventReport { memory, ..event_report(view, (modules, &mut *binaries), case, target_pid) };
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
        }
    }

    fn process_report(
        &self,
        view: &EventView<'_>,
        all: &CaseContext,
        context: &ProcessContext,
    ) -> ProcessReport {
        let owner = all.stack_context.owner;
        let system = view.trace_state().system();
        let process = owner.process.map(|process| system.process(process));
        let name = process.map_or("", |process| process.image_name());
        let from = process.map(|process| process.span().from).filter(|from| *from != Span::BEGINNING);
        let started = from.map(|from| self.clock.to_file_time(RawTime(from.0)));
        ProcessReport {
            pid: owner.pid.or_else(|| view.pid()).map(|pid| pid.0),
            tid: owner.tid.or_else(|| view.tid()).map(|tid| tid.0),
            name: name.to_owned(),
            // Without a folder, the path is the same as the name.
            path: if context.image.contains('\\') { context.image.to_string() } else { String::new() },
            command_line: process.map_or("", |process| process.command_line()).to_owned(),
            parent_pid: process.and_then(|process| process.parent_pid()).map(|pid| pid.0),
            started: started.and_then(|time| u64::try_from(time.0).ok()),
            ..ProcessReport::default()
        }
    }
}

fn event_report(
    view: &EventView<'_>,
    (modules, _): Files<'_>,
    case: &Case<'_>,
    target_pid: Option<u32>,
) -> EventReport {
    let event = &case.event;
    let (start, target) = (event.start, event.target);
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
        target: target.map_or("", |target| target.image).to_owned(),
        target_pid,
        target_tid: threat
            .map_or_else(|| opened_thread(view), |threat| threat.target_thread)
            .map(|tid| tid.0),
        region: threat.as_ref().and_then(region),
        access: target.and_then(|target| target.access),
        start_address: start.map(|start| start.address),
        start_name: start_name.unwrap_or_default(),
        memory: None,
    }
}

/// The thread that was opened, in the spelling of Microsoft-Windows-Kernel-Audit-API-Calls.
fn opened_thread(view: &EventView<'_>) -> Option<Tid> {
    Tid::known(view.field("TargetThreatId")?.1.as_u64()?.try_into().ok()?)
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
