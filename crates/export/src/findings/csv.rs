//! Findings for spreadsheets and Timesketch: one row per finding, with the stack in one cell, sorted
//! by time.
//!
//! Texts come from untrusted processes and are escaped so that no cell is a formula.

use std::io::{self, Write};

use stackhound_detect::Verdict;
use stackhound_detect::report::{EventContext, Finding, FrameReport};
use stackhound_facts::{FactId, ProcessFact};

use super::form::{End, Form, Options};
use super::shown::{self, known};
use super::sorted::Sorted;
use crate::escape::{cell as text, row};
use crate::json::value::Hex;

/// The columns before those of the facts about the process.
const FIRST: [&str; 10] =
    ["time", "verdict", "severity", "id", "title", "explanation", "reasons", "inputs_missing", "pid", "tid"];

/// The columns after them.
const LAST: [&str; 16] = [
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
    "suppressed",
    "baseline",
];

/// The first columns of Timesketch, which it requires.
const TIMESKETCH: [&str; 3] = ["message", "datetime", "timestamp_desc"];

/// The columns of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Columns {
    Plain,
    /// The columns that Timesketch requires, then the others.
    Timesketch,
}

/// Writes rows.
#[derive(Debug)]
struct Rows {
    columns: Columns,
    has_header: bool,
    /// The rows so far; `None` if they are written at once.
    sorted: Option<Sorted>,
}

pub(super) fn plain(options: Options) -> Box<dyn Form> {
    Box::new(Rows::new(Columns::Plain, options))
}

pub(super) fn timesketch(options: Options) -> Box<dyn Form> {
    Box::new(Rows::new(Columns::Timesketch, options))
}

impl Form for Rows {
    fn add(&mut self, out: &mut dyn Write, event: &EventContext, findings: &[&Finding]) -> io::Result<()> {
        findings.iter().try_for_each(|finding| self.write(out, event, finding))
    }

    /// A table without rows has a header too.
    fn finish(mut self: Box<Self>, out: &mut dyn Write, _: &End<'_>) -> io::Result<()> {
        self.header(out)?;
        self.sorted.take().map_or(Ok(()), |sorted| sorted.finish(out))
    }
}

impl Rows {
    /// Rows that are sorted by time at the end; of live events, rows in their order.
    fn new(columns: Columns, options: Options) -> Rows {
        let sorted = (!options.is_live).then(Sorted::new);
        Rows { columns, has_header: false, sorted }
    }

    fn write(
        &mut self,
        out: &mut dyn Write,
        event_context: &EventContext,
        finding: &Finding,
    ) -> io::Result<()> {
        let is_timesketch = self.columns == Columns::Timesketch;
        let first = is_timesketch.then(|| required(event_context, finding));
        let cells = first.into_iter().flatten().chain(cells(event_context, finding));
        match &mut self.sorted {
            None => {
                self.header(out)?;
                row(out, cells)
            }
            Some(sorted) => {
                let mut bytes = Vec::new();
                row(&mut bytes, cells)?;
                sorted.push(event_context.time, bytes)
            }
        }
    }

    fn header(&mut self, out: &mut dyn Write) -> io::Result<()> {
        if std::mem::replace(&mut self.has_header, true) {
            return Ok(());
        }
        let first: &[&str] = if self.columns == Columns::Timesketch { &TIMESKETCH } else { &[] };
        let first = first.iter().chain(&FIRST).map(|name| (*name).to_owned());
        let facts = ProcessFact::ALL.iter().map(|fact| format!("process.{}", fact.row().path));
        row(out, first.chain(facts).chain(LAST.map(str::to_owned)))
    }
}

/// The cells of the columns that Timesketch requires. It reads times with microseconds.
fn required(event_context: &EventContext, finding: &Finding) -> [String; TIMESKETCH.len()] {
    let analytic = &finding.analytic;
    let word = match (finding.outcome.verdict, &finding.suppressed) {
        (_, Some(_)) => "suppressed",
        (Verdict::Yes, None) => finding.outcome.severity.name(),
        (verdict, None) => verdict.name(),
    };
    let process = &event_context.process;
    let name = known(process.name()).unwrap_or("unknown process");
    let explanation = shown::explanation(event_context, finding);
    let message = format!("{} {}: {}, {name}. {explanation}", analytic.name(), word, analytic.title());
    let time = event_context.time.and_then(shown::time).unwrap_or_default();
    let datetime = time.strip_suffix('Z').map(|time| format!("{}+00:00", &time[..time.len() - 1]));
    [text(message.trim_end()), datetime.unwrap_or_default(), "Event Time".to_owned()]
}

fn cells(event_context: &EventContext, finding: &Finding) -> impl Iterator<Item = String> {
    let EventContext { process, event, .. } = event_context;
    let analytic = &finding.analytic;
    let frame = shown::frame(event_context, finding);
    let labels: Vec<String> = event_context.stack.iter().map(FrameReport::label).collect();
    let first: [String; FIRST.len()] = [
        event_context.time.and_then(shown::time).unwrap_or_default(),
        finding.outcome.verdict.name().to_owned(),
        finding.outcome.severity.name().to_owned(),
        text(analytic.name()),
        text(analytic.title()),
        text(&shown::explanation(event_context, finding)),
        shown::reasons(finding).join(" "),
        text(&shown::missing(finding).join(" ")),
        number(process.pid),
        number(process.tid),
    ];
    let facts = ProcessFact::ALL.iter().map(|fact| process.facts.get(*fact));
    let facts = facts.map(|value| value.map(|value| text(&value.to_string())).unwrap_or_default());
    let last: [String; LAST.len()] = [
        text(&event.name),
        text(&event.service),
        text(event.target_path()),
        number(event.target_pid()),
        event.access.map(|access| Hex(access.into()).to_string()).unwrap_or_default(),
        number(frame.map(|(index, _)| index)),
        frame.map(|(_, frame)| text(&frame.label())).unwrap_or_default(),
        text(&labels.join(" | ")),
        event_context.final_user_module.as_deref().map(text).unwrap_or_default(),
        text(&analytic.techniques().join(" ")),
        event_context.count.to_string(),
        text(&event_context.host),
        text(&format!("{}:{}", event_context.location.file, event_context.location.record)),
        finding.alert.clone(),
        finding.suppressed.as_ref().map(|cause| text(&shown::suppression(cause))).unwrap_or_default(),
        finding.novelty.map(|novelty| novelty.name().to_owned()).unwrap_or_default(),
    ];
    first.into_iter().chain(facts).chain(last)
}

fn number(number: Option<impl ToString>) -> String {
    number.map(|number| number.to_string()).unwrap_or_default()
}
