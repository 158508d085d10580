//! Filters on the demo: they use all names and facts, including those that are not shown.

use std::collections::BTreeMap;
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

/// The demo trace and its symbols, generated once.
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
type RecordKey = (i64, u64);

/// The selected events, as raw time and processor, and the closing line.
fn chosen(arguments: &[&str]) -> (Vec<RecordKey>, String) {
    let (trace, symbols) = demo();
    let fixed = ["events", trace, "--symbol-path", symbols, "--no-progress", "--format", "ndjson"];
    let output = stackhound(&[&fixed[..], arguments].concat());
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{errors}");
    let location = |line: &str| {
        let event: Value = serde_json::from_str(line).unwrap();
        (event["ts"].as_i64().unwrap(), event["cpu"].as_u64().unwrap())
    };
    (String::from_utf8(output.stdout).unwrap().lines().map(location).collect(), errors)
}

/// System calls with the names of all their frames, if everything is named. `None` for frames in
/// modules without a name.
fn calls() -> Vec<(RecordKey, Vec<Option<String>>)> {
    let (trace, symbols) = demo();
    let options = ["--symbols", "full", "--stacks", "--event", "PerfInfo/SysCallEnter", "--format", "ndjson"];
    let output = stackhound(&[&["events", "-q", trace, "--symbol-path", symbols], &options[..]].concat());
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
fn filters_use_names_that_are_not_shown() {
    let calls = calls();
    let wanted = "ntdll.dll!NtCreateFile";
    let expected: Vec<_> = calls
        .iter()
        .filter(|(_, names)| names.iter().any(|name| name.as_deref() == Some(wanted)))
        .map(|(location, _)| *location)
        .collect();
    assert!(expected.len() > 50, "{}", expected.len());
    let filter = format!("event = PerfInfo/SysCallEnter and stack.symbol = '{wanted}'");
    // High-volume events show only modules, and with --symbols off only addresses.
    for shown in [&[][..], &["--symbols", "modules"], &["--symbols", "off"], &["--symbols", "full"]] {
        let (found, errors) = chosen(&[shown, &["--where", &filter]].concat());
        assert_eq!(found, expected, "{shown:?}: {errors}");
    }
}

#[test]
fn negations_are_undecided_for_frames_without_names() {
    let filter = "event = PerfInfo/SysCallEnter and not stack.symbol ~ 'ntdll.dll!?*'";
    let (found, _) = chosen(&["--where", filter]);
    let calls = calls();
    for location in &found {
        let (_, names) = calls.iter().find(|(known, _)| known == location).unwrap();
        let is_other =
            |name: &Option<String>| name.as_ref().is_some_and(|name| !name.starts_with("ntdll.dll!"));
        assert!(names.iter().all(is_other), "{location:?}: {names:?}");
    }
    // Without symbol files, stacks with frames in the module are undecided if the name decides.
    let filter = "event = PerfInfo/SysCallEnter and not stack.symbol ~ 'ntdll.dll!Zw*'";
    let output = unnamed(&["events", "--where", filter]);
    let errors = String::from_utf8(output.stderr).unwrap();
    let others = "event = PerfInfo/SysCallEnter and not stack.module = 'ntdll.dll'";
    assert_eq!(output.stdout, unnamed(&["events", "--where", others]).stdout);
    assert!(errors.contains(" events undecided (missing: stack.symbol "), "{errors}");
}

/// The output for the demo without symbol files.
fn unnamed(arguments: &[&str]) -> Output {
    let (trace, _) = demo();
    stackhound(&[arguments, &[trace, "--symbol-path", "", "--no-progress"]].concat())
}

#[test]
fn the_module_decides_where_it_can() {
    let calls = "event = PerfInfo/SysCallEnter and";
    let all = chosen(&["--event", "PerfInfo/SysCallEnter"]).0;
    let filter = format!("{calls} not stack.symbol ~ 'zzz.dll!Nt*'");
    // In the loss interval of the demo, code outside of modules can be in one that is not known.
    let (found, errors) = chosen(&["--where", &filter]);
    let undecided = all.len() - found.len();
    assert!(found.iter().all(|location| all.contains(location)) && undecided < all.len() / 100);
    assert!(errors.contains(&format!("{undecided} events undecided")), "{errors}");
    let output = unnamed(&["events", "--where", &filter]);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), found.len());
    assert!(errors.contains(&format!("{undecided} events undecided")), "{errors}");
    // All names of ntdll.dll match, and nearly all system calls have such a frame.
    let filter = format!("{calls} stack.symbol ~ 'ntdll.dll!*'");
    let (found, _) = chosen(&["--where", &filter]);
    let output = unnamed(&["events", "--where", &filter]);
    assert!(found.len() > 1_000 && found.len() == String::from_utf8(output.stdout).unwrap().lines().count());
}

