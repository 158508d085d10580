//! A finding as one JSON object, with all that is known. Addresses, offsets and masks are `"0x…"` strings, counts and ids
//! integers; what is not known is null.

use serde::Serialize;
use stackhound_detect::report::{EventReport, Finding, FrameReport, Place, ProcessReport, Sighting};

use super::shown::{self, known};
use crate::hex::Hex;

/// One line.
#[derive(Serialize)]
pub(super) struct Line<'a> {
    id: &'static str,
    title: &'static str,
    verdict: &'static str,
    severity: &'static str,
    reasons: Vec<&'static str>,
    explanation: String,
    inputs_used: Vec<&'static str>,
    inputs_missing: Vec<&'static str>,
    attack: &'static [&'static str],
    alert: Option<&'a str>,
    input: Input<'a>,
    count: u64,
    time: Option<String>,
    host: Option<&'a str>,
    process: Process<'a>,
    event: Event<'a>,
    frame: Option<usize>,
    stack: Vec<Frame<'a>>,
    summary: &'a str,
    final_user_module: Option<&'a str>,
}

#[derive(Serialize)]
struct Input<'a> {
    file: &'a str,
    record: u64,
}

#[derive(Serialize)]
struct Process<'a> {
    pid: Option<u32>,
    tid: Option<u32>,
    name: Option<&'a str>,
    path: Option<&'a str>,
    command_line: Option<&'a str>,
    parent_pid: Option<u32>,
    start_time: Option<String>,
}

#[derive(Serialize)]
struct Event<'a> {
    name: Option<&'a str>,
    provider: Option<&'a str>,
    service: Option<&'a str>,
    target: Option<Target<'a>>,
    access: Option<Hex>,
    start_address: Option<Hex>,
    start_name: Option<&'a str>,
}

#[derive(Serialize)]
struct Target<'a> {
    pid: Option<u32>,
    name: Option<&'a str>,
    path: Option<&'a str>,
}

/// A frame, as it stands in NDJSON and as evidence in OCSF.
#[derive(Serialize)]
pub(super) struct Frame<'a> {
    address: Option<Hex>,
    mode: &'static str,
    wow64: bool,
    module: Option<&'a str>,
    rva: Option<Hex>,
    symbol: Option<&'a str>,
    backing: Option<&'static str>,
    memory: Option<&'static str>,
    protection: Option<String>,
    leading_bytes: Option<String>,
    trailing_bytes: Option<String>,
}

impl<'a> Line<'a> {
    pub(super) fn new(sighting: &'a Sighting, finding: &'a Finding) -> Line<'a> {
        let detection = finding.id.detection();
        let Place { file, record } = &sighting.place;
        Line {
            id: detection.name,
            title: detection.title,
            verdict: finding.outcome.verdict.name(),
            severity: finding.outcome.severity.name(),
            reasons: shown::reasons(finding),
            explanation: shown::explanation(sighting, finding),
            inputs_used: shown::used(finding),
            inputs_missing: shown::missing(finding),
            attack: detection.attack,
            alert: known(&finding.alert),
            input: Input { file, record: *record },
            count: sighting.count,
            time: sighting.time.and_then(shown::time),
            host: known(&sighting.host),
            process: Process::new(&sighting.process),
            event: Event::new(&sighting.event),
            frame: shown::frame(sighting, finding).map(|(index, _)| index),
            stack: sighting.stack.iter().map(Frame::new).collect(),
            summary: &sighting.summary,
            final_user_module: sighting.final_user_module.as_deref(),
        }
    }
}

impl<'a> Process<'a> {
    fn new(process: &'a ProcessReport) -> Process<'a> {
        Process {
            pid: process.pid,
            tid: process.tid,
            name: known(&process.name),
            path: known(&process.path),
            command_line: known(&process.command_line),
            parent_pid: process.parent_pid,
            start_time: process.started.and_then(shown::time),
        }
    }
}

impl<'a> Event<'a> {
    fn new(event: &'a EventReport) -> Event<'a> {
        let is_targeted = event.target_pid.is_some() || !event.target.is_empty();
        Event {
            name: known(&event.name),
            provider: known(&event.provider),
            service: known(&event.service),
            target: is_targeted.then(|| Target {
                pid: event.target_pid,
                name: known(shown::file_name(&event.target)),
                path: known(&event.target),
            }),
            access: event.access.map(|access| Hex(access.into())),
            start_address: event.start_address.map(Hex),
            start_name: known(&event.start_name),
        }
    }
}

impl<'a> Frame<'a> {
    pub(super) fn new(frame: &'a FrameReport) -> Frame<'a> {
        Frame {
            address: frame.address.map(Hex),
            mode: if frame.is_kernel { "kernel" } else { "user" },
            wow64: frame.is_wow64,
            module: known(&frame.module),
            rva: frame.rva.map(Hex),
            symbol: known(&frame.symbol),
            backing: Some(frame.backing).filter(|backing| !backing.is_empty()),
            memory: Some(frame.memory).filter(|memory| !memory.is_empty()),
            protection: frame.protection.map(shown::protection),
            leading_bytes: shown::hex_bytes(&frame.leading_bytes),
            trailing_bytes: shown::hex_bytes(&frame.trailing_bytes),
        }
    }
}
