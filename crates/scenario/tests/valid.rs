//! Generated traces violate only the known rules of the validator.

use std::io::Cursor;

use stackhound_scenario::{Mix, Problem, Scenario};
use stackhound_validator::Rule::*;
use stackhound_validator::{KnownViolation, assert_known};

const SCENARIOS: &[&str] =
    &["default", "profile", "HighCpu", "SlowStart", "Hang", "DiskBound", "MemoryGrowth"];

/// All of these violations are intended.
const SCENARIOS_EXPECTED: &[KnownViolation] = &[
    KnownViolation {
        files: &["default"],
        rules: &[K01],
        reason: "intended: a buffer is lost, and with it events whose stacks are in other buffers",
    },
    KnownViolation {
        files: SCENARIOS,
        rules: &[R16],
        reason: "intended: these events map kernel paths to volumes, so that traces of sessions contain them, too",
    },
];

#[test]
fn scenarios_have_only_known_violations() {
    let write = |mix| {
        let mut file = Cursor::new(Vec::new());
        Scenario { events: 20_000, seed: 1, mix }.write(&mut file).unwrap();
        file.into_inner()
    };
    let problems = Problem::ALL.map(|problem| (format!("{problem:?}"), write(Mix::Problem(problem))));
    let mut files = vec![("default", write(Mix::Default)), ("profile", write(Mix::Profile))];
    files.extend(problems.iter().map(|(name, bytes)| (&**name, bytes.clone())));
    assert_known(&files, SCENARIOS_EXPECTED);
}
