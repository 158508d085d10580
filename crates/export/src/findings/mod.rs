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
mod form;
mod mapped;
mod navigator;
mod ndjson;
mod ocsf;
pub(crate) mod related;
pub(crate) mod shown;
mod sorted;
mod table;

use std::io::{self, Write};

use stackhound_detect::Totals;
use stackhound_detect::Verdict;
use stackhound_detect::alert::{self, Alert};
use stackhound_detect::report::{EventContext, Finding};
use stackhound_detect::tuning::TuningReport;

use form::{End, Form, Options};

/// Declares the formats with a row for each: the variant, its documentation, its name, who reads it, and its output.
macro_rules! formats {
    ($($(#[doc = $doc:literal])+ $format:ident = $name:literal $reader:ident $new:path,)+) => {
        /// The output format of findings.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum FindingsFormat {
            $($(#[doc = $doc])+ $format,)+
        }

        impl FindingsFormat {
            /// All formats.
            pub const ALL: [FindingsFormat; [$($name),+].len()] = [$(FindingsFormat::$format),+];

            fn row(self) -> &'static Row {
                const ROWS: &[Row] = &[
                    $(Row { name: $name, about: concat!($($doc),+), reader: Reader::$reader, new: $new },)+
                ];
                &ROWS[self as usize]
            }
        }
    };
}

formats! {
    /// Alerts with one stack each, the highest score first, then counts
    Table = "table" People table::alert_table,
    /// Each finding with its stack, then alerts and counts
    List = "list" People table::list,
    /// Alerts, counts and the most severe findings
    Summary = "summary" People table::summary,
    /// One JSON object per line: the findings, then the alerts
    Ndjson = "ndjson" Programs ndjson::lines,
    /// Documents of the Elastic Common Schema, one per line
    Ecs = "ecs" Programs ecs::documents,
    /// Detection findings of the Open Cybersecurity Schema Framework, one per line
    Ocsf = "ocsf" Programs ocsf::documents,
    /// A layer for the ATT&CK Navigator
    Navigator = "navigator" Programs navigator::layer,
    /// Comma-separated values, one line per finding, sorted by time
    Csv = "csv" Programs csv::plain,
    /// Comma-separated values with the columns of Timesketch, sorted by time
    Timesketch = "timesketch" Programs csv::timesketch,
}

/// A format: what differs between formats, in one place.
struct Row {
    name: &'static str,
    about: &'static str,
    reader: Reader,
    new: fn(Options) -> Box<dyn Form>,
}

/// Who reads a format.
#[derive(PartialEq, Eq)]
enum Reader {
    People,
    Programs,
}

impl FindingsFormat {
    /// The spelling in arguments.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// What it contains, as a line of help.
    pub fn about(self) -> &'static str {
        self.row().about.trim_start()
    }

    /// Whether people read it.
    pub fn is_for_people(self) -> bool {
        self.row().reader == Reader::People
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
pub struct Writer(Box<dyn Form>);

impl Writer {
    /// Creates a writer. `is_colored` enables colors in tables; they never carry information that
    /// the text does not have.
    pub fn new(format: FindingsFormat, is_colored: bool) -> Writer {
        Writer((format.row().new)(Options { is_colored, is_live: false }))
    }

    /// Creates a writer for events that arrive in time order and without end: a table is a
    /// [`List`](FindingsFormat::List), and rows of CSV are written at once.
    pub fn live(format: FindingsFormat, is_colored: bool) -> Writer {
        Writer((format.row().new)(Options { is_colored, is_live: true }))
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
        if findings.is_empty() { Ok(()) } else { self.0.add(out, event_context, &findings) }
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
        self.0.finish(out, &End { alerts: &alerts, totals, tuning })
    }
}