#[test]
fn a_filter_finds_the_direct_system_calls_that_hunt_finds() {
    let (trace, symbols) = demo();
    let filter = "event = PerfInfo/SysCallEnter and stack.state = 'complete' \
                  and not stack.symbol ~ 'ntdll.dll!Nt*' and not stack.symbol ~ 'win32u.dll!Nt*'";
    let (found, errors) = chosen(&["--where", filter]);
    assert!(!errors.contains("undecided"), "{errors}");
    let hunted =
        stackhound(&["hunt", "-q", trace, "--symbol-path", symbols, "--exit-zero", "--format", "ndjson"]);
    let findings = String::from_utf8(hunted.stdout).unwrap();
    let direct = findings.lines().filter_map(|line| {
        let finding: Value = serde_json::from_str(line).unwrap();
        let is_direct = matches!(finding["detection"].as_str(), Some("CS01" | "CS02"));
        let is_call = finding["event"] == "PerfInfo/SysCallEnter";
        (is_direct && is_call).then(|| finding["time"].as_str().unwrap().to_owned())
    });
    let direct: Vec<String> = direct.collect();
    let times =
        stackhound(&["events", "-q", trace, "--symbol-path", symbols, "--format", "csv", "--where", filter]);
    let times = String::from_utf8(times.stdout).unwrap();
    let times: Vec<String> =
        times.lines().skip(1).map(|line| line.split(',').next().unwrap().to_owned()).collect();
    assert_eq!(times, direct);
    assert_eq!(found.len(), direct.len());
    assert!(!direct.is_empty());
}

/// Events for which a filter has no answer are missing in every output, so every verb reports them.
#[test]
fn undecided_events_are_reported_even_if_the_program_is_quiet() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| text(&folder.path().join(name)).to_owned();
    let (cut, profile, tables) = (path("cut.etl"), path("profile.folded"), path("tables/"));
    let (trace, _) = demo();
    let where_ = ["--where", "not stack.symbol ~ 'ntdll.dll!Zw*'"];
    for verb in [
        &["events"][..],
        &["events", "--format", "csv"],
        &["events", "--format", "ndjson"],
        &["stacks"],
        &["stacks", "--format", "folded"],
        &["top", "cpu"],
        &["top", "wait", "--format", "csv"],
        &["hunt", "--exit-zero"],
        &["diff", trace],
        &["profile", "-o", &profile],
        &["convert", "-o", &cut],
        &["convert", "--again", "-o", &tables],
    ] {
        // Without `-q`, the same line is written at the end of other ones.
        let quiets: &[&[&str]] = if verb == ["events"] { &[&[], &["-q"]] } else { &[&["-q"]] };
        for &quiet in quiets {
            let output = unnamed(&[verb, quiet, &where_[..]].concat());
            let errors = String::from_utf8(output.stderr).unwrap();
            assert!(output.status.success(), "{verb:?}: {errors}");
            let is_it = |line: &&str| line.contains(" undecided (missing: stack.symbol ");
            assert!(errors.lines().any(|line| is_it(&line)), "{verb:?} {quiet:?}: {errors}");
            assert!(quiet.is_empty() || errors.lines().all(|line| is_it(&line)), "{verb:?}: {errors}");
        }
    }
}

