//! The summary of all findings: alerts by score, findings by detection and severity, and
//! undetermined answers.

use std::io::{self, Write};
use std::sync::Arc;

use stackhound_detect::alert::Alert;
use stackhound_detect::{Analytic, Severity, Totals};

use super::super::form::End;
use super::{events, painted, shown, style, text};

/// Maximum number of alerts that are shown. Others are only counted.
pub(super) const ALERTS_MAX: usize = 100;

/// Maximum number of missing inputs in the line of undetermined answers.
const WANTED_MAX: usize = 3;

pub(super) fn write(out: &mut dyn Write, is_colored: bool, end: &End<'_>) -> io::Result<()> {
    alerts(out, is_colored, end.alerts)?;
    findings(out, end.totals)?;
    undetermined(out, end.totals)
}

fn alerts(out: &mut dyn Write, is_colored: bool, alerts: &[&Alert]) -> io::Result<()> {
    if alerts.is_empty() {
        return Ok(());
    }
    writeln!(out, "Alerts by score")?;
    for alert in alerts.iter().take(ALERTS_MAX) {
        one_alert(out, is_colored, alert)?;
    }
    if let Some(more @ 1..) = alerts.len().checked_sub(ALERTS_MAX) {
        writeln!(out, "  ... and {more} more")?;
    }
    writeln!(out)
}

pub(super) fn one_alert(out: &mut dyn Write, is_colored: bool, alert: &Alert) -> io::Result<()> {
    let process = &alert.process;
    let name = process.name();
    let name = if name.is_empty() { "unknown process" } else { name };
    // Widths count characters, so padding comes before coloring.
    let severity = painted(is_colored, style(alert.severity), &format!("{:<8}", alert.severity.name()));
    write!(out, "  {:>3}  {severity}  {}", alert.score(), text(name))?;
    if let Some(pid) = process.pid {
        write!(out, " (pid {pid})")?;
    }
    if !alert.host.is_empty() {
        write!(out, " on {}", text(&alert.host))?;
    }
    let each = |(of, severity, count): &(&Analytic, Severity, u64)| {
        format!("{} {} {count}", text(of.label()), severity.name())
    };
    let detections: Vec<String> = alert.by_severity().iter().map(each).collect();
    writeln!(out, ": {}", detections.join(", "))?;
    let times = alert.times.map(|(from, to)| (shown::time(from), shown::time(to)));
    let times = match times {
        Some((Some(from), Some(to))) if from == to => format!("{from}, "),
        Some((Some(from), Some(to))) => format!("{from} to {to}, "),
        _ => String::new(),
    };
    writeln!(out, "                 {times}alert {}", text(&alert.key))
}

pub(super) fn findings(out: &mut dyn Write, totals: &Totals) -> io::Result<()> {
    let of_detections = totals.iter().map(|(id, tally)| (Analytic::Detection(id), tally.yes));
    let of_rules = totals.rules().map(|(rule, tally)| (Analytic::Rule(Arc::clone(rule)), tally.yes));
    let is_found = |(_, yes): &(Analytic, [u64; Severity::ALL.len()])| yes.iter().any(|count| *count > 0);
    let found: Vec<_> = of_detections.chain(of_rules).filter(is_found).collect();
    if found.is_empty() {
        return writeln!(out, "No findings in {}", events(totals.events));
    }
    writeln!(out, "Findings in {}, by severity", events(totals.events))?;
    let heads = Severity::ALL.map(|severity| severity.name().to_owned());
    row(out, "", heads, "")?;
    for (of, yes) in &found {
        row(out, &text(of.label()).to_string(), counts(*yes), &text(of.title()).to_string())?;
    }
    Ok(())
}

fn counts(yes: [u64; Severity::ALL.len()]) -> [String; Severity::ALL.len()] {
    yes.map(|count| if count == 0 { "-".to_owned() } else { count.to_string() })
}

fn row(out: &mut dyn Write, name: &str, cells: [String; Severity::ALL.len()], title: &str) -> io::Result<()> {
    let cells: String = cells.iter().map(|cell| format!(" {cell:>9}")).collect();
    let line = format!("  {name:<4}{cells}  {title}");
    writeln!(out, "{}", line.trim_end())
}

/// Undetermined answers do not exclude anything, so they are always shown.
fn undetermined(out: &mut dyn Write, totals: &Totals) -> io::Result<()> {
    let open: Vec<_> = totals.iter().filter(|(_, tally)| tally.undetermined > 0).collect();
    let of_rules: Vec<_> = totals.rules().filter(|(_, tally)| tally.undetermined > 0).collect();
    if open.is_empty() && of_rules.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    writeln!(out, "Undetermined (neither found nor excluded), with the missing evidence")?;
    for (id, tally) in open {
        let wanted: Vec<String> =
            tally.wanted().iter().map(|(input, count)| format!("{} {count}", input.name())).collect();
        let wanted = if wanted.is_empty() { "conclusive evidence".to_owned() } else { wanted.join(", ") };
        writeln!(out, "  {:<4} {:>9}  {}: {wanted}", id.name(), tally.undetermined, id.detection().title)?;
    }
    for (rule, tally) in of_rules {
        let of = Analytic::Rule(Arc::clone(rule));
        let wanted: Vec<String> =
            tally.missing.iter().map(|(name, count)| format!("{name} {count}")).collect();
        let possible = match tally.possible {
            0 => String::new(),
            possible => format!(" ({possible} possible)"),
        };
        writeln!(
            out,
            "  {:<4} {:>9}  {}{possible}: {}",
            text(of.label()).to_string(),
            tally.undetermined,
            text(of.title()),
            text(&wanted.join(", "))
        )?;
    }
    Ok(())
}

/// The number of undetermined answers on one line.
pub(super) fn undetermined_line(out: &mut dyn Write, totals: &Totals) -> io::Result<()> {
    let count = totals.undetermined();
    if count == 0 {
        return Ok(());
    }
    let detections = totals.iter().filter(|(_, tally)| tally.undetermined > 0).count();
    let rules = totals.rules().filter(|(_, tally)| tally.undetermined > 0).count();
    let counted = |count: usize, one: &str| match count {
        0 => None,
        1 => Some(format!("1 {one}")),
        count => Some(format!("{count} {one}s")),
    };
    let of: Vec<String> =
        [counted(detections, "detection"), counted(rules, "rule")].into_iter().flatten().collect();
    let of = of.join(" and ");
    let wanted: Vec<String> =
        totals.wanted().into_iter().take(WANTED_MAX).map(|(name, count)| format!("{name} {count}")).collect();
    let wanted = if wanted.is_empty() { String::new() } else { format!("; missing: {}", wanted.join(", ")) };
    writeln!(out)?;
    writeln!(out, "Undetermined: {count} answers of {of}{wanted}")
}
