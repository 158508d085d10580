//! Hunting in traces.

use std::ops::ControlFlow;

use anyhow::Result;
use stackhound::detect::report::SourceLocation;
use stackhound::detect::{Detector, Totals};
use stackhound::hunt::HuntSession;
use stackhound::trace::OpenTrace;
use stackhound::{EventView, Outcome, Pipeline};

use super::Arguments;
use super::report::Report;
use super::rules::{Rules, Session};
use crate::filter::EventFilter;
use crate::naming;
use crate::options::Common;
use crate::progress::Progress;

/// The results of one trace.
pub struct Hunted {
    pub outcome: Outcome,
    pub totals: Totals,
    /// Number of evaluated events with at least a part of a stack.
    pub with_stack: u64,
    /// The events that the filter could not decide, for the closing line.
    pub undecided: String,
    /// The number of selected events, if there is a filter.
    pub selected: Option<u64>,
}

/// Evaluates all selected events of a trace, and returns the detector.
pub fn hunt(
    trace: &OpenTrace,
    detector: Detector,
    (arguments, rules): (&Arguments, &Rules),
    common: &Common,
    (report, progress): (&mut Report<'_>, &mut Progress),
) -> Result<(Detector, Hunted)> {
    let filter = EventFilter::new(&arguments.filters, trace)?;
    let mut rules = rules.session();
    let needs_names = filter.names_functions() || rules.names_functions();
    let pipeline = with_names(arguments.reading.pipeline(trace)?, arguments, &filter, (common, needs_names))?;
    let Detector { modules, binaries } = detector;
    let mut pipeline = pipeline.with_modules(modules);
    let mut hunt_session = HuntSession::new(binaries, pipeline.clock());
    let names: Vec<&str> = trace.sources().iter().map(|source| &*source.name).collect();
    // Counted per file, so that a number identifies the same event whatever other files are read.
    let mut records = vec![0; names.len()];
    progress.begin(trace);
    let outcome = pipeline.run(|view| {
        progress.tick_at(view);
        let source = usize::from(view.event().source());
        records[source] += 1;
        // Changes of memory matter for later events, whether they are selected or not.
        hunt_session.observe(view);
        rules.count();
        if !filter.choose(view)? {
            return ControlFlow::Continue(());
        }
        let location = || SourceLocation { file: names[source].to_owned(), record: records[source] };
        evaluate_one((&mut hunt_session, &mut rules), view, report, location)
    });
    let (totals, with_stack) = (hunt_session.totals(), hunt_session.stats().with_stack);
    report.failed()?;
    if !common.quiet {
        naming::report_no_match(Some(&filter), &pipeline);
    }
    let detector = Detector { modules: pipeline.into_modules(), binaries: hunt_session.into_binaries() };
    let (undecided, selected) = (filter.undecided(), filter.selected());
    Ok((detector, Hunted { outcome, totals, with_stack, undecided, selected }))
}

/// Evaluates an event, and writes its findings. Breaks if writing fails.
pub fn evaluate_one(
    (hunt_session, rules): (&mut HuntSession, &mut Session<'_>),
    view: &EventView<'_>,
    report: &mut Report<'_>,
    location: impl FnOnce() -> SourceLocation,
) -> ControlFlow<()> {
    let can_evaluate = HuntSession::can_evaluate(view);
    let evaluation = can_evaluate.then(|| hunt_session.evaluate(view));
    let is_wanted = evaluation.is_some_and(|evaluation| report.wants(evaluation));
    let of_rules = if rules.is_about(view) { rules.findings(view, evaluation, report) } else { Vec::new() };
    if !is_wanted && of_rules.is_empty() {
        return ControlFlow::Continue(());
    }
    let evaluation = evaluation.copied();
    report.write(&hunt_session.event_context(view, location()), evaluation.as_ref(), of_rules)
}

/// Adds names for filters and rules that use names of functions. Evaluation itself does not need them.
pub fn with_names<'t>(
    pipeline: Pipeline<'t>,
    arguments: &Arguments,
    filter: &EventFilter,
    (common, needs_names): (&Common, bool),
) -> Result<Pipeline<'t>> {
    if !needs_names {
        return Ok(pipeline);
    }
    let enrichment =
        naming::with_folders(&arguments.symbols, &arguments.images, filter.reads_code(), common)?;
    Ok(pipeline.with(enrichment))
}
