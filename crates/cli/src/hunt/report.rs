//! Writes findings as they arrive, then alerts and counts.

use std::io::Write;
use std::ops::ControlFlow;

use anyhow::Result;
use stackhound::detect::tuning::{Suppression, SuppressionCount, TuningReport};
use stackhound::detect::{Severity, Totals};
use stackhound::hunt::{EventFindings, Hunt, HuntReport};
use stackhound_export::findings::Writer;

use super::{Arguments, Format, baseline};
use crate::options::Common;
use crate::output::{Sink, counted, grouped, message};

/// The limit of missing inputs in the closing line.
const MISSING_SHOWN: usize = 3;

pub struct Report<'a> {
    arguments: &'a Arguments,
    writer: Writer,
    sink: Sink,
    /// The number of written findings that are not suppressed.
    written: u64,
    failure: Option<anyhow::Error>,
}

impl<'a> Report<'a> {
    pub fn open(arguments: &'a Arguments, is_colored: bool) -> Result<Report<'a>> {
        let format = arguments.format()?;
        let sink = arguments.output.sentences(Format(format))?;
        let new = if arguments.sources.live { Writer::live } else { Writer::new };
        let writer = new(format, is_colored);
        Ok(Report { arguments, writer, sink, written: 0, failure: None })
    }

    /// Writes the findings of an event, if there are any. Breaks if writing fails.
    pub fn write(&mut self, event: Option<EventFindings>) -> ControlFlow<()> {
        let Some(EventFindings { context, findings }) = event else { return ControlFlow::Continue(()) };
        self.written += findings.iter().filter(|finding| finding.is_reported()).count() as u64;
        let written = self.writer.write(&mut self.sink, &context, &findings);
        self.note(written)
    }

    /// Flushes the output. Breaks if writing fails.
    pub fn flush(&mut self) -> ControlFlow<()> {
        let flushed = self.sink.flush();
        self.note(flushed)
    }

    fn note(&mut self, written: std::io::Result<()>) -> ControlFlow<()> {
        match written {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.failure = Some(error.into());
                ControlFlow::Break(())
            }
        }
    }

    /// Returns the error of the last write, if it failed.
    pub fn failed(&mut self) -> Result<()> {
        self.failure.take().map_or(Ok(()), Err)
    }

    /// Writes the alerts and counts, and the new baseline. Returns whether findings were written, and
    /// the counts of evaluations and findings for the closing line.
    pub fn finish(mut self, hunt: &mut Hunt, common: &Common) -> Result<(bool, String)> {
        self.failed()?;
        let min_severity = hunt.collector().min_severity();
        let HuntReport { alerts, totals, with_stack, tuning } = hunt.take_report();
        announce(tuning.as_ref(), common);
        let results = closing(&totals, with_stack, min_severity);
        self.writer.finish(&mut self.sink, &alerts, &totals, tuning.as_ref())?;
        self.sink.finish()?;
        let baseline = hunt.collector().take_baseline();
        if let Some((path, (baseline, skipped))) = self.arguments.write_baseline.as_ref().zip(baseline) {
            baseline::write(path, &baseline)?;
            if !common.quiet {
                let skipped = match skipped {
                    0 => String::new(),
                    _ => {
                        format!(", {} beyond the limits not learned", counted(skipped, "finding", "findings"))
                    }
                };
                let entries = counted(baseline.len() as u64, "entry", "entries");
                message(format_args!("{}: {entries}{skipped}", path.display()));
            }
        }
        Ok((self.written > 0, results))
    }
}

/// Writes the effects of exceptions and the baseline to standard error, one line for each kind.
pub fn announce(tuning: Option<&TuningReport>, common: &Common) {
    let Some(tuning) = tuning.filter(|_| !common.quiet) else { return };
    let each = |wanted: fn(&SuppressionCount) -> u64| -> Vec<String> {
        let counted = tuning.rules.iter().filter(|rule| wanted(rule) > 0);
        counted.map(|rule| format!("{} {}", grouped(wanted(rule)), described(&rule.suppression))).collect()
    };
    let suppressed = each(|rule| rule.suppressed);
    if !suppressed.is_empty() {
        message(format_args!("suppressed findings: {}", suppressed.join(", ")));
    }
    let expired = each(|rule| rule.expired);
    if !expired.is_empty() {
        message(format_args!(
            "findings of expired exceptions, which no longer apply: {}",
            expired.join(", ")
        ));
    }
    if let Some(novelty) = tuning.novelty {
        let [_, process, stack, new, excluded] = novelty.map(grouped);
        message(format_args!(
            "baseline: {} suppressed, {process} new process, {stack} new stack, {new} new process and stack, {excluded} not compared",
            counted(tuning.known, "known finding", "known findings")
        ));
    }
}

