//! Interrupt service routines (ISR) and deferred procedure calls (DPC), by their routines.
//!
//! Their events are logged when they end, and state when they began. A routine can be interrupted by
//! another one, which then ends first, on the same processor. The time of a routine without those that
//! interrupted it is its exclusive time. Only exclusive times have a meaningful sum.
//!
//! The process of a row is the kind of the routine. The stack is the routine: the kernel runs it on
//! behalf of no thread.

use rustc_hash::FxHashMap;
use stackhound_pipeline::EventView;
use stackhound_profile::{Full, ProcessId, ThreadId};
use stackhound_schema::kernel::hook_id;
use stackhound_schema::kernel::view::Dpc;
use stackhound_trace::TraceTime;

use super::{Column, Figures, Key, Label, MAX, Measure, Metric, Observations, count, ticks};
use crate::fields::number;

const CALLS: usize = 1;
const UNCLAIMED: usize = 2;

pub(super) const METRIC: Metric = Metric {
    name: "interrupt",
    columns: COLUMNS,
    dimensions: &["kind", "processor"],
    start: || Box::new(Interrupts::default()),
};

const COLUMNS: &[Column] =
    &[ticks("exclusive", 0), count("calls", CALLS), ticks("max", MAX), count("unclaimed", UNCLAIMED)];

/// Maximum number of intervals of a processor that can still be inside of a later one.
const NESTED_MAX: usize = 1 << 12;

const CONTRADICTION: &str = "routines whose start contradicts other events";

/// The kinds of routines.
const KINDS: [(u16, &str); 5] = [
    (hook_id::PERF_INFO_ISR, "ISR"),
    (hook_id::PERF_INFO_ISR_MSI, "ISR (message-signaled)"),
    (hook_id::PERF_INFO_DPC, "DPC"),
    (hook_id::PERF_INFO_TIMER_DPC, "timer DPC"),
    (hook_id::PERF_INFO_THREADED_DPC, "threaded DPC"),
];

#[derive(Debug, Default)]
struct Interrupts {
    /// By session and processor.
    processors: FxHashMap<(u32, Option<u16>), Processor>,
    kinds: [Option<(ProcessId, ThreadId, Label)>; KINDS.len()],
}

#[derive(Debug, Default)]
struct Processor {
    nesting: Nesting,
    switched: Option<TraceTime>,
    label: Option<Label>,
}

/// Intervals that are in no other one so far, in the order of their ends.
#[derive(Debug, Default)]
struct Nesting(Vec<(TraceTime, TraceTime)>);

impl Nesting {
    /// Adds the interval that has just ended. Calls `inside` for each of those that it contains
    /// immediately. Returns whether it overlaps one without containing it: then one of them is wrong.
    fn end(
        &mut self,
        interval: (TraceTime, TraceTime),
        mut inside: impl FnMut((TraceTime, TraceTime)),
    ) -> bool {
        while let Some(&(from, until)) = self.0.last() {
            if from < interval.0 {
                if until > interval.0 {
                    return true;
                }
                break;
            }
            inside((from, until));
            self.0.pop();
        }
        if self.0.len() >= NESTED_MAX {
            self.0.drain(..NESTED_MAX / 2);
        }
        self.0.push(interval);
        false
    }
}

