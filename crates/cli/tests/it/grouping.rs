//! Groups of frames, callers and callees in the demo trace, compared with its ungrouped stacks.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::LazyLock;

use serde_json::Value;

use crate::program::{refused, stackhound, text};

struct Demo {
    folder: tempfile::TempDir,
    etl_file: PathBuf,
}

static DEMO: LazyLock<Demo> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    assert!(stackhound(&["demo", "-q", "--out", text(folder.path())]).status.success());
    let etl_file = folder.path().join("stackhound-demo.etl");
    Demo { folder, etl_file }
});

/// The output of a verb about the demo trace, with names of functions.
fn output(verb: &[&str], options: &[&str]) -> String {
    let symbols = DEMO.folder.path().join("symbols");
    let input = ["-q", "--symbol-path", text(&symbols), text(&DEMO.etl_file)];
    let output = stackhound(&[verb, &input, options].concat());
    assert!(output.status.success(), "{options:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(verb: &[&str], options: &[&str]) -> Value {
    serde_json::from_str(&output(verb, &[options, &["--all", "--format", "json"]].concat())).unwrap()
}

fn top(metric: &str, by: &str, options: &[&str]) -> Value {
    json(&["top", metric, "--by", by], options)
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

fn names(row: &Value) -> Vec<&str> {
    row["stack"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect()
}

/// The stacks of all samples, innermost frame first, with their numbers of samples. Without the
/// process.
fn stacks() -> Vec<(Vec<String>, u64)> {
    let document = top("cpu", "stack", &[]);
    let rows = document["rows"].as_array().unwrap();
    let stack = |row: &Value| {
        let mut names: Vec<String> = names(row).into_iter().map(str::to_owned).collect();
        names.pop();
        (names, number(&row["samples"]))
    };
    rows.iter().map(stack).collect()
}

/// The number of samples whose stacks satisfy a condition.
fn samples(condition: impl Fn(&[String]) -> bool) -> u64 {
    stacks().iter().filter(|(names, _)| condition(names)).map(|(_, samples)| samples).sum()
}

fn sum(document: &Value, key: &str) -> u64 {
    document["rows"].as_array().unwrap().iter().map(|row| number(&row[key])).sum()
}

#[test]
fn excluded_and_included_stacks_add_up_to_all() {
    let all = sum(&top("cpu", "process", &[]), "samples");
    let has = |part: &'static str| move |names: &[String]| names.iter().any(|name| name.contains(part));
    let both = |names: &[String]| has("engine.dll!")(names) && has("CloseHandle")(names);
    let rows: [(&[&str], u64); 6] = [
        (&["--exclude", "engine.dll!"], all - samples(has("engine.dll!"))),
        (&["--include", "ENGINE!"], samples(has("engine.dll!"))),
        (&["--include", "engine!;closehandle"], samples(both)),
        (&["--include", "engine!", "--include", "CloseHandle"], samples(both)),
        (&["--include", "engine!|closehandle", "--fold", "*"], {
            samples(|names| has("engine.dll!")(names) || has("CloseHandle")(names))
        }),
        (&["--fold", "engine!"], all),
    ];
    for (options, expected) in rows {
        assert!(expected > 0 && (expected < all || options[0] == "--fold"), "{options:?}");
        for by in ["process", "thread", "stack", "function", "module"] {
            let document = top("cpu", by, options);
            assert_eq!(sum(&document, "samples"), expected, "{options:?} by {by}");
            // Every time is rounded down to nanoseconds.
            let found = sum(&document, "self") + number(&document["grouping"]["excluded"]);
            let rows = document["rows"].as_array().unwrap().len() as u64;
            assert!(found.abs_diff(number(&document["busy"])) <= rows + 1, "{options:?} by {by}");
            assert_eq!(document["exact"].is_null(), expected < all);
        }
    }
    let table = output(&["top", "cpu"], &["--exclude", "engine!", "--group", "x!->y"]);
    assert!(table.contains("\n  frames: group x!->y, exclude engine!\n"), "{table}");
    let excluded = samples(has("engine.dll!"));
    assert!(table.contains(&format!(" s ({excluded} samples), in no row\n")), "{table}");
}

/// Grouping without exclusion conserves the sums of every measurement.
#[test]
fn groups_conserve_the_sums_of_all_measurements() {
    for metric in ["cpu", "wait", "ready", "interrupt", "syscall", "disk", "file", "fault", "memory"] {
        let by_function = top(metric, "function", &[]);
        let all = top(metric, "function", &["--group", "*->all"]);
        let [row] = all["rows"].as_array().unwrap().as_slice() else { panic!("{metric}: {all}") };
        assert_eq!(row["name"], "all", "{metric}");
        assert_eq!(row["self"], row["total"], "{metric}");
        // The only row is everything: times are rounded down once.
        let rows = by_function["rows"].as_array().unwrap();
        let amount = |value: &Value| match value {
            Value::Object(values) => number(&values[all["columns"][0]["name"].as_str().unwrap()]),
            value => number(value),
        };
        let before: u64 = rows.iter().map(|row| amount(&row["self"])).sum();
        let after = amount(&row["self"]);
        assert!(before <= after && after - before <= rows.len() as u64, "{metric}: {before} {after}");
        assert!(after > 0, "{metric}");
        let folded = top(metric, "function", &["--fold", "*"]);
        assert_eq!(folded["rows"][0]["name"], "[folded]", "{metric}");
        assert_eq!(folded["rows"][0]["self"], row["self"], "{metric}");
    }
}

#[test]
fn just_my_code_keeps_the_code_of_the_observed_programs() {
    let options = ["--preset", "just-my-code", "--process", "browser.exe"];
    let document = top("cpu", "function", &options);
    let directories = document["grouping"]["own_directories"].as_array().unwrap();
    assert_eq!(directories.len(), 1, "{directories:?}");
    assert!(directories[0].as_str().unwrap().ends_with(r"\Contoso Browser\"), "{directories:?}");
    let rows = document["rows"].as_array().unwrap();
    let own = |name: &&str| name.starts_with("engine.dll!") || name.starts_with("browser.exe!");
    let found: Vec<&str> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert!(found.iter().any(own), "{found:?}");
    let other = |name: &&str| name.starts_with("other code <<") || name.starts_with('[');
    assert!(found.iter().all(|name| own(name) || other(name)), "{found:?}");
    // Times in own code are the same as without groups.
    let before = top("cpu", "function", &options[2..]);
    for row in before["rows"].as_array().unwrap() {
        if own(&row["name"].as_str().unwrap()) {
            assert!(rows.contains(row), "{row}");
        }
    }
    // A listed directory is own code, too.
    let listed = [&options[..], &["--own", r"C:\Windows"]].concat();
    let document = top("cpu", "function", &listed);
    assert_eq!(document["grouping"]["listed_directories"][0], r"C:\Windows");
    let rows = document["rows"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["name"] == "kernel32.dll!BaseThreadInitThunk"), "{document}");
}

/// The rows are those of the outermost occurrence for callers and of the innermost one for callees, by
/// the stacks that `top` shows.
#[test]
fn callers_and_callees_are_those_of_the_stacks() {
    let stacks = stacks();
    for (function, matches) in [
        ("RtlUserThreadStart", "ntdll.dll!RtlUserThreadStart"),
        ("engine.dll!?", "engine.dll!?"),
        ("ntoskrnl.exe!?", "ntoskrnl.exe!?"),
        ("ENGINE!", "engine.dll!"),
        ("^core*!|^writer", "core.dll! writer.exe!"),
    ] {
        let is_function =
            |name: &String| matches.split(' ').any(|start| name.starts_with(start) || name == start);
        let (mut callers, mut callees) = (BTreeMap::new(), BTreeMap::new());
        let (mut total, mut own) = (0, 0);
        for (names, samples) in &stacks {
            let Some(inner) = names.iter().position(is_function) else { continue };
            let outer = names.iter().rposition(is_function).unwrap();
            let caller = names.get(outer + 1).cloned();
            let callee = inner.checked_sub(1).map(|at| names[at].clone());
            total += samples;
            own += if callee.is_none() { *samples } else { 0 };
            *callers.entry(caller).or_insert(0) += samples;
            *callees.entry(callee).or_insert(0) += samples;
        }
        assert!(total > 0, "{function}");
        for (verb, expected) in [("callers", &callers), ("callees", &callees)] {
            let document = json(&[verb, function], &[]);
            let rows = document["rows"].as_array().unwrap();
            let found: BTreeMap<Option<String>, u64> = rows
                .iter()
                .map(|row| (row["name"].as_str().map(str::to_owned), number(&row["count"])))
                .collect();
            assert_eq!(found, *expected, "{verb} {function}");
            let amounts = sum(&document, "amount");
            assert!(amounts.abs_diff(number(&document["total"])) <= rows.len() as u64, "{verb} {function}");
            assert_eq!(sum(&document, "count"), total, "{verb} {function}");
        }
        assert_eq!(callees.get(&None).copied().unwrap_or(0), own);
        let table = output(&["callees", function], &[]);
        assert_eq!(table.contains("[self]"), own > 0, "{table}");
    }
}

/// The callees of a group have no member of it, and one function has the times of `top`.
#[test]
fn butterflies_agree_with_top() {
    for (metric, function) in [
        ("cpu", "ntdll.dll!?"),
        ("wait", "kernel32.dll!BaseThreadInitThunk"),
        ("syscall", "ntdll.dll!?"),
        ("memory", "kernel32.dll!BaseThreadInitThunk"),
    ] {
        let by_function = top(metric, "function", &[]);
        let row = by_function["rows"].as_array().unwrap().iter().find(|row| row["name"] == function);
        let row = row.unwrap_or_else(|| panic!("{metric} {function}"));
        let value = |key: &str| match &row[key] {
            Value::Object(values) => &values[by_function["columns"][0]["name"].as_str().unwrap()],
            value => value,
        };
        for verb in ["callers", "callees"] {
            let document = json(&[verb, function], &["--metric", metric]);
            assert_eq!(&document["total"], value("total"), "{metric}");
            assert_eq!(&document["self"], value("self"), "{metric}");
            assert_eq!(document["functions"].as_array().unwrap().len(), 1);
        }
    }
    let options = ["--preset", "modules"];
    let document = json(&["callees", "module ntdll"], &options);
    assert_eq!(document["functions"][0], "module ntdll.dll");
    assert_eq!(document["grouping"]["preset"], "modules");
    let csv = output(&["callers", "module ntdll"], &["--preset", "modules", "--format", "csv", "--top", "1"]);
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!((lines.len(), lines[0]), (2, "caller,amount,count"), "{csv}");
}

#[test]
fn profiles_are_grouped() {
    let folded = |options: &[&str]| {
        let text = output(&["profile", "--format", "folded"], options);
        let lines = text.lines().map(|line| line.rsplit_once(' ').unwrap());
        lines
            .map(|(stack, weight)| (stack.to_owned(), weight.parse().unwrap()))
            .collect::<Vec<(String, u64)>>()
    };
    let weight = |stacks: &[(String, u64)]| stacks.iter().map(|(_, weight)| weight).sum::<u64>();
    let (before, after) = (folded(&[]), folded(&["--preset", "modules"]));
    assert_eq!(weight(&before), weight(&after));
    assert!(after.len() < before.len() / 4);
    let is_module =
        |name: &str| name.starts_with("module ") || name.starts_with('[') || name.starts_with("0x");
    let frames = after.iter().flat_map(|(stack, _)| stack.split(';').skip(1));
    frames.for_each(|name| assert!(is_module(name), "{name}"));
    let with = folded(&["--include", "engine!"]);
    let without = folded(&["--exclude", "engine!"]);
    assert_eq!(weight(&with) + weight(&without), weight(&before));
    assert!(with.iter().all(|(stack, _)| stack.contains("engine.dll")) && !with.is_empty());
    assert!(!without.iter().any(|(stack, _)| stack.contains("engine.dll")));
    for format in ["firefox", "speedscope", "perfetto", "flamegraph"] {
        let symbols = DEMO.folder.path().join("symbols");
        let file = text(&DEMO.etl_file);
        let options = ["--format", format, "--group", "engine!->the engine", "--exclude", "core!"];
        let input = ["profile", "--symbol-path", text(&symbols), "--no-progress", file];
        let output = stackhound(&[&input[..], &options].concat());
        assert!(output.status.success(), "{format}");
        let has = |part: &str| output.stdout.windows(part.len()).any(|bytes| bytes == part.as_bytes());
        assert!(has("the engine") && !has("engine.dll!"), "{format}");
        let messages = String::from_utf8(output.stderr).unwrap();
        assert!(messages.contains("frames: group engine!->the engine, exclude core!\n"), "{messages}");
    }
}

#[test]
fn what_cannot_be_grouped_gets_one_sentence() {
    let file = text(&DEMO.etl_file);
    let rows: &[(&[&str], &str)] = &[
        (&["top", "cpu", "--group", "x"], "--group: expected PATTERN->NAME or PATTERN=>NAME, found `x`"),
        (
            &["top", "memory", "--by", "service", "-q"],
            "the trace does not list Windows services: it has no event SystemConfig/Services, which Windows writes \
             into kernel sessions when they stop",
        ),
        (&["top", "disk", "--fold", "{x"], "--fold: the braces of the pattern `{x` do not match"),
        (
            &["profile", "--format", "folded", "--include", "@["],
            "--include: the pattern `@[` is not a regular expression: unclosed character class",
        ),
        (&["top", "cpu", "--own", "x"], "--own states which code is kept by --preset just-my-code"),
        (
            &["top", "wait", "--by", "reason", "--exclude", "x"],
            "--exclude and --include select stacks, and the rows of --by reason have none",
        ),
        (
            &["profile", "--format", "firefox", "--unsymbolicated", "--fold", "x"],
            "--unsymbolicated requests names after frames are grouped; leave out one of them",
        ),
        (&["callers", "@("], "FUNCTION: the pattern `@(` is not a regular expression: unclosed group"),
        (
            &["callers", "nothing-like-this", "-q"],
            "no function on the stacks matches `nothing-like-this`; `stackhound top cpu --by function` lists functions",
        ),
        (
            &["callees", "engnie.dll!?", "-q"],
            "no function on the stacks matches `engnie.dll!?`; similar names: engine.dll!?",
        ),
        (
            &["callees", "x", "-q", "--pid", "77777"],
            "there are no stacks; `stackhound top cpu` with the same files and filters says what is missing",
        ),
    ];
    for (arguments, sentence) in rows {
        refused(&[arguments, &[file, "--symbol-path", ""][..]].concat(), sentence);
    }
}

/// The rows by service are the sums of the rows by thread, with the services and tags that `events`
/// shows.
#[test]
fn services_of_a_genuine_trace_are_those_of_its_threads() {
    let Some(path) = stackhound_corpus::path("perfview-net452-x64.etl") else { return };
    let run = |options: &[&str]| {
        let output = stackhound(&[options, &["-q", "--symbol-path", "", text(&path)]].concat());
        assert!(output.status.success(), "{options:?}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    let events = |kind: &str| -> Vec<Value> {
        let output = run(&["events", "--format", "ndjson", "--event", kind]);
        let lines = output.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_slice::<Value>(line).unwrap()["fields"].take()).collect()
    };
    let mut services: BTreeMap<u64, BTreeMap<u64, String>> = BTreeMap::new();
    for fields in events("SystemConfig/Services") {
        let (Some(pid), Some(name)) = (fields["ProcessId"].as_u64(), fields["ServiceName"].as_str()) else {
            continue;
        };
        if pid != 0 {
            services.entry(pid).or_default().insert(number(&fields["SubProcessTag"]), name.to_owned());
        }
    }
    let mut tags: BTreeMap<(u64, u64), Vec<u64>> = BTreeMap::new();
    for kind in ["Thread/Start", "Thread/DCStart", "Thread/DCEnd"] {
        for fields in events(kind) {
            let (Some(pid), Some(tid)) = (fields["ProcessId"].as_u64(), fields["TThreadId"].as_u64()) else {
                continue;
            };
            let tag = fields["SubProcessTag"].as_u64().unwrap_or(0);
            let known = tags.entry((pid, tid)).or_default();
            if tag != 0 && !known.contains(&tag) {
                known.push(tag);
            }
        }
    }
    let rows = |by: &str| {
        let output = run(&["top", "cpu", "--all", "--format", "json", "--by", by]);
        let mut document: Value = serde_json::from_slice(&output).unwrap();
        let Value::Array(rows) = document["rows"].take() else { panic!("rows") };
        rows
    };
    let processes: BTreeMap<u64, String> = rows("process")
        .iter()
        .filter_map(|row| Some((row["pid"].as_u64()?, row["name"].as_str()?.to_owned())))
        .collect();
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    for row in rows("thread") {
        let listed = row["pid"].as_u64().and_then(|pid| Some((pid, services.get(&pid)?)));
        let name = match listed {
            None => "[no service]".to_owned(),
            Some((pid, listed)) => {
                let tags = row["tid"].as_u64().and_then(|tid| tags.get(&(pid, tid)));
                let name = match tags.map_or(&[][..], Vec::as_slice) {
                    [_, _, ..] => "several services",
                    [tag] if listed.contains_key(tag) => &listed[tag],
                    _ if listed.len() == 1 => listed.values().next().unwrap(),
                    _ => "unknown service",
                };
                format!("{name} in {}", processes[&pid])
            }
        };
        *expected.entry(name).or_default() += number(&row["samples"]);
    }
    expected.retain(|_, count| *count > 0);
    let found: BTreeMap<String, u64> = rows("service")
        .iter()
        .map(|row| (row["name"].as_str().unwrap().to_owned(), number(&row["samples"])))
        .filter(|(_, count)| *count > 0)
        .collect();
    assert_eq!(found, expected);
    assert!(found.len() > 5, "{found:?}");
}
