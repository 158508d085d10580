//! Findings, to be read: a table for people, NDJSON and CSV for scripts, documents for Elastic and OCSF, a layer for the
//! ATT&CK Navigator.
//!
//! A [`Writer`] takes evaluated events as they come and keeps nothing of them but counts, so memory is bounded whatever is
//! found. What is undetermined is shown as such in every format, and nowhere like a finding: it has no severity in
//! documents of others, no techniques, and no colour in layers. What is unknown is null or left out, never a value that
//! looks like one. Equal input gives equal bytes.
//!
//! Fields are listed in `docs/findings.md`. Knows nothing of files, of the command line, or of how evaluating is done. Texts
//! are untrusted: what terminals or spreadsheets would obey is taken out of tables and CSV.

mod attack;
mod behaviors;
mod csv;
mod ecs;
mod navigator;
mod ocsf;
pub(crate) mod shown;
mod table;

use std::io::{self, Write};

use serde::Serialize;
use stackhound_detect::Totals;
use stackhound_detect::Verdict;
use stackhound_detect::alert::{self, Alert};
use stackhound_detect::report::{EventContext, Finding};

use crate::{escape, json};

/// How findings are written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FindingsFormat {
    /// For people: a block for each event, then alerts and counts.
    Table,
    /// For people: alerts, counts and the findings that matter most.
    Summary,
    /// One JSON object a finding, one a line, with all that is known; at the end one for each alert.
    Ndjson,
    /// Documents of the Elastic Common Schema, with Elastic's names for call stacks; one a line.
    Ecs,
    /// Detection Findings of the Open Cybersecurity Schema Framework; one a line.
    Ocsf,
    /// One layer for the ATT&CK Navigator.
    Navigator,
    /// A table for spreadsheets: one row a finding.
    Csv,
}

impl FindingsFormat {
    /// All of them.
    pub const ALL: [FindingsFormat; 7] = [
        FindingsFormat::Table,
        FindingsFormat::Summary,
        FindingsFormat::Ndjson,
        FindingsFormat::Ecs,
        FindingsFormat::Ocsf,
        FindingsFormat::Navigator,
        FindingsFormat::Csv,
    ];

    /// The spelling in arguments.
    pub fn name(self) -> &'static str {
        match self {
            FindingsFormat::Table => "table",
            FindingsFormat::Summary => "summary",
            FindingsFormat::Ndjson => "ndjson",
            FindingsFormat::Ecs => "ecs",
            FindingsFormat::Ocsf => "ocsf",
            FindingsFormat::Navigator => "navigator",
            FindingsFormat::Csv => "csv",
        }
    }

    /// The one with this spelling.
    pub fn of(name: &str) -> Option<FindingsFormat> {
        FindingsFormat::ALL.into_iter().find(|format| format.name() == name)
    }
}

/// Writes evaluated events in one format.
///
/// Output is written in small pieces, so it should be buffered.
#[derive(Debug)]
pub struct Writer(Kind);

#[derive(Debug)]
enum Kind {
    Table(table::Table),
    Summary(table::Top),
    Ndjson,
    Ecs,
    Ocsf,
    Navigator(navigator::Layer),
    Csv(csv::Rows),
}

impl Writer {
    /// A writer; `is_colored` says whether tables have colours, which never carry what text does not.
    pub fn new(format: FindingsFormat, is_colored: bool) -> Writer {
        Writer(match format {
            FindingsFormat::Table => Kind::Table(table::Table::new(is_colored)),
            FindingsFormat::Summary => Kind::Summary(table::Top::new(is_colored)),
            FindingsFormat::Ndjson => Kind::Ndjson,
            FindingsFormat::Ecs => Kind::Ecs,
            FindingsFormat::Ocsf => Kind::Ocsf,
            FindingsFormat::Navigator => Kind::Navigator(navigator::Layer::default()),
            FindingsFormat::Csv => Kind::Csv(csv::Rows::default()),
        })
    }

    /// Writes what was found in an event. Answers that are no are left out; if all are, nothing is written.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(
        &mut self,
        out: &mut impl Write,
        event_context: &EventContext,
        findings: &[Finding],
    ) -> io::Result<()> {
        let told = |finding: &&Finding| finding.outcome.verdict != Verdict::No;
        let findings: Vec<&Finding> = findings.iter().filter(told).collect();
        if findings.is_empty() {
            return Ok(());
        }
        let mut each = findings.iter().copied();
        match &mut self.0 {
            Kind::Table(table) => table.write(out, event_context, &findings),
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

    /// Writes what comes last: alerts and counts for people, documents of alerts in NDJSON, all of a layer. The order of `alerts`
    /// does not matter.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn finish(self, out: &mut impl Write, alerts: &[Alert], totals: &Totals) -> io::Result<()> {
        let mut alerts: Vec<&Alert> = alerts.iter().collect();
        alert::sort(&mut alerts);
        match self.0 {
            Kind::Table(table) => table.finish(out, &alerts, totals),
            Kind::Summary(top) => top.finish(out, &alerts, totals),
            Kind::Ndjson => alerts.iter().try_for_each(|alert| line(out, &json::finding::Alert::new(alert))),
            Kind::Ecs | Kind::Ocsf => Ok(()),
            Kind::Navigator(layer) => line(out, &layer.finish(totals)),
            Kind::Csv(rows) => rows.finish(out),
        }
    }
}

/// A value as JSON on one line.
fn line(out: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    escape::json(out, value)?;
    out.write_all(b"\n")
}
