use stackhound_facts::{ProcessFact, ProcessFacts};
use stackhound_images::{FactSource, ImageEvidence, ImageFacts, Signature, SignatureState};
use stackhound_types::start_of_day;

use super::*;
use crate::report::{FrameReport, ProcessReport};
use crate::verdict::{Inputs, Outcome, Reason};

fn signed_by(signer: &str) -> ImageEvidence {
    let state = SignatureState::Valid;
    let signature = Signature { state, reason: None, signer: (!signer.is_empty()).then(|| signer.into()) };
    ImageFacts { signature: Some(signature), ..ImageFacts::new(FactSource::Sysmon) }.into()
}

/// An event at noon of a day: a signed agent with a frame in no module calls the native API.
fn event(day: &str) -> EventContext {
    let frame = |module: &str, signer: &str| FrameReport {
        module: module.to_owned(),
        image: signed_by(signer),
        ..FrameReport::default()
    };
    let path = r"C:\Agent\1.4\agent.exe";
    EventContext {
        count: 3,
        time: start_of_day(day).map(|day| day.0 as u64 + 432_000_000_000),
        host: "WS1".to_owned(),
        process: ProcessReport {
            facts: ProcessFacts::default()
                .with(ProcessFact::Path, path)
                .with(ProcessFact::Name, "agent.exe")
                .with(ProcessFact::CommandLine, "agent.exe -service"),
            ..ProcessReport::default()
        },
        stack: vec![
            frame(r"C:\Windows\System32\ntdll.dll", "Microsoft Windows"),
            FrameReport::default(),
            frame(path, "Agent Ltd"),
        ],
        final_user_module: Some("unbacked".to_owned()),
        ..EventContext::default()
    }
}

fn finding(id: &str, frame: usize) -> Finding {
    let outcome = Outcome::yes(Severity::High, Some(frame), Reason::CallerUnbacked, Inputs::NONE);
    Finding::new(DetectionId::parse(id).unwrap(), outcome)
}

/// The finding after the rules of a file.
fn tuned(rules: &str, finding: Finding, event_context: &EventContext) -> Finding {
    let (mut tuning, mut finding) = (Tuning::parse(rules).unwrap(), finding);
    tuning.apply(event_context, &mut finding);
    finding
}

#[test]
fn an_exception_applies_if_all_its_values_fit() {
    for (condition, frame, expected) in [
        ("detection = 'CS07'", 1, true),
        ("detection = 'cs08'", 1, false),
        (r"process = 'c:\agent\*\agent.exe'", 1, true),
        ("process = 'agent.exe'", 1, true),
        (r"process = '*\other.exe'", 1, false),
        ("module = 'unbacked'", 1, true),
        ("module = 'ntdll.dll'", 0, true),
        (r"module = '*\System32\*'", 0, true),
        ("module = 'ntdll.dll'", 1, false),
        // A frame in no module is signed by its program.
        ("signer = 'agent*'", 1, true),
        ("signer = 'agent*'", 0, false),
        ("signer = 'Microsoft*'", 0, true),
        ("command_line = '*-service'", 1, true),
        ("host = 'ws?'", 1, true),
        ("host = 'ws??'", 1, false),
        ("detection = 'CS07'\nhost = 'WS1'\nsigner = 'x'", 1, false),
    ] {
        let rules = format!("[[exceptions]]\n{condition}\nreason = 'test'");
        let finding = tuned(&rules, finding("CS07", frame), &event("2026-05-01"));
        assert_eq!(finding.suppressed.is_some(), expected, "{condition} {frame}");
    }
}

#[test]
fn unknown_values_fit_no_pattern() {
    for condition in ["process", "signer", "command_line", "host"] {
        let rules = format!("[[exceptions]]\n{condition} = '*'\nreason = 'test'");
        let unknown = EventContext { stack: vec![FrameReport::default()], ..EventContext::default() };
        assert_eq!(tuned(&rules, finding("CS07", 0), &unknown).suppressed, None, "{condition}");
    }
}

/// The time of the event decides, and the last day is included.
#[test]
fn exceptions_expire_in_trace_time() {
    let rules = "[[exceptions]]\nhost = 'WS1'\nreason = 'until the update'\nexpires = '2027-01-31'";
    for (day, is_suppressed) in [("2026-12-01", true), ("2027-01-31", true), ("2027-02-01", false)] {
        let finding = tuned(rules, finding("CS07", 1), &event(day));
        assert_eq!(finding.suppressed.is_some(), is_suppressed, "{day}");
    }
    let unknown = EventContext { time: None, ..event("2026-12-01") };
    assert_eq!(tuned(rules, finding("CS07", 1), &unknown).suppressed, None);
    let mut tuning = Tuning::parse(rules).unwrap();
    for day in ["2027-01-31", "2027-02-01", "2027-02-02"] {
        tuning.apply(&event(day), &mut finding("CS07", 1));
    }
    let [count] = &tuning.take_counts()[..] else { panic!() };
    assert_eq!((count.suppressed, count.expired), (3, 6));
    assert_eq!((count.suppression.line, &*count.suppression.reason), (Some(1), "until the update"));
}

