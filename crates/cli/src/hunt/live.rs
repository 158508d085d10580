//! Hunting in a live session.

use std::cell::RefCell;
use std::io::{self, IsTerminal};

use anyhow::{Context, Result};
use stackhound::Pipeline;
use stackhound::hunt::memory::{LiveMemory, MemoryStats, Reach};

use super::policy::HuntSetup;
use super::{Arguments, MemoryReach, is_colored, recorded, report::Report};
use crate::filter::EventFilter;
use crate::live::{self, Live};
use crate::options::Common;
use crate::outcome::Outcome;
use crate::output::{counted, grouped, message};
use crate::progress::report_undecided;
use crate::render;

/// Evaluates the events of a session, like those of a trace with one pass. Findings are written as
/// they arrive.
pub fn run(arguments: &Arguments, common: &Common) -> Result<Outcome> {
    // In a session of another program, `--provider` selects events. In our own session it enables
    // providers instead.
    let mut filters = arguments.filters.clone();
    if arguments.sources.attach.is_none() {
        filters.provider.clear();
    }
    let filter = EventFilter::parse(&filters)?;
    let setup = HuntSetup::with_arguments(&arguments.policy, &arguments.symbols, common)?;
    let memory = arguments.live_memory.map(live_memory).transpose()?;
    let schemas = arguments.reading.schemas()?;
    let status =
        io::stderr().is_terminal() && (arguments.output.output.is_some() || !io::stdout().is_terminal());
    let live = Live::open(&arguments.sources, &arguments.filters.provider, true, common, status)?;
    // On an error, the merger is dropped before the monitor, which ends the sessions: ending them
    // would otherwise wait for the delivery of their last events.
    let Live { session_monitor, merger, window } = live;
    let (clock, start) = (merger.clock(), merger.start_time());
    let filter = filter.between(&filters, &clock, start);
    let report = RefCell::new(Report::open(arguments, is_colored(arguments))?);
    let pipeline = Pipeline::live(merger, schemas);
    let mut pipeline = recorded::with_names(pipeline, (arguments, &setup), &filter, common)?;
    if let Some(window) = window {
        pipeline = pipeline.hold(window);
    }
    let hunt = arguments.hunt(&setup)?;
    let (mut pipeline, mut trace_hunt) = hunt.start(pipeline, vec![session_name(arguments)]);
    if let Some(memory) = memory {
        trace_hunt = trace_hunt.with_memory(memory);
    }
    let outcome = pipeline.run_watched(
        |view| {
            let is_selected = !live::is_own(view) && filter.choose(view)?;
            report.borrow_mut().write(trace_hunt.event(view, is_selected))?;
            // Findings are written here, so no event is passed on to the second callback.
            std::ops::ControlFlow::Continue(false)
        },
        |_| std::ops::ControlFlow::Continue(()),
        |counters| {
            let trace = counters.trace();
            session_monitor.update(trace.events, trace.events_dropped);
            report.borrow_mut().flush()
        },
    );
    let ended = session_monitor.finish()?;
    let memory_text = trace_hunt.memory_stats().map(memory_counts).unwrap_or_default();
    let mut hunt = trace_hunt.finish(pipeline);
    let (found, results) = report.into_inner().finish(&mut hunt, common)?;
    let undecided = filter.undecided();
    if common.quiet {
        report_undecided(&undecided);
    } else {
        let closing = live::closing(&outcome, &ended);
        let stacks = render::stacks(&outcome.stacks);
        message(format_args!("{closing}{undecided}{results}{memory_text}{stacks}"));
    }
    Ok(Outcome { found: found && !arguments.exit_zero, ..Outcome::default() })
}

fn live_memory(reach: MemoryReach) -> Result<LiveMemory> {
    let reach = match reach {
        MemoryReach::Code => Reach::Code,
        MemoryReach::Images => Reach::Images,
    };
    LiveMemory::of_this_machine(reach).context("--live-memory needs Windows")
}

/// The counts of memory look-ups, for the closing line.
fn memory_counts(stats: MemoryStats) -> String {
    let MemoryStats { lookups, found, changed, closed, beyond_limits } = stats;
    let mut text =
        format!("; memory read at {} of {}", grouped(found), counted(lookups, "address", "addresses"));
    for (count, one, many) in [
        (changed, "frame with changed memory", "frames with changed memory"),
        (
            closed,
            "time a process could not be opened or had ended",
            "times a process could not be opened or had ended",
        ),
        (beyond_limits, "frame beyond the limits", "frames beyond the limits"),
    ] {
        if count > 0 {
            text += &format!(", {}", counted(count, one, many));
        }
    }
    text
}

/// The name of the input in findings.
fn session_name(arguments: &Arguments) -> String {
    let named = arguments.sources.attach.clone().or_else(|| arguments.sources.settings.session.clone());
    named.unwrap_or_else(|| "live".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closing_line_counts_failed_memory_lookups() {
        let stats = MemoryStats { lookups: 12_345, found: 12_000, ..MemoryStats::default() };
        assert_eq!(memory_counts(stats), "; memory read at 12,000 of 12,345 addresses");
        let stats = MemoryStats { changed: 1, closed: 2, beyond_limits: 3_000, ..stats };
        let expected = "; memory read at 12,000 of 12,345 addresses, 1 frame with changed memory, 2 times a process \
                        could not be opened or had ended, 3,000 frames beyond the limits";
        assert_eq!(memory_counts(stats), expected);
    }
}
