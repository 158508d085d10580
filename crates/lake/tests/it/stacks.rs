//! The functions for stacks, compared with the output of `stackhound events` and `stackhound
//! profile` for the same trace and symbols.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::program::{demo, rows, stackhound, text};

/// The text of a frame in NDJSON.
fn label(frame: &Value) -> String {
    match (frame["module"].as_str(), frame["symbol"].as_str()) {
        (Some(module), Some(symbol)) => {
            let near = if frame["origin"] == "nearest_export" { "~" } else { "" };
            format!("{module}!{near}{symbol}")
        }
        (Some(module), None) => {
            let rva = frame["rva"].as_str().and_then(|rva| rva.strip_prefix("0x")).expect("an offset");
            format!("{module}+{:#x}", u64::from_str_radix(rva, 16).expect("a number"))
        }
        (None, _) => format!("[{}]", frame["backing"].as_str().expect("text")),
    }
}

/// The output of `stackhound` with names of all functions.
fn named(arguments: &[&str]) -> String {
    let symbols = demo().symbols();
    let names = ["-q", "--symbol-path", &symbols, "--symbols", "full", "--kernel-symbols", "full"];
    text(stackhound(&[arguments, &names].concat()))
}

#[test]
fn every_stack_has_the_frames_of_events() {
    let demo = demo();
    let events = named(&["events", &demo.trace(), "--stacks", "--format", "ndjson"]);
    let answers = rows(
        "SELECT symbol(stack_id) AS symbol, frame(stack_id, 1) AS second, folded(stack_id) AS folded,
           has_frame(stack_id, 'ntdll.dll!Nt') AS native
         FROM events ORDER BY number",
        &[&demo.tables()],
    );
    let (mut stacks, mut native) = (0, 0);
    assert_eq!(events.lines().count(), answers.len());
    for (line, answer) in events.lines().zip(&answers) {
        let event: Value = serde_json::from_str(line).expect("JSON");
        let frames = event["stack"]["frames"].as_array().cloned().unwrap_or_default();
        let labels: Vec<String> = frames.iter().map(label).collect();
        if labels.is_empty() {
            assert!(answer["folded"].is_null(), "{line}");
            continue;
        }
        stacks += 1;
        let outermost_first: Vec<&str> = labels.iter().rev().map(String::as_str).collect();
        assert_eq!(answer["folded"], outermost_first.join(";"), "{line}");
        assert_eq!(answer["symbol"], *labels[0]);
        assert_eq!(answer["second"].as_str(), labels.get(1).map(String::as_str));
        let has_native = labels.iter().any(|label| label.to_lowercase().starts_with("ntdll.dll!nt"));
        assert_eq!(answer["native"], has_native, "{line}");
        native += u32::from(has_native);
    }
    assert!(stacks > 1000 && native > 100, "{stacks} {native}");
}

/// By path without the remark for incomplete stacks, the number of samples. Profiles show addresses
/// in no module.
#[test]
fn folded_stacks_are_those_of_profiles() {
    let demo = demo();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("x.folded");
    let file = file.to_str().expect("UTF-8");
    named(&["profile", &demo.trace(), "-o", file, "--offsets"]);
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    for line in std::fs::read_to_string(file).expect("text").lines() {
        let (path, weight) = line.rsplit_once(' ').expect("a weight");
        let is_frame = |name: &&str| !name.starts_with('[');
        let frames: Vec<&str> = path.split(';').skip(1).filter(is_frame).collect();
        let frames = frames.into_iter().map(|name| if name.starts_with("0x") { "[unbacked]" } else { name });
        *expected.entry(frames.collect::<Vec<_>>().join(";")).or_default() +=
            weight.parse::<u64>().expect("a number");
    }
    let answers = rows(
        "SELECT folded(stack_id) AS path, count(*) AS samples FROM events
         WHERE event = 'PerfInfo/SampledProfile' AND stack_id IS NOT NULL GROUP BY 1",
        &[&demo.tables()],
    );
    let mut found: BTreeMap<String, u64> = BTreeMap::new();
    for answer in &answers {
        let path = answer["path"].as_str().expect("text").replace("[unknown]", "[unbacked]");
        *found.entry(path).or_default() += answer["samples"].as_u64().expect("a number");
    }
    assert!(found.len() > 100, "{}", found.len());
    for (path, samples) in &found {
        let in_profile = expected.get(path).copied().unwrap_or_default();
        assert!(*samples <= in_profile, "{path}: {samples} samples, in the profile {in_profile}");
    }
    // Samples without a stack have only their instruction in the profile.
    let without: u64 =
        expected.iter().filter(|(path, _)| !found.contains_key(*path)).map(|(_, weight)| weight).sum();
    let sums = (expected.values().sum::<u64>(), found.values().sum::<u64>());
    assert!(sums.0 - sums.1 >= without && without * 2 < sums.0, "{sums:?}, {without} without a stack");
}
