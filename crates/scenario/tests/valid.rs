//! Generated traces differ from those of Windows only where that is known.

use std::io::Cursor;

use stackhound_scenario::{Mix, Scenario};
use stackhound_validator::Rule::*;
use stackhound_validator::{KnownViolation, assert_known};

const SCENARIOS: &[&str] = &["default", "profile"];

/// All of it is on purpose.
const SCENARIOS_EXPECTED: &[KnownViolation] = &[
    KnownViolation {
        files: &["default"],
        rules: &[K01],
        reason: "on purpose: a buffer is lost, and with it records whose stacks are in other buffers",
    },
    KnownViolation {
        files: SCENARIOS,
        rules: &[R16],
        reason: "on purpose: paths of the kernel can only be read with these events, so that live traces have them, too",
    },
];

#[test]
fn scenarios_are_valid_but_for_what_is_known() {
    let write = |mix| {
        let mut file = Cursor::new(Vec::new());
        Scenario { events: 20_000, seed: 1, mix }.write(&mut file).unwrap();
        file.into_inner()
    };
    let files = [("default", write(Mix::Default)), ("profile", write(Mix::Profile))];
    assert_known(&files, SCENARIOS_EXPECTED);
}
