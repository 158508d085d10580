//! Generated traces differ from those of Windows only where that is known.

use std::io::Cursor;

use stackhound_scenario::cases::{self, Kind};
use stackhound_scenario::{Mix, Scenario};
use stackhound_testkit::Rule::*;
use stackhound_testkit::{Known, assert_known};

const SCENARIOS: &[&str] = &["default", "profile"];

/// First what is on purpose, then what is to be repaired.
const SCENARIOS_EXPECTED: &[Known] = &[
    Known {
        files: &["default"],
        rules: &[K01],
        reason: "on purpose: a buffer is lost, and with it records whose stacks are in other buffers",
    },
    Known {
        files: SCENARIOS,
        rules: &[F07, H17, L09, L10, D05, D20],
        reason: "the writer knows no issuer, names or reservations, and ends with the last record",
    },
    Known { files: SCENARIOS, rules: &[H19, H20], reason: "the header buffer has the logfile header only" },
    Known {
        files: SCENARIOS,
        rules: &[R04, K07],
        reason: "the sampling interval has no issuer, and none is logged at the end",
    },
    Known {
        files: SCENARIOS,
        rules: &[R16, R20],
        reason: "live traces have system-configuration events, without an issuer and the final backslash",
    },
    Known {
        files: SCENARIOS,
        rules: &[K03, K04, K05, K06],
        reason: "the rundowns have no idle process, and their group masks are not in the order of Windows",
    },
    Known {
        files: &["default"],
        rules: &[F04, D08],
        reason: "the buffers around the lost one have flags that files do not have",
    },
    Known { files: &["default"], rules: &[R14], reason: "32-bit processes have 32-bit stack items" },
    Known { files: &["profile"], rules: &[K08, K09], reason: "the first process has the id of System" },
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

const CASES: &[&str] = &[
    "with all that can be told",
    "with known images of Windows",
    "without the file of agent",
    "without the file of kernel32",
    "without the file of kernelbase",
    "without the file of ntdll",
    "without the file of ntoskrnl",
    "without rundown",
    "with a lost buffer",
];
const CASES_WITH_RUNDOWN: &[&str] = &[
    "with all that can be told",
    "with known images of Windows",
    "without the file of agent",
    "without the file of kernel32",
    "without the file of kernelbase",
    "without the file of ntdll",
    "without the file of ntoskrnl",
    "with a lost buffer",
];

/// First what is on purpose, then what is to be repaired.
const CASES_EXPECTED: &[Known] = &[
    Known {
        files: CASES_WITH_RUNDOWN,
        rules: &[K05, K06],
        reason: "on purpose: rundowns list only the processes that cases need, without previous group masks",
    },
    Known {
        files: CASES,
        rules: &[F07, H17, L09, L10, D05, D20],
        reason: "the writer knows no issuer, names or reservations, and ends with the last record",
    },
    Known { files: CASES, rules: &[H19, H20], reason: "the header buffer has the logfile header only" },
    Known {
        files: &["with a lost buffer"],
        rules: &[F04, D08],
        reason: "the buffers around the lost one have flags that files do not have",
    },
];

#[test]
fn cases_are_valid_but_for_what_is_known() {
    let files = cases::files().unwrap();
    let traces = files.iter().filter(|file| file.kind == Kind::Etl);
    let traces: Vec<_> = traces.map(|file| (file.name.as_str(), file.bytes.clone())).collect();
    assert_known(&traces, CASES_EXPECTED);
}
