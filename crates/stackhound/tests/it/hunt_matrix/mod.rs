//! All generated cases of the detections, evaluated like any trace and any log of Sysmon. Each
//! answer must be the one that follows from the construction of the case. The answers are printed
//! as a table of detections and forms of input.

mod evaluators;
mod memory;
mod real;

use std::collections::BTreeMap;
use std::io::Cursor;
use std::ops::ControlFlow;

use evaluators::Evaluators;
use stackhound::detect::{DetectionId, Detector, Evaluation, Outcome, Severity, Verdict};
use stackhound::hunt::HuntSession;
use stackhound::trace::TraceFiles;
use stackhound::{Passes, Pipeline};
use stackhound_sysmon::{Found, Sysmon};
use stackhound_testkit::{Answer, Case, CaseFile, Kind, LIMITS};

/// Minimum number of cases with a "yes" and with a "no", if the answer is possible.
const LEAST: u32 = 5;

/// Evaluations by the record numbers or times of cases.
type Evaluations = BTreeMap<u64, Evaluation>;

/// Evaluates the events of a trace.
fn etl_file(file: &CaseFile, detector: Detector, passes: Passes) -> Evaluations {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("cases.etl");
    std::fs::write(&path, &file.bytes).expect("a file");
    let trace = TraceFiles::file(&path).open().expect("a trace");
    let Detector { modules, binaries } = detector;
    let mut pipeline = Pipeline::new(&trace, passes).with_modules(modules);
    let mut hunt_session = HuntSession::new(binaries, pipeline.clock());
    let mut evaluations = Evaluations::new();
    let outcome = pipeline.run(|view| {
        hunt_session.observe(view);
        if HuntSession::can_evaluate(view) {
            evaluations.insert(view.raw_time().0 as u64, *hunt_session.evaluate(view));
        }
        ControlFlow::Continue(())
    });
    assert!(outcome.trace.events > 0);
    evaluations
}

/// Evaluates rows of Sysmon.
fn rows(file: &CaseFile, mut detector: Detector) -> Evaluations {
    let mut sysmon = Sysmon::new(detector.lists());
    let mut evaluations = Evaluations::new();
    let on = |found: Found<'_>| {
        match found {
            Found::Evaluated(evaluated) => {
                evaluations.insert(evaluated.record(), *evaluated.evaluation);
            }
            Found::Unreadable(row) => panic!("{row}"),
        }
        ControlFlow::Continue(())
    };
    sysmon.hunt(Cursor::new(&file.bytes), "cases.ndjson", &mut detector, on).expect("rows");
    evaluations
}

fn is_answer(answer: Answer, verdict: Verdict) -> bool {
    match answer {
        Answer::Yes => verdict == Verdict::Yes,
        Answer::No => verdict == Verdict::No,
        Answer::Undetermined => verdict == Verdict::Undetermined,
    }
}

/// The error in an answer, if there is one.
fn complaint(case: &Case, outcome: &Outcome) -> Option<String> {
    let is_severe = case.at_most.and_then(Severity::of).is_some_and(|most| outcome.severity > most);
    let is_mild = case.at_least.and_then(Severity::of).is_some_and(|least| outcome.severity < least);
    if is_answer(case.answer, outcome.verdict) && !is_severe && !is_mild {
        return None;
    }
    let reasons: Vec<_> = outcome.reasons.iter().map(|reason| reason.code()).collect();
    let missing: Vec<_> = outcome.missing.iter().map(|input| input.name()).collect();
    Some(format!(
        "{} must be {:?}: is {} ({}), {} [missing: {}]",
        case.title,
        case.answer,
        outcome.verdict.name(),
        outcome.severity.name(),
        reasons.join(", "),
        missing.join(", "),
    ))
}

/// Numbers of cases and of right answers: "yes", "no" and undetermined.
#[derive(Clone, Copy, Default)]
struct Tally {
    cases: [u32; 3],
    right: [u32; 3],
}

#[test]
fn every_case_has_its_expected_answer() {
    let mut matrix: BTreeMap<(&str, Kind), Tally> = BTreeMap::new();
    let mut complaints = Vec::new();
    for file in stackhound_testkit::files().expect("cases") {
        let evaluators = Evaluators::of(&file);
        let evaluated = match file.kind {
            Kind::Etl => etl_file(&file, evaluators.evaluate(), Passes::Two),
            Kind::CallTrace => rows(&file, evaluators.evaluate()),
        };
        for case in &file.cases {
            let tally = matrix.entry((case.detection, file.kind)).or_default();
            let answer = case.answer as usize;
            tally.cases[answer] += 1;
            let id = DetectionId::parse(case.detection).expect("a detection");
            let about = format!("{} {:?} {}", case.detection, file.kind, file.name);
            let Some(evaluation) = evaluated.get(&case.at) else {
                complaints.push(format!("{about}: {} was not evaluated", case.title));
                continue;
            };
            match complaint(case, evaluation.outcome(id)) {
                None => tally.right[answer] += 1,
                Some(complaint) => complaints.push(format!("{about}: {complaint}")),
            }
        }
    }
    print!("{}", table(&matrix));
    for ((detection, kind), tally) in &matrix {
        for (answer, count) in [Answer::Yes, Answer::No].into_iter().zip(tally.cases) {
            let is_limit = LIMITS
                .iter()
                .any(|limit| (limit.detection, limit.kind, limit.answer) == (*detection, *kind, answer));
            assert!(count >= LEAST || is_limit, "{detection} {kind:?}: {count} cases of {answer:?}");
        }
    }
    assert_eq!(matrix.len(), 2 * DetectionId::all().count());
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints.join("\n"));
}

/// The matrix: right answers and all cases.
fn table(matrix: &BTreeMap<(&str, Kind), Tally>) -> String {
    let mut text = format!("{:<6}{:<11}{:>8}{:>8}{:>14}\n", "", "input", "yes", "no", "undetermined");
    for ((detection, kind), tally) in matrix {
        let cell = |answer: Answer| {
            let limit = LIMITS
                .iter()
                .find(|limit| (limit.detection, limit.kind, limit.answer) == (*detection, *kind, answer));
            match limit {
                Some(_) => "never".to_owned(),
                None => format!("{}/{}", tally.right[answer as usize], tally.cases[answer as usize]),
            }
        };
        let kind_name = match kind {
            Kind::Etl => ".etl",
            Kind::CallTrace => "CallTrace",
        };
        let [yes, no, undetermined] = [Answer::Yes, Answer::No, Answer::Undetermined].map(cell);
        text += &format!("{detection:<6}{kind_name:<11}{yes:>8}{no:>8}{undetermined:>14}");
        let reason = LIMITS.iter().find(|limit| (limit.detection, limit.kind) == (*detection, *kind));
        text += &reason.map_or_else(String::new, |limit| format!("   ({})", limit.reason));
        text.push('\n');
    }
    text
}

#[test]
fn one_pass_and_two_passes_agree() {
    for file in stackhound_testkit::files().expect("cases").iter().filter(|file| file.kind == Kind::Etl) {
        let evaluators = Evaluators::of(file);
        let one = etl_file(file, evaluators.evaluate(), Passes::One);
        let two = etl_file(file, evaluators.evaluate(), Passes::Two);
        for case in &file.cases {
            let id = DetectionId::parse(case.detection).expect("a detection");
            let verdict = |evaluated: &Evaluations| {
                evaluated.get(&case.at).map(|evaluated| evaluated.outcome(id).verdict)
            };
            assert_eq!(verdict(&one), verdict(&two), "{} {}: {}", case.detection, file.name, case.title);
        }
    }
}