#[test]
fn no_match_lists_events_and_processes() {
    let (trace, _) = demo();
    for verb in [&["events"][..], &["stacks"], &["profile", "--format", "folded"], &["hunt"]] {
        let output = stackhound(&[verb, &["--no-progress", "--process", "nosuch.exe", trace]].concat());
        let errors = String::from_utf8(output.stderr).unwrap();
        let is_it = |line: &&str| line.starts_with("0 of ") && line.contains(" events match; events: ");
        let line = errors.lines().find(is_it).unwrap_or_else(|| panic!("{errors}"));
        assert!(line.contains("Thread/CSwitch"), "{line}");
        assert!(line.contains("; processes: ") && line.contains(" more"), "{line}");
    }
    let (_, errors) = chosen(&["--event", "Process/*"]);
    assert!(!errors.contains(" events match"), "{errors}");
}

#[test]
fn a_missing_field_is_neither_equal_nor_different() {
    for filter in [
        "fields.FileName = 'x'",
        "fields.FileName != 'x'",
        "not fields.FileName = 'x'",
        "not create.requested = 'open'",
    ] {
        let filter = format!("event = Thread/CSwitch and {filter}");
        let (found, errors) = chosen(&["--where", &filter]);
        assert_eq!(found.len(), 0, "{filter}");
        assert!(errors.contains(" events undecided (missing: "), "{filter}: {errors}");
    }
}

/// Lines of events, each with the lines of its frames, without mode and address.
fn printed(arguments: &[&str]) -> Vec<(String, Vec<String>)> {
    let (trace, symbols) = demo();
    let fixed = ["events", "-q", trace, "--symbol-path", symbols, "--symbols", "full", "--stacks"];
    let output = stackhound(&[&fixed[..], arguments].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut events: Vec<(String, Vec<String>)> = Vec::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let frame = line.strip_prefix("    user ").or_else(|| line.strip_prefix("    kernel "));
        match frame.map(|frame| frame.trim_start()) {
            // The modules of the stack.
            Some(frame) if frame.starts_with("modules ") => {}
            Some(frame) => {
                // The memory follows frames outside of images.
                let frame = frame.split_once(" in 0x").map_or(frame, |(frame, _)| frame);
                // The address precedes the name. It is also the name of frames without a module.
                let (address, name) = frame.split_once(' ').unwrap_or((frame, ""));
                let name = if name.starts_with('(') || name.is_empty() { frame } else { name };
                assert!(address.starts_with("0x"), "{frame}");
                events.last_mut().expect("an event before its frames").1.push(name.to_owned());
            }
            None if !line.starts_with(' ') => events.push((line.to_owned(), Vec::new())),
            None => {}
        }
    }
    events
}

#[test]
#[ignore = "slow: run by .ci/run"]
fn every_printed_name_selects_its_events() {
    let events = printed(&[]);
    let mut with_name: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (event, frames) in &events {
        for name in frames {
            let events = with_name.entry(name).or_default();
            if events.last() != Some(&event.as_str()) {
                events.push(event);
            }
        }
    }
    // Some of each form: functions by origin, modules without functions, addresses without modules.
    let form = |name: &str| match (name.contains('!'), name.split_once(['[', '('])) {
        (true, Some((_, origin))) => origin.to_owned(),
        (false, Some((_, memory))) => memory.to_owned(),
        _ => "module".to_owned(),
    };
    let mut tried: BTreeMap<String, usize> = BTreeMap::new();
    let mut chosen = Vec::new();
    for (name, expected) in with_name {
        let count = tried.entry(form(name)).or_default();
        *count += 1;
        if *count <= 3 {
            chosen.push((name, expected));
        }
    }
    assert!(tried.len() >= 4, "{tried:?}");
    let check = |(name, expected): &(&str, Vec<&str>)| {
        let selected = |text: &str| -> Vec<String> {
            let filter = format!("stack.symbol = '{text}'");
            printed(&["--where", &filter]).into_iter().map(|(event, _)| event).collect()
        };
        assert_eq!(selected(name), *expected, "{name}");
        // Without origin, without offset, without module and without extension.
        let mut shorter = vec![];
        if let Some((plain, _)) = name.split_once(" [") {
            let function = plain.rsplit_once("+0x").unwrap().0;
            let (module, symbol) = function.split_once('!').unwrap();
            let stem = module.rsplit_once('.').map_or(module, |(stem, _)| stem);
            shorter =
                vec![plain.to_owned(), function.to_owned(), symbol.to_owned(), format!("{stem}!{symbol}")];
        }
        for text in shorter {
            let selected = selected(&text);
            assert!(expected.iter().all(|event| selected.iter().any(|known| known == event)), "{text}");
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| chosen.iter().step_by(2).for_each(check));
        chosen.iter().skip(1).step_by(2).for_each(check);
    });
}

