//! Differences as tables, CSV and JSON.

use std::io::Write;

use anyhow::Result;
use stackhound::analysis::diff::sides::{Names, Samples, Uses};
use stackhound::analysis::diff::{Difference, SHARE_MIN, Verdict};
use stackhound_export::escape::{cell, line, row};
use stackhound_export::json::diff as json;

use super::findings::Row;
use super::read::Capture;
use super::{Arguments, Compared, Measure, Normalize, Section, changes};
use crate::info::capture_info;
use crate::output::{counted, grouped};
use crate::top::table::{Table, seconds};
use crate::top::window;

/// The unit in which amounts are shown, so that those of A and B are comparable.
#[derive(Clone, Copy, Debug)]
pub struct Unit {
    normalize: Normalize,
    /// What amounts are divided by: durations or totals in nanoseconds.
    by: [u64; 2],
}

impl Unit {
    pub fn of(arguments: &Arguments, captures: &[Capture; 2], totals: [u64; 2]) -> Unit {
        let normalize = arguments.normalize;
        let by = match normalize {
            Normalize::None => [1, 1],
            Normalize::Second => captures.each_ref().map(|capture| capture.report.duration()),
            Normalize::Total => totals,
        };
        Unit { normalize, by }
    }

    fn value(self, amount: f64, by: u64) -> f64 {
        let share = amount / by.max(1) as f64;
        match self.normalize {
            Normalize::None => amount / 1e9,
            Normalize::Second => share * 1e3,
            Normalize::Total => share * 1e2,
        }
    }

    fn name(self) -> &'static str {
        match self.normalize {
            Normalize::None => "s",
            Normalize::Second => "ms/s",
            Normalize::Total => "%",
        }
    }

    /// What the unit means.
    fn meaning(self) -> &'static str {
        match self.normalize {
            Normalize::None => "seconds of processor time, not normalized",
            Normalize::Second => "milliseconds of processor time in each second of the trace",
            Normalize::Total => "percent of the processor time that was used",
        }
    }

    fn digits(self, value: f64) -> String {
        match self.normalize {
            Normalize::None => format!("{value:.3}"),
            Normalize::Second => format!("{value:.1}"),
            Normalize::Total => format!("{value:.2}"),
        }
    }

    /// An amount of A in nanoseconds, with the unit.
    pub fn of_a(self, amount: u64) -> String {
        format!("{} {}", self.digits(self.value(amount as f64, self.by[0])), self.name())
    }

    /// An amount of B in nanoseconds, not normalized, with the unit.
    pub fn of_b(self, amount: u64) -> String {
        format!("{} {}", self.digits(self.value(amount as f64, self.by[1])), self.name())
    }

    /// The normalized difference in nanoseconds of A, with the unit.
    pub fn difference(self, delta: f64) -> String {
        format!("{} {}", self.digits(self.value(delta.abs(), self.by[0])), self.name())
    }
}

/// The lines about both traces and about what was compared.
pub fn about(arguments: &Arguments, captures: &[Capture; 2], totals: [u64; 2]) -> Vec<String> {
    let mut lines = Vec::new();
    for ((name, capture), total) in ["A", "B"].into_iter().zip(captures).zip(totals) {
        let report = &capture.report;
        let mut text = format!(
            "{name}  {}: {} × {} s, busy {} s, {}",
            capture.path,
            counted(report.processors.into(), "processor", "processors"),
            seconds(report.duration()),
            seconds(total),
            counted(report.classes.busy().count, "sample", "samples"),
        );
        if capture.is_lossy {
            text += &format!("; {}", losses(arguments, capture));
        }
        lines.push(text);
    }
    let unit = Unit::of(arguments, captures, totals);
    lines.push(format!("{}: {}", unit.name(), unit.meaning()));
    lines
}

/// What a capture lost, and what follows from it.
fn losses(arguments: &Arguments, capture: &Capture) -> String {
    let (events, buffers) = lost(capture);
    let counts = [
        (events > 0).then(|| counted(events, "event", "events")),
        (buffers > 0).then(|| counted(buffers, "buffer", "buffers")),
    ];
    let counts: Vec<String> = counts.into_iter().flatten().collect();
    let counts = if counts.is_empty() { "records".to_owned() } else { counts.join(" and ") };
    let [innermost, stacks] = [Uses::Innermost, Uses::Stack].map(|uses| uncertain(arguments, capture, uses));
    match innermost.zip(stacks) {
        Some((innermost, stacks)) => format!(
            "lost {counts}: the time of a function may be wrong by {} s, that of a stack by {} s",
            seconds(innermost),
            seconds(stacks)
        ),
        None => format!("lost {counts}: how wrong times are is not known"),
    }
}

fn lost(capture: &Capture) -> (u64, u64) {
    let stats = &capture.outcome.trace;
    (stats.events_lost, stats.buffers_lost.max(stats.buffers_missing))
}

