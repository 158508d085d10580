//! The processed-profile format, checked against a schema and for consistency: every index is in
//! range.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use jsonschema::Validator;
use proptest::prelude::*;
use serde_json::Value;
use stackhound_export::firefox::{self, Names};

use crate::profiles::{Facts, KINDS, MODULES, facts, shown};

static SCHEMA: LazyLock<Validator> = LazyLock::new(|| {
    let schema = serde_json::from_str(include_str!("processed-profile.schema.json")).expect("JSON");
    jsonschema::validator_for(&schema).expect("a schema")
});

fn written(facts: &Facts) -> Value {
    written_with(facts, Names::Profile)
}

fn written_with(facts: &Facts, names: Names) -> Value {
    let mut text = Vec::new();
    firefox::write(&facts.build(), names, &mut text).unwrap();
    let profile = serde_json::from_slice(&text).unwrap();
    let errors: Vec<_> =
        SCHEMA.iter_errors(&profile).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(errors.is_empty(), "{errors:#?}");
    profile
}

fn column<'v>(table: &'v Value, name: &str) -> &'v [Value] {
    table[name].as_array().unwrap_or_else(|| panic!("no column {name}"))
}

/// Checks that every column has the length of the table, and that indexes are in range.
fn check(table: &Value, indexes: &[(&str, usize)]) {
    let length = table["length"].as_u64().unwrap() as usize;
    for (name, values) in table.as_object().unwrap() {
        if let Some(values) = values.as_array() {
            assert_eq!(values.len(), length, "{name}");
        }
    }
    for (name, limit) in indexes {
        for value in column(table, name) {
            let inside = value.is_null() || value.as_i64().is_some_and(|index| index < *limit as i64);
            assert!(inside, "{name}: {value} of {limit}");
        }
    }
}

fn length(table: &Value) -> usize {
    table["length"].as_u64().unwrap() as usize
}

fn check_thread(profile: &Value, thread: &Value) {
    let strings = column(thread, "stringArray").len();
    let libs = column(profile, "libs").len();
    let categories = column(&profile["meta"], "categories");
    let [stacks, frames, funcs, resources, symbols] =
        ["stackTable", "frameTable", "funcTable", "resourceTable", "nativeSymbols"]
            .map(|name| length(&thread[name]));
    check(&thread["samples"], &[("stack", stacks)]);
    check(&thread["markers"], &[("name", strings), ("category", categories.len())]);
    check(&thread["stackTable"], &[("prefix", stacks), ("frame", frames)]);
    check(
        &thread["frameTable"],
        &[("func", funcs), ("nativeSymbol", symbols), ("category", categories.len())],
    );
    check(&thread["funcTable"], &[("name", strings), ("resource", resources)]);
    check(&thread["resourceTable"], &[("lib", libs), ("name", strings)]);
    check(&thread["nativeSymbols"], &[("libIndex", libs), ("name", strings)]);
    for (index, prefix) in column(&thread["stackTable"], "prefix").iter().enumerate() {
        assert!(prefix.as_u64().is_none_or(|prefix| (prefix as usize) < index), "a caller after its callee");
    }
    let frame_table = &thread["frameTable"];
    for (category, sub) in column(frame_table, "category").iter().zip(column(frame_table, "subcategory")) {
        let category = &categories[category.as_u64().unwrap() as usize];
        assert!((sub.as_u64().unwrap() as usize) < column(category, "subcategories").len());
    }
    let schemas: BTreeMap<&str, Vec<&str>> = column(&profile["meta"], "markerSchema")
        .iter()
        .map(|schema| {
            let keys = column(schema, "fields").iter().map(|field| field["key"].as_str().unwrap());
            (schema["name"].as_str().unwrap(), keys.collect())
        })
        .collect();
    for data in column(&thread["markers"], "data") {
        let mut keys = schemas[data["type"].as_str().unwrap()].clone();
        keys.push("type");
        keys.extend(data.get("cause").map(|_| "cause"));
        keys.sort_unstable();
        let mut found: Vec<&str> = data.as_object().unwrap().keys().map(String::as_str).collect();
        found.sort_unstable();
        assert_eq!(found, keys);
        if let Some(cause) = data.get("cause") {
            assert!(cause["stack"].as_u64().unwrap() < stacks as u64);
        }
    }
}

