//! The summary of all findings: alerts by score, findings by detection and severity, and
//! undetermined answers.

use std::collections::BTreeMap;
use std::io::{self, Write};

use stackhound_detect::alert::Alert;
use stackhound_detect::{Severity, Tally, Totals};

use super::{events, painted, shown, style, text};

/// Maximum number of alerts that are shown. Others are only counted.
pub(super) const ALERTS_MAX: usize = 100;

/// Maximum number of missing inputs in the line of undetermined answers.
const WANTED_MAX: usize = 3;

pub(super) fn write(
    out: &mut impl Write,
    is_colored: bool,
    alerts: &[&Alert],
    totals: &Totals,
) -> io::Result<()> {
    self::alerts(out, is_colored, alerts)?;
    findings(out, totals)?;
    undetermined(out, totals)
}

fn alerts(out: &mut impl Write, is_colored: bool, alerts: &[&Alert]) -> io::Result<()> {
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

pub(super) fn one_alert(out: &mut impl Write, is_colored: bool, alert: &Alert) -> io::Result<()> {
    let process = &alert.process;
    let name = if process.name.is_empty() { shown::file_name(&process.path) } else { &process.name };
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
    let each = |(id, severity, count): &(stackhound_detect::DetectionId, Severity, u64)| {
        format!("{} {} {count}", id.name(), severity.name())
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

pub(super) fn findings(out: &mut impl Write, totals: &Totals) -> io::Result<()> {
    let found: Vec<_> = totals.iter().filter(|(_, tally)| tally.findings() > 0).collect();
    if found.is_empty() {
        return writeln!(out, "No findings in {}", events(totals.events));
    }
    writeln!(out, "Findings in {}, by severity", events(totals.events))?;
    let heads = Severity::ALL.map(|severity| severity.name().to_owned());
    row(out, "", heads, "")?;
    for (id, tally) in &found {
        row(out, id.name(), counts(tally), id.detection().title)?;
    }
    Ok(())
}

fn counts(tally: &Tally) -> [String; Severity::ALL.len()] {
    tally.yes.map(|count| if count == 0 { "-".to_owned() } else { count.to_string() })
}

fn row(
    out: &mut impl Write,
    name: &str,
    cells: [String; Severity::ALL.len()],
    title: &str,
) -> io::Result<()> {
    let cells: String = cells.iter().map(|cell| format!(" {cell:>9}")).collect();
    let line = format!("  {name:<4}{cells}  {title}");
    writeln!(out, "{}", line.trim_end())
}

/// Undetermined answers do not exclude anything, so they are always shown.
fn undetermined(out: &mut impl Write, totals: &Totals) -> io::Result<()> {
    let open: Vec<_> = totals.iter().filter(|(_, tally)| tally.undetermined > 0).collect();
    if open.is_empty() {
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
    Ok(())
}

/// The number of undetermined answers on one line.
pub(super) fn undetermined_line(out: &mut impl Write, totals: &Totals) -> io::Result<()> {
    let count: u64 = totals.iter().map(|(_, tally)| tally.undetermined).sum();
    if count == 0 {
        return Ok(());
    }
    let detections = totals.iter().filter(|(_, tally)| tally.undetermined > 0).count();
    let of = if detections == 1 { "1 detection".to_owned() } else { format!("{detections} detections") };
    let mut wanted: BTreeMap<&str, u64> = BTreeMap::new();
    for (input, count) in totals.iter().flat_map(|(_, tally)| tally.wanted()) {
        *wanted.entry(input.name()).or_default() += count;
    }
    let mut wanted: Vec<_> = wanted.into_iter().collect();
    wanted.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let wanted: Vec<String> =
        wanted.iter().take(WANTED_MAX).map(|(name, count)| format!("{name} {count}")).collect();
    let wanted = if wanted.is_empty() { String::new() } else { format!("; missing: {}", wanted.join(", ")) };
    writeln!(out)?;
    writeln!(out, "Undetermined: {count} answers of {of}{wanted}")
}
