//! All verbs agree: the stack of an event is the same in `events`, `hunt`, `stacks`, `kstack` and
//! in filters. `stackhound/tests/one_answer.rs` tests the same for the library.

mod program;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use program::{stackhound, text};
use serde_json::Value;

/// The documents that a verb writes about a trace, one per line.
fn lines(arguments: &[&str], trace: &Path) -> Vec<Value> {
    let output = stackhound(&[arguments, &[text(trace), "-q"]].concat());
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
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
    let events = lines(&EVENTS, trace);

    let hunt = ["hunt", "--all", "--min-severity", "info", "--exit-zero", "--format", "ndjson"];
    for finding in lines(&hunt, trace) {
        if finding["type"] != "finding" {
            continue;
        }
        let record = finding["input"]["record"].as_u64().expect("a number") as usize;
        let event = &events[record - 1];
        assert_eq!((&finding["time"], &finding["event"]), (&event["time"], &event["event"]));
        if event["stack"]["frames"].as_array().is_some_and(|frames| !frames.is_empty()) {
            assert_equal(&finding["stack"], &event["stack"], &(record, &event["event"]));
            compared.hunt += 1;
        }
    }

    // A row of `stacks` shows the facts at its first event.
    let key = |kind: &Value, of: &Value| {
        let addresses = of["stack"]["frames"].as_array()?.iter().map(|frame| &frame["address"]);
        let states = [kind, &of["pid"], &of["stack"]["state"], &of["stack"]["also"]];
        Some(states.into_iter().chain(addresses).map(Value::to_string).collect::<Vec<_>>())
    };
    let mut by_key = HashMap::new();
    for event in &events {
        if let Some(key) = key(&event["event"], event) {
            by_key.entry(key).or_insert((event, 0)).1 += 1;
        }
    }
    let stacks = ["stacks", "--top", "1000000", "--symbols", "full", "--format", "json"];
    for kind in document(&stacks, trace)["kinds"].as_array().expect("kinds") {
        for row in kind["stacks"].as_array().expect("rows") {
            let (event, count) = by_key[&key(&kind["event"], row).expect("frames")];
            assert_equal(&row["stack"], &event["stack"], &kind["event"]);
            assert_eq!(row["count"], count, "{}", kind["event"]);
            compared.stacks += 1;
        }
    }

    let mut switches = HashMap::new();
    for event in events.iter().filter(|event| event["event"] == "Thread/CSwitch") {
        switches.insert((event["time"].to_string(), event["fields"]["NewThreadId"].to_string()), event);
    }
    let kstack = ["kstack", "--user", "--symbols", "full", "--format", "ndjson", "--trace"];
    for thread in lines(&kstack, trace) {
        let at = (thread["capture"]["time"].to_string(), thread["tid"].to_string());
        let Some(event) = switches.get(&at).filter(|event| event["stack"]["state"] == "complete") else {
            continue;
        };
        let parts = ["kernel", "user"].map(|part| thread[part].as_array().map_or(&[][..], |frames| frames));
        let all: Vec<_> = parts.into_iter().flatten().map(frame).collect();
        assert_eq!(all, frames(&event["stack"]["frames"]), "thread {}", thread["tid"]);
        compared.kstack += 1;
    }

    // Filters select exactly the events with the value in the expression.
    let mut by_answer: BTreeMap<(&str, String), usize> = BTreeMap::new();
    for event in events.iter().filter(|event| event["stack"]["summary"].is_string()) {
        for key in ["state", "contains_unbacked", "final_user_module"] {
            if let Some(answer) = event["stack"][key].as_str().filter(|answer| !answer.contains(['\'', '\\']))
            {
                *by_answer.entry((key, answer.to_owned())).or_default() += 1;
            }
        }
    }
    // Sorted by key, so that the steps include each key.
    let step = by_answer.len().div_ceil(8).max(1);
    for ((key, answer), count) in by_answer.into_iter().step_by(step) {
        let filter = format!("stack.{key} = '{answer}'");
        let selected = lines(&[&EVENTS[..], &["--where", &filter]].concat(), trace);
        let selected = selected.iter().filter(|event| event["stack"]["summary"].is_string());
        let selected: Vec<_> = selected.map(|event| &event["stack"][key]).collect();
        assert!(selected.iter().all(|found| **found == *answer), "{filter}");
        assert_eq!(selected.len(), count, "{filter}");
        compared.filters += 1;
    }
    compared
}

#[test]
fn all_verbs_agree_on_the_demo() {
    let folder = tempfile::tempdir().unwrap();
    assert!(stackhound(&["demo", "-q", "--out", text(folder.path())]).status.success());
    let compared = compare(&folder.path().join("stackhound-demo.etl"));
    println!("{compared:?}");
    let Compared { hunt, stacks, kstack, filters } = compared;
    assert!(hunt > 1_000 && stacks > 1_000 && kstack > 20 && filters > 6, "{compared:?}");
}

#[test]
fn all_verbs_agree_on_genuine_traces() {
    for (name, path) in stackhound_corpus::trace_files() {
        let info = document(&["info", "--full", "--format", "json"], &path);
        if info["stacks"]["distinct_frames"] == 0 {
            continue;
        }
        println!("{name}: {:?}", compare(&path));
    }
}
