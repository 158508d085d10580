//! Baselines of real machines: learned on half of the hosts, they suppress low findings of the
//! others, and none of an attack.

use std::collections::BTreeSet;

mod labeled;

use serde::Deserialize;
use stackhound_detect::Severity;
use stackhound_detect::baseline::{Baseline, Learner, Novelty, SEVERITY_MAX, is_usual};
use stackhound_detect::report::{EventContext, Finding};
use stackhound_frames::Lists;

const FILES: [&str; 4] = [
    "otrf_security_datasets.jsonl",
    "evtx_attack_samples.jsonl",
    "otrf_createremotethread.jsonl",
    "evtx_createremotethread.jsonl",
];

#[derive(Deserialize)]
struct Label {
    truth: Truth,
}

#[derive(Deserialize)]
struct Truth {
    actor: String,
}

struct Row {
    is_attack: bool,
    event_context: EventContext,
    findings: Vec<Finding>,
}

impl Row {
    fn host(&self) -> &str {
        &self.event_context.host
    }

    fn low(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.outcome.severity <= SEVERITY_MAX)
    }
}

/// The rows with findings.
fn rows() -> Option<Vec<Row>> {
    let rows = labeled::rows(&FILES, Lists::default(), |evaluated, _, line| {
        let label: Label = serde_json::from_str(line).expect("a row");
        let findings = evaluated.evaluation.findings();
        let findings = findings.map(|(id, outcome)| Finding::new(id, *outcome)).collect();
        let is_attack = label.truth.actor == "attacker";
        Row { is_attack, event_context: evaluated.event_context(), findings }
    });
    let mut rows = rows?;
    rows.retain(|row| row.findings.iter().any(|finding| finding.outcome.severity >= Severity::Low));
    Some(rows)
}

/// Low findings of benign rows that the baseline of the other hosts suppresses, all such findings,
/// and suppressed findings of attacks. Attacks of the learned hosts are learned from, too.
fn suppressed(rows: &[Row], is_learned: impl Fn(&str) -> bool) -> (u64, u64, u64) {
    let (lists, mut learner, mut baseline) = (Lists::default(), Learner::default(), Baseline::default());
    for row in rows.iter().filter(|row| is_learned(row.host())) {
        learner.add(&lists, &row.event_context, &row.findings);
    }
    assert_eq!(learner.finish(&mut baseline), 0);
    let (mut of_benign, mut benign, mut of_attacks) = (0, 0, 0);
    for row in rows.iter().filter(|row| !is_learned(row.host())) {
        for finding in row.low() {
            let is_known = is_usual(&row.findings)
                && baseline.compare(&lists, &row.event_context, finding.analytic.detection().unwrap())
                    == Novelty::Known;
            benign += u64::from(!row.is_attack);
            of_benign += u64::from(!row.is_attack && is_known);
            of_attacks += u64::from(row.is_attack && is_known);
        }
    }
    (of_benign, benign, of_attacks)
}

#[test]
fn half_of_the_hosts_explain_the_low_findings_of_the_others_and_no_attack() {
    let Some(rows) = rows() else { return };
    let hosts: BTreeSet<&str> = rows.iter().filter(|row| row.low().next().is_some()).map(Row::host).collect();
    assert!(hosts.len() > 8, "{hosts:?}");
    let even: BTreeSet<&str> = hosts.iter().copied().step_by(2).collect();
    for learned in [true, false] {
        let (of_benign, benign, of_attacks) = suppressed(&rows, |host| even.contains(host) == learned);
        println!("{of_benign} of {benign} low findings of benign programs, {of_attacks} of attacks");
        assert!(of_benign * 100 >= benign * 80, "{of_benign} of {benign}");
        assert_eq!(of_attacks, 0);
    }
}

/// Any division of the hosts, not just one: the number of a division has a bit for each host.
#[test]
fn no_division_of_the_hosts_hides_an_attack() {
    let Some(rows) = rows() else { return };
    let hosts: Vec<&str> = rows.iter().map(Row::host).collect::<BTreeSet<_>>().into_iter().collect();
    let mut division = 0x9e37_79b9_u32;
    for _ in 0..100 {
        division = division.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let bit = |host: &str| hosts.iter().position(|known| *known == host).unwrap_or_default() % 16 + 16;
        let (.., of_attacks) = suppressed(&rows, |host| division >> bit(host) & 1 == 1);
        assert_eq!(of_attacks, 0, "{division:#x}");
    }
}