fn uncertain(arguments: &Arguments, capture: &Capture, uses: Uses) -> Option<u64> {
    match Samples::of(&capture.report, arguments.is_filtered()) {
        Some(samples) => samples.uncertain(uses),
        None if capture.is_lossy => None,
        None => Some(0),
    }
}

pub fn table(out: &mut impl Write, arguments: &Arguments, compared: &Compared) -> Result<()> {
    for text in about(arguments, &compared.captures, compared.totals) {
        line(out, format_args!("{text}"))?;
    }
    if compared.measure == Some(Measure::Switches) {
        line(
            out,
            format_args!(
                "No profile samples: times are exact, by context switches. For one measurement of each, there is no \
                 estimate of noise, so no difference of times is called a change"
            ),
        )?;
    }
    for subject in arguments.subjects() {
        if let (super::Subject::Finding, Some(findings)) = (subject, &compared.findings) {
            writeln!(out)?;
            let changed = findings.changes();
            line(
                out,
                format_args!(
                    "Findings: {changed} changed of {} compared by detection and program{}",
                    findings.rows.len(),
                    beyond(findings.threshold)
                ),
            )?;
            if findings.skipped > 0 {
                let skipped = counted(findings.skipped, "finding", "findings");
                line(out, format_args!("  {skipped} of further programs were not compared"))?;
            }
            findings_table(out, arguments, &findings.rows)?;
        }
        for section in compared.sections.iter().filter(|section| section.subject == subject) {
            writeln!(out)?;
            section_table(out, arguments, compared, section)?;
        }
    }
    Ok(())
}

/// When a difference is called a change.
fn beyond(threshold: f64) -> String {
    format!("; changed: by {threshold:.1} standard deviations or more")
}

/// The rows that are shown: changes, and what may be one.
fn shown<'r, R>(
    arguments: &Arguments,
    rows: &'r [R],
    difference: impl Fn(&R) -> &Difference,
) -> impl Iterator<Item = &'r R> {
    let all = arguments.all;
    let rows = rows.iter().filter(move |row| all || difference(row).verdict != Verdict::Noise);
    rows.take(arguments.rows_max())
}

fn section_table(
    out: &mut impl Write,
    arguments: &Arguments,
    compared: &Compared,
    section: &Section,
) -> Result<()> {
    let (subject, comparison) = (section.subject, &section.comparison);
    let limit = match compared.measure {
        Some(Measure::Samples) => beyond(comparison.threshold),
        _ => String::new(),
    };
    line(
        out,
        format_args!(
            "{}: {} changed of {} compared with at least {} %{limit}",
            subject.heading(),
            changes(comparison),
            comparison.compared,
            SHARE_MIN * 100.0
        ),
    )?;
    let unit = Unit::of(arguments, &compared.captures, compared.totals);
    let [by_a, by_b] = unit.by;
    let number = |amount: f64, by: u64| unit.digits(unit.value(amount, by));
    let mut table = Table::<(Names, Difference)>::new();
    table.left("CHANGE", |(_, difference)| difference.verdict.name().to_owned());
    table.right(format!("A {}", unit.name()), |(_, difference)| number(difference.a.amount as f64, by_a));
    table.right(format!("B {}", unit.name()), |(_, difference)| number(difference.b.amount as f64, by_b));
    table.right(format!("DIFFERENCE {}", unit.name()), |(_, Difference { delta, .. })| {
        let sign = if *delta < 0.0 { "" } else { "+" };
        format!("{sign}{}", number(*delta, by_a))
    });
    table.right("OF A", |(_, Difference { a, delta, .. })| match a.amount {
        0 => String::new(),
        amount => format!("{:+.0} %", 100.0 * delta / amount as f64),
    });
    if compared.measure == Some(Measure::Samples) {
        table.right("DEVIATIONS", |(_, difference)| {
            difference.z.map(|z| format!("{z:+.1}")).unwrap_or_default()
        });
    }
    table.left(subject.title(), |(names, _)| names.join(" < "));
    let mut rows = shown(arguments, &comparison.rows, |(_, difference)| difference).peekable();
    if rows.peek().is_some() {
        table.write(out, rows)?;
    }
    Ok(())
}

fn findings_table(out: &mut impl Write, arguments: &Arguments, rows: &[Row]) -> Result<()> {
    let mut table = Table::<Row>::new();
    table.left("CHANGE", |found| found.difference.verdict.name().to_owned());
    table.left("SEVERITY", |found| found.severity.name().to_owned());
    table.right("A", |found| grouped(found.difference.a.count));
    table.right("B", |found| grouped(found.difference.b.count));
    table.right("NEW STACKS", |found| grouped(found.stacks[0] as u64));
    table.right("GONE STACKS", |found| grouped(found.stacks[1] as u64));
    table.left("FINDING", |found| {
        format!("{} {}: {}", found.analytic.label(), found.process, found.analytic.title())
    });
    let mut rows = shown(arguments, rows, |row| &row.difference).peekable();
    if rows.peek().is_some() {
        table.write(out, rows)?;
    }
    Ok(())
}