/// The names of a stack, outermost first.
fn path(thread: &Value, stack: &Value) -> Vec<String> {
    let index = |table: &str, name: &str, at: u64| &thread[table][name][at as usize];
    let mut names = Vec::new();
    let mut at = stack.as_u64();
    while let Some(stack) = at {
        let frame = index("stackTable", "frame", stack).as_u64().unwrap();
        let func = index("frameTable", "func", frame).as_u64().unwrap();
        let name = index("funcTable", "name", func).as_u64().unwrap();
        names.push(thread["stringArray"][name as usize].as_str().unwrap().to_owned());
        at = index("stackTable", "prefix", stack).as_u64();
    }
    names.reverse();
    names
}

proptest! {
    #[test]
    fn profiles_follow_the_schema_and_contain_every_sample(facts in facts()) {
        let profile = written(&facts);
        let (mut paths, mut weight, mut markers) = (BTreeMap::<Vec<String>, u64>::new(), 0, 0);
        for thread in column(&profile, "threads") {
            check_thread(&profile, thread);
            let samples = &thread["samples"];
            for (stack, of_sample) in column(samples, "stack").iter().zip(column(samples, "weight")) {
                weight += of_sample.as_u64().unwrap();
                *paths.entry(path(thread, stack)).or_default() += of_sample.as_u64().unwrap();
            }
            let kinds = KINDS.map(|kind| kind.0);
            markers += column(&thread["markers"], "name").iter().filter(|name| {
                kinds.contains(&thread["stringArray"][name.as_u64().unwrap() as usize].as_str().unwrap())
            }).count();
        }
        prop_assert_eq!(weight, facts.weight());
        prop_assert_eq!(markers, facts.markers.len());
        // Names and weights of all stacks, whatever the addresses of frames are.
        let mut expected = BTreeMap::<Vec<String>, u64>::new();
        for &(_, _, stack, weight) in &facts.samples {
            let names = facts.stacks[stack].iter().map(|&frame| shown(&facts.frames[frame].0)).collect();
            *expected.entry(names).or_default() += u64::from(weight);
        }
        prop_assert_eq!(paths, expected);
    }
}

#[test]
fn modules_have_the_identities_of_symbol_servers() {
    let frames = MODULES.iter().enumerate().map(|(module, name)| {
        (format!("{name}!f"), Some(stackhound_types::Mode::User), Some((module, 0x1001, Some(1))))
    });
    let facts = Facts {
        is_timed: true,
        processes: vec![("a.exe".to_owned(), Some(8))],
        threads: vec![(0, Some(12))],
        frames: frames.collect(),
        stacks: vec![vec![0, 1, 2]],
        samples: vec![(0, 1_500_000, 0, 1), (0, 9_000_000, 0, 1)],
        switches: vec![(0, 2_000_000, 0, 0)],
        markers: Vec::new(),
    };
    let profile = written(&facts);
    assert_eq!(profile["meta"]["symbolicated"], true);
    let libs = column(&profile, "libs");
    let identity = |lib: &Value| {
        ["name", "debugName", "breakpadId", "codeId"].map(|key| lib[key].as_str().unwrap_or("-").to_owned())
    };
    let pdb = "00112233445566778899AABBCCDDEEFF2";
    assert_eq!(identity(&libs[0]), ["ntoskrnl.exe", "it.pdb", pdb, "-"]);
    let nil = "000000000000000000000000000000000";
    assert_eq!(identity(&libs[1]), ["ntdll.dll", "ntdll.dll", nil, "1234ABCD200000"]);
    let thread = &profile["threads"][0];
    // Each name belongs to a symbol: at the start of the function, in its library.
    assert_eq!(column(&thread["nativeSymbols"], "address"), [0x1000, 0x1000, 0x1000]);
    assert_eq!(column(&thread["frameTable"], "address"), [0x1001, 0x1001, 0x1001]);
    // A sample means one interval on the processor, but at most the time since the last one.
    assert_eq!(column(&thread["samples"], "threadCPUDelta"), [1000, 1000]);
    assert_eq!(column(&thread["samples"], "timeDeltas"), [1.5, 7.5]);
    assert_eq!(profile["meta"]["startTime"], 1_700_000_000_000.0);
}

