use stackhound_facts::{ProcessFact, ProcessFacts};

use super::*;
use crate::tuning::{Suppression, Tuning};
use crate::verdict::{Inputs, Outcome, Reason};

fn process(pid: Option<u32>, path: &str) -> ProcessReport {
    let facts = ProcessFacts::default().with(ProcessFact::Path, path.to_owned());
    ProcessReport { pid, facts, ..ProcessReport::default() }
}

fn event(pid: u32, path: &str, summary: &str) -> EventContext {
    EventContext {
        count: 2,
        process: process(Some(pid), path),
        summary: summary.to_owned(),
        ..EventContext::default()
    }
}

fn finding(severity: Severity) -> Finding {
    let id = DetectionId::parse("CS08").unwrap();
    Finding::new(id, Outcome::yes(severity, None, Reason::FrameUnbacked, Inputs::NONE))
}

const AGENT: &str = r"C:\Agent\agent_1.2.3\agent.exe";
const STACK: &str = "ntdll.dll|KERNELBASE.dll|clr.dll|unbacked";

fn learned(events: &[(EventContext, Severity)]) -> Baseline {
    let (lists, mut learner, mut baseline) = (Lists::default(), Learner::default(), Baseline::default());
    for (event_context, severity) in events {
        learner.add(&lists, event_context, &[finding(*severity)]);
    }
    assert_eq!(learner.finish(&mut baseline), 0);
    baseline
}

#[test]
fn new_processes_and_new_stacks_are_distinguished() {
    let baseline = learned(&[(event(1, AGENT, STACK), Severity::Low)]);
    let (lists, id) = (Lists::default(), finding(Severity::Low).analytic.detection().unwrap());
    let other_stack = "ntdll.dll|other.dll|unbacked";
    for (path, stack, expected) in [
        (AGENT, STACK, Novelty::Known),
        (r"D:\agent\AGENT_2.0.14\agent.exe", "NTDLL.dll|kernelbase.dll|clr.dll|unbacked", Novelty::Known),
        (r"C:\Agent\agent_1.2.3\other.exe", STACK, Novelty::NewProcess),
        (AGENT, other_stack, Novelty::NewStack),
        (r"C:\other.exe", other_stack, Novelty::New),
        (r"C:\Windows\System32\WindowsPowerShell\v1.0\powershell.exe", STACK, Novelty::Excluded),
        ("agent.exe", STACK, Novelty::Excluded),
        (AGENT, "", Novelty::Excluded),
    ] {
        assert_eq!(baseline.compare(&lists, &event(2, path, stack), id), expected, "{path} {stack}");
    }
    let other = DetectionId::parse("CS14").unwrap();
    assert_eq!(baseline.compare(&lists, &event(2, AGENT, STACK), other), Novelty::NewStack);
    let mut secrets = event(2, AGENT, STACK);
    secrets.event.target = Some(process(None, r"C:\Windows\System32\lsass.exe"));
    assert_eq!(baseline.compare(&lists, &secrets, id), Novelty::Excluded);
}

/// Before or after: a process with a finding above low is not a model of what is usual.
#[test]
fn processes_with_findings_above_low_are_not_learned() {
    let (low, high) = ((event(1, AGENT, STACK), Severity::Low), (event(1, AGENT, "x.dll"), Severity::Medium));
    for order in [[low.clone(), high.clone()], [high, low.clone()]] {
        assert!(learned(&order).is_empty());
    }
    let baseline = learned(&[low.clone(), (event(2, AGENT, STACK), Severity::High), low]);
    assert_eq!(baseline.entries().map(|(_, count)| count).collect::<Vec<_>>(), [4]);
}

#[test]
fn findings_of_exceptions_are_not_learned() {
    let lists = Lists::default();
    let (context, mut excepted) = (event(1, AGENT, STACK), finding(Severity::Low));
    let mut tuning = Tuning::parse("[[exceptions]]\ndetection = 'CS08'\nreason = 'test'").unwrap();
    tuning.apply(&context, &mut excepted);
    let known = Finding { suppressed: Some(Suppression::by_baseline()), ..finding(Severity::Low) };
    for (finding, expected) in [(excepted, 0), (known, 1)] {
        let (mut learner, mut baseline) = (Learner::default(), Baseline::default());
        learner.add(&lists, &context, &[finding]);
        learner.finish(&mut baseline);
        assert_eq!(baseline.len(), expected);
    }
}

#[test]
fn the_number_of_processes_is_limited() {
    let (lists, mut learner) = (Lists::default(), Learner::default());
    for pid in 0..PROCESSES_MAX as u32 + 3 {
        learner.add(&lists, &event(pid, AGENT, STACK), &[finding(Severity::Low)]);
    }
    let mut baseline = Baseline::default();
    assert_eq!((learner.finish(&mut baseline), baseline.len()), (6, 1));
}

#[test]
fn the_largest_counts_are_added() {
    let (lists, mut learner) = (Lists::default(), Learner::default());
    for pid in (0..PROCESSES_MAX as u32 + 2).chain([1]) {
        let event_context = EventContext { count: u64::MAX, ..event(pid, AGENT, STACK) };
        learner.add(&lists, &event_context, &[finding(Severity::Low)]);
    }
    let mut baseline = Baseline::default();
    assert_eq!(learner.finish(&mut baseline), u64::MAX);
    assert_eq!(baseline.entries().map(|(_, count)| count).collect::<Vec<_>>(), [u64::MAX]);
}
