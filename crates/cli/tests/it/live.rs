//! Live sessions on the command line, on every system: parsing of arguments, and the errors on
//! systems without sessions. `scripts/live-cli-check.sh` runs sessions in Wine.

use std::path::Path;

#[cfg(not(windows))]
use crate::program::refused;
use crate::program::{stackhound, text};

#[cfg(not(windows))]
fn elsewhere() -> String {
    let exact = if cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        ", and `stackhound record --exact -- PROGRAM` records the calls of one program"
    } else {
        ""
    };
    format!(
        "live sessions need Windows; here, `stackhound events FILE.etl` reads a trace that was recorded on Windows{exact}"
    )
}

#[cfg(not(windows))]
#[test]
fn live_events_need_windows() {
    for more in [
        &[][..],
        &["--stacks", "--format", "ndjson", "--where", "pid = 4"],
        &["--preset", "syscalls", "--buffers", "low-latency", "--for", "30s"],
        &["--preset", "enrichment", "--session", "mine", "--replace"],
        &["--provider", "{7dd42a49-5329-4832-8dfd-43d979153a88}:0x10:4"],
        &["--provider", "Microsoft-Windows-Kernel-Network::verbose", "--provider", "A-B"],
        &["--attach", "EventLog-System", "--provider", "Microsoft-Windows-*"],
    ] {
        refused(&[&["events", "--live"], more].concat(), &elsewhere());
    }
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[test]
fn recording_a_session_needs_windows() {
    let sentence = "recording a session needs Windows; here, `stackhound record --exact -- PROGRAM` records the calls \
                    of one program, and `stackhound events FILE.etl` reads a trace";
    for arguments in [
        &["record"][..],
        &["record", "-o", "x.etl", "--for", "5s", "--preset", "syscalls"],
        &["record", "--provider", "Microsoft-Windows-DNS-Client:0x10", "--stacks"],
        &["record", "--list"],
        &["record", "--stop", "mine"],
    ] {
        refused(arguments, sentence);
    }
}

/// Checks that the parser of arguments refuses them, with this text in the message.
#[track_caller]
fn misused(arguments: &[&str], part: &str) {
    let output = stackhound(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    assert!(errors.contains(part), "{arguments:?}: {errors}");
}

#[test]
fn arguments_that_contradict_each_other_are_refused_everywhere() {
    misused(&["events"], "<FILE>...");
    let file = text(Path::new("trace.etl"));
    for live in [&["--live"][..], &["--attach", "mine"], &["--preset", "syscalls"], &["--for", "5s"]] {
        misused(&[&["events", file], live].concat(), "cannot be used with");
    }
    misused(&["events", "--attach", "mine"], "--live");
    misused(&["events", "--preset", "syscalls"], "<FILE>...");
    misused(&["events", "--live", "--attach", "mine", "--preset", "syscalls"], "cannot be used with");
    misused(&["events", "--live", "--replace"], "--session");
    misused(&["events", "--live", "--preset", "everything"], "syscalls, enrichment or switches");
    misused(&["events", "--live", "--buffers", "huge"], "throughput or low-latency");
    misused(&["events", "--live", "--for", "soon"], "is not a valid duration");
    misused(&["record", "--exact"], "<--system <KERNEL>|PROGRAM>");
    misused(&["record", "--", "true"], "--exact");
    misused(&["record", "--exact", "--preset", "syscalls", "--", "true"], "cannot be used with");
    misused(&["record", "--limit", "5"], "--exact");
    misused(&["record", "--list", "--stop", "mine"], "cannot be used with");
    misused(&["record", "--list", "-o", "x.etl"], "cannot be used with");
    misused(&["record", "--provider", "A:many"], "not a keyword mask");
    misused(&["record", "--provider", "A:0x10:loud"], "not a level");
}

#[test]
fn providers_are_parsed_before_a_session_starts() {
    misused(&["events", "--live", "--provider", "A:many"], "`many` is not a keyword mask");
    misused(&["events", "--live", "--provider", ":0x10"], "does not name a provider");
    misused(&["events", "--live", "--where", "pid ="], "pid =");
}

#[test]
fn help_is_the_same_everywhere() {
    for (verb, parts) in [
        (
            "events",
            &["--live", "--attach <SESSION>", "--preset <PRESET>", "--buffers <BUFFERS>", "--for <TIME>"][..],
        ),
        ("record", &["--exact", "--list", "--stop <SESSION>", "--replace", "--output <FILE>"]),
    ] {
        let output = stackhound(&[verb, "--help"]);
        let text = String::from_utf8(output.stdout).unwrap();
        for part in parts {
            assert!(text.contains(part), "{verb}: {part}: {text}");
        }
    }
}
