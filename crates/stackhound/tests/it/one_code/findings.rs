//! Answers of detections that depend on earlier events: the generated cases.

use std::ops::ControlFlow;

use stackhound::Pipeline;
use stackhound::detect::report::SourceLocation;
use stackhound::detect::{Binaries, Verdict};
use stackhound::hunt::HuntSession;
use stackhound_etl::EtlFile;
use stackhound_testkit::Kind;

use super::check_texts;

/// The answers about all evaluated events, with the changes of memory that they report.
fn answers(mut pipeline: Pipeline<'_>) -> Vec<String> {
    let mut hunt_session = HuntSession::new(Binaries::none(), pipeline.clock());
    let mut lines = Vec::new();
    pipeline.run(|view| {
        hunt_session.observe(view);
        if HuntSession::can_evaluate(view) {
            let evaluation = *hunt_session.evaluate(view);
            let answers = evaluation.iter().filter(|(_, outcome)| outcome.verdict != Verdict::No);
            let answers: Vec<String> = answers
                .map(|(id, outcome)| {
                    let reasons: Vec<_> = outcome.reasons.iter().map(|reason| reason.code()).collect();
                    let (verdict, severity) = (outcome.verdict.name(), outcome.severity.name());
                    format!("{} {verdict} {severity} {reasons:?} {:?}", id.name(), outcome.frame)
                })
                .collect();
            let memory = hunt_session.event_context(view, SourceLocation::default()).event.memory;
            lines.push(format!("{:?} {}: {answers:?} {memory:?}", view.raw_time(), view.name()));
        }
        ControlFlow::Continue(())
    });
    lines
}

#[test]
fn generated_cases() {
    let mut changes = 0;
    for file in stackhound_testkit::files().unwrap().into_iter().filter(|file| file.kind == Kind::Etl) {
        let is_change = |case: &&stackhound_testkit::Case| ["CS27", "CS28", "CS29"].contains(&case.detection);
        changes += file.cases.iter().filter(is_change).count();
        check_texts(&file.name, &EtlFile::open(file.bytes.into()).unwrap(), 1..3, answers);
    }
    assert!(changes > 60, "{changes}");
}
