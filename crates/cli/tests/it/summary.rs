//! `summary` and `top`: the screen, lines of several files, and agreement with other verbs.

use std::path::Path;

use crate::program::{stackhound, text};
use serde_json::Value;

/// The height and width of the screen.
const ROWS: usize = 24;
const COLUMNS: usize = 100;

fn printed(arguments: &[&str]) -> String {
    let output = stackhound(arguments);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&printed(arguments)).unwrap()
}

fn demo(folder: &Path, seed: &str) -> std::path::PathBuf {
    let out = folder.join(seed);
    printed(&["demo", "-q", "--events", "8000", "--seed", seed, "--out", text(&out)]);
    out.join("stackhound-demo.etl")
}

/// Checks the screen of a file, and that a bare file name shows it.
fn check_screen(path: &Path) -> String {
    let screen = printed(&["summary", "-q", "--symbol-path", "", text(path)]);
    let lines: Vec<&str> = screen.lines().collect();
    assert!(lines.len() <= ROWS, "{}: {} lines\n{screen}", path.display(), lines.len());
    let (facts, next) = lines.split_at(lines.iter().position(|line| line.is_empty()).unwrap());
    for line in facts {
        assert!(line.chars().count() <= COLUMNS, "{}: {line}", path.display());
    }
    assert!(next.len() > 1, "{screen}");
    screen
}

/// Compares the summary with what other verbs say about the same file.
fn check_counts(path: &Path) {
    let quiet = ["-q", "--format", "json"];
    let summary = json(&[&["summary", "--symbol-path", ""], &quiet[..], &[text(path)]].concat());
    let summary = &summary[0];
    let info = json(&[&["info", "--full"], &quiet[..], &[text(path)]].concat());
    let name = path.display();
    assert_eq!(summary["events_lost"], info["events_lost"], "{name}");
    let providers = summary["providers"].as_array().unwrap();
    let kinds = summary["contains"].as_array().unwrap();
    let counted: u64 = kinds.iter().chain(providers).map(|kind| kind["events"].as_u64().unwrap()).sum();
    assert!(counted <= summary["events"].as_u64().unwrap(), "{name}");
    if let Some(cpu) = summary["cpu"].as_object() {
        let top = json(&[&["top", "cpu", "--symbol-path", ""], &quiet[..], &[text(path)]].concat());
        assert_eq!(cpu["available"], top["available"], "{name}");
        let rows = top["rows"].as_array().unwrap();
        let shown = cpu["processes"].as_array().unwrap();
        assert!(!shown.is_empty() && shown[..] == rows[..shown.len()], "{name}");
    }
}

/// Compares files and symbols with what other verbs say about the same file.
#[test]
fn files_and_symbols_agree_with_other_verbs() {
    let folder = tempfile::tempdir().unwrap();
    let path = demo(folder.path(), "3");
    let of = |symbols: &Path| {
        json(&["summary", "-q", "--symbol-path", text(symbols), "--format", "json", text(&path)])[0].clone()
    };
    let summary = of(Path::new(""));
    for (metric, columns, shown) in [
        ("disk", ["read_bytes", "written_bytes"], &summary["disk"]),
        ("file", ["read_bytes", "written_bytes"], &summary["file_requests"]),
    ] {
        let top = ["top", metric, "-q", "--all", "--by", "file", "--format", "json", text(&path)];
        let top = json(&top);
        let bytes = |row: &Value| columns.map(|column| row["self"][column].as_u64().unwrap()).iter().sum();
        let mut files: Vec<(u64, &str)> = top["rows"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| (bytes(row), row["name"].as_str().unwrap()))
            .filter(|(bytes, _)| *bytes > 0)
            .collect();
        files.sort_by(|(one, a), (other, b)| other.cmp(one).then_with(|| a.cmp(b)));
        assert_eq!(shown["file_count"], files.len(), "{metric}");
        files.truncate(5);
        let largest = shown["largest_files"].as_array().unwrap();
        let largest: Vec<(u64, &str)> = largest
            .iter()
            .map(|file| (file["bytes"].as_u64().unwrap(), file["file"].as_str().unwrap()))
            .collect();
        assert_eq!(largest, files, "{metric}");
    }
    let modules = json(&["symbols", "list", "-q", "--symbol-path", "", "--format", "json", text(&path)]);
    let modules = modules.as_array().unwrap();
    let identified = modules.iter().filter(|module| !module["pdb"]["key"].is_null()).count();
    let symbols = |summary: &Value, key: &str| summary["symbols"][key].as_u64().unwrap();
    assert_eq!(symbols(&summary, "modules"), modules.len() as u64);
    assert_eq!(symbols(&summary, "with_pdb_identity"), identified as u64);
    // Without files, no frame of a module has a name; the demo has files of some modules.
    let named = of(&folder.path().join("3/symbols"));
    assert_eq!(symbols(&summary, "named_frames"), 0);
    assert_eq!(symbols(&summary, "frames"), symbols(&named, "frames"));
    let named_frames = symbols(&named, "named_frames");
    assert!(named_frames > 0 && named_frames < symbols(&named, "frames"), "{}", named["symbols"]);
}

