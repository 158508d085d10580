//! Common programs: each return is matched with its call.
//!
//! Each program is recorded for a short time: `.ci/run` does it, ordinary runs of tests do not.
//! `scripts/exact-check.sh` runs the same test for 1.5 million transitions, and with `--long` until
//! the programs end.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::support::{record, skip, tool, words};

/// The default number of transitions.
const TRANSITIONS: u64 = 100_000;

/// The number of transitions to record: `STACKHOUND_EXACT_TRANSITIONS`, a number or `all`.
fn transitions() -> u64 {
    match std::env::var("STACKHOUND_EXACT_TRANSITIONS").as_deref() {
        Ok("all") => u64::MAX,
        Ok(number) => number.parse().expect("a number of transitions, or all"),
        Err(_) => TRANSITIONS,
    }
}

/// The compiler itself, which `cc` would start as a child.
fn compiler() -> Option<PathBuf> {
    let output = Command::new("cc").arg("-print-prog-name=cc1").output().ok()?;
    let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    path.is_absolute().then_some(path)
}

/// The Python interpreter itself, because `python3` may be a script that starts it.
fn python() -> Option<PathBuf> {
    let output = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output().ok()?;
    let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    path.is_absolute().then_some(path)
}

/// The commands whose programs are installed. They write to `folder`.
fn commands(folder: &Path) -> Vec<Vec<OsString>> {
    let file = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let numbers: String = (0..3_000).map(|number| format!("{number} {}\n", number * number)).collect();
    let text = file("numbers.txt", &numbers);
    let function = |number: usize| {
        format!(
            "int f{number}(int n) {{ int s = {number}; for (int i = 0; i < n; i++) s += i * s; return s; }}\n"
        )
    };
    let source = file("source.c", &(0..4).map(function).collect::<String>());
    let assembly = folder.join("source.s").to_str().unwrap().to_owned();
    let json = "import json; d = {str(n): [n, n / 7, None] for n in range(300)}; assert json.loads(json.dumps(d)) == d";
    let shell = "f() { [ $1 -gt 0 ] && f $(($1 - 1)); }; f 40; x=$(echo 1); case $x in 1) :;; esac";
    let mut found = Vec::new();
    let mut add = |program: Option<PathBuf>, name: &str, arguments: &[&str]| match program {
        Some(program) => found.push(words(&program, arguments)),
        None => skip(&format!("there is no {name}")),
    };
    add(tool("ls"), "ls", &["-l", folder.to_str().unwrap()]);
    add(tool("gzip"), "gzip", &["-kf", &text]);
    add(python(), "python3", &["-S", "-c", json]);
    add(tool("bash"), "bash", &["-c", shell]);
    add(compiler(), "C compiler", &["-quiet", "-O1", &source, "-o", &assembly]);
    found
}

#[test]
#[ignore = "takes long; .ci/run runs it"]
fn all_returns_are_matched() {
    let folder = tempfile::tempdir().unwrap();
    println!(
        "{:<10} {:>12} {:>11} {:>11} {:>11} {:>6} {:>9} {:>9} {:>10} {:>7}",
        "program",
        "transitions",
        "calls",
        "returns",
        "matched",
        "below",
        "as jumps",
        "elsewhere",
        "tail calls",
        "steps/s"
    );
    for command in commands(folder.path()) {
        let name = Path::new(&command[0]).file_name().unwrap().to_string_lossy().into_owned();
        let started = std::time::Instant::now();
        let recording = record(&command, transitions());
        let seconds = started.elapsed().as_secs_f64();
        let totals = recording.totals;
        println!(
            "{name:<10} {:>12} {:>11} {:>11} {:>11} {:>6} {:>9} {:>9} {:>10} {:>7.0}",
            totals.transitions,
            totals.calls,
            totals.returns,
            totals.returns_matched,
            totals.returns_below,
            totals.returns_as_jumps,
            totals.returns_elsewhere,
            totals.tail_calls,
            totals.transitions as f64 / seconds
        );
        assert!(totals.transitions >= 50_000 && totals.returns > 300, "{name}: {totals:?}");
        // These programs do not manipulate their stacks, so all returns match.
        assert_eq!(totals.returns_matched, totals.returns, "{name}: {totals:?}");
        assert_eq!((totals.refused, recording.trace.frame_count()), (0, totals.frames), "{name}");
        // A frame for each call, one for the code before the first call of each stack, and two for
        // each signal.
        assert_eq!(totals.frames, totals.calls + totals.stacks + 2 * totals.signals, "{name}: {totals:?}");
    }
}
