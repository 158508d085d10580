//! Judging the events of traces, on made events and on generated recordings.

mod benign;
mod changes;
mod honesty;
mod remembering;
mod scenario;

use std::ops::ControlFlow;

use stackhound::detect::{Binaries, Judgement};
use stackhound::hunt::Hunter;
use stackhound::trace::{OpenTrace, Recordings};
use stackhound::{Passes, Pipeline, Seen};

/// A generated recording, and what is true about it.
fn generated(seed: u64) -> (tempfile::TempDir, OpenTrace, stackhound_scenario::Truth) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("generated.etl");
    let scenario = stackhound_scenario::Scenario { seed, ..stackhound_scenario::Scenario::default() };
    let truth = scenario.write(std::fs::File::create(&path).unwrap()).unwrap();
    let trace = Recordings::file(&path).open().unwrap();
    (folder, trace, truth)
}

/// Judges all events that can be judged, in order.
fn judged(trace: &OpenTrace, passes: Passes, mut told: impl FnMut(&Seen<'_>, &mut Hunter, &Judgement)) {
    let mut pipeline = Pipeline::new(trace, passes);
    let mut hunter = Hunter::new(Binaries::none(), pipeline.clock());
    pipeline.run(|seen| {
        if Hunter::can_judge(seen) {
            let judgement = *hunter.judge(seen);
            told(seen, &mut hunter, &judgement);
        }
        ControlFlow::Continue(())
    });
}