#[test]
fn a_trace_is_summarized_on_one_screen() {
    let folder = tempfile::tempdir().unwrap();
    let path = demo(folder.path(), "1");
    let screen = check_screen(&path);
    check_counts(&path);
    for part in [
        "CPU ",
        "findings",
        "alert",
        "profile samples",
        "1 buffer lost",
        "stackhound hunt",
        "not in it",
        "symbols    PDB",
        "files by disk, most:",
    ] {
        assert!(screen.contains(part), "{part}:\n{screen}");
    }
    // A bare file name shows the same.
    assert_eq!(printed(&[text(&path), "-q", "--symbol-path", ""]), screen);
}

#[test]
fn every_command_that_is_recommended_runs() {
    let folder = tempfile::tempdir().unwrap();
    let path = demo(folder.path(), "2");
    let summary = json(&["summary", "-q", "--symbol-path", "", "--format", "json", text(&path)]);
    let commands = summary[0]["next"].as_array().unwrap();
    assert_eq!(commands.len(), 3);
    for command in commands {
        let command = command.as_str().unwrap();
        let words: Vec<&str> = command.split(' ').skip(1).collect();
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_stackhound"))
            .args(&words)
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert!(matches!(output.status.code(), Some(0 | 1)), "{command}: {output:?}");
    }
}

#[test]
fn several_files_get_one_line_each() {
    let folder = tempfile::tempdir().unwrap();
    let made = tempfile::tempdir().unwrap();
    let paths = ["1", "2", "3"].map(|seed| {
        let path = folder.path().join(format!("{seed}.etl"));
        std::fs::rename(demo(made.path(), seed), &path).unwrap();
        path
    });
    let lines = printed(&["summary", "-q", "--symbol-path", "", text(folder.path())]);
    let lines: Vec<&str> = lines.lines().collect();
    assert_eq!(lines.len(), 1 + paths.len(), "{lines:?}");
    for (line, path) in lines[1..].iter().zip(&paths) {
        assert!(line.ends_with(text(path)) && line.contains(" high"), "{line}");
    }
    let all = json(&["summary", "-q", "--symbol-path", "", "--format", "json", text(folder.path())]);
    assert_eq!(all.as_array().unwrap().len(), paths.len());
}

#[test]
fn genuine_traces_are_summarized_on_one_screen() {
    for (_, path) in stackhound_corpus::trace_files() {
        check_screen(&path);
        check_counts(&path);
    }
}

#[test]
fn processor_time_has_the_same_sums_in_all_formats_and_rows() {
    let folder = tempfile::tempdir().unwrap();
    let path = demo(folder.path(), "1");
    let top = |arguments: &[&str]| {
        let common = ["top", "cpu", "-q", "--symbol-path", "", text(&path), "--all"];
        printed(&[&common[..], arguments].concat())
    };
    for by in ["process", "thread", "module", "function", "stack"] {
        let document: Value = serde_json::from_str(&top(&["--by", by, "--format", "json"])).unwrap();
        let rows = document["rows"].as_array().unwrap();
        let samples: u64 = rows.iter().map(|row| row["samples"].as_u64().unwrap()).sum();
        assert_eq!(samples, document["samples"], "{by}");
        let own: u64 = rows.iter().map(|row| row["self"].as_u64().unwrap()).sum();
        // Each row is rounded down to nanoseconds.
        assert!(document["busy"].as_u64().unwrap() - own <= rows.len() as u64, "{by}");
        let csv = folder.path().join(format!("{by}.csv"));
        top(&["--by", by, "-o", text(&csv)]);
        let csv = std::fs::read_to_string(csv).unwrap();
        assert_eq!(csv.lines().count(), 1 + rows.len(), "{by}");
        assert!(csv.starts_with(&format!("{by},pid,tid,self,total,samples")), "{csv}");
        let table = top(&["--by", by]);
        assert!(table.contains("percentages are of 4 processors"), "{table}");
        let last = table.lines().skip_while(|line| !line.is_empty()).skip(2).count();
        assert_eq!(last, rows.len(), "{by}");
    }
    // A filter selects samples; the exact times of the selected ones are not defined.
    let filtered: Value =
        serde_json::from_str(&top(&["--process", "browser.exe", "--format", "json"])).unwrap();
    assert!(filtered["exact"].is_null() && filtered["not_sampled"].is_null());
    assert!(filtered["samples"].as_u64().unwrap() > 0);
    assert!(
        filtered["rows"]
            .as_array()
            .unwrap()
            .iter()
            .all(|row| row["name"].as_str().unwrap().starts_with("browser.exe ("))
    );
}