impl Measure for Interrupts {
    fn observe(
        &mut self,
        view: &EventView<'_>,
        out: &mut Observations,
        wanted: &mut dyn FnMut() -> bool,
    ) -> Result<(), Full> {
        let Some(id) = view.kernel_id() else { return Ok(()) };
        let kind = KINDS.iter().position(|(hook_id, _)| *hook_id == id);
        let processor = (view.event().session_number(), view.processor());
        let Some(kind) = kind else {
            if id == hook_id::THREAD_C_SWITCH {
                self.processors.entry(processor).or_default().switched = Some(view.time());
            }
            return Ok(());
        };
        let pointer_size = view.event().record().pointer_size();
        let Ok(parsed) = Dpc::parse(view.payload(), view.version(), pointer_size) else { return Ok(()) };
        if out.is_repeated(view) {
            return Ok(());
        }
        out.events += 1;
        let (now, window) = (view.time(), out.window);
        let from = out.trace_time(view, parsed.initial_time);
        let state = self.processors.entry(processor).or_default();
        // Only threaded calls run in a thread, and can be preempted.
        let is_preempted = state.switched.is_some_and(|switched| switched > from);
        let is_possible = parsed.initial_time.0 > 0 && out.can_start(from, now);
        if !is_possible || (is_preempted && id != hook_id::PERF_INFO_THREADED_DPC) {
            if window.contains(now) && wanted() {
                out.remain(CONTRADICTION, 0);
            }
            return Ok(());
        }
        let inclusive = window.overlap(from, now);
        let mut exclusive = inclusive;
        let overlaps = state.nesting.end((from, now), |(from, until)| {
            exclusive = exclusive.saturating_sub(window.overlap(from, until));
        });
        if overlaps {
            if window.contains(now) && wanted() {
                out.remain(CONTRADICTION, now.ticks_since(from));
            }
            return Ok(());
        }
        let is_counted = window.contains(now);
        if (!is_counted && inclusive == 0) || !wanted() {
            return Ok(());
        }
        let label = match state.label {
            Some(label) => label,
            None => {
                let name = processor.1.map_or_else(|| "unknown".to_owned(), |number| number.to_string());
                *state.label.insert(out.label(&name))
            }
        };
        let (_, thread, kind_label) = match self.kinds[kind] {
            Some(known) => known,
            None => {
                let (process, thread) = out.parts.pseudo(KINDS[kind].1)?;
                *self.kinds[kind].insert((process, thread, out.label(KINDS[kind].1)))
            }
        };
        let frame = out.parts.stacks.instruction(view, parsed.routine, &mut out.parts.builder)?;
        let stack = out.parts.builder.stack(None, frame)?;
        let is_isr = matches!(id, hook_id::PERF_INFO_ISR | hook_id::PERF_INFO_ISR_MSI);
        let is_unclaimed = is_counted && is_isr && number(view, "ReturnValue") == Some(0);
        let figures = Figures::default()
            .with(0, exclusive)
            .with(CALLS, is_counted.into())
            .with(UNCLAIMED, is_unclaimed.into())
            .with(MAX, inclusive);
        out.add(Key { thread, stack, labels: [kind_label, label] }, figures);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The exclusive time of each interval, in the order of their ends.
    fn exclusive(intervals: &[(i64, i64)]) -> Vec<i64> {
        let mut nesting = Nesting::default();
        let times = intervals.iter().map(|&(from, until)| {
            let mut left = until - from;
            let interval = (TraceTime(from), TraceTime(until));
            assert!(!nesting.end(interval, |(from, until)| left -= until.0 - from.0));
            left
        });
        times.collect()
    }

    #[test]
    fn routines_do_not_count_what_interrupts_them() {
        type Row = (&'static [(i64, i64)], &'static [i64]);
        let rows: &[Row] = &[
            (&[(0, 5), (5, 9)], &[5, 4]),
            // Depth 3: each one ends before the one that it interrupts.
            (&[(4, 6), (2, 8), (0, 10)], &[2, 4, 4]),
            (&[(1, 2), (3, 4), (0, 5), (6, 7)], &[1, 1, 3, 1]),
        ];
        for (intervals, expected) in rows {
            assert_eq!(exclusive(intervals), *expected, "{intervals:?}");
        }
    }

    #[test]
    fn an_overlap_is_a_contradiction() {
        let mut nesting = Nesting::default();
        assert!(!nesting.end((TraceTime(0), TraceTime(5)), |_| {}));
        assert!(nesting.end((TraceTime(3), TraceTime(8)), |_| {}));
    }

    proptest! {
        /// Exclusive times add up to the time in which any routine runs.
        #[test]
        fn exclusive_times_add_up_to_the_union(steps in prop::collection::vec((any::<bool>(), 1i64..9), 1..60)) {
            let (mut now, mut open, mut intervals, mut union) = (0, Vec::new(), Vec::new(), 0);
            for (begins, length) in steps {
                if !open.is_empty() {
                    union += length;
                }
                now += length;
                if begins {
                    open.push(now);
                } else if let Some(from) = open.pop() {
                    intervals.push((from, now));
                }
            }
            while let Some(from) = open.pop() {
                intervals.push((from, now));
            }
            prop_assert_eq!(exclusive(&intervals).into_iter().sum::<i64>(), union);
        }
    }
}
