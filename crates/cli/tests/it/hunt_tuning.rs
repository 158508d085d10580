//! `hunt` with exceptions, severities and baselines, and its view for people.

use std::path::PathBuf;
use std::process::Output;

use crate::program::{refused, stackhound, text};
use serde_json::{Value, json};

/// A monitoring agent like the one of `docs/hunt.md`: code in no module, five times at the same
/// address, starts a program.
const AGENT: &str = r"C:\Packages\Plugins\Contoso.Watcher\1.4.1587.1\WatcherAgent\WatcherAgent.exe";

const NTDLL: &str = r"C:\Windows\SYSTEM32\ntdll.dll+9d8e4|C:\Windows\System32\KERNELBASE.dll+5f2ea|C:\Windows\System32\KERNEL32.DLL+1be93";

/// The root of a thread.
const ROOT: &str = r"C:\Windows\System32\KERNEL32.DLL+17bd4|C:\Windows\SYSTEM32\ntdll.dll+6ce51";

/// A row of Sysmon's event 10.
fn access(host: &str, time: &str, source: &str, calls: &str, access: &str) -> String {
    let row = json!({
        "event_id": 10, "utc": time, "host": host, "pid": 2936, "tid": 3816, "source_image": source,
        "target_image": r"C:\Windows\system32\netsh.exe", "granted_access": access, "count": 2, "calltrace": calls,
    });
    format!("{row}\n")
}

fn agent(host: &str, time: &str) -> String {
    let unknown = ["UNKNOWN(0000024F64B7B7A1)"; 5].join("|");
    access(host, time, AGENT, &format!("{NTDLL}|{unknown}|{AGENT}+56529|{ROOT}"), "0x1fffff")
}

