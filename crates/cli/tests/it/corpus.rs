//! Real traces: the counts of the program equal those of independent readers.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

fn stackhound(arguments: &[&str], files: &[&Path]) -> Vec<u8> {
    let output = Command::new(env!("CARGO_BIN_EXE_stackhound"))
        .args(arguments)
        .args(files)
        .output()
        .expect("the program runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?} {files:?}: {} {errors}", output.status);
    output.stdout
}

fn info(file: &Path) -> Value {
    serde_json::from_slice(&stackhound(&["info", "--full", "--format", "json"], &[file])).expect("JSON")
}

/// `facts.json` was written by an independent reader.
#[test]
fn counts_equal_the_facts() {
    let Some(facts) = stackhound_corpus::text("etl/facts.json") else { return };
    let facts: Value = serde_json::from_str(&facts).unwrap();
    let trace_files = stackhound_corpus::trace_files();
    assert_eq!(trace_files.len(), 36);
    for (name, path) in trace_files {
        let (expected, found) = (&facts[&name], info(&path));
        let same = [
            "events",
            "by_header_type",
            "kernel_hook_ids",
            "classic_guid_events",
            "manifest_events",
            "buffers",
            "compressed_buffers",
            "events_lost",
            "buffers_lost",
            "build",
            "pointer_size",
            "processors",
        ];
        for key in same {
            // The facts use an older name.
            let fact = if key == "kernel_hook_ids" { "kernel_hooks" } else { key };
            assert!(!expected[fact].is_null(), "{name}: no fact {fact}");
            assert_eq!(found[key], expected[fact], "{name}: {key}");
        }
        assert_eq!(found["damage"], serde_json::json!([]), "{name}");
        let extended =
            ["5", "6"].iter().map(|kind| expected["ext_items"][kind].as_u64().unwrap_or(0)).sum::<u64>();
        assert_eq!(found["stacks"]["extended"], extended, "{name}");
    }
}

/// Figures of `etl/README.md`, which were found by an independent program.
#[test]
fn every_stack_part_of_the_large_trace_is_attributed() {
    let Some(path) = stackhound_corpus::path("perfview-net452-x64.etl") else { return };
    let stacks = &info(&path)["stacks"];
    let expected = serde_json::json!({
        "PerfInfo/SampledProfile": 6776,
        "DiskIo/ReadInit": 2316,
        "PageFault/HardFault": 157,
        "Image/Load": 70,
        "DiskIo/WriteInit": 22,
        "Thread/Start": 16,
        "DiskIo/FlushInit": 2,
    });
    assert_eq!(stacks["by_triggering_event"], expected);
    for (key, expected) in [
        ("full", 252),
        ("keyed", 9107),
        ("extended", 655),
        ("groups", 7746),
        ("attributed_parts", 9359),
        ("orphaned_parts", 0),
        ("unresolved_keys", 0),
        ("ambiguous_parts", 0),
    ] {
        assert_eq!(stacks[key], expected, "{key}");
    }
}

/// Every event except the stack records is written once, in time order.
#[test]
fn events_are_ordered_and_complete() {
    let check = |name: &str| {
        let Some(path) = stackhound_corpus::path(name) else { return };
        let found = info(&path);
        let hook_ids = &found["kernel_hook_ids"];
        let stack_records: u64 = ["1820", "1822", "1823", "1824", "1825", "1826"]
            .iter()
            .filter_map(|hook_id| hook_ids[hook_id].as_u64())
            .sum();
        let lines = stackhound(&["events", "--format", "ndjson", "--stacks"], &[&path]);
        let mut last = i64::MIN;
        let mut count = 0;
        for line in lines.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
            let event: Value = serde_json::from_slice(line).expect("a line of JSON");
            let time = event["ts"].as_i64().unwrap();
            assert!(time >= last, "{name}: {event}");
            last = time;
            count += 1;
            assert!(!event["event"].as_str().unwrap().starts_with("StackWalk"), "{event}");
        }
        assert_eq!(count, found["events"].as_u64().unwrap() - stack_records, "{name}");
    };
    std::thread::scope(|scope| {
        scope.spawn(|| check("perfview-net452-x64.etl"));
        check("airbus-ShutdownPerfDiagLogger.etl");
        check("msbuild-PerfViewData.etl");
    });
}

/// The output does not depend on the number of threads or the order of buffers in the file.
#[test]
fn output_does_not_depend_on_threads_or_file_order() {
    // A larger one with `STACKHOUND_WHOLE_CORPUS=1`.
    let name = match std::env::var_os("STACKHOUND_WHOLE_CORPUS") {
        Some(_) => "perfview-net452-x64.etl",
        None => "perfview-diaghub.user_paged.1.etl",
    };
    let Some(bytes) = stackhound_corpus::etl_file(name) else { return };
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("plain.etl");
    std::fs::write(&plain, &bytes).unwrap();
    let events = |threads: &str, path: &Path| {
        stackhound(&["events", "--format", "ndjson", "--stacks", "--threads", threads], &[path])
    };
    let shuffled = folder.path().join("shuffled.etl");
    std::fs::write(&shuffled, shuffle(&bytes, 12345)).unwrap();
    let (expected, of_shuffled) = std::thread::scope(|scope| {
        let other = scope.spawn(|| events("1", &shuffled));
        (events("1", &plain), other.join().unwrap())
    });
    assert!(expected.len() > 10_000_000);
    assert!(of_shuffled == expected, "shuffled buffers");
    for threads in ["2", "4"] {
        assert!(events(threads, &plain) == expected, "{threads} threads");
    }
}

/// The header buffer, then the data buffers in a random order.
fn shuffle(bytes: &[u8], mut state: u64) -> Vec<u8> {
    let mut buffers = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let size = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        buffers.push(&bytes[at..at + size]);
        at += size;
    }
    for last in (2..buffers.len()).rev() {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        buffers.swap(last, 1 + (state >> 33) as usize % last);
    }
    buffers.concat()
}
