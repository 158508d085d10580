//! `convert -o FILE.etl`: cuts a trace to the selected events, and what they need.

use std::ops::ControlFlow;

use anyhow::{Context, Result};
use stackhound::cut::{Cut, CutCounts, Selected};
use stackhound::trace::OpenTrace;

use super::Arguments;
use crate::filter::EventFilter;
use crate::naming;
use crate::options::Common;
use crate::outcome::Outcome;
use crate::output::{NewFile, at_end, counted, grouped};
use crate::progress::Progress;

pub fn run(arguments: &Arguments, common: &Common) -> Result<Outcome> {
    let trace = super::one_capture(arguments, common)?;
    let file = NewFile::create(&arguments.output)?;
    let (cut, damaged) = select(arguments, common, &trace)?;
    let (file, totals) =
        cut.write(&trace, file, |_, _| true).with_context(|| arguments.output.display().to_string())?;
    file.finish()?;
    if !common.quiet {
        report(&cut.counts, totals.bytes);
    }
    Ok(Outcome { damaged, ..Outcome::default() })
}

/// Selects the records to keep. Returns also whether a byte of the trace is damaged.
fn select(arguments: &Arguments, common: &Common, trace: &OpenTrace) -> Result<(Cut, bool)> {
    let filter = EventFilter::new(&arguments.filters, trace)?;
    let mut pipeline = super::pipeline(arguments, common, trace, &filter)?;
    let mut progress = Progress::of(common, trace);
    let (selected, outcome) = Selected::by(&mut pipeline, |view| {
        progress.tick_at(view);
        // Later events are counted too, so that the closing line has all.
        ControlFlow::Continue(filter.wants(view))
    });
    let cut = Cut::of(trace, pipeline.trace_state().losses(), &selected)?;
    naming::finish(progress, &outcome, &pipeline, Some(&filter), common);
    Ok((cut, !outcome.trace.damage.is_empty()))
}

/// Reports the records of the smaller trace, by the reason for which they were kept.
fn report(counts: &CutCounts, bytes: u64) {
    let CutCounts { selected, same_time, state, joined, stacks, bounds, events } = *counts;
    let others = [
        (state, "for names and states"),
        (stacks, "of stacks"),
        (joined, "that complete calls and creates"),
        (same_time, "with the time of a selected event"),
        (bounds, "at the bounds of losses"),
    ];
    let others = others.iter().filter(|(count, _)| *count > 0);
    let others: Vec<String> = others.map(|(count, kind)| format!("{} {kind}", grouped(*count))).collect();
    let others =
        if others.is_empty() { String::new() } else { format!("; also kept: {}", others.join(", ")) };
    let mib = bytes as f64 / f64::from(1 << 20);
    at_end(format_args!(
        "{} of {} kept, {mib:.1} MiB{others}",
        grouped(selected),
        counted(events, "event", "events")
    ));
}