#[test]
fn the_largest_counts_are_added() {
    for (rules, expected) in [
        ("[severity]\nCS07 = 'off'", (u64::MAX, 0)),
        ("[[exceptions]]\nhost = 'WS1'\nreason = 'test'", (u64::MAX, 0)),
        ("[[exceptions]]\nhost = 'WS1'\nreason = 'test'\nexpires = '2025-01-31'", (0, u64::MAX)),
    ] {
        let mut tuning = Tuning::parse(rules).unwrap();
        for _ in 0..2 {
            let event_context = EventContext { count: u64::MAX, ..event("2026-05-01") };
            tuning.apply(&event_context, &mut finding("CS07", 1));
        }
        let [count] = &tuning.take_counts()[..] else { panic!("{rules}") };
        assert_eq!((count.suppressed, count.expired), expected, "{rules}");
    }
}

#[test]
fn severities_are_changed_by_the_first_rule_that_fits() {
    for (rules, expected) in [
        ("[severity]\nCS07 = 'low'", Some(Severity::Low)),
        ("[severity]\ncs07 = 'off'", None),
        ("[severity]\nCS08 = 'off'", Some(Severity::High)),
        ("[severity]\nCS07 = { severity = 'info', process = 'agent.exe' }", Some(Severity::Info)),
        ("[severity]\nCS07 = { severity = 'info', signer = 'other' }", Some(Severity::High)),
        (
            "[severity]\nCS07 = [{ severity = 'info', module = 'ntdll.dll' }, { severity = 'medium' }]",
            Some(Severity::Medium),
        ),
        ("[[severity.CS07]]\nseverity = 'off'\nprocess = '*'", None),
    ] {
        let finding = tuned(rules, finding("CS07", 1), &event("2026-05-01"));
        let found = finding.suppressed.is_none().then_some(finding.outcome.severity);
        assert_eq!(found, expected, "{rules}");
    }
}

#[test]
fn undetermined_answers_have_no_exceptions() {
    let open = Outcome::undetermined(Severity::High, Reason::ImageMissing, Inputs::NONE, Inputs::NONE);
    let open = Finding::new(DetectionId::parse("CS07").unwrap(), open);
    let rules = "[[exceptions]]\nhost = '*'\nreason = 'test'\n";
    assert_eq!(tuned(rules, open.clone(), &event("2026-05-01")).suppressed, None);
    assert!(tuned("[severity]\nCS07 = 'off'", open, &event("2026-05-01")).suppressed.is_some());
}

#[test]
fn invalid_rules_are_reported_with_their_line() {
    let exception = |rest: &str| format!("\n[[exceptions]]\nhost = 'a'\nreason = 'b'\n{rest}");
    for (text, line, message) in [
        (
            "[severity]\nCS07 = 'low'\nCS99 = 'low'".to_owned(),
            3,
            "there is no detection `CS99`; write an id from CS01",
        ),
        ("[severity]\nCS07 = 'grave'".to_owned(), 2, "`grave` is not a severity; write one of info, low"),
        ("[severity]\nCS07 = { severity = 'low', proces = 'a' }".to_owned(), 2, "unknown field `proces`"),
        ("[severity]\nCS07 = 5".to_owned(), 2, "expected a severity, `{ severity"),
        (exception("proces = 'a'"), 5, "unknown field `proces`"),
        (exception("detection = 'CS99'"), 5, "there is no detection `CS99`"),
        (exception("expires = '2027-02-30'"), 5, "`2027-02-30` is not a date; write one such as 2027-01-31"),
        ("\n[[exceptions]]\nhost = 'a'".to_owned(), 2, "missing field `reason`"),
        ("\n[[exceptions]]\nhost = 'a'\nreason = ' '".to_owned(), 2, "the reason of an exception is empty"),
        ("\n\n[[exceptions]]\nreason = 'a'".to_owned(), 3, "an exception needs at least one of detection"),
    ] {
        let error = Tuning::parse(&text).unwrap_err();
        assert!(error.message.contains(message), "{text}: {error}");
        assert_eq!(error.line, line, "{text}: {error}");
        assert!(!error.message.contains('\n'), "{error}");
    }
}