/// A rule as text: `by the exception in line 12 (reason)`.
fn described(rule: &Suppression) -> String {
    let Suppression { by, line, reason, expires } = rule;
    let until = if expires.is_empty() { String::new() } else { format!(", until {expires}") };
    match line {
        Some(line) => format!("by {} in line {line} ({reason}{until})", by.name()),
        None => format!("by {} ({reason})", by.name()),
    }
}

fn closing(totals: &Totals, with_stack: u64, min_severity: Severity) -> String {
    let mut text =
        format!(", {} evaluated, {} of them with stacks", grouped(totals.events), grouped(with_stack));
    let mut found: Vec<String> = Vec::new();
    for severity in Severity::ALL.into_iter().rev() {
        match totals.findings(severity) {
            0 => {}
            count if severity < min_severity => {
                found.push(format!("{} {} (not shown)", grouped(count), severity.name()));
            }
            count => found.push(format!("{} {}", grouped(count), severity.name())),
        }
    }
    text += &match (found.is_empty(), totals.events) {
        // No findings without evaluated events would be misleading.
        (true, 0) => "; nothing to evaluate".to_owned(),
        (true, _) => "; no findings".to_owned(),
        (false, _) => format!("; findings: {}", found.join(", ")),
    };
    let undetermined = totals.undetermined();
    if undetermined > 0 {
        text += &format!("; {} undetermined", counted(undetermined, "answer", "answers"));
        let possible: u64 = totals.rules().map(|(_, tally)| tally.possible).sum();
        if possible > 0 {
            text += &format!(" ({} of rules possible)", grouped(possible));
        }
        let shown = totals.wanted().into_iter().take(MISSING_SHOWN);
        let shown: Vec<_> = shown.map(|(name, count)| format!("{name} {}", grouped(count))).collect();
        if !shown.is_empty() {
            text += &format!("; missing evidence: {}", shown.join(", "));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use stackhound::detect::{DetectionId, Input, Inputs, Outcome, Reason};

    use super::*;

    #[test]
    fn the_closing_line_counts_findings_and_missing_evidence() {
        let id = |number| DetectionId::new(number).unwrap();
        let mut totals = Totals::default();
        assert_eq!(
            closing(&totals, 0, Severity::Low),
            ", 0 evaluated, 0 of them with stacks; nothing to evaluate"
        );
        totals.events = 12_345;
        assert_eq!(
            closing(&totals, 2_000, Severity::Low),
            ", 12,345 evaluated, 2,000 of them with stacks; no findings"
        );
        let none = Inputs::NONE;
        let yes = |severity| Outcome::yes(severity, None, Reason::TopImage, none);
        totals.add_outcome(id(2), &yes(Severity::High), 3);
        totals.add_outcome(id(8), &yes(Severity::Low), 1_000);
        let open = |missing: &[Input]| {
            Outcome::undetermined(Severity::High, Reason::ImageMissing, none, Inputs::of(missing))
        };
        totals.add_outcome(id(3), &open(&[Input::ImageBytes, Input::Service]), 40);
        totals.add_outcome(id(5), &open(&[Input::ImageBytes]), 2);
        totals.add_outcome(id(15), &open(&[Input::ThreadStart]), 1);
        totals.add_outcome(id(18), &open(&[Input::MemoryBytes]), 1);
        let expected = ", 12,345 evaluated, 2,000 of them with stacks; findings: 3 high, 1,000 low; 44 answers \
                        undetermined; missing evidence: image_bytes 42, service 40, memory_bytes 1";
        assert_eq!(closing(&totals, 2_000, Severity::Low), expected);
        let shown = closing(&totals, 2_000, Severity::Medium);
        assert!(shown.contains("findings: 3 high, 1,000 low (not shown);"), "{shown}");
    }
}