#[test]
fn fields_are_compared_with_fields() {
    let (trace, symbols) = demo();
    let output = stackhound(&["events", "-q", trace, "--symbol-path", symbols, "--format", "ndjson"]);
    let (mut same, mut other) = (Vec::new(), Vec::new());
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        let number = |value: &Value| match value {
            Value::String(text) => u64::from_str_radix(text.strip_prefix("0x")?, 16).ok(),
            value => value.as_u64(),
        };
        if let (Some(pid), Some(named)) = (number(&event["pid"]), number(&event["fields"]["ProcessId"])) {
            let location = (event["ts"].as_i64().unwrap(), event["cpu"].as_u64().unwrap());
            if pid == named { same.push(location) } else { other.push(location) }
        }
    }
    assert!(same.len() > 5 && other.len() > 5, "{} {}", same.len(), other.len());
    assert_eq!(chosen(&["--where", "pid = fields.ProcessId"]).0, same);
    assert_eq!(chosen(&["--where", "not pid = fields.ProcessId"]).0, other);
    let (found, errors) = chosen(&["--where", "pid != fields.ProcessId"]);
    assert_eq!(found, other);
    // Events without the field are undecided.
    assert!(errors.contains(" events undecided (missing: fields.ProcessId "), "{errors}");
}

#[test]
fn text_needs_quotes() {
    let (trace, _) = demo();
    for (filter, message, caret) in [
        ("process = svchost.exe", "`svchost.exe` is not a field; put text in quotes", 10),
        ("pid = 99999999999999999999999999", "number of more than 64 bits", 6),
        ("stack.symbol i~ ('a', b)", "`b` is not a field; put text in quotes", 22),
    ] {
        for verb in ["events", "stacks", "hunt"] {
            let output = stackhound(&[verb, trace, "--where", filter]);
            let errors = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(2), "{errors}");
            assert!(errors.contains(message), "{errors}");
            assert!(errors.lines().any(|line| line == format!("  {}^", " ".repeat(caret))), "{errors}");
        }
    }
    // Names of events need no quotes.
    assert!(!chosen(&["--where", "event = Process/Start"]).0.is_empty());
}

#[test]
fn unknown_modules_are_reported() {
    let report = |module: &str| format!("No module of the trace matches `{module}`.");
    for (filter, module) in [
        ("stack.symbol i~ ('ntdl!Nt*', 'ntdll!Nt*')", Some("ntdl")),
        ("stack.symbol = 'nosuch.dll!NtClose' or pid = 4", Some("nosuch.dll")),
        ("stack.module = 'nosuch.dll'", Some("nosuch.dll")),
        ("stack.symbol ~ 'jit:clr!*'", Some("jit:clr")),
        ("stack.symbol ~ 'ntdll!Nt*' or stack.symbol ~ 'ntoskrnl.exe!*' or stack.symbol = 'NtClose'", None),
        ("stack.module in ('ntdll', 'ntdll.dll') or stack.module ~ '*.exe'", None),
    ] {
        let (_, errors) = chosen(&["--where", filter]);
        match module {
            Some(module) => assert!(errors.contains(&report(module)), "{filter}: {errors}"),
            None => assert!(!errors.contains("No module"), "{filter}: {errors}"),
        }
    }
    let (trace, symbols) = demo();
    let calls = |pattern: &str| {
        let output = stackhound(&["calls", trace, pattern, "--symbol-path", symbols, "--merge"]);
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(calls("ntdl!Nt*").contains(&report("ntdl!Nt*")));
    for pattern in ["ntdll!Nt*", "ntdll.dll!Nt*", "Nt*"] {
        assert!(!calls(pattern).contains("No module"), "{pattern}");
    }
}

#[test]
fn kernel_frames_are_named_on_request() {
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