#[test]
fn an_exact_trace_is_summarized() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.stacks");
    let trace = crate::fixtures::trace();
    std::fs::write(&path, trace.as_bytes()).unwrap();
    let shown = printed(&["-q", text(&path)]);
    for part in [
        format!("{} calls, 3,100,000 transitions", trace.frame_count()),
        format!("{} stacks", trace.stack_count()),
        format!("stackhound tree {}", path.display()),
    ] {
        assert!(shown.contains(&part), "{part}\n{shown}");
    }
    for command in shown.lines().skip_while(|line| !line.is_empty()).skip(1) {
        let words: Vec<&str> =
            command.split_whitespace().skip_while(|word| *word != "stackhound").skip(1).collect();
        let words: Vec<&str> = words.iter().map(|word| word.trim_matches('\'')).collect();
        assert!(stackhound(&words).status.success(), "{command}");
    }
    crate::program::refused(
        &["summary", text(&path), "--format", "json"],
        &format!(
            "{}: the summary of an exact trace has no JSON form; use calls, tree or ranges",
            path.display()
        ),
    );
}

#[test]
fn an_exact_trace_has_profiles_and_stacks() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.stacks");
    let trace = crate::fixtures::trace();
    std::fs::write(&path, trace.as_bytes()).unwrap();
    let file = |name: &str| {
        let out = folder.path().join(name);
        printed(&["profile", "-q", text(&path), "-o", text(&out)]);
        std::fs::read_to_string(out).unwrap()
    };
    let folded = file("p.folded");
    assert_eq!(printed(&["stacks", "-q", "--format", "folded", text(&path)]), folded);
    let weights: u64 =
        folded.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum();
    let stacks = json(&["stacks", "-q", "--format", "json", "--top", "100000", text(&path)]);
    assert_eq!((&stacks["unit"], &stacks["total"]), (&"transitions".into(), &weights.into()));
    let rows = stacks["stacks"].as_array().unwrap();
    assert_eq!(stacks["distinct"], rows.len());
    assert_eq!(rows.iter().map(|row| row["weight"].as_u64().unwrap()).sum::<u64>(), weights);
    // Of a call of the description: its transitions without those of the functions that it calls. The
    // context after the call is its first one.
    let inside = [(199_886, 199_992), (200_032, 200_209), (200_239, 200_250), (200_269, 200_309)];
    let own = 200_320 - 199_862 - inside.iter().map(|(from, until)| until - from).sum::<u64>();
    let is_hub = |row: &&Value| row["frames"][0] == "usbhub!UsbhDecHubBusy";
    let found: Vec<u64> = rows.iter().filter(is_hub).map(|row| row["weight"].as_u64().unwrap()).collect();
    assert_eq!(found, [own]);
    let total: u64 = serde_json::from_str::<Value>(&file("p.speedscope.json")).unwrap()["profiles"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|thread| thread["weights"].as_array().unwrap())
        .map(|weight| weight.as_u64().unwrap())
        .sum();
    assert_eq!(total, weights);
    assert!(file("p.svg").contains(" transitions"));
    assert!(file("p.json").contains("usbhub!UsbhDecHubBusy"));
    let table = printed(&["stacks", "-q", "--top", "2", text(&path)]);
    assert!(table.contains(" transitions in ") && table.matches(" %), ").count() == 2, "{table}");
    for (arguments, error) in [
        (
            &["profile", "--format", "perfetto"][..],
            "Perfetto shows times, and the functions of an exact trace are sums; choose another format",
        ),
        (
            &["stacks", "--from", "+1s"],
            "filters and times select events, and an exact trace has transitions instead; leave them out",
        ),
        (
            &["profile", "--format", "folded", "--symbols", "full"],
            "an exact trace contains the names of its functions; leave out the options for symbols",
        ),
        (
            &["profile", "--format", "folded", "--samples", "Process/Start"],
            "--samples is for the events of a trace, which an exact trace does not have; leave it out",
        ),
    ] {
        crate::program::refused(&[arguments, &[text(&path)]].concat(), error);
    }
}

