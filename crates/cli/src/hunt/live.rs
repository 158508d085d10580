//! Hunting in what happens now.

use std::cell::RefCell;
use std::io::{self, IsTerminal};

use anyhow::Result;
use stackhound::Pipeline;
use stackhound::detect::report::Place;
use stackhound::hunt::Hunter;

use super::{evidence, is_colored, recorded, report::Report};
use crate::args::{Common, Hunt};
use crate::filter::EventFilter;
use crate::live::{self, Live, Losses};
use crate::output::grouped;
use crate::{Outcome, render};

/// As of recordings that are read once, only that findings are shown as they come.
pub fn run(arguments: &Hunt, common: &Common) -> Result<Outcome> {
    // Of somebody else's session, events are chosen by provider; ours has what is enabled in it.
    let mut filters = arguments.filters.clone();
    if arguments.sources.attach.is_none() {
        filters.provider.clear();
    }
    let filter = EventFilter::parse(&filters)?;
    let judge = evidence::judge(arguments, common)?;
    let schemas = arguments.reading.schemas()?;
    let status =
        io::stderr().is_terminal() && (arguments.output.output.is_some() || !io::stdout().is_terminal());
    let live = Live::open(&arguments.sources, &arguments.filters.provider, true, common, status)?;
    let window = live.window();
    // Should something fail, events must no longer be waited for when the sessions end.
    let Live { keeper, arrivals, .. } = live;
    let (clock, start) = (arrivals.clock(), arrivals.start_time());
    let filter = filter.between(&filters, &clock, start);
    let report = RefCell::new(Report::open(arguments, judge.lists(), is_colored(arguments, common))?);
    let pipeline = Pipeline::live(arrivals, schemas);
    let mut pipeline = recorded::with_names(pipeline, arguments, &filter, common)?;
    if let Some(window) = window {
        pipeline = pipeline.hold(window);
    }
    let name = session_name(arguments);
    let mut hunter = Hunter::new(judge, pipeline.clock());
    let mut record = 0;
    let outcome = pipeline.run_watched(
        |seen| {
            record += 1;
            if !filter.choose(seen)? {
                return std::ops::ControlFlow::Continue(false);
            }
            // Nothing is held back for names, so there is nothing to choose for later.
            let place = || Place { file: name.clone(), record };
            recorded::judge_one(&mut hunter, seen, &mut report.borrow_mut(), place)?;
            std::ops::ControlFlow::Continue(false)
        },
        |_| std::ops::ControlFlow::Continue(()),
        |counted| {
            let trace = counted.trace();
            keeper.tell(trace.events, trace.events_dropped);
            report.borrow_mut().flush()
        },
    );
    let ended = keeper.finish()?;
    let mut report = report.into_inner();
    report.count(hunter.stats().with_stack, &hunter.totals());
    let told = report.closing();
    let found = report.finish()?;
    if !common.quiet {
        let trace = &outcome.trace;
        let losses = Losses { dropped: trace.events_dropped, file_buffers: 0, ..Losses::of(&ended.counters) };
        let unreadable = match trace.events_unreadable {
            0 => String::new(),
            number => format!(", {} events unreadable", grouped(number)),
        };
        let rate = live::rate(trace.events, ended.time.as_secs_f64());
        eprintln!("{rate}, {losses}{unreadable}{told}{}", render::stacks(&outcome.stacks));
    }
    Ok(Outcome { found: found && !arguments.exit_zero, ..Outcome::default() })
}

/// What findings name as their input.
fn session_name(arguments: &Hunt) -> String {
    let named = arguments.sources.attach.clone().or_else(|| arguments.sources.settings.session.clone());
    named.unwrap_or_else(|| "live".to_owned())
}
