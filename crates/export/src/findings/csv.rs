//! Findings for spreadsheets: one row per finding, with the stack in one cell.
//!
//! Texts come from untrusted processes and are escaped so that no cell is a formula.

use std::io::{self, Write};

use stackhound_detect::report::{EventContext, Finding, FrameReport};

use super::shown;
use crate::escape::{cell as text, row};
use crate::json::value::Hex;

const HEADER: [&str; 27] = [
    "time",
    "verdict",
    "severity",
    "id",
    "title",
    "explanation",
    "reasons",
    "inputs_missing",
    "process",
    "pid",
    "tid",
    "path",
    "command_line",
    "event",
    "service",
    "target",
    "target_pid",
    "access",
    "frame",
    "frame_label",
    "stack",
    "final_user_module",
    "attack",
    "count",
    "host",
    "input",
    "alert",
];

/// Writes rows.
#[derive(Debug, Default)]
pub(super) struct Rows {
    has_header: bool,
}

impl Rows {
    pub(super) fn write(
        &mut self,
        out: &mut impl Write,
        event_context: &EventContext,
        finding: &Finding,
    ) -> io::Result<()> {
        self.header(out)?;
        row(out, cells(event_context, finding))
    }

    /// A table without rows has a header too.
    pub(super) fn finish(mut self, out: &mut impl Write) -> io::Result<()> {
        self.header(out)
    }

    fn header(&mut self, out: &mut impl Write) -> io::Result<()> {
        if std::mem::replace(&mut self.has_header, true) { Ok(()) } else { row(out, HEADER) }
    }
}

fn cells(event_context: &EventContext, finding: &Finding) -> [String; HEADER.len()] {
    let EventContext { process, event, .. } = event_context;
    let detection = finding.id.detection();
    let frame = shown::frame(event_context, finding);
    let labels: Vec<String> = event_context.stack.iter().map(FrameReport::label).collect();
    [
        event_context.time.and_then(shown::time).unwrap_or_default(),
        finding.outcome.verdict.name().to_owned(),
        finding.outcome.severity.name().to_owned(),
        detection.name.to_owned(),
        detection.title.to_owned(),
        text(&shown::explanation(event_context, finding)),
        shown::reasons(finding).join(" "),
        shown::missing(finding).join(" "),
        text(&process.name),
        number(process.pid),
        number(process.tid),
        text(&process.path),
        text(&process.command_line),
        text(&event.name),
        text(&event.service),
        text(&event.target),
        number(event.target_pid),
        event.access.map(|access| Hex(access.into()).to_string()).unwrap_or_default(),
        number(frame.map(|(index, _)| index)),
        frame.map(|(_, frame)| text(&frame.label())).unwrap_or_default(),
        text(&labels.join(" | ")),
        event_context.final_user_module.as_deref().map(text).unwrap_or_default(),
        detection.attack.join(" "),
        event_context.count.to_string(),
        text(&event_context.host),
        text(&format!("{}:{}", event_context.location.file, event_context.location.record)),
        finding.alert.clone(),
    ]
}

fn number(number: Option<impl ToString>) -> String {
    number.map(|number| number.to_string()).unwrap_or_default()
}