/// A low finding: code that the .NET runtime compiled.
fn managed(host: &str, time: &str, source: &str, library: &str) -> String {
    let calls = format!(
        r"{NTDLL}|C:\Windows\assembly\{library}.ni.dll+1234|UNKNOWN(00007FFB1234{:04X})",
        library.len()
    );
    access(host, time, source, &calls, "0x1000")
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new(files: &[(&str, &str)]) -> Folder {
        let folder = Folder(tempfile::tempdir().unwrap());
        for (name, content) in files {
            std::fs::write(folder.path(name), content).unwrap();
        }
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Hunts with paths in place of names that begin with `@`.
    fn hunt(&self, arguments: &[&str]) -> Output {
        let arguments = arguments.iter().map(|argument| match argument.strip_prefix('@') {
            Some(name) => text(&self.path(name)).to_owned(),
            None => (*argument).to_owned(),
        });
        let arguments: Vec<String> = std::iter::once("hunt".to_owned()).chain(arguments).collect();
        stackhound(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn documents(&self, arguments: &[&str]) -> (Vec<Value>, Value) {
        let output = self.hunt(&[arguments, &["--format", "ndjson"]].concat());
        let lines = String::from_utf8(output.stdout).unwrap();
        let mut documents: Vec<Value> =
            lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let summary = documents.pop_if(|last| last["type"] == "hunt-summary").unwrap_or(Value::Null);
        documents.retain(|document| document["type"] == "finding");
        (documents, summary)
    }
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

const EXCEPTION: &str = r#"
[[exceptions]]
detection = "CS07"
process = '*\WatcherAgent\WatcherAgent.exe'
reason = "monitoring agent of our cloud"
expires = "2027-01-31"
"#;

/// The cloud agent of `docs/hunt.md`: the finding is suppressed and counted until the exception
/// expires in trace time.
#[test]
fn an_exception_silences_the_cloud_agent_until_it_expires() {
    let rows = agent("WS1", "2026-09-04 07:08:05.811") + &agent("WS1", "2027-02-01 00:00:00.000");
    let early = agent("WS1", "2027-01-31 23:59:59.999");
    let folder = Folder::new(&[("rows.jsonl", &rows), ("early.jsonl", &early), ("lists.toml", EXCEPTION)]);
    let ids = |findings: &[Value]| -> Vec<String> {
        findings.iter().map(|finding| finding["detection"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(folder.hunt(&["@early.jsonl"]).status.code(), Some(1), "an alarm without the exception");
    let (all, summary) = folder.documents(&["@rows.jsonl", "--only", "CS07"]);
    assert_eq!((ids(&all), summary), (vec!["CS07".to_owned(); 2], Value::Null));
    let with = ["@rows.jsonl", "--lists", "@lists.toml", "--only", "CS07"];
    let (kept, summary) = folder.documents(&with);
    assert_eq!(ids(&kept), ["CS07"]);
    assert!(kept[0]["time"].as_str().unwrap().starts_with("2027-02-01"));
    let rule = json!({"by": "exception", "reason": "monitoring agent of our cloud", "expires": "2027-01-31",
                      "line": 2, "suppressed": 2, "expired": 2});
    assert_eq!(summary["rules"], json!([rule]));
    assert_eq!(summary["findings"]["high"], 2);
    let output = folder.hunt(&with);
    let lines = errors(&output);
    let sentence =
        "suppressed findings: 2 by exception in line 2 (monitoring agent of our cloud, until 2027-01-31)";
    assert!(lines.contains(sentence), "{lines}");
    let sentence = "findings of expired exceptions, which no longer apply: 2 by exception in line 2 (";
    assert!(lines.contains(sentence), "{lines}");
    assert!(lines.contains("; findings: 2 high"), "{lines}");
    let output = folder.hunt(&["@early.jsonl", "--lists", "@lists.toml"]);
    assert_eq!(output.status.code(), Some(0), "{}", out(&output));
    assert!(!out(&output).contains("CS07"), "{}", out(&output));
}

/// Every format shows suppressed findings on request, with the reason, and not as findings.
#[test]
fn suppressed_findings_are_marked_in_every_format() {
    let folder =
        Folder::new(&[("rows.jsonl", &agent("WS1", "2026-09-04 07:08:05.811")), ("lists.toml", EXCEPTION)]);
    for (format, mark) in [
        ("table", "SUPPRESSED  CS07"),
        ("list", "SUPPRESSED  CS07"),
        ("summary", "SUPPRESSED  CS07"),
        ("ndjson", r#""by":"exception""#),
        ("ecs", r#""kind":"event""#),
        ("ocsf", r#""status_id":3"#),
        ("navigator", "suppressed by exception"),
        ("csv", "exception in line 2, until 2027-01-31: "),
        ("timesketch", "CS07 suppressed: "),
    ] {
        let with = ["@rows.jsonl", "--lists", "@lists.toml", "--only", "CS07", "--format", format];
        let hidden = folder.hunt(&with);
        assert!(!out(&hidden).contains("SUPPRESSED") && !out(&hidden).contains("\"CS07\""), "{format}");
        let shown = folder.hunt(&[&with[..], &["--show-suppressed"]].concat());
        assert_eq!(shown.status.code(), Some(0), "{format}");
        let shown = out(&shown);
        assert!(shown.contains(mark) && shown.contains("monitoring agent of our cloud"), "{format}: {shown}");
        assert!(!shown.contains("\"is_alert\":true") && !shown.contains("\"type\":\"alert\""), "{shown}");
    }
}

#[test]
fn severities_are_changed_and_detections_turned_off() {
    let rows = agent("WS1", "2026-09-04 07:08:05.811");
    let folder = Folder::new(&[
        ("rows.jsonl", &rows),
        ("low.toml", "[severity]\nCS07 = 'low'\nCS08 = 'off'\n"),
        ("other.toml", "[severity]\nCS07 = { severity = 'low', process = 'other.exe' }\n"),
    ]);
    let (found, summary) = folder.documents(&["@rows.jsonl", "--lists", "@low.toml"]);
    let found: Vec<_> =
        found.iter().map(|one| (one["detection"].as_str(), one["severity"].as_str())).collect();
    assert_eq!(found, [(Some("CS07"), Some("low"))]);
    assert_eq!(summary["findings"], json!({"info": 0, "low": 2, "medium": 0, "high": 0, "critical": 0}));
    let output = folder.hunt(&["@rows.jsonl", "--lists", "@low.toml"]);
    assert_eq!(output.status.code(), Some(0), "a low finding is not printed");
    assert!(errors(&output).contains("; findings: 2 low (not shown)"), "{}", errors(&output));
    assert_eq!(folder.hunt(&["@rows.jsonl", "--lists", "@other.toml"]).status.code(), Some(1));
}

#[test]
fn invalid_rules_are_refused_with_their_line() {
    let folder = Folder::new(&[
        ("rows.jsonl", ""),
        ("date.toml", "[[exceptions]]\nhost = 'a'\nreason = 'b'\nexpires = '31.1.2027'\n"),
        ("new.baseline", "{\"type\":\"stackhound-baseline\",\"version\":9}\n"),
        ("text.baseline", "hello\n"),
        ("entry.baseline", "{\"type\":\"stackhound-baseline\",\"version\":1}\n{\"detection\":\"CS08\"}\n"),
    ]);
    let path = |name: &str| folder.path(name);
    let rows = path("rows.jsonl");
    let check = |option: &str, name: &str, sentence: &str| {
        refused(
            &["hunt", text(&rows), option, text(&path(name))],
            &format!("{}{sentence}", path(name).display()),
        );
    };
    check("--lists", "date.toml", ":4: `31.1.2027` is not a date; write one such as 2027-01-31");
    check(
        "--baseline",
        "new.baseline",
        ": expected a baseline of version 1, found version 9; write it again with --write-baseline",
    );
    check("--baseline", "text.baseline", ": expected a baseline, as written by --write-baseline");
    check("--baseline", "entry.baseline", ":2: expected detection, program, stack and count");
}

#[test]
fn baselines_hide_known_findings_and_mark_new_ones() {
    let time = "2026-09-04 07:08:05.811";
    let collect = |version: &str| format!(r"C:\Agent\agent_{version}\collect.exe");
    let learned = managed("WS1", time, &collect("1.2.3"), "system");
    let hunted = [
        managed("WS2", time, &collect("1.4.10"), "system"),
        managed("WS2", time, &collect("1.4.10"), "other"),
        managed("WS2", time, r"C:\Agent\agent_1.4.10\new.exe", "system"),
        managed("WS2", time, r"C:\Windows\System32\wsmprovhost.exe", "system"),
    ]
    .concat();
    let folder = Folder::new(&[("learned.jsonl", &learned), ("hunted.jsonl", &hunted)]);
    let output = folder.hunt(&["@learned.jsonl", "--write-baseline", "@usual"]);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let file = std::fs::read_to_string(folder.path("usual")).unwrap();
    let lines: Vec<Value> = file.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0], json!({"type": "stackhound-baseline", "version": 1}));
    assert!(!lines[1..].is_empty());
    for line in &lines[1..] {
        assert_eq!((&line["program"], &line["count"]), (&json!(r"agent\agent_#\collect.exe"), &json!(2)));
    }
    let with = ["@hunted.jsonl", "--baseline", "@usual"];
    let (found, summary) = folder.documents(&with);
    let marks = |found: &[Value]| -> Vec<String> {
        let mut marks: Vec<String> =
            found.iter().map(|one| one["baseline"].as_str().unwrap().to_owned()).collect();
        marks.dedup();
        marks
    };
    assert_eq!(marks(&found), ["new-stack", "new-process", "excluded"]);
    assert!(summary["baseline"]["suppressed"].as_u64().unwrap() >= 2, "{summary}");
    let (all, _) = folder.documents(&[&with[..], &["--show-suppressed"]].concat());
    assert_eq!(marks(&all), ["known", "new-stack", "new-process", "excluded"]);
    assert_eq!(all[0]["suppressed"]["by"], "baseline");
    let output = folder.hunt(&[&with[..], &["--min-severity", "low"]].concat());
    assert!(errors(&output).contains("baseline: 2 known findings suppressed, "), "{}", errors(&output));
    assert!(
        out(&output).contains("(new stack)") && out(&output).contains("(new process)"),
        "{}",
        out(&output)
    );
    // The same file again, and the union of two.
    folder.hunt(&["@learned.jsonl", "--write-baseline", "@again"]);
    assert_eq!(std::fs::read_to_string(folder.path("again")).unwrap(), file);
    folder.hunt(&["@hunted.jsonl", "--baseline", "@usual", "--write-baseline", "@more"]);
    let (found, summary) = folder.documents(&["@hunted.jsonl", "--baseline", "@more"]);
    assert_eq!(marks(&found), ["excluded"], "{summary}");
}

/// CSV is sorted by time, whatever the order of the rows and inputs, and Timesketch's columns are
/// first.
#[test]
fn rows_of_csv_are_sorted_by_time() {
    let one = agent("WS1", "2026-09-04 07:08:05.811") + &agent("WS1", "2026-09-02 00:00:00.000");
    let other = agent("WS2", "2026-09-03 00:00:00.123");
    let folder = Folder::new(&[("one.jsonl", &one), ("other.jsonl", &other)]);
    for (format, column) in [("csv", "time"), ("timesketch", "datetime")] {
        let output = folder.hunt(&["@one.jsonl", "@other.jsonl", "--only", "CS07", "--format", format]);
        let mut reader = csv::Reader::from_reader(&output.stdout[..]);
        let header = reader.headers().unwrap().clone();
        let at = header.iter().position(|name| name == column).unwrap();
        let times: Vec<String> = reader.records().map(|row| row.unwrap()[at].to_owned()).collect();
        assert_eq!(times.len(), 3, "{times:?}");
        assert!(times.is_sorted(), "{times:?}");
        if format == "timesketch" {
            assert_eq!(header.iter().take(3).collect::<Vec<_>>(), ["message", "datetime", "timestamp_desc"]);
            assert_eq!(times[1], "2026-09-03T00:00:00.123000+00:00");
        }
    }
}

#[test]
fn the_table_begins_with_alerts_and_counts_low_findings() {
    let time = "2026-09-04 07:08:05.811";
    let low = |program: &str| managed("WS1", time, program, "system");
    let rows = low(r"C:\a\low.exe") + &agent("WS1", time) + &agent("WS1", "2026-09-04 07:08:06.000");
    let folder = Folder::new(&[("rows.jsonl", &rows), ("low.jsonl", &low(r"C:\a\low.exe"))]);
    let output = folder.hunt(&["@rows.jsonl"]);
    let table = out(&output);
    assert!(table.starts_with("Alerts by score"), "{table}");
    assert!(!table.contains("low.exe"), "{table}");
    assert_eq!(table.matches("ProcessAccess of ").count(), 1, "one stack for each alert: {table}");
    let first = |text: &str| table.find(text).unwrap_or_else(|| panic!("{text}: {table}"));
    assert!(first("alert ") < first("HIGH  CS07") && first("HIGH  CS07") < first("Findings in 6 events"));
    assert!(errors(&output).contains(" low (not shown)"), "{}", errors(&output));
    // The exit code follows the output.
    for (arguments, expected) in [
        (&["@low.jsonl"][..], 0),
        (&["@low.jsonl", "--min-severity", "low"], 1),
        (&["@low.jsonl", "--format", "csv"], 1),
    ] {
        assert_eq!(folder.hunt(arguments).status.code(), Some(expected), "{arguments:?}");
    }
    assert!(out(&folder.hunt(&["@rows.jsonl", "--min-severity", "low"])).contains("low.exe"));
}

/// A trace without stacks is reported with the command that records them.
#[test]
fn traces_without_stacks_are_reported() {
    if stackhound_corpus::folder().is_none() {
        return;
    }
    let hunt = |name: &str| {
        let path = stackhound_corpus::path(name).unwrap();
        stackhound(&["hunt", text(&path), "--exit-zero"])
    };
    let sentence = "the trace has no call stacks, which most detections need; record them with `stackhound record --preset syscalls -o calls.etl`";
    for (name, expected) in [("tx-Process.etl", true), ("perfview-net452-x64.etl", false)] {
        let output = hunt(name);
        assert_eq!(errors(&output).contains(sentence), expected, "{name}: {}", errors(&output));
    }
}

#[test]
fn the_view_of_a_large_trace_fits_on_a_screen() {
    let Some(path) = stackhound_corpus::path("perfview-net452-x64.etl") else { return };
    let output = stackhound(&["hunt", text(&path)]);
    let table = out(&output);
    let has_alerts = table.starts_with("Alerts by score");
    assert!(has_alerts || table.starts_with("Findings in ") && output.status.code() == Some(0), "{table}");
    assert!(table.lines().count() <= 40, "{}: {table}", table.lines().count());
}
