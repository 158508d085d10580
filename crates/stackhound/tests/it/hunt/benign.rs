//! Benign traces: no finding of medium severity or above.

use std::collections::BTreeMap;

use stackhound::Passes;
use stackhound::detect::Severity;
use stackhound::trace::{OpenTrace, TraceFiles};
use stackhound_scenario::{Mix, Scenario};

use super::evaluated;

/// Findings of medium severity or above, by detection, kind of event and state of the stack.
fn alarming(trace: &OpenTrace, passes: Passes) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    evaluated(trace, passes, |view, _, evaluation| {
        for (id, outcome) in evaluation.findings().filter(|(_, outcome)| outcome.severity >= Severity::Medium)
        {
            let text = format!(
                "{} {} {} [{}]",
                id.name(),
                outcome.severity.name(),
                view.name(),
                view.state().name()
            );
            *found.entry(text).or_default() += 1;
        }
    });
    found
}

#[test]
fn traces_of_the_corpus() {
    for (name, path) in stackhound_corpus::trace_files() {
        let trace = TraceFiles::file(&path).open().unwrap_or_else(|error| panic!("{name}: {error}"));
        for passes in [Passes::One, Passes::Two] {
            assert_eq!(alarming(&trace, passes), BTreeMap::new(), "{name}, {passes:?}");
        }
    }
}

#[test]
fn the_profile_mix() {
    let folder = tempfile::tempdir().unwrap();
    for seed in 1..=3 {
        let path = folder.path().join(format!("{seed}.etl"));
        let scenario = Scenario { events: 40_000, seed, mix: Mix::Profile };
        scenario.write(std::fs::File::create(&path).unwrap()).unwrap();
        let trace = TraceFiles::file(&path).open().unwrap();
        for passes in [Passes::One, Passes::Two] {
            assert_eq!(alarming(&trace, passes), BTreeMap::new(), "seed {seed}, {passes:?}");
        }
    }
}