pub fn csv(out: &mut impl Write, arguments: &Arguments, compared: &Compared) -> Result<()> {
    let columns = ["by", "change", "name", "a", "b", "a_count", "b_count", "delta", "z"];
    row(out, columns)?;
    let numbers = |difference: &Difference| {
        let Difference { a, b, delta, z, .. } = *difference;
        let z = z.map(|z| format!("{z:.3}")).unwrap_or_default();
        let counts = [a.amount, b.amount, a.count, b.count].map(|number| number.to_string());
        counts.into_iter().chain([format!("{delta:.0}"), z])
    };
    if let Some(findings) = &compared.findings {
        for found in shown(arguments, &findings.rows, |row| &row.difference) {
            let name = cell(&format!("{} {}", found.analytic.name(), found.program));
            let first = ["finding".to_owned(), found.difference.verdict.name().to_owned(), name];
            row(out, first.into_iter().chain(numbers(&found.difference)))?;
        }
    }
    for section in &compared.sections {
        for (names, difference) in shown(arguments, &section.comparison.rows, |(_, of)| of) {
            let first = [section.subject.name().to_owned(), difference.verdict.name().to_owned()];
            row(out, first.into_iter().chain([cell(&names.join("<"))]).chain(numbers(difference)))?;
        }
    }
    Ok(())
}

pub fn document<'a>(arguments: &Arguments, compared: &'a Compared) -> json::Diff<'a> {
    let [a, b] = [0, 1].map(|side| {
        let capture = &compared.captures[side];
        let (events_lost, buffers_lost) = lost(capture);
        json::DiffSide {
            capture: capture_info(&capture.capture),
            window: window(&capture.report.clock, capture.report.window),
            processor_count: capture.report.processors,
            samples: capture.report.classes.busy().count,
            busy: compared.totals[side],
            events_lost,
            buffers_lost,
            is_lossy: capture.is_lossy,
            uncertain: uncertain(arguments, capture, Uses::Innermost),
            uncertain_stacks: uncertain(arguments, capture, Uses::Stack),
        }
    });
    let sections = compared.sections.iter().map(|section| {
        let comparison = &section.comparison;
        let rows = shown(arguments, &comparison.rows, |(_, difference)| difference);
        let is_stack = section.subject == super::Subject::Stack;
        json::DiffSection {
            by: section.subject.name(),
            compared: comparison.compared as u64,
            changed: changes(comparison) as u64,
            threshold: comparison.threshold,
            rows: rows.map(|(names, difference)| row_document(names, difference, is_stack)).collect(),
        }
    });
    let findings = compared.findings.as_ref().map(|findings| json::DiffFindings {
        compared: findings.rows.len() as u64,
        changed: findings.changes() as u64,
        threshold: findings.threshold,
        rows: shown(arguments, &findings.rows, |row| &row.difference).map(finding_document).collect(),
    });
    json::Diff {
        a,
        b,
        normalization: arguments.normalize.into(),
        factor: factor(arguments, compared),
        measure: compared.measure.map(Measure::into),
        share_min: SHARE_MIN,
        sections: sections.collect(),
        findings,
    }
}

/// What amounts of B are multiplied by.
fn factor(arguments: &Arguments, compared: &Compared) -> f64 {
    let Unit { by: [a, b], .. } = Unit::of(arguments, &compared.captures, compared.totals);
    a as f64 / b.max(1) as f64
}

fn row_document<'a>(names: &'a [String], difference: &Difference, is_stack: bool) -> json::DiffRow<'a> {
    let Difference { a, b, delta, z, verdict, .. } = *difference;
    json::DiffRow {
        name: (!is_stack).then(|| &*names[0]),
        stack: is_stack.then_some(names),
        change: verdict.name(),
        a: a.amount,
        b: b.amount,
        a_count: a.count,
        b_count: b.count,
        delta,
        z,
    }
}

fn finding_document(found: &Row) -> json::DiffFinding<'_> {
    json::DiffFinding {
        id: found.analytic.name(),
        title: found.analytic.title(),
        severity: found.severity.name(),
        process: &found.process,
        program: &found.program,
        change: found.difference.verdict.name(),
        a: found.difference.a.count,
        b: found.difference.b.count,
        new_stacks: found.stacks[0] as u64,
        gone_stacks: found.stacks[1] as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_comparable_in_each_unit() {
        for (normalize, by, expected) in [
            (Normalize::None, [1, 1], ["2.000 s", "3.000 s", "1.000 s"]),
            (Normalize::Second, [4_000_000_000, 2_000_000_000], ["500.0 ms/s", "1500.0 ms/s", "250.0 ms/s"]),
            (Normalize::Total, [8_000_000_000, 4_000_000_000], ["25.00 %", "75.00 %", "12.50 %"]),
        ] {
            let unit = Unit { normalize, by };
            let shown = [unit.of_a(2_000_000_000), unit.of_b(3_000_000_000), unit.difference(-1e9)];
            assert_eq!(shown, expected);
        }
    }
}
