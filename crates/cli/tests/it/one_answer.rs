//! All verbs agree: the stack of an event is the same in `events`, `hunt`, `stacks`, `kstack` and
//! in filters. `stackhound/tests/it/one_answer.rs` tests the same for the library.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use crate::program::{stackhound, text};
use serde_json::Value;

/// The documents that a verb writes about a trace, one per line. Parsed, all of them would take
/// gigabytes.
fn written(arguments: &[&str], trace: &Path) -> String {
    let output = stackhound(&[arguments, &[text(trace), "-q"]].concat());
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn parsed(line: &str) -> Value {
    serde_json::from_str(line).expect("JSON")
}

/// The one document that a verb writes about a trace.
fn document(arguments: &[&str], trace: &Path) -> Value {
    let output = stackhound(&[arguments, &[text(trace), "-q"]].concat());
    serde_json::from_slice(&output.stdout).expect("JSON")
}

const EVENTS: [&str; 6] = ["events", "--stacks", "--symbols", "full", "--format", "ndjson"];

/// The facts of a frame that all verbs state.
fn frame(frame: &Value) -> [&Value; 7] {
    ["address", "mode", "wow64", "module", "rva", "backing", "region"].map(|key| &frame[key])
}

fn frames(frames: &Value) -> Vec<[&Value; 7]> {
    frames.as_array().expect("frames").iter().map(frame).collect()
}

#[track_caller]
fn assert_equal(one: &Value, other: &Value, location: &dyn std::fmt::Debug) {
    for key in [
        "state",
        "also",
        "summary",
        "kernel_summary",
        "contains_unbacked",
        "final_user_module",
        "final_kernel_module",
    ] {
        assert_eq!(one[key], other[key], "{key} of {location:?}");
    }
    assert_eq!(frames(&one["frames"]), frames(&other["frames"]), "{location:?}");
}

/// How many stacks of each verb were compared with those of `events`.
#[derive(Debug, Default)]
struct Compared {
    hunt: usize,
    stacks: usize,
    kstack: usize,
    filters: usize,
}

fn compare(trace: &Path) -> Compared {
    let mut compared = Compared::default();
    let events = written(&EVENTS, trace);
    let events: Vec<&str> = events.lines().collect();

    // All findings of an event have the same stack, so a few detections are enough: CS28 is not
    // determined without events about memory, and CS02 is.
    let hunt = ["hunt", "--all", "--min-severity", "info", "--only", "CS02,CS28", "--exit-zero"];
    let findings = written(&[&hunt[..], &["--format", "ndjson"]].concat(), trace);
    for finding in findings.lines().map(parsed).filter(|finding| finding["type"] == "finding") {
        let record = finding["input"]["record"].as_u64().expect("a number") as usize;
        let event = parsed(events[record - 1]);
        assert_eq!((&finding["time"], &finding["event"]), (&event["time"], &event["event"]));
        if event["stack"]["frames"].as_array().is_some_and(|frames| !frames.is_empty()) {
            assert_equal(&finding["stack"], &event["stack"], &(record, &event["event"]));
            compared.hunt += 1;
        }
    }

    let key = |kind: &Value, of: &Value| {
        let addresses = of["stack"]["frames"].as_array()?.iter().map(|frame| &frame["address"]);
        let states = [kind, &of["pid"], &of["stack"]["state"], &of["stack"]["also"]];
        Some(states.into_iter().chain(addresses).map(Value::to_string).collect::<Vec<_>>())
    };
    let mut by_key = HashMap::new();
    let mut switches = HashMap::new();
    let mut by_answer: BTreeMap<(&str, String), usize> = BTreeMap::new();
    for line in &events {
        let event = parsed(line);
        if let Some(key) = key(&event["event"], &event) {
            by_key.entry(key).or_insert((*line, 0)).1 += 1;
        }
        if event["event"] == "Thread/CSwitch" {
            switches.insert((event["time"].to_string(), event["fields"]["NewThreadId"].to_string()), *line);
        }
        if event["stack"]["summary"].is_string() {
            for key in ["state", "contains_unbacked", "final_user_module"] {
                let answer = event["stack"][key].as_str();
                if let Some(answer) = answer.filter(|answer| !answer.contains(['\'', '\\'])) {
                    *by_answer.entry((key, answer.to_owned())).or_default() += 1;
                }
            }
        }
    }

    // A row of `stacks` shows the facts at its first event.
    let stacks = ["stacks", "--top", "1000000", "--symbols", "full", "--format", "json"];
    for kind in document(&stacks, trace)["kinds"].as_array().expect("kinds") {
        for row in kind["stacks"].as_array().expect("rows") {
            let (line, count) = by_key[&key(&kind["event"], row).expect("frames")];
            assert_equal(&row["stack"], &parsed(line)["stack"], &kind["event"]);
            assert_eq!(row["count"], count, "{}", kind["event"]);
            compared.stacks += 1;
        }
    }

    let kstack = ["kstack", "--user", "--symbols", "full", "--format", "ndjson", "--trace"];
    for thread in written(&kstack, trace).lines().map(parsed) {
        let at = (thread["capture"]["time"].to_string(), thread["tid"].to_string());
        let event = switches.get(&at).map(|line| parsed(line));
        let Some(event) = event.filter(|event| event["stack"]["state"] == "complete") else { continue };
        let parts = ["kernel", "user"].map(|part| thread[part].as_array().map_or(&[][..], |frames| frames));
        let all: Vec<_> = parts.into_iter().flatten().map(frame).collect();
        assert_eq!(all, frames(&event["stack"]["frames"]), "thread {}", thread["tid"]);
        compared.kstack += 1;
    }

    // Filters select exactly the events with the value in the expression.
    // Sorted by key, so that the steps include each key.
    let step = by_answer.len().div_ceil(8).max(1);
    for ((key, answer), count) in by_answer.into_iter().step_by(step) {
        let filter = format!("stack.{key} = '{answer}'");
        let selected = written(&[&EVENTS[..], &["--where", &filter]].concat(), trace);
        let selected = selected.lines().map(parsed).filter(|event| event["stack"]["summary"].is_string());
        let answers: Vec<Value> = selected.map(|mut event| event["stack"][key].take()).collect();
        assert!(answers.iter().all(|found| *found == *answer), "{filter}");
        assert_eq!(answers.len(), count, "{filter}");
        compared.filters += 1;
    }
    compared
}

#[test]
fn all_verbs_agree_on_the_demo() {
    let folder = tempfile::tempdir().unwrap();
    assert!(stackhound(&["demo", "-q", "--events", "10000", "--out", text(folder.path())]).status.success());
    let compared = compare(&folder.path().join("stackhound-demo.etl"));
    println!("{compared:?}");
    let Compared { hunt, stacks, kstack, filters } = compared;
    assert!(hunt > 1_000 && stacks > 1_000 && kstack > 20 && filters > 6, "{compared:?}");
}

/// Small traces; with `STACKHOUND_WHOLE_CORPUS=1`, as in `.ci/run`, all traces.
#[test]
fn all_verbs_agree_on_genuine_traces() {
    const SIZE_MAX: u64 = 600_000;
    let is_whole = std::env::var_os("STACKHOUND_WHOLE_CORPUS").is_some();
    for (name, path) in stackhound_corpus::trace_files() {
        if !is_whole && path.metadata().unwrap().len() > SIZE_MAX {
            continue;
        }
        let info = document(&["info", "--full", "--format", "json"], &path);
        if info["stacks"]["distinct_frames"] == 0 {
            continue;
        }
        let compared = compare(&path);
        assert!(compared.hunt > 0 && compared.stacks > 0, "{name}: {compared:?}");
    }
}
