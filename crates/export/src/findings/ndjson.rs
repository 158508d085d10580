//! NDJSON: a document for each finding, with all known facts, followed by one for each alert.

use std::io::{self, Write};

use stackhound_detect::report::{EventContext, Finding};

use super::form::{End, Form, Options, line};
use crate::json::finding;

#[derive(Debug)]
struct Lines;

pub(super) fn lines(_: Options) -> Box<dyn Form> {
    Box::new(Lines)
}

impl Form for Lines {
    fn add(&mut self, out: &mut dyn Write, event: &EventContext, findings: &[&Finding]) -> io::Result<()> {
        findings.iter().try_for_each(|finding| line(out, &finding::Finding::new(event, finding)))
    }

    fn finish(self: Box<Self>, out: &mut dyn Write, end: &End<'_>) -> io::Result<()> {
        end.alerts.iter().try_for_each(|alert| line(out, &finding::Alert::new(alert)))?;
        let summary = end.tuning.map(|tuning| finding::Summary::new(end.totals, tuning));
        summary.map_or(Ok(()), |summary| line(out, &summary))
    }
}
