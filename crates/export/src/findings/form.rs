//! The parts of all formats of findings.

use std::io::{self, Write};

use serde::Serialize;
use stackhound_detect::Totals;
use stackhound_detect::alert::Alert;
use stackhound_detect::report::{EventContext, Finding};
use stackhound_detect::tuning::TuningReport;

use crate::escape;

/// How a format is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    /// Whether tables have colors; they never carry information that the text does not have.
    pub is_colored: bool,
    /// Whether events arrive in time order and without end.
    pub is_live: bool,
}

/// What is known at the end.
pub(super) struct End<'e> {
    /// The highest score first.
    pub alerts: &'e [&'e Alert],
    pub totals: &'e Totals,
    pub tuning: Option<&'e TuningReport>,
}

/// The output in one format.
pub(super) trait Form: std::fmt::Debug {
    /// Takes the findings of an event: at least one, and no answers no.
    fn add(&mut self, out: &mut dyn Write, event: &EventContext, findings: &[&Finding]) -> io::Result<()>;

    /// Writes the end of the output.
    fn finish(self: Box<Self>, out: &mut dyn Write, end: &End<'_>) -> io::Result<()>;
}

/// A format with a JSON document for each finding and nothing else.
#[derive(Debug)]
pub(super) struct Documents(pub fn(&EventContext, &Finding) -> serde_json::Value);

impl Form for Documents {
    fn add(&mut self, out: &mut dyn Write, event: &EventContext, findings: &[&Finding]) -> io::Result<()> {
        findings.iter().try_for_each(|finding| line(out, &(self.0)(event, finding)))
    }

    fn finish(self: Box<Self>, _: &mut dyn Write, _: &End<'_>) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a value as one line of JSON.
pub(super) fn line(out: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    escape::json(out, value)?;
    out.write_all(b"\n")
}