#[test]
fn waits_have_the_same_sums_in_all_formats_and_rows() {
    let folder = tempfile::tempdir().unwrap();
    let path = demo(folder.path(), "3");
    for metric in ["wait", "ready"] {
        let top = |arguments: &[&str]| {
            let common = ["top", metric, "-q", "--symbol-path", "", text(&path), "--all"];
            printed(&[&common[..], arguments].concat())
        };
        for by in ["process", "thread", "module", "function", "stack", "reason", "readying-thread"] {
            let document: Value = serde_json::from_str(&top(&["--by", by, "--format", "json"])).unwrap();
            let rows = document["rows"].as_array().unwrap();
            let sum = |key: &str| rows.iter().map(|row| row[key].as_u64().unwrap()).sum::<u64>();
            assert_eq!(sum("count"), document["count"], "{metric} {by}");
            assert!(document["total"].as_u64().unwrap() - sum("self") <= rows.len() as u64, "{metric} {by}");
            let csv = top(&["--by", by, "--format", "csv"]);
            assert_eq!(csv.lines().count(), 1 + rows.len(), "{metric} {by}");
            let table = top(&["--by", by]);
            let shown = table.lines().skip_while(|line| !line.is_empty()).skip(2).count();
            assert_eq!(shown, rows.len(), "{metric} {by}");
        }
        let document: Value = serde_json::from_str(&top(&["--format", "json"])).unwrap();
        assert!(document["count"].as_u64().unwrap() > 20, "{metric}");
    }
}

#[test]
fn costs_have_the_same_sums_in_all_formats_and_rows() {
    let folder = tempfile::tempdir().unwrap();
    let path = demo(folder.path(), "3");
    for (metric, dimensions) in [
        ("interrupt", "module function kind processor"),
        ("syscall", "service process thread stack"),
        ("disk", "file disk process function stack"),
        ("file", "file operation thread module"),
        ("fault", "file kind process"),
        ("network", "process endpoint connection function"),
        ("memory", "process thread stack"),
    ] {
        for by in dimensions.split(' ') {
            let top = |arguments: &[&str]| {
                let common = ["top", metric, "-q", "--symbol-path", "", text(&path), "--all", "--by", by];
                printed(&[&common[..], arguments].concat())
            };
            let document: Value = serde_json::from_str(&top(&["--format", "json"])).unwrap();
            let rows = document["rows"].as_array().unwrap();
            assert!(!rows.is_empty(), "{metric} {by}");
            let csv = top(&["--format", "csv"]);
            let mut lines = csv.lines();
            let titles: Vec<&str> = lines.next().unwrap().split(',').collect();
            let has_totals = matches!(by, "module" | "function");
            let name = |column: &str| if has_totals { format!("self_{column}") } else { column.to_owned() };
            // Names can contain commas; numbers are the last cells.
            let cell = |line: &str, title: &str| {
                let from_end = titles.iter().rev().position(|known| *known == title).unwrap();
                line.rsplit(',').nth(from_end).unwrap().parse::<u64>().unwrap()
            };
            let lines: Vec<&str> = lines.collect();
            assert_eq!(lines.len(), rows.len(), "{metric} {by}");
            for column in document["columns"].as_array().unwrap() {
                let key = column["name"].as_str().unwrap();
                let own = rows.iter().map(|row| row["self"][key].as_u64().unwrap());
                let total = document["total"][key].as_u64().unwrap();
                let sum = if key == "max" { own.clone().max().unwrap_or(0) } else { own.clone().sum() };
                assert_eq!(sum, total, "{metric} {by}: {key}");
                let of_csv: Vec<u64> = lines.iter().map(|line| cell(line, &name(key))).collect();
                assert_eq!(of_csv, own.collect::<Vec<_>>(), "{metric} {by}: {key}");
            }
            let table = top(&[]);
            let shown = table.lines().skip_while(|line| !line.is_empty()).skip(2).count();
            assert_eq!(shown, rows.len(), "{metric} {by}");
        }
        let output = stackhound(&["top", metric, "--by", "nothing", text(&path)]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{metric}");
        assert!(error.contains("expected") && error.contains(dimensions.split(' ').next().unwrap()));
    }
    for (metric, flag) in [("gc", "0x1 4"), ("jit", "0x10 5")] {
        let output = stackhound(&["top", metric, "-q", text(&path)]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{metric}");
        assert!(error.contains("the trace has no") && error.contains(flag), "{error}");
    }
}
