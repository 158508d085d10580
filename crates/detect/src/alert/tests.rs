use stackhound_facts::{ProcessFact, ProcessFacts};

use super::*;
use crate::DetectionId;
use crate::verdict::{Inputs, Outcome, Reason, Verdict};

const SECOND: u64 = 10_000_000;

fn finding(id: &str, verdict: Verdict, severity: Severity) -> Finding {
    let outcome = Outcome::yes(severity, None, Reason::FrameUnbacked, Inputs::NONE);
    Finding::new(DetectionId::parse(id).unwrap(), Outcome { verdict, ..outcome })
}

fn event_context(pid: u32, seconds: u64) -> EventContext {
    let facts = ProcessFacts::default().with(ProcessFact::Path, r"C:\a.exe");
    let process = ProcessReport { pid: Some(pid), facts, ..ProcessReport::default() };
    EventContext { count: 1, time: Some(seconds * SECOND), process, ..EventContext::default() }
}

/// The alerts of findings, each `(process, second, detection, severity)`.
fn alerts(findings: &[(u32, u64, &str, Severity)]) -> Vec<Alert> {
    let mut alerts = Alerts::new(60 * SECOND);
    for &(pid, seconds, id, severity) in findings {
        alerts.add(&event_context(pid, seconds), &mut [finding(id, Verdict::Yes, severity)]);
    }
    alerts.finish()
}

#[test]
fn findings_of_a_process_within_a_window_are_one_alert() {
    use Severity::{High, Medium};
    for (findings, expected) in [
        (&[(1, 0, "CS07", High), (1, 60, "CS08", Medium), (1, 120, "CS08", Medium)][..], &[(1, 3)][..]),
        (&[(1, 0, "CS07", High), (1, 61, "CS08", Medium)], &[(1, 1), (1, 1)]),
        (&[(1, 0, "CS07", High), (2, 0, "CS08", Medium)], &[(1, 1), (2, 1)]),
        // Findings may arrive out of the order of time.
        (&[(1, 100, "CS07", High), (1, 90, "CS07", High)], &[(1, 2)]),
        (&[(1, 100, "CS07", High), (1, 40, "CS07", High)], &[(1, 2)]),
        (&[(1, 100, "CS07", High), (1, 39, "CS07", High)], &[(1, 1), (1, 1)]),
        (&[(1, 9000, "CS07", High), (1, 0, "CS07", High), (1, 9001, "CS07", High)], &[(1, 2), (1, 1)]),
        (&[], &[]),
    ] {
        let found: Vec<(u32, u64)> =
            alerts(findings).iter().map(|alert| (alert.process.pid.unwrap(), alert.events)).collect();
        assert_eq!(found, expected, "{findings:?}");
    }
}

#[test]
fn different_findings_outweigh_repeated_ones() {
    use Severity::{High, Medium};
    let two = alerts(&[(1, 0, "CS07", Medium), (1, 0, "CS24", High)]);
    let many: Vec<_> = (0..5).map(|second| (1, second, "CS08", Medium)).collect();
    let endless: Vec<_> = (0..5000).map(|_| (1, 1, "CS08", Medium)).collect();
    assert!(two[0].score() > alerts(&many)[0].score());
    assert!(two[0].score() > alerts(&endless)[0].score());
    assert!(alerts(&many)[0].score() > alerts(&many[..1])[0].score());
    assert_eq!(two[0].severity, High);
}

#[test]
fn the_largest_counts_are_added() {
    let mut alerts = Alerts::new(SECOND);
    for id in ["CS07", "CS07", "CS08"] {
        let event_context = EventContext { count: u64::MAX, ..event_context(1, 0) };
        alerts.add(&event_context, &mut [finding(id, Verdict::Yes, Severity::High)]);
    }
    let alerts = alerts.finish();
    assert_eq!((alerts[0].events, alerts[0].count(), alerts[0].score()), (u64::MAX, u64::MAX, 100));
}

#[test]
fn undetermined_answers_open_no_alert() {
    let mut alerts = Alerts::new(SECOND);
    let mut undetermined = [finding("CS01", Verdict::Undetermined, Severity::High)];
    alerts.add(&event_context(1, 0), &mut undetermined);
    assert!(undetermined[0].alert.is_empty());
    assert!(alerts.finish().is_empty());
}

#[test]
fn findings_have_the_key_of_their_alert() {
    let mut alerts = Alerts::new(SECOND);
    let mut findings = [
        finding("CS07", Verdict::Yes, Severity::High),
        finding("CS18", Verdict::Undetermined, Severity::High),
    ];
    alerts.add(&event_context(1, 0), &mut findings);
    let mut later = [finding("CS07", Verdict::Yes, Severity::High)];
    alerts.add(&event_context(1, 10), &mut later);
    assert_eq!(findings[0].alert, findings[1].alert);
    assert_ne!(findings[0].alert, later[0].alert);
    let keys: Vec<String> = alerts.finish().into_iter().map(|alert| alert.key).collect();
    assert_eq!(keys, [&*findings[0].alert, &*later[0].alert]);
}
