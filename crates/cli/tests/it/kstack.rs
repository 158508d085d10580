//! `kstack` on the demo trace and on a running process: formats, selections, times, names and
//! errors.

use std::path::Path;
use std::process::Command;

use crate::demonstration::{demo, run};
use serde_json::Value;

const TRACE: [&str; 4] = ["kstack", "-q", "--trace", "stackhound-demo.etl"];

fn printed(folder: &Path, more: &[&str]) -> String {
    let output = run(folder, &[&TRACE, more].concat());
    assert!(output.status.success(), "{more:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn threads(folder: &Path, more: &[&str]) -> Vec<Value> {
    let text = printed(folder, &[more, &["--format", "json"]].concat());
    let all: Value = serde_json::from_str(&text).unwrap();
    assert!(all["time"].as_str().is_some_and(|time| time.ends_with('Z')), "{}", all["time"]);
    all["threads"].as_array().unwrap().clone()
}

/// Checks that a thread is shown as documented: each part has either frames or a reason for their
/// absence.
fn is_well_formed(thread: &Value, with_user: bool) {
    assert!(thread["tid"].is_u64() && thread["pid"].is_u64(), "{thread}");
    for part in ["kernel", "user"] {
        let (frames, absent) = (&thread[part], &thread[format!("{part}_absent")]);
        if part == "user" && !with_user {
            assert!(thread.get("user").is_none() && thread.get("user_absent").is_none());
            continue;
        }
        match frames.as_array() {
            Some(frames) => {
                assert!(!frames.is_empty() && absent.is_null(), "{thread}");
                assert!(frames.iter().all(|frame| frame["mode"] == part), "{thread}");
                assert!(frames.iter().all(|frame| frame["address"].as_str().unwrap().starts_with("0x")));
            }
            None => assert!(frames.is_null() && absent.is_string(), "{thread}"),
        }
    }
    let evidence = &thread["capture"];
    assert_eq!(evidence.is_null(), thread["kernel"].is_null(), "{thread}");
    if evidence.is_null() {
        return;
    }
    let certainty = if evidence["relation"] == "resumed" { "inferred" } else { "observed" };
    assert_eq!((&evidence["kind"], &evidence["certainty"]), (&"switch".into(), &certainty.into()));
    assert_eq!(evidence["relation"] == "resumed", evidence["age_ns"].as_i64().unwrap() < 0, "{thread}");
}

#[test]
fn every_format_shows_the_same_threads() {
    let folder = demo();
    let at = ["--at", "+40ms", "--user"];
    let all = threads(folder.path(), &at);
    assert!(all.len() > 20, "{} threads", all.len());
    all.iter().for_each(|thread| is_well_formed(thread, true));
    let relation = |wanted: &str| all.iter().filter(|thread| thread["capture"]["relation"] == wanted).count();
    assert!(relation("last") > 0 && relation("resumed") > 0, "{all:?}");

    let lines = printed(folder.path(), &[&at[..], &["--format", "ndjson"]].concat());
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines, all);

    let table = printed(folder.path(), &at);
    for thread in &all {
        let head = format!(
            "{} ({}), thread {}",
            thread["process"]["name"].as_str().unwrap(),
            thread["pid"],
            thread["tid"]
        );
        assert!(table.lines().any(|line| line.starts_with(&head)), "{head}\n{table}");
    }
    let shown = table.lines().filter(|line| line.contains(" kernel ") && !line.contains(" none: ")).count();
    let frames = all.iter().filter_map(|thread| thread["kernel"].as_array()).map(Vec::len).sum::<usize>();
    assert_eq!(shown, frames);
}

#[test]
fn processes_and_threads_are_selected() {
    let folder = demo();
    let all = threads(folder.path(), &[]);
    all.iter().for_each(|thread| is_well_formed(thread, false));
    let (pid, tid) = (&all[0]["pid"], &all[0]["tid"]);
    let (pid_text, tid_text) = (pid.to_string(), tid.to_string());
    let of_process = threads(folder.path(), &["--pid", &pid_text]);
    let expected: Vec<_> = all.iter().filter(|thread| thread["pid"] == *pid).cloned().collect();
    assert_eq!(of_process, expected);
    assert_eq!(threads(folder.path(), &["--pid", &pid_text, "--tid", &tid_text]), all[..1]);
    assert_eq!(threads(folder.path(), &["--tid", &tid_text]), all[..1]);
}

