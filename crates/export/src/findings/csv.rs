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

/// A column: its name, and its cell for a finding about an event.
type Column = (&'static str, fn(&EventContext, &Finding) -> String);

/// The columns before those of the facts about the process.
const FIRST: [Column; 10] = [
    ("time", |event, _| event.time.and_then(shown::time).unwrap_or_default()),
    ("verdict", |_, finding| finding.outcome.verdict.name().to_owned()),
    ("severity", |_, finding| finding.outcome.severity.name().to_owned()),
    ("id", |_, finding| text(finding.analytic.name())),
    ("title", |_, finding| text(finding.analytic.title())),
    ("explanation", |event, finding| text(&shown::explanation(event, finding))),
    ("reasons", |_, finding| shown::reasons(finding).join(" ")),
    ("inputs_missing", |_, finding| text(&shown::missing(finding).join(" "))),
    ("pid", |event, _| optional(event.process.pid)),
    ("tid", |event, _| optional(event.process.tid)),
];

/// The columns after them.
const LAST: [Column; 16] = [
    ("event", |event, _| text(&event.event.name)),
    ("service", |event, _| text(&event.event.service)),
    ("target", |event, _| text(event.event.target_path())),
    ("target_pid", |event, _| optional(event.event.target_pid())),
    ("access", |event, _| optional(event.event.access.map(|access| Hex(access.into())))),
    ("frame", |event, finding| optional(shown::frame(event, finding).map(|(index, _)| index))),
    ("frame_label", |event, finding| {
        shown::frame(event, finding).map(|(_, frame)| text(&frame.label())).unwrap_or_default()
    }),
    ("stack", |event, _| {
        let labels: Vec<String> = event.stack.iter().map(FrameReport::label).collect();
        text(&labels.join(" | "))
    }),
    ("final_user_module", |event, _| event.final_user_module.as_deref().map(text).unwrap_or_default()),
    ("attack", |_, finding| text(&finding.analytic.techniques().join(" "))),
    ("count", |event, _| event.count.to_string()),
    ("host", |event, _| text(&event.host)),
    ("input", |event, _| text(&format!("{}:{}", event.location.file, event.location.record))),
    ("alert", |_, finding| finding.alert.clone()),
    ("suppressed", |_, finding| {
        finding.suppressed.as_ref().map(|cause| text(&shown::suppression(cause))).unwrap_or_default()
    }),
    ("baseline", |_, finding| optional(finding.novelty.map(|novelty| novelty.name()))),
];

/// The first columns of Timesketch, which it requires.
const TIMESKETCH: [&str; 3] = ["message", "datetime", "timestamp_desc"];

/// Writes rows.
#[derive(Debug)]
struct Rows {
    /// Whether the columns that Timesketch requires are the first ones.
    is_timesketch: bool,
    has_header: bool,
    /// The rows so far; `None` if they are written at once.
    sorted: Option<Sorted>,
}

pub(super) fn plain(options: Options) -> Box<dyn Form> {
    Box::new(Rows::new(false, options))
}

pub(super) fn timesketch(options: Options) -> Box<dyn Form> {
    Box::new(Rows::new(true, options))
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
    fn new(is_timesketch: bool, options: Options) -> Rows {
        let sorted = (!options.is_live).then(Sorted::new);
        Rows { is_timesketch, has_header: false, sorted }
    }

    fn write(
        &mut self,
        out: &mut dyn Write,
        event_context: &EventContext,
        finding: &Finding,
    ) -> io::Result<()> {
        let first = self.is_timesketch.then(|| required(event_context, finding));
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
        let names = |columns: &'static [Column]| columns.iter().map(|(name, _)| (*name).to_owned());
        let first: &[&str] = if self.is_timesketch { &TIMESKETCH } else { &[] };
        let first = first.iter().map(|name| (*name).to_owned()).chain(names(&FIRST));
        let facts = ProcessFact::ALL.iter().map(|fact| format!("process.{}", fact.row().path));
        row(out, first.chain(facts).chain(names(&LAST)))
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
    let of = |columns: &'static [Column]| columns.iter().map(|(_, cell)| cell(event_context, finding));
    let facts = event_context.process.facts.texts().map(|value| text(&value));
    of(&FIRST).chain(facts).chain(of(&LAST))
}

fn optional(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}
