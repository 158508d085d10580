//! Output of findings: tables for people, NDJSON and CSV for scripts, documents for Elastic and
//! OCSF, and a layer for the ATT&CK Navigator.
//!
//! A [`Writer`] takes evaluated events one by one and keeps only counts, a bounded number of findings,
//! and rows of CSV until they are sorted, in a temporary file if there are many. Its memory is
//! bounded. Every format distinguishes undetermined answers from
//! findings: they have no severity in documents of other products, no techniques, and no color in
//! layers. Unknown values are null or absent. Equal input gives equal bytes.
//!
//! The fields are listed in `docs/findings.md`. This module does not know files, the command line,
//! or how events are evaluated. Texts are untrusted: tables and CSV contain no characters that
//! terminals or spreadsheets interpret.

mod attack;
mod behaviors;
mod csv;
mod ecs;
mod mapped;
mod navigator;
mod ocsf;
pub(crate) mod related;
pub(crate) mod shown;
mod sorted;
mod table;

use std::io::{self, Write};

use serde::Serialize;
use stackhound_detect::Totals;
use stackhound_detect::Verdict;
use stackhound_detect::alert::{self, Alert};
use stackhound_detect::report::{EventContext, Finding};
use stackhound_detect::tuning::TuningReport;

use crate::{escape, json};

/// The output format of findings.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FindingsFormat {
    /// For people: alerts with one stack each, the highest score first, then counts.
    Table,
    /// For people: a block per event, then alerts and counts.
    List,
    /// For people: alerts, counts and the most important findings.
    Summary,
    /// One JSON object per finding and line, with all known facts, followed by one object per
    /// alert.
    Ndjson,
    /// One document of the Elastic Common Schema per line, with Elastic's field names for call
    /// stacks.
    Ecs,
    /// One Detection Finding of the Open Cybersecurity Schema Framework per line.
    Ocsf,
    /// One layer for the ATT&CK Navigator.
    Navigator,
    /// For spreadsheets: one row per finding, sorted by time.
    Csv,
    /// For Timesketch: CSV that begins with the columns it requires, sorted by time.
    Timesketch,
}

impl FindingsFormat {
    /// All formats.
    pub const ALL: [FindingsFormat; 9] = [
        FindingsFormat::Table,
        FindingsFormat::List,
        FindingsFormat::Summary,
        FindingsFormat::Ndjson,
        FindingsFormat::Ecs,
        FindingsFormat::Ocsf,
        FindingsFormat::Navigator,
        FindingsFormat::Csv,
        FindingsFormat::Timesketch,
    ];

    /// The spelling in arguments.
    pub fn name(self) -> &'static str {
        match self {
            FindingsFormat::Table => "table",
            FindingsFormat::List => "list",
            FindingsFormat::Summary => "summary",
            FindingsFormat::Ndjson => "ndjson",
            FindingsFormat::Ecs => "ecs",
            FindingsFormat::Ocsf => "ocsf",
            FindingsFormat::Navigator => "navigator",
            FindingsFormat::Csv => "csv",
            FindingsFormat::Timesketch => "timesketch",
        }
    }

    /// The format with this spelling.
    pub fn of(name: &str) -> Option<FindingsFormat> {
        FindingsFormat::ALL.into_iter().find(|format| format.name() == name)
    }
}

/// Writes evaluated events in one format.
///
/// Output is written in small pieces, so `out` should be buffered.
#[derive(Debug)]
pub struct Writer(Kind);

#[derive(Debug)]
enum Kind {
    Table(table::AlertTable),
    List(table::List),
    Summary(table::Top),
    Ndjson,
    Ecs,
    Ocsf,
    Navigator(navigator::Layer),
    Csv(csv::Rows),
}

