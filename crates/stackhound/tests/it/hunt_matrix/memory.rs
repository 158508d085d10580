//! The history of memory in findings: the reasons of other detections, the facts about the change,
//! and the severity of benign changes.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use stackhound::detect::report::{EventContext, Finding, SourceLocation};
use stackhound::detect::{DetectionId, Detector, Evaluation, Severity, Verdict};
use stackhound::hunt::HuntSession;
use stackhound::trace::TraceFiles;
use stackhound::{Passes, Pipeline};
use stackhound_testkit::{Case, CaseFile, Kind};

use super::evaluators::Evaluators;

/// The cases about changes of memory, with all evidence.
struct Evaluated {
    file: CaseFile,
    events: BTreeMap<u64, (Evaluation, EventContext)>,
}

impl Evaluated {
    fn new() -> Evaluated {
        let is_complete = |file: &CaseFile| file.kind == Kind::Etl && file.name == "with all available facts";
        let file = stackhound_testkit::files().expect("cases").into_iter().find(is_complete).expect("cases");
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("cases.etl");
        std::fs::write(&path, &file.bytes).expect("a file");
        let trace = TraceFiles::file(&path).open().expect("a trace");
        let evaluators = Evaluators::of(&file);
        let Detector { modules, binaries } = evaluators.evaluate();
        let mut pipeline = Pipeline::new(&trace, Passes::Two).with_modules(modules);
        let mut hunt_session = HuntSession::new(binaries, pipeline.clock());
        let mut events = BTreeMap::new();
        pipeline.run(|view| {
            hunt_session.observe(view);
            if HuntSession::can_evaluate(view) {
                let evaluation = *hunt_session.evaluate(view);
                let event_context = hunt_session.event_context(view, SourceLocation::default());
                events.insert(view.raw_time().0 as u64, (evaluation, event_context));
            }
            ControlFlow::Continue(())
        });
        Evaluated { file, events }
    }

    fn cases(&self) -> impl Iterator<Item = &Case> {
        self.file.cases.iter().filter(|case| matches!(case.detection, "CS27" | "CS28" | "CS29"))
    }

    fn case(&self, title: &str) -> &(Evaluation, EventContext) {
        let case = self.cases().find(|case| case.title == title);
        &self.events[&case.unwrap_or_else(|| panic!("no case is named {title}")).at]
    }
}

fn codes(evaluation: &Evaluation, id: &str) -> Vec<&'static str> {
    let outcome = evaluation.outcome(DetectionId::parse(id).expect("a detection"));
    outcome.reasons.iter().map(|reason| reason.code()).collect()
}

fn explanation((evaluation, event_context): &(Evaluation, EventContext), id: &str) -> String {
    let id = DetectionId::parse(id).expect("a detection");
    let finding = Finding::new(id, *evaluation.outcome(id));
    finding.sentences(event_context).join(" ")
}

#[test]
fn findings_name_the_export_the_author_and_the_period() {
    let evaluated = Evaluated::new();
    for (title, module, export, author) in [
        ("AmsiScanBuffer is made writable", "amsi.dll", "AmsiScanBuffer", "image"),
        ("a script patches AmsiScanBuffer", "amsi.dll", "AmsiScanBuffer", "runtime"),
        ("EtwEventWrite is made writable", "ntdll.dll", "EtwEventWrite", "image"),
        ("another process writes over NtTraceEvent", "ntdll.dll", "NtTraceEvent", "image"),
        ("a known hook patches ntdll", "ntdll.dll", "EtwEventWrite", "hook"),
    ] {
        let event = evaluated.case(title);
        let memory = event.1.event.memory.as_ref().expect("a change of memory");
        assert!(memory.module.ends_with(module), "{title}: {memory:?}");
        let sensitive = memory.export.as_deref().expect("an export");
        // The page of EtwEventWrite starts with other functions of the image.
        assert!(sensitive.starts_with(&export[..4]), "{title}: {memory:?}");
        assert_eq!(memory.author, author, "{title}");
        let text = explanation(event, "CS29");
        assert!(text.contains(sensitive) && !text.contains('{'), "{title}: {text}");
    }
    let event = evaluated.case("a timer hides it");
    let memory = event.1.event.memory.as_ref().expect("a change of memory");
    // Five changes, each 2.5 seconds after the one before it, and a last one without a wait.
    assert_eq!((memory.cycles, memory.period.map(|period| period / 1_000_000)), (3, Some(41)), "{memory:?}");
    let text = explanation(event, "CS28");
    assert!(text.contains("3 times") && text.contains("every 4.16"), "{text}");
}

#[test]
fn other_detections_name_the_history_of_unbacked_memory() {
    let evaluated = Evaluated::new();
    let (written, _) = evaluated.case("another process wrote it");
    let (made, _) = evaluated.case("agent calls code that it wrote and made executable");
    for id in ["CS07", "CS09"] {
        assert!(codes(written, id).contains(&"written-by-other-process"), "{id}: {:?}", codes(written, id));
        assert!(codes(made, id).contains(&"made-executable"), "{id}: {:?}", codes(made, id));
    }
    // The kernel logger does not record the allocation: the provider's protection decides.
    let (writable, _) = evaluated.case("memory that was allocated writable and executable");
    assert!(codes(writable, "CS09").contains(&"writable-code"), "{:?}", codes(writable, "CS09"));
}

#[test]
fn benign_changes_are_low_for_all_detections() {
    let evaluated = Evaluated::new();
    let benign = evaluated.cases().filter(|case| case.at_most == Some("low"));
    let mut count = 0;
    for case in benign {
        count += 1;
        let (evaluation, _) = &evaluated.events[&case.at];
        for (id, outcome) in evaluation.findings() {
            let reasons = codes(evaluation, id.name());
            assert!(outcome.severity <= Severity::Low, "{}: {} {reasons:?}", case.title, id.name());
        }
    }
    assert!(count > 10, "{count}");
    // Attacks are at least medium.
    for case in evaluated.cases().filter(|case| case.at_least.is_some()) {
        let (evaluation, _) = &evaluated.events[&case.at];
        let id = DetectionId::parse(case.detection).expect("a detection");
        let outcome = evaluation.outcome(id);
        assert_eq!(outcome.verdict, Verdict::Yes, "{}", case.title);
        assert!(outcome.severity >= Severity::Medium, "{}", case.title);
    }
}
