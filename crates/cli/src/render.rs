//! Text formats that several verbs share.

use std::fmt;

use stackhound::frames::CallStats;
use stackhound::stacks::StackStats;
use stackhound::symbols::{ResolvedLine, SymbolStats};
use stackhound::types::Rfc3339;
use stackhound::{ClockKind, FileTime, TICKS_PER_SECOND};

use crate::output::{counted, grouped};

/// UTC, RFC 3339 with seven digits of a second.
pub fn utc(time: FileTime) -> String {
    Rfc3339(time).to_string()
}

/// A span of 100 ns units as seconds with seven digits.
pub fn seconds(span: i64) -> String {
    let sign = if span < 0 { "-" } else { "" };
    let (span, second) = (span.unsigned_abs(), TICKS_PER_SECOND as u64);
    format!("{sign}{}.{:07}", span / second, span % second)
}

/// The name of a session clock.
pub fn clock_name(kind: ClockKind) -> &'static str {
    match kind {
        ClockKind::PerformanceCounter => "performance counter",
        ClockKind::SystemTime => "system time",
        ClockKind::CpuCycles => "processor cycles",
    }
}

/// The source line of a frame, after its name; nothing if it is not known.
pub fn source(line: Option<&ResolvedLine>) -> impl fmt::Display {
    fmt::from_fn(move |f| line.map_or(Ok(()), |line| write!(f, " ({line})")))
}

/// The losses of a trace, for the closing line.
pub fn losses(outcome: &stackhound::Outcome) -> String {
    let mut losses = Losses::default();
    losses.add(outcome);
    losses.to_string()
}

/// The counts of attributed and orphaned stack parts, for the closing line.
pub fn stacks(stats: &StackStats) -> String {
    let mut losses = Losses::default();
    losses.add_stacks(stats);
    losses.to_string()
}

/// The counts of system calls with and without their exits, for the closing line.
pub fn calls(stats: &CallStats) -> String {
    if stats.entries() == 0 {
        return String::new();
    }
    let reasons = stats.reasons().into_iter().filter(|(count, _)| *count > 0);
    let reasons: Vec<_> = reasons.map(|(count, end)| format!("{} {}", grouped(count), end.name())).collect();
    let reasons = if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join(", ")) };
    format!(", {} of {} system calls completed{reasons}", grouped(stats.joined), grouped(stats.entries()))
}

/// The losses and stack counts of one or several captures.
#[derive(Debug, Default)]
pub struct Losses {
    events: u64,
    buffers: u64,
    damaged: u64,
    attributed: u64,
    orphaned: u64,
}

impl Losses {
    pub fn add(&mut self, outcome: &stackhound::Outcome) {
        let trace = &outcome.trace;
        self.events += trace.events_lost;
        self.buffers = self.buffers.saturating_add(trace.buffers_lost.max(trace.buffers_missing));
        self.damaged += trace.damage.len() as u64;
        self.add_stacks(&outcome.stacks);
    }

    fn add_stacks(&mut self, stats: &StackStats) {
        self.attributed += stats.attributed_parts + stats.extended;
        self.orphaned += stats.orphaned_parts;
    }
}

impl fmt::Display for Losses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = [
            (self.events, "event lost", "events lost"),
            (self.buffers, "buffer lost", "buffers lost"),
            (self.damaged, "damaged range", "damaged ranges"),
            (self.attributed, "stack part attributed", "stack parts attributed"),
            (self.orphaned, "orphaned", "orphaned"),
        ];
        let mut counts = counts.into_iter().filter(|(count, ..)| *count > 0);
        counts.try_for_each(|(count, one, many)| write!(f, ", {}", counted(count, one, many)))
    }
}

/// The symbol statistics, for the closing line.
pub fn symbols(stats: Option<&SymbolStats>) -> String {
    let Some(stats) = stats.filter(|stats| stats.resolved > 0) else { return String::new() };
    format!(
        ", {} of {} frames named ({} cached, {} tables loaded, {} evicted, {:.2} s)",
        grouped(stats.named),
        grouped(stats.resolved),
        grouped(stats.hits),
        grouped(stats.loads),
        grouped(stats.evictions),
        (stats.load_time + stats.resolve_time).as_secs_f64()
    )
}
