//! Filters on the demo: what they select is what all names and facts say, whatever is shown.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::OnceLock;

use serde_json::Value;

fn stackhound(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stackhound")).args(arguments).output().expect("the program runs")
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The demo's recording and its symbols, made once.
fn demo() -> (&'static str, &'static str) {
    static DEMO: OnceLock<(tempfile::TempDir, String, String)> = OnceLock::new();
    let (_, trace, symbols) = DEMO.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let made = stackhound(&["demo", "-q", "--out", text(folder.path())]);
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let [trace, symbols] =
            ["stackhound-demo.etl", "symbols"].map(|name| text(&folder.path().join(name)).to_owned());
        (folder, trace, symbols)
    });
    (trace, symbols)
}

/// Raw time and processor of an event.
type Place = (i64, u64);

/// The events that pass, as raw time and processor, and the closing line.
fn chosen(arguments: &[&str]) -> (Vec<Place>, String) {
    let (trace, symbols) = demo();
    let fixed = ["events", trace, "--symbol-path", symbols, "--no-progress", "--format", "ndjson"];
    let output = stackhound(&[&fixed[..], arguments].concat());
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{errors}");
    let place = |line: &str| {
        let event: Value = serde_json::from_str(line).unwrap();
        (event["ts"].as_i64().unwrap(), event["cpu"].as_u64().unwrap())
    };
    (String::from_utf8(output.stdout).unwrap().lines().map(place).collect(), errors)
}

/// System calls with the names of all their frames, as shown when everything is named; `None` where one that could have
/// a name has none.
fn calls() -> Vec<(Place, Vec<Option<String>>)> {
    let (trace, symbols) = demo();
    let asked = ["--symbols", "full", "--stacks", "--event", "PerfInfo/SysCallEnter", "--format", "ndjson"];
    let output = stackhound(&[&["events", "-q", trace, "--symbol-path", symbols], &asked[..]].concat());
    let calls = String::from_utf8(output.stdout).unwrap();
    let call = |line: &str| {
        let event: Value = serde_json::from_str(line).unwrap();
        let names =
            event["stack"]["frames"].as_array().unwrap().iter().filter(|frame| frame["mode"] == "user");
        let name = |frame: &Value| match (frame["module"].as_str(), frame["symbol"].as_str()) {
            (Some(module), Some(name)) => Some(format!("{module}!{name}")),
            _ if frame["backing"] == "unbacked" => Some(String::new()),
            _ => None,
        };
        let names: Vec<Option<String>> = names.map(name).collect();
        ((event["ts"].as_i64().unwrap(), event["cpu"].as_u64().unwrap()), names)
    };
    calls.lines().map(call).collect()
}

#[test]
fn filters_see_names_that_are_not_shown() {
    let calls = calls();
    let wanted = "ntdll.dll!NtCreateFile";
    let expected: Vec<_> = calls
        .iter()
        .filter(|(_, names)| names.iter().any(|name| name.as_deref() == Some(wanted)))
        .map(|(place, _)| *place)
        .collect();
    assert!(expected.len() > 50, "{}", expected.len());
    let filter = format!("event = PerfInfo/SysCallEnter and stack.symbol = '{wanted}'");
    // High-volume events are shown with modules only, and with --symbols off with nothing.
    for shown in [&[][..], &["--symbols", "modules"], &["--symbols", "off"], &["--symbols", "full"]] {
        let (found, errors) = chosen(&[shown, &["--where", &filter]].concat());
        assert_eq!(found, expected, "{shown:?}: {errors}");
    }
}

#[test]
fn what_has_no_name_makes_no_negation_true() {
    let filter = "event = PerfInfo/SysCallEnter and not stack.symbol ~ 'ntdll.dll!*'";
    let (found, _) = chosen(&["--where", filter]);
    let calls = calls();
    for place in &found {
        let (_, names) = calls.iter().find(|(known, _)| known == place).unwrap();
        let is_other =
            |name: &Option<String>| name.as_ref().is_some_and(|name| !name.starts_with("ntdll.dll!"));
        assert!(names.iter().all(is_other), "{place:?}: {names:?}");
    }
    // Without symbol files, nothing is known of any stack with frames in modules.
    let (trace, _) = demo();
    let output = stackhound(&["events", trace, "--symbol-path", "", "--no-progress", "--where", filter]);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(errors.contains(" events undecided (missing: stack.symbol "), "{errors}");
}

#[test]
fn no_match_says_what_there_is() {
    let (trace, _) = demo();
    for verb in [&["events"][..], &["stacks"], &["profile", "--format", "folded"], &["hunt"]] {
        let output = stackhound(&[verb, &["--no-progress", "--process", "nosuch.exe", trace]].concat());
        let errors = String::from_utf8(output.stderr).unwrap();
        let line =
            errors.lines().find(|line| line.starts_with("0 of ")).unwrap_or_else(|| panic!("{errors}"));
        assert!(line.contains(" events match; events: ") && line.contains("Thread/CSwitch"), "{line}");
        assert!(line.contains("; processes: ") && line.contains(" more"), "{line}");
    }
    let (_, errors) = chosen(&["--event", "Process/*"]);
    assert!(!errors.contains(" events match"), "{errors}");
}

#[test]
fn a_missing_field_is_neither_equal_nor_different() {
    for filter in
        ["fields.FileName = x", "fields.FileName != x", "not fields.FileName = x", "not create.asked = open"]
    {
        let filter = format!("event = Thread/CSwitch and {filter}");
        let (found, errors) = chosen(&["--where", &filter]);
        assert_eq!(found.len(), 0, "{filter}");
        assert!(errors.contains(" events undecided (missing: "), "{filter}: {errors}");
    }
}

#[test]
fn kernel_frames_are_named_where_that_is_asked_for() {
    let (trace, symbols) = demo();
    let kernel_names = |arguments: &[&str]| {
        let fixed = ["stacks", "-q", trace, "--symbol-path", symbols, "--format", "table"];
        let output = stackhound(&[&fixed[..], arguments].concat());
        let printed = String::from_utf8(output.stdout).unwrap();
        let kernel: Vec<&str> =
            printed.lines().filter(|line| line.trim_start().starts_with("kernel ")).collect();
        assert!(!kernel.is_empty(), "{arguments:?}");
        ["!", ".exe+0x", " 0x"].map(|text| kernel.iter().filter(|line| line.contains(text)).count() > 0)
    };
    assert_eq!(kernel_names(&[]), [false, true, false]);
    assert_eq!(kernel_names(&["--symbols", "full", "--kernel-symbols", "modules"]), [false, true, false]);
    assert!(kernel_names(&["--kernel-symbols", "full"])[0]);
    assert_eq!(kernel_names(&["--kernel-symbols", "off"]), [false, false, true]);
}

#[test]
fn modules_may_be_written_without_their_extension() {
    let count = |symbol: &str| chosen(&["--where", &format!("stack.symbol = '{symbol}'")]).0.len();
    let expected = count("ntdll.dll!NtCreateFile");
    assert!(expected > 50);
    assert_eq!(count("ntdll!NtCreateFile"), expected);
    assert_eq!(count("ntdl!NtCreateFile"), 0);
    let (trace, symbols) = demo();
    let calls = |pattern: &str| {
        let output = stackhound(&["calls", "-q", trace, "--symbol-path", symbols, pattern]);
        String::from_utf8(output.stdout).unwrap().lines().count()
    };
    assert!(calls("ntdll!NtCreateFile") > 0);
    assert_eq!(calls("ntdll!NtCreateFile"), calls("ntdll.dll!NtCreateFile"));
}
