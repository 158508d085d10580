//! The event context of an evaluated row, for output.

use stackhound_detect::report::{EventContext, EventReport, FrameReport, ProcessReport, SourceLocation};
use stackhound_detect::{Case, Part};
use stackhound_frames::{Frame, Modules, Summary};

use crate::call_trace;
use crate::known::ProcessTable;
use crate::row::{Action, Row};

/// Builds the event context of the row at `location`.
pub(crate) fn event_context(
    location: SourceLocation,
    row: &Row<'_>,
    case: &Case<'_>,
    modules: &Modules,
    processes: &ProcessTable,
) -> EventContext {
    let Row { count, host, time, actor, action } = row;
    let started = processes.find(actor.guid);
    let process = ProcessReport {
        pid: actor.pid,
        tid: actor.tid,
        name: file_name(actor.image).to_owned(),
        path: actor.image.to_owned(),
        command_line: started.map(|started| started.command_line.to_string()).unwrap_or_default(),
        parent_pid: started.and_then(|started| started.parent_pid),
        started: started.and_then(|started| started.time),
    };
    let mut event = EventReport {
        name: action.event_name().to_owned(),
        provider: "Microsoft-Windows-Sysmon".to_owned(),
        ..EventReport::default()
    };
    let mut stack = Vec::new();
    match action {
        Action::ProcessAccess { target, access, call_trace } => {
            (event.target, event.target_pid, event.access) = (target.image.to_owned(), target.pid, *access);
            let texts = call_trace::frames(call_trace);
            let frames = case.stack.frames.iter().zip(texts);
            stack.extend(frames.map(|(frame, text)| report(modules, frame, text.ok())));
        }
        Action::RemoteThread { target, address, module, function, .. } => {
            (event.target, event.target_pid) = (target.image.to_owned(), target.pid);
            event.start_address = Some(address.value());
            event.start_name = match (file_name(module), *function) {
                (module, "") => module.to_owned(),
                (module, function) => format!("{module}!{function}"),
            };
        }
        Action::ImageLoad { .. } | Action::ProcessCreate { .. } => {}
    }
    let (mut summary, given) = (Summary::default(), &case.stack);
    let is_whole = given.user == Part::Whole && !given.has_losses && !given.is_at_limit();
    summary.summarize(modules, (is_whole, given.is_certain), given.frames);
    EventContext {
        location,
        count: *count,
        time: *time,
        host: (*host).to_owned(),
        process,
        event,
        summary: summary.user().to_owned(),
        states: Vec::new(),
        kernel_summary: summary.kernel().to_owned(),
        final_user_module: summary.final_user_module(modules).map(str::to_owned),
        final_kernel_module: summary
            .final_kernel_module()
            .map(|module| modules.get(module).name().to_owned()),
        contains_unbacked: summary.contains_unbacked(),
        has_user_part: given.user == Part::Whole,
        stack,
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit('\\').next().unwrap_or(path)
}

/// Reports a frame with the spelling of its module in the row.
fn report(modules: &Modules, frame: &Frame, text: Option<call_trace::Frame<'_>>) -> FrameReport {
    let mut report = FrameReport {
        address: frame.address.map(|address| address.0),
        mode: frame.mode,
        is_wow64: frame.is_wow64,
        backing: frame.backing(),
        region: frame.region,
        image: frame.code.module().map(|module| modules.get(module).image.clone()).unwrap_or_default(),
        ..FrameReport::default()
    };
    if let Some(call_trace::FrameLocation::Module { path, offset }) = text.map(|text| text.location) {
        path.clone_into(&mut report.module);
        report.rva = Some(offset.value());
    }
    report
}