impl Writer {
    /// Creates a writer. `is_colored` enables colors in tables; they never carry information that
    /// the text does not have.
    pub fn new(format: FindingsFormat, is_colored: bool) -> Writer {
        Writer(match format {
            FindingsFormat::Table => Kind::Table(table::AlertTable::new(is_colored)),
            FindingsFormat::List => Kind::List(table::List::new(is_colored)),
            FindingsFormat::Summary => Kind::Summary(table::Top::new(is_colored)),
            FindingsFormat::Ndjson => Kind::Ndjson,
            FindingsFormat::Ecs => Kind::Ecs,
            FindingsFormat::Ocsf => Kind::Ocsf,
            FindingsFormat::Navigator => Kind::Navigator(navigator::Layer::default()),
            FindingsFormat::Csv => Kind::Csv(csv::Rows::sorted(csv::Columns::Plain)),
            FindingsFormat::Timesketch => Kind::Csv(csv::Rows::sorted(csv::Columns::Timesketch)),
        })
    }

    /// Creates a writer for events that arrive in time order and without end: a table is a
    /// [`List`](FindingsFormat::List), and rows of CSV are written at once.
    pub fn live(format: FindingsFormat, is_colored: bool) -> Writer {
        match format {
            FindingsFormat::Table => Writer::new(FindingsFormat::List, is_colored),
            FindingsFormat::Csv => Writer(Kind::Csv(csv::Rows::as_they_come(csv::Columns::Plain))),
            FindingsFormat::Timesketch => {
                Writer(Kind::Csv(csv::Rows::as_they_come(csv::Columns::Timesketch)))
            }
            format => Writer::new(format, is_colored),
        }
    }

    /// Writes the findings of an event. Answers no are omitted; if there are no others, nothing is
    /// written.
    ///
    /// # Errors
    /// Errors of `out`.
    pub fn write(
        &mut self,
        out: &mut dyn Write,
        event_context: &EventContext,
        findings: &[Finding],
    ) -> io::Result<()> {
        let is_written = |finding: &&Finding| finding.outcome.verdict != Verdict::No;
        let findings: Vec<&Finding> = findings.iter().filter(is_written).collect();
        if findings.is_empty() {
            return Ok(());
        }
        let mut each = findings.iter().copied();
        match &mut self.0 {
            Kind::Table(table) => {
                table.add(event_context, &findings);
                Ok(())
            }
            Kind::List(list) => list.write(out, event_context, &findings),
            Kind::Summary(top) => {
                top.add(event_context, &findings);
                Ok(())
            }
            Kind::Ndjson => {
                each.try_for_each(|finding| line(out, &json::finding::Finding::new(event_context, finding)))
            }
            Kind::Ecs => each.try_for_each(|finding| line(out, &ecs::document(event_context, finding))),
            Kind::Ocsf => each.try_for_each(|finding| line(out, &ocsf::document(event_context, finding))),
            Kind::Navigator(layer) => {
                layer.add(event_context, &findings);
                Ok(())
            }
            Kind::Csv(rows) => each.try_for_each(|finding| rows.write(out, event_context, finding)),
        }
    }

    /// Writes the end of the output: alerts and counts for people, alerts in NDJSON, the sorted rows
    /// of CSV, or the complete layer. The order of `alerts` does not matter. With `tuning`, NDJSON
    /// also has a summary of suppressed findings.
    ///
    /// # Errors
    /// Errors of `out`, and of the temporary file.
    pub fn finish(
        self,
        out: &mut dyn Write,
        alerts: &[Alert],
        totals: &Totals,
        tuning: Option<&TuningReport>,
    ) -> io::Result<()> {
        let mut alerts: Vec<&Alert> = alerts.iter().collect();
        alert::sort(&mut alerts);
        match self.0 {
            Kind::Table(table) => table.finish(out, &alerts, totals),
            Kind::List(list) => list.finish(out, &alerts, totals),
            Kind::Summary(top) => top.finish(out, &alerts, totals),
            Kind::Ndjson => {
                alerts.iter().try_for_each(|alert| line(out, &json::finding::Alert::new(alert)))?;
                let summary = tuning.map(|tuning| json::finding::Summary::new(totals, tuning));
                summary.map_or(Ok(()), |summary| line(out, &summary))
            }
            Kind::Ecs | Kind::Ocsf => Ok(()),
            Kind::Navigator(layer) => line(out, &layer.finish(totals)),
            Kind::Csv(rows) => rows.finish(out),
        }
    }
}

/// Writes a value as one line of JSON.
fn line(out: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    escape::json(out, value)?;
    out.write_all(b"\n")
}
