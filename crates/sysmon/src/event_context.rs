//! The event context of an evaluated row, for output.

use stackhound_detect::Part;
use stackhound_detect::report::{
    CreatedFile, EventContext, EventReport, FrameReport, ProcessReport, SourceLocation, TamperingReport,
};
use stackhound_facts::{FactValue, ProcessFact, ProcessFacts};
use stackhound_frames::{Frame, Modules, Summary};
use stackhound_types::{FileTime, file_name};

use crate::call_trace;
use crate::case::NO_STACK;
use crate::hunt::Evidence;
use crate::processes::KnownProcess;
use crate::row::{Action, Actor, Aim, Row};

/// Builds the event context of the row at `location`.
pub(crate) fn event_context(
    location: SourceLocation,
    row: &Row<'_>,
    modules: &Modules,
    evidence: &Evidence,
) -> EventContext {
    let Row { count, host, time, actor, action } = row;
    let mut frames = Vec::new();
    let built = evidence.cases.build(modules, row, &mut frames);
    let given = built.map_or(NO_STACK, |(case, ..)| case.stack);
    let given = stackhound_detect::Stack { frames: &frames, ..given };
    let known = evidence.processes.find(host, actor, *time);
    let process = ProcessReport {
        pid: actor.pid,
        tid: actor.tid,
        facts: ProcessFacts::new(|fact| process_fact(actor, known, fact)),
        ..ProcessReport::default()
    };
    let mut event = EventReport {
        name: action.event_name().to_owned(),
        provider: "Microsoft-Windows-Sysmon".to_owned(),
        ..EventReport::default()
    };
    let mut stack = Vec::new();
    match action {
        Action::ProcessAccess { target, access, call_trace } => {
            event.target = Some(aim(target));
            event.access = *access;
            let texts = call_trace::frames(call_trace);
            let frames = given.frames.iter().zip(texts);
            stack.extend(frames.map(|(frame, text)| report(modules, frame, text.ok())));
        }
        Action::RemoteThread { target, tid, address, module, function } => {
            event.target = Some(ProcessReport { tid: *tid, ..aim(target) });
            event.start_address = Some(address.value());
            event.start_name = match (file_name(module), *function) {
                (module, "") => module.to_owned(),
                (module, function) => format!("{module}!{function}"),
            };
        }
        _ => {}
    }
    let tampering = known.map_or(&[][..], |known| &known.tampering).iter();
    let is_itself = matches!(action, Action::ProcessTampering { .. });
    let tampering = tampering
        .filter(|(at, _)| !(is_itself && at == time))
        .map(|(time, kind)| TamperingReport { time: *time, kind: kind.to_string() })
        .collect();
    let created_files = created_files(row, evidence, &stack);
    let mut summary = Summary::default();
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
        created_files,
        tampering,
        lost: None,
    }
}

/// The getters of the catalogue. A row states the path of the program; the rest is stated at the start of the process.
fn process_fact(
    actor: &Actor<'_>,
    known: Option<&KnownProcess>,
    fact: ProcessFact,
) -> Option<FactValue<'static>> {
    let started = || known.and_then(|known| known.started.as_ref());
    let text = |text: &str| (!text.is_empty()).then(|| FactValue::from(text.to_owned()));
    match fact {
        ProcessFact::Name => text(file_name(actor.image)),
        ProcessFact::Path => text(actor.image),
        ProcessFact::CommandLine => text(&started()?.command_line),
        ProcessFact::ParentPid => started()?.parent_pid.map(FactValue::Number),
        ProcessFact::UserName => text(&started()?.user),
        ProcessFact::Integrity => text(&started()?.integrity.to_ascii_lowercase()),
        ProcessFact::StartTime => {
            let time = i64::try_from(started()?.time?).ok()?;
            Some(FactValue::Time(FileTime(time)))
        }
        ProcessFact::Entity => text(actor.guid),
        ProcessFact::ParentName
        | ProcessFact::ParentPath
        | ProcessFact::UserSid
        | ProcessFact::Session
        | ProcessFact::TimeDateStamp
        | ProcessFact::ImageSize
        | ProcessFact::PdbName
        | ProcessFact::PdbGuid
        | ProcessFact::PdbAge => None,
    }
}

/// The target process, of which a row states the path of the program.
pub(crate) fn aim(target: &Aim<'_>) -> ProcessReport {
    let actor = Actor { image: target.image, ..Actor::default() };
    ProcessReport {
        pid: target.pid,
        facts: ProcessFacts::new(|fact| process_fact(&actor, None, fact)),
        ..ProcessReport::default()
    }
}

/// The files of the process and of its stack that were created before the event.
fn created_files(row: &Row<'_>, evidence: &Evidence, stack: &[FrameReport]) -> Vec<CreatedFile> {
    let Some(time) = row.time else { return Vec::new() };
    let mut paths = vec![row.actor.image];
    paths.extend(stack.iter().map(|frame| frame.module.as_str()));
    if let Action::RemoteThread { module, .. } = row.action {
        paths.push(module);
    }
    let mut created: Vec<CreatedFile> = Vec::new();
    for path in paths {
        if path.is_empty() || created.iter().any(|known| known.path.eq_ignore_ascii_case(path)) {
            continue;
        }
        if let Some(creation) = evidence.created.find(row.host, path, time) {
            created.push(CreatedFile {
                path: path.to_owned(),
                time: creation.time,
                pid: creation.pid,
                process: creation.image.to_string(),
                sha256: creation.sha256,
            });
        }
    }
    created
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
