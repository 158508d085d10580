//! The attack of a generated trace is found, and there are no other findings of medium severity or
//! above.

use std::collections::BTreeSet;

use stackhound::Passes;
use stackhound::detect::report::SourceLocation;
use stackhound::detect::{Severity, Verdict};
use stackhound_scenario::AttackKind;

use super::{evaluated, generated};

#[test]
fn the_attack_is_found_and_nothing_else_matters() {
    for seed in [1, 2, 3] {
        let (_folder, trace, truth) = generated(seed);
        let attackers: BTreeSet<u32> = truth.attacks.iter().map(|attack| attack.pid.0).collect();
        for passes in [Passes::One, Passes::Two] {
            let mut found = BTreeSet::new();
            evaluated(&trace, passes, |view, hunt_session, evaluation| {
                let grave = evaluation.findings().filter(|(_, outcome)| outcome.severity >= Severity::Medium);
                for (id, outcome) in grave {
                    let event_context = hunt_session.event_context(view, SourceLocation::default());
                    let pid = event_context.process.pid.unwrap_or_default();
                    assert!(
                        attackers.contains(&pid),
                        "{} {:?} {event_context:?}",
                        id.name(),
                        outcome.reasons
                    );
                    let attack = truth
                        .attacks
                        .iter()
                        .find(|attack| attack.time == view.raw_time() && attack.event.name() == view.name());
                    if let Some(attack) = attack {
                        found.insert((attack.kind, id.name()));
                    }
                }
                assert!(evaluation.iter().all(|(_, outcome)| {
                    outcome.verdict != Verdict::Undetermined || !outcome.reasons.iter().count().eq(&0)
                }));
            });
            for expected in [
                (AttackKind::DirectSyscall, "CS02"),
                (AttackKind::IndirectSyscall, "CS07"),
                (AttackKind::UnbackedThreadStart, "CS19"),
                (AttackKind::UnbackedThread, "CS08"),
            ] {
                assert!(found.contains(&expected), "{passes:?}, {seed}: {expected:?} not in {found:?}");
            }
        }
    }
}
