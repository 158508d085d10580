//! The findings of a trace, by detection and program, and their comparison.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;
use stackhound::Clock;
use stackhound::analysis::diff::{Comparison, Difference, Measured, Normalization, Side, compare_events};
use stackhound::analysis::slices::Slices;
use stackhound::detect::baseline::Shape;
use stackhound::detect::{Analytic, Severity};
use stackhound::hunt::EventFindings;
use stackhound::trace::TraceTime;
use stackhound::types::TICKS_PER_SECOND;

use super::read::Capture;

/// Maximum number of pairs of detection and program. Findings of further ones are counted.
const PAIRS_MAX: usize = 1 << 14;
/// Maximum number of stacks of a pair. Further ones are not distinguished.
const STACKS_MAX: usize = 1 << 10;

/// A detection or rule, and a program by its path without the parts that differ between machines, versions
/// and users; by its name if the path is not known.
pub type Pair = (Analytic, String);

/// The findings of one pair.
#[derive(Debug)]
struct Found {
    number: u32,
    severity: Severity,
    process: String,
    /// By the modules of the stack, in a normal form.
    stacks: BTreeSet<String>,
}

/// The findings of a trace.
#[derive(Debug)]
pub struct Findings {
    pairs: FxHashMap<Pair, Found>,
    counts: Slices<u32>,
    /// Number of findings beyond the limit of pairs.
    skipped: u64,
}

impl Findings {
    pub fn new(clock: &Clock) -> Findings {
        let millisecond = u64::try_from(clock.span_to_raw(TICKS_PER_SECOND / 1000)).unwrap_or(1);
        Findings { pairs: FxHashMap::default(), counts: Slices::new(millisecond), skipped: 0 }
    }

    /// Extends the time to that of the next event.
    pub fn extend(&mut self, time: TraceTime) {
        self.counts.extend(time);
    }

    /// Adds the findings of an event.
    pub fn add(&mut self, event: &EventFindings, time: TraceTime) {
        let EventFindings { context, findings } = event;
        let Shape { program, stack } = Shape::of(context);
        let program = if program.is_empty() { context.process.name().to_lowercase() } else { program };
        for finding in findings {
            let severity = finding.outcome.severity;
            let pair = (finding.analytic.clone(), program.clone());
            if !self.pairs.contains_key(&pair) && self.pairs.len() >= PAIRS_MAX {
                self.skipped += 1;
                continue;
            }
            let number = self.pairs.len() as u32;
            let found = self.pairs.entry(pair).or_insert_with(|| Found {
                number,
                severity,
                process: context.process.name().to_owned(),
                stacks: BTreeSet::new(),
            });
            found.severity = found.severity.max(severity);
            if found.stacks.len() < STACKS_MAX {
                found.stacks.insert(stack.clone());
            }
            self.counts.add(found.number, time, 1);
        }
    }

    fn side(&self, capture: &Capture) -> Side<Pair> {
        let axis = self.counts.axis();
        let measured = |found: &Found| {
            let sliced = self.counts.sums().get(&found.number).copied().unwrap_or_default();
            Measured::counted(sliced.sums.count, sliced.sums.count, sliced.variance(axis))
        };
        Side {
            rows: self.pairs.iter().map(|(pair, found)| (pair.clone(), measured(found))).collect(),
            total: 0,
            duration: capture.report.duration(),
            is_lossy: capture.is_lossy,
            uncertain: if capture.is_lossy { None } else { Some(0) },
            slices: axis.slices(),
        }
    }
}

/// The comparison of the findings of one pair.
pub struct Row {
    pub analytic: Analytic,
    pub program: String,
    pub process: String,
    pub severity: Severity,
    pub difference: Difference,
    /// Number of stacks that only one of the traces has: B, then A.
    pub stacks: [usize; 2],
}

/// The comparison of all findings.
pub struct Compared {
    /// Changes first, each with the highest severity first.
    pub rows: Vec<Row>,
    pub threshold: f64,
    /// Number of findings that were not compared, because there are too many programs.
    pub skipped: u64,
}

impl Compared {
    pub fn changes(&self) -> usize {
        self.rows.iter().filter(|row| row.difference.verdict.is_change()).count()
    }
}

pub fn compare(a: &Findings, b: &Findings, captures: &[Capture; 2], by: Normalization) -> Compared {
    let (in_a, in_b) = (a.side(&captures[0]), b.side(&captures[1]));
    // The total of findings has no meaning: each detection has its own conditions.
    let by = if by == Normalization::Total { Normalization::Second } else { by };
    let Comparison { threshold, rows, .. } = compare_events(&in_a, &in_b, by);
    let mut rows: Vec<Row> = rows.into_iter().map(|(pair, difference)| row(a, b, pair, difference)).collect();
    rows.sort_by(|x, y| {
        let rank = |row: &Row| (!row.difference.verdict.is_change(), std::cmp::Reverse(row.severity));
        let name = |row: &Row| (row.analytic.clone(), row.program.clone());
        rank(x).cmp(&rank(y)).then_with(|| name(x).cmp(&name(y)))
    });
    Compared { rows, threshold, skipped: a.skipped + b.skipped }
}

fn row(a: &Findings, b: &Findings, pair: Pair, difference: Difference) -> Row {
    let [in_a, in_b] = [a, b].map(|side| side.pairs.get(&pair));
    let only = |here: Option<&Found>, there: Option<&Found>| {
        let is_new = |stack: &&String| there.is_none_or(|there| !there.stacks.contains(*stack));
        here.map_or(0, |here| here.stacks.iter().filter(is_new).count())
    };
    let stacks = [only(in_b, in_a), only(in_a, in_b)];
    let found: Vec<&Found> = [in_b, in_a].into_iter().flatten().collect();
    let severity = found.iter().map(|found| found.severity).max().unwrap_or(Severity::Medium);
    let process = found.first().map(|found| found.process.clone()).unwrap_or_default();
    let (analytic, program) = pair;
    Row { analytic, program, process, severity, difference, stacks }
}