#[test]
fn functions_are_named_as_in_other_verbs() {
    let folder = demo();
    let named = threads(folder.path(), &["--symbol-path", "srv*symbols"]);
    let frames = || named.iter().filter_map(|thread| thread["kernel"].as_array()).flatten();
    assert!(frames().all(|frame| frame["module"].is_string() && frame["rva"].is_string()));
    // The kernel image in the store has exports, but no PDB.
    let is_named =
        |frame: &&Value| frame["symbol"] == frame["nearest_export"]["name"] && frame["symbol"].is_string();
    assert!(frames().filter(is_named).count() > 10, "the store has the kernel's exports");
    let bare = threads(folder.path(), &["--symbols", "off"]);
    let mut frames = bare.iter().filter_map(|thread| thread["kernel"].as_array()).flatten();
    assert!(frames.all(|frame| frame["module"].is_null() && frame.get("symbol").is_none()));
}

#[test]
fn the_known_threads_do_not_depend_on_passes_and_worker_threads() {
    let folder = demo();
    let expected = printed(folder.path(), &["--format", "ndjson", "--user", "--threads", "1"]);
    assert_eq!(printed(folder.path(), &["--format", "ndjson", "--user", "--threads", "4"]), expected);
    let once = threads(folder.path(), &["--one-pass", "--user"]);
    once.iter().for_each(|thread| is_well_formed(thread, true));
    // Stack keys are defined at the end of a trace, so some stacks are known only with two passes.
    let keys = |threads: &[Value]| threads.iter().map(|thread| thread["tid"].clone()).collect::<Vec<_>>();
    assert_eq!(keys(&once), keys(&threads(folder.path(), &["--user"])));
}

#[test]
fn missing_threads_and_times_are_reported_in_one_sentence() {
    let folder = demo();
    let refused = |arguments: &[&str], part: &str| {
        let output = run(folder.path(), arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
        assert!(output.stdout.is_empty() && errors.contains(part), "{arguments:?}: {errors}");
    };
    refused(&[&TRACE[..], &["--pid", "77777"]].concat(), "error: there is no process 77777");
    refused(&[&TRACE[..], &["--tid", "77777"]].concat(), "error: there is no thread 77777");
    let early = [&TRACE[..], &["--at", "2023-12-31T23:59:59Z"]].concat();
    refused(&early, "2023-12-31T23:59:59.0000000Z is before the trace, which begins at 2024-01-01T00:00:00");
    assert!(!printed(folder.path(), &["--at", "+0"]).is_empty());
    refused(&["kstack"], "--pid");
    refused(&["kstack", "--trace", "missing.etl"], "missing.etl");
    refused(&["kstack", "--pid", "4", "--at", "+1s"], "--trace");
    refused(&["kstack", "--live", "--trace", "stackhound-demo.etl"], "cannot be used with");
    if cfg!(not(windows)) {
        refused(&["kstack", "--live", "--for", "1s"], "live sessions need Windows");
    }
    if cfg!(target_os = "linux") {
        refused(
            &["kstack", "--pid", "4294967295"],
            "error: there is no process 4294967295; it has ended, or never existed",
        );
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_running_process_is_shown_or_refused_in_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    let pid = child.id().to_string();
    // The child process needs some time to start the program and to sleep.
    let mut output = run(folder.path(), &["kstack", "--pid", &pid, "--user", "--format", "json"]);
    for _ in 0..500 {
        let sleeps = String::from_utf8_lossy(&output.stdout).contains("nanosleep");
        if !output.status.success() || sleeps {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
        output = run(folder.path(), &["kstack", "--pid", &pid, "--user", "--format", "json"]);
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains("/proc/PID/task/TID/stack"), "{errors}");
        println!("skipped: {errors}");
        return;
    }
    let all: Value = serde_json::from_slice(&output.stdout).unwrap();
    let thread = &all["threads"][0];
    let frames = thread["kernel"].as_array().unwrap();
    assert!(frames.iter().any(|frame| frame["symbol"].as_str().unwrap().contains("nanosleep")), "{thread}");
    assert!(frames.iter().all(|frame| frame["origin"] == "kernel" && frame["address"].is_null()), "{thread}");
    assert_eq!(
        (&thread["process"]["name"], &thread["user_absent"]),
        (&"sleep".into(), &"kernel-only".into())
    );
    assert_eq!(thread["capture"]["kind"], "proc");
}
