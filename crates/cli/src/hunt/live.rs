//! Hunting in what happens now.

use std::cell::RefCell;
use std::io::{self, IsTerminal};

use anyhow::{Context, Result};
use stackhound::Pipeline;
use stackhound::detect::Detector;
use stackhound::detect::report::SourceLocation;
use stackhound::hunt::HuntSession;
use stackhound::hunt::memory::{LiveMemory, MemoryStats, Reach};

use super::{Arguments, MemoryReach, evidence, is_colored, recorded, report::Report};
use crate::filter::EventFilter;
use crate::live::{self, Live};
use crate::options::Common;
use crate::outcome::Outcome;
use crate::output::{grouped, message};
use crate::render;

/// As of recordings that are read once, only that findings are shown as they come.
pub fn run(arguments: &Arguments, common: &Common) -> Result<Outcome> {
    // Of somebody else's session, events are chosen by provider; ours has what is enabled in it.
    let mut filters = arguments.filters.clone();
    if arguments.sources.attach.is_none() {
        filters.provider.clear();
    }
    let filter = EventFilter::parse(&filters)?;
    let detector = evidence::evaluate(arguments, common)?;
    let memory = arguments.live_memory.map(live_memory).transpose()?;
    let schemas = arguments.reading.schemas()?;
    let status =
        io::stderr().is_terminal() && (arguments.output.output.is_some() || !io::stdout().is_terminal());
    let live = Live::open(&arguments.sources, &arguments.filters.provider, true, common, status)?;
    let window = live.window();
    // Should something fail, events must no longer be waited for when the sessions end.
    let Live { session_monitor, arrivals, .. } = live;
    let (clock, start) = (arrivals.clock(), arrivals.start_time());
    let filter = filter.between(&filters, &clock, start);
    let report = RefCell::new(Report::open(arguments, detector.lists(), is_colored(arguments, common))?);
    let pipeline = Pipeline::live(arrivals, schemas);
    let Detector { modules, binaries } = detector;
    let mut pipeline = recorded::with_names(pipeline, arguments, &filter, common)?.with_modules(modules);
    if let Some(window) = window {
        pipeline = pipeline.hold(window);
    }
    let name = session_name(arguments);
    let mut hunt_session = HuntSession::new(binaries, pipeline.clock());
    if let Some(memory) = memory {
        hunt_session = hunt_session.with_memory(memory);
    }
    let mut record = 0;
    let outcome = pipeline.run_watched(
        |view| {
            record += 1;
            if live::is_own(view) || !filter.choose(view)? {
                return std::ops::ControlFlow::Continue(false);
            }
            // Nothing is held back for names, so there is nothing to choose for later.
            let location = || SourceLocation { file: name.clone(), record };
            recorded::evaluate_one(&mut hunt_session, view, &mut report.borrow_mut(), location)?;
            std::ops::ControlFlow::Continue(false)
        },
        |_| std::ops::ControlFlow::Continue(()),
        |counted| {
            let trace = counted.trace();
            session_monitor.tell(trace.events, trace.events_dropped);
            report.borrow_mut().flush()
        },
    );
    let ended = session_monitor.finish()?;
    let mut report = report.into_inner();
    report.count(hunt_session.stats().with_stack, &hunt_session.totals());
    let told = report.closing();
    let found = report.finish()?;
    if !common.quiet {
        let looked = hunt_session.memory_stats().map(looked).unwrap_or_default();
        let closing = live::closing(&outcome, &ended);
        message(format_args!("{closing}{told}{looked}{}", render::stacks(&outcome.stacks)));
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

/// What was seen of the memory of processes, for the closing line.
fn looked(stats: MemoryStats) -> String {
    let MemoryStats { asked, found, changed, closed, beyond_limits } = stats;
    let mut text = format!("; memory at {} of {} places", grouped(found), grouped(asked));
    for (count, what) in [
        (changed, "had become something else"),
        (closed, "times a process was closed to us or had gone"),
        (beyond_limits, "not looked at, being too many"),
    ] {
        if count > 0 {
            text += &format!(", {} {what}", grouped(count));
        }
    }
    text
}

/// What findings name as their input.
fn session_name(arguments: &Arguments) -> String {
    let named = arguments.sources.attach.clone().or_else(|| arguments.sources.settings.session.clone());
    named.unwrap_or_else(|| "live".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closing_line_tells_what_was_not_seen_of_memory() {
        let stats = MemoryStats { asked: 12_345, found: 12_000, ..MemoryStats::default() };
        assert_eq!(looked(stats), "; memory at 12,000 of 12,345 places");
        let stats = MemoryStats { changed: 1, closed: 2, beyond_limits: 3_000, ..stats };
        let expected = "; memory at 12,000 of 12,345 places, 1 had become something else, 2 times a process was closed \
                        to us or had gone, 3,000 not looked at, being too many";
        assert_eq!(looked(stats), expected);
    }
}
