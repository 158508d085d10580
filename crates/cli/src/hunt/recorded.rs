//! Hunting in traces.

use anyhow::Result;
use stackhound::hunt::Hunt;
use stackhound::trace::OpenTrace;
use stackhound::{Outcome, Pipeline};

use super::Arguments;
use super::policy::HuntSetup;
use super::report::Report;
use crate::filter::EventFilter;
use crate::naming;
use crate::options::Common;
use crate::progress::Progress;

/// The results of one trace.
pub struct Hunted {
    pub outcome: Outcome,
    /// The events that the filter could not decide, for the closing line.
    pub undecided: String,
    /// The number of selected events, if there is a filter.
    pub selected: Option<u64>,
}

/// Evaluates all selected events of a trace, and returns the hunt.
pub fn hunt(
    trace: &OpenTrace,
    hunt: Hunt,
    (arguments, setup): (&Arguments, &HuntSetup),
    common: &Common,
    (report, progress): (&mut Report<'_>, &mut Progress),
) -> Result<(Hunt, Hunted)> {
    let filter = EventFilter::new(&arguments.filters, trace)?;
    let pipeline = with_names(arguments.reading.pipeline(trace)?, (arguments, setup), &filter, common)?;
    let names = trace.sources().iter().map(|source| source.name.to_string()).collect();
    progress.begin(trace);
    let (mut pipeline, mut trace_hunt) = hunt.start(pipeline, names);
    let outcome = pipeline.run(|view| {
        progress.tick_at(view);
        let is_selected = filter.choose(view)?;
        report.write(trace_hunt.event(view, is_selected))
    });
    report.failed()?;
    if !common.quiet {
        naming::report_no_match(Some(&filter), &pipeline);
    }
    let (undecided, selected) = (filter.undecided(), filter.selected());
    Ok((trace_hunt.finish(pipeline), Hunted { outcome, undecided, selected }))
}

/// Adds names for filters and rules that use names of functions. Evaluation itself does not need them.
pub fn with_names<'t>(
    pipeline: Pipeline<'t>,
    (arguments, setup): (&Arguments, &HuntSetup),
    filter: &EventFilter,
    common: &Common,
) -> Result<Pipeline<'t>> {
    if !filter.names_functions() && !setup.policy.rules.names_functions() {
        return Ok(pipeline);
    }
    let enrichment = naming::with_folders(&arguments.symbols, &setup.folders, filter.reads_code(), common)?;
    Ok(pipeline.with(enrichment))
}
