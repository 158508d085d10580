//! Evaluation of the events of traces, with built events and with generated traces.

mod benign;
mod changes;
mod histories;
mod missing_evidence;
mod remembering;
mod scenario;

use std::ops::ControlFlow;

use stackhound::detect::{Binaries, Evaluation};
use stackhound::hunt::HuntSession;
use stackhound::trace::{OpenTrace, TraceFiles};
use stackhound::{EventView, Passes, Pipeline};

/// A generated trace and its ground truth.
fn generated(seed: u64) -> (tempfile::TempDir, OpenTrace, stackhound_scenario::Truth) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("generated.etl");
    let scenario = stackhound_scenario::Scenario { seed, ..stackhound_scenario::Scenario::default() };
    let truth = scenario.write(std::fs::File::create(&path).unwrap()).unwrap();
    let trace = TraceFiles::file(&path).open().unwrap();
    (folder, trace, truth)
}

/// Evaluates all events that can be evaluated, in order.
fn evaluated(
    trace: &OpenTrace,
    passes: Passes,
    mut each: impl FnMut(&EventView<'_>, &mut HuntSession, &Evaluation),
) {
    let mut pipeline = Pipeline::new(trace, passes);
    let mut hunt_session = HuntSession::new(Binaries::none(), pipeline.clock());
    pipeline.run(|view| {
        hunt_session.observe(view);
        if HuntSession::can_evaluate(view) {
            let evaluation = *hunt_session.evaluate(view);
            each(view, &mut hunt_session, &evaluation);
        }
        ControlFlow::Continue(())
    });
}