/// One processor, three threads: each interval between two switches is written, with the stack of
/// waiting threads.
#[test]
fn switches_become_intervals() {
    let facts = Facts {
        is_timed: true,
        processes: vec![("a.exe".to_owned(), Some(8))],
        threads: vec![(0, Some(1)), (0, Some(2)), (0, Some(3))],
        frames: vec![("wait".to_owned(), Some(stackhound_types::Mode::User), None)],
        stacks: vec![vec![0]],
        samples: vec![(0, 0, 0, 1)],
        switches: vec![(0, 1_000_000, 0, 1), (0, 3_000_000, 1, 2), (0, 4_000_000, 2, 0)],
        markers: Vec::new(),
    };
    let profile = written(&facts);
    let mut intervals = Vec::new();
    for thread in column(&profile, "threads") {
        let markers = &thread["markers"];
        for index in 0..length(markers) {
            let name = markers["name"][index].as_u64().unwrap() as usize;
            intervals.push((
                thread["tid"].as_str().unwrap(),
                thread["stringArray"][name].as_str().unwrap(),
                markers["startTime"][index].as_f64().unwrap(),
                markers["endTime"][index].as_f64().unwrap(),
                markers["data"][index].get("cause").is_some(),
            ));
        }
    }
    intervals.sort_by(|a, b| a.0.cmp(b.0));
    let expected = [
        ("1", "Waiting", 1.0, 4.0, true),
        ("2", "Running", 1.0, 3.0, false),
        ("3", "Running", 3.0, 4.0, false),
    ];
    assert_eq!(intervals, expected);
}

/// The idle thread has most samples, but the profile opens on another thread, unless the samples are
/// other events than those of a timer.
#[test]
fn idle_processors_use_no_processor_time() {
    let facts = |is_timed| Facts {
        is_timed,
        processes: vec![("Idle".to_owned(), Some(0)), ("a.exe".to_owned(), Some(8))],
        threads: vec![(0, Some(0)), (1, Some(12)), (1, Some(16)), (1, Some(20))],
        frames: vec![("ntoskrnl.exe!f".to_owned(), Some(stackhound_types::Mode::Kernel), Some((0, 8, None)))],
        stacks: vec![vec![0]],
        samples: [0, 0, 0, 0, 1, 2, 2]
            .iter()
            .enumerate()
            .map(|(at, &id)| (id, 1_000_000 * at as u64, 0, 1))
            .collect(),
        switches: Vec::new(),
        markers: Vec::new(),
    };
    for (is_timed, selected_thread) in [(true, "16"), (false, "0")] {
        let profile = written(&facts(is_timed));
        let threads = column(&profile, "threads");
        let selected = column(&profile["meta"], "initialSelectedThreads");
        assert_eq!(
            selected.iter().map(|at| &threads[at.as_u64().unwrap() as usize]["tid"]).collect::<Vec<_>>(),
            [selected_thread]
        );
        for thread in threads {
            let is_idle = is_timed && thread["pid"] == "0";
            let categories = column(&thread["frameTable"], "category").iter();
            for category in categories {
                let category = &column(&profile["meta"], "categories")[category.as_u64().unwrap() as usize];
                assert_eq!(category["name"], if is_idle { "Idle" } else { "Kernel" });
            }
            let used: u64 =
                column(&thread["samples"], "threadCPUDelta").iter().map(|used| used.as_u64().unwrap()).sum();
            assert_eq!(used > 0, !is_idle && length(&thread["samples"]) > 0, "{thread}");
        }
    }
    assert_eq!(written_with(&facts(true), Names::SymbolServer)["meta"]["symbolicated"], false);
}
