//! Changes of findings by the user: `[severity]` and `[[exceptions]]` of a file of lists.
//!
//! A rule applies only if the event has every value that the rule requires: an unknown signer never
//! matches a required one. Dates are compared with the time of the event, so that a trace gives the
//! same findings on every day.

mod text;

use std::mem::take;
use std::sync::Arc;

use stackhound_frames::lists::{ListsError, Pattern};
use stackhound_types::FileTime;

use crate::catalogue::DetectionId;
use crate::marks::Novelty;
pub use crate::marks::{SuppressedBy, Suppression};
use crate::report::{EventContext, Finding, FrameReport};
use crate::totals::add_count;
use crate::verdict::{Severity, Verdict};

/// The values that an event must have. Those that are `None` are not compared.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Condition {
    detection: Option<DetectionId>,
    /// The id or the name of a rule.
    rule: Option<Pattern>,
    process: Option<Pattern>,
    module: Option<Pattern>,
    signer: Option<Pattern>,
    command_line: Option<Pattern>,
    host: Option<Pattern>,
}

impl Condition {
    fn fits(&self, event_context: &EventContext, finding: &Finding) -> bool {
        let EventContext { process, host, .. } = event_context;
        let is = |pattern: &Option<Pattern>, texts: &[&str]| {
            let known = |text: &&str| !text.is_empty();
            pattern
                .as_ref()
                .is_none_or(|pattern| texts.iter().filter(|text| known(text)).any(|text| pattern.fits(text)))
        };
        let frame = finding.frame(event_context);
        let module = frame.map_or("", |frame| &frame.module);
        let name = frame.map_or("", |frame| frame.module_name());
        let last = event_context.final_user_module.as_deref().unwrap_or_default();
        let rule = finding.analytic.rule().map_or(["", ""], |rule| [&rule.id, &rule.name]);
        self.detection.is_none_or(|detection| finding.analytic.detection() == Some(detection))
            && is(&self.rule, &rule)
            && is(&self.process, &[process.path(), process.name()])
            && is(&self.module, &[module, name, last])
            && is(&self.command_line, &[process.command_line()])
            && is(&self.host, &[host])
            && (self.signer.is_none() || is(&self.signer, &[signer(event_context, finding)]))
    }
}

/// The signer of the module of the frame that the finding concerns. If the frame is in no module,
/// the signer of the program, if the program is in the stack. Empty if it is not known.
fn signer<'c>(event_context: &'c EventContext, finding: &Finding) -> &'c str {
    match finding.frame(event_context) {
        Some(frame) if !frame.module.is_empty() => frame.signer(),
        _ => {
            let path = event_context.process.path();
            let of_program = event_context.stack.iter().find(|frame| frame.module.eq_ignore_ascii_case(path));
            of_program.filter(|_| !path.is_empty()).map_or("", FrameReport::signer)
        }
    }
}

/// A rule of `[severity]`.
#[derive(Clone, Debug)]
struct SeverityRule {
    condition: Condition,
    /// `None` is "off".
    severity: Option<Severity>,
    suppression: Arc<Suppression>,
    suppressed: u64,
}

/// An entry of `[[exceptions]]`.
#[derive(Clone, Debug)]
struct Exception {
    condition: Condition,
    /// The first time at which it no longer applies.
    end: Option<FileTime>,
    suppression: Arc<Suppression>,
    suppressed: u64,
    expired: u64,
}

/// The findings that one rule suppressed, in raw events.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SuppressionCount {
    /// The rule.
    pub suppression: Arc<Suppression>,
    /// Findings that it suppressed.
    pub suppressed: u64,
    /// Findings that it would have suppressed if it had not expired before their time.
    pub expired: u64,
}

/// The findings that were suppressed, in raw events.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TuningReport {
    /// The rules of the file of lists.
    pub rules: Vec<SuppressionCount>,
    /// The findings by their novelty, in the order of [`Novelty::ALL`]; `None` without a baseline.
    pub novelty: Option<[u64; Novelty::ALL.len()]>,
    /// Known findings of at most low severity, which the baseline suppressed.
    pub known: u64,
}

/// The rules of a file, with the number of findings that each suppressed.
#[derive(Clone, Debug, Default)]
pub struct Tuning {
    severity: Vec<SeverityRule>,
    exceptions: Vec<Exception>,
}

impl Tuning {
    /// Reads `[severity]` and `[[exceptions]]` of a TOML text. Other sections are ignored.
    ///
    /// # Errors
    /// If a key, detection, severity or date is not valid, or an exception has no reason or no
    /// condition.
    pub fn parse(text: &str) -> Result<Tuning, ListsError> {
        text::parse(text)
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.severity.is_empty() && self.exceptions.is_empty()
    }

    /// Applies the rules to an answer: first `[severity]`, of which the first rule that fits
    /// decides, then `[[exceptions]]`, which apply only to the verdict "yes". The first exception
    /// that fits and has not expired suppresses the finding.
    pub fn apply(&mut self, event_context: &EventContext, finding: &mut Finding) {
        let is_found = finding.outcome.verdict == Verdict::Yes;
        let count = if is_found { event_context.count } else { 0 };
        let rule = self.severity.iter_mut().find(|rule| rule.condition.fits(event_context, finding));
        if let Some(rule) = rule {
            match rule.severity {
                Some(severity) => finding.outcome.severity = severity,
                None => {
                    add_count(&mut rule.suppressed, count);
                    finding.suppressed = Some(Arc::clone(&rule.suppression));
                    return;
                }
            }
        }
        if !is_found {
            return;
        }
        for exception in &mut self.exceptions {
            if !exception.condition.fits(event_context, finding) {
                continue;
            }
            if !exception.applies_at(event_context.time) {
                add_count(&mut exception.expired, count);
                continue;
            }
            add_count(&mut exception.suppressed, count);
            finding.suppressed = Some(Arc::clone(&exception.suppression));
            return;
        }
    }

    /// The rules that can suppress findings, in the order of the file, with their counts since the
    /// last call.
    pub fn take_counts(&mut self) -> Vec<SuppressionCount> {
        let off = self.severity.iter_mut().filter(|rule| rule.severity.is_none());
        let off = off.map(|rule| SuppressionCount {
            suppression: Arc::clone(&rule.suppression),
            suppressed: take(&mut rule.suppressed),
            expired: 0,
        });
        let excepted = self.exceptions.iter_mut().map(|exception| SuppressionCount {
            suppression: Arc::clone(&exception.suppression),
            suppressed: take(&mut exception.suppressed),
            expired: take(&mut exception.expired),
        });
        off.chain(excepted).collect()
    }
}

impl Exception {
    /// Whether it applies to an event at this time, in units of 100 ns since 1601. An exception that
    /// expires does not apply to an event whose time is not known.
    fn applies_at(&self, time: Option<u64>) -> bool {
        let Some(end) = self.end else { return true };
        time.and_then(|time| i64::try_from(time).ok()).is_some_and(|time| time < end.0)
    }
}

#[cfg(test)]
mod tests;
