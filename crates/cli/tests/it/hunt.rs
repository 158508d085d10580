//! `hunt` and `explain` on the demo trace.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::OnceLock;

use crate::program::{refused, stackhound, text};
use serde_json::Value;

/// The folder of the demo, generated once.
fn demo() -> &'static Path {
    static DEMO: OnceLock<tempfile::TempDir> = OnceLock::new();
    let folder = DEMO.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let made = stackhound(&["demo", "--quiet", "--out", text(folder.path())]);
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        folder
    });
    folder.path()
}

fn etl_file() -> PathBuf {
    demo().join("stackhound-demo.etl")
}

fn hunt(arguments: &[&str]) -> Output {
    let etl_file = etl_file();
    let given = [&["hunt", text(&etl_file), "--symbol-path", "", "--no-progress"], arguments].concat();
    stackhound(&given)
}

/// The findings and the alerts as NDJSON, and the exit code.
fn documents(arguments: &[&str]) -> (Vec<Value>, Vec<Value>, Option<i32>) {
    let output = hunt(&[&["--format", "ndjson"], arguments].concat());
    let lines = String::from_utf8(output.stdout).unwrap();
    let lines = lines.lines().map(|line| serde_json::from_str(line).unwrap());
    let (findings, alerts) = lines.partition(|document: &Value| document["type"] == "finding");
    (findings, alerts, output.status.code())
}

fn findings(arguments: &[&str]) -> (Vec<Value>, Option<i32>) {
    let (findings, _, code) = documents(arguments);
    (findings, code)
}

fn ids(findings: &[Value]) -> Vec<&str> {
    findings.iter().map(|finding| finding["detection"].as_str().unwrap()).collect()
}

#[test]
fn only_the_attack_has_severe_findings() {
    let (found, code) = findings(&["--min-severity", "medium"]);
    assert_eq!(code, Some(1));
    let ids = ids(&found);
    for expected in ["CS02", "CS07", "CS19"] {
        assert!(ids.contains(&expected), "{expected} is not in {ids:?}");
    }
    for finding in &found {
        assert_eq!(finding["verdict"], "yes");
        assert!(finding["input"]["record"].as_u64().unwrap() > 0);
        assert_eq!(finding["count"], 1);
        assert!(finding["input"]["file"].as_str().unwrap().ends_with("stackhound-demo.etl"));
        // The attacker, or the process that it attacks.
        let direct = finding["detection"] == "CS02";
        let name = finding["process"]["name"].as_str().unwrap();
        assert!(!direct || name == "updater.exe", "{finding}");
    }
}

/// Alerts follow all findings, the highest score first, and their counts are those of their
/// findings.
#[test]
fn alerts_summarize_their_findings() {
    let (found, alerts, _) = documents(&["--min-severity", "low"]);
    assert!(alerts.len() > 1, "{alerts:?}");
    let mut scores: Vec<u64> = alerts.iter().map(|alert| alert["score"].as_u64().unwrap()).collect();
    assert!(scores.is_sorted_by(|one, other| one >= other), "{scores:?}");
    scores.retain(|score| !(1..=100).contains(score));
    assert!(scores.is_empty(), "{scores:?}");
    for alert in &alerts {
        let of: Vec<&Value> = found.iter().filter(|finding| finding["alert"] == alert["alert"]).collect();
        assert_eq!(alert["count"].as_u64(), of.iter().map(|finding| finding["count"].as_u64()).sum());
        let times = || of.iter().map(|finding| finding["time"].as_str());
        assert_eq!(
            (alert["first_seen"].as_str(), alert["last_seen"].as_str()),
            (times().min().unwrap(), times().max().unwrap())
        );
        for finding in &of {
            assert_eq!((&finding["pid"], &finding["process"]), (&alert["pid"], &alert["process"]));
        }
        for detection in alert["detections"].as_array().unwrap() {
            let of = of.iter().filter(|finding| finding["detection"] == detection["detection"]);
            assert_eq!(detection["count"].as_u64(), of.map(|finding| finding["count"].as_u64()).sum());
        }
    }
    let with_alert = found.iter().filter(|finding| !finding["alert"].is_null()).count();
    assert_eq!(with_alert, found.len());
}

#[test]
fn the_summary_has_alerts_counts_and_few_findings() {
    let summary = String::from_utf8(hunt(&["--format", "summary"]).stdout).unwrap();
    let (_, alerts, _) = documents(&["--min-severity", "medium"]);
    for alert in &alerts {
        assert!(summary.contains(&format!("alert {}", alert["alert"].as_str().unwrap())), "{summary}");
    }
    let blocks = summary.lines().filter(|line| line.contains(" record ")).count();
    assert!((1..=10).contains(&blocks), "{summary}");
    assert!(summary.lines().count() < 300, "{summary}");
    let order =
        ["Alerts by score", "Findings in ", "The most severe findings"].map(|head| summary.find(head));
    assert!(order.is_sorted() && order.iter().all(Option::is_some), "{order:?}\n{summary}");
    // The most severe findings are first, and each process with each set of detections appears
    // once.
    let severities = ["CRITICAL", "HIGH", "MEDIUM", "LOW"];
    let of = |line: &str| severities.iter().position(|name| line.starts_with(&format!("{name}  CS")));
    let top = &summary[order[2].unwrap()..];
    let firsts: Vec<usize> =
        top.split("\n\n").filter_map(|block| block.lines().filter_map(of).min()).collect();
    assert!(!firsts.is_empty() && firsts.is_sorted(), "{top}");
}

#[test]
fn with_image_files_only_the_attacker_has_findings_about_kernel_entry() {
    let symbols = demo().join("symbols");
    let (found, _) = findings(&["--images", text(&symbols), "--only", "CS01,CS02,CS03,CS04,CS05,CS06"]);
    for expected in ["CS02", "CS03", "CS04", "CS05", "CS06"] {
        assert!(ids(&found).contains(&expected), "{expected} is not in {:?}", ids(&found));
    }
    for finding in &found {
        assert_eq!(finding["process"]["name"], "updater.exe", "{finding}");
    }
}

#[test]
fn the_exit_code_shows_whether_findings_were_written() {
    for (arguments, expected) in [
        (&["--quiet"][..], 1),
        (&["--exit-zero"], 0),
        (&["--min-severity", "critical"], 0),
        (&["--only", "CS02"], 1),
        (&["--only", "cs20,CS23"], 0),
        // Undetermined answers are not findings.
        (&["--only", "CS18", "--all"], 0),
        (&["--pid", "4"], 0),
    ] {
        let output = hunt(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(expected), "{arguments:?}: {errors}");
    }
}

#[test]
fn only_selected_findings_are_written() {
    let (found, _) = findings(&["--only", "CS02"]);
    assert!(!found.is_empty() && ids(&found).iter().all(|id| *id == "CS02"), "{:?}", ids(&found));
    let (all, _) = findings(&["--only", "CS05", "--all", "--min-severity", "info"]);
    let undetermined = all.iter().filter(|finding| finding["verdict"] == "undetermined").count();
    assert!(undetermined > 0);
    for finding in &all {
        assert_eq!(finding["detection"], "CS05");
        let missing = finding["inputs_missing"].as_array().unwrap();
        assert!(finding["verdict"] != "undetermined" || !missing.is_empty(), "{finding}");
    }
}

#[test]
fn every_format_can_be_parsed() {
    for format in ["ndjson", "ecs", "ocsf"] {
        let output = hunt(&["--format", format]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.lines().count() > 3, "{format}: {text}");
        for line in text.lines() {
            let value: Value = serde_json::from_str(line).unwrap();
            assert!(value.is_object(), "{format}: {line}");
        }
    }
    let layer: Value = serde_json::from_slice(&hunt(&["--format", "navigator"]).stdout).unwrap();
    let techniques = layer["techniques"].as_array().unwrap();
    assert!(techniques.iter().any(|technique| technique["techniqueID"] == "T1106"), "{layer}");
    let csv = String::from_utf8(hunt(&["--format", "csv"]).stdout).unwrap();
    let mut lines = csv.lines();
    assert!(lines.next().unwrap().split(',').count() > 5, "{csv}");
    assert!(lines.clone().any(|line| line.contains("CS02")), "{csv}");
    let table = String::from_utf8(hunt(&[]).stdout).unwrap();
    assert!(table.contains("CS02") && table.contains("updater.exe"), "{table}");
    assert!(!table.contains('\u{1b}'), "colors without a terminal");
}

#[test]
#[ignore = "slow: run by .ci/run"]
fn findings_do_not_depend_on_threads() {
    let written = |threads: &str| {
        // The answers of all detections would take most of the time.
        let some = ["--only", "CS09,CS28", "--all"];
        let output = hunt(&[&["--format", "ndjson", "--threads", threads], &some[..]].concat());
        assert!(!output.stdout.is_empty());
        output.stdout
    };
    assert!(written("1") == written("2"));
}

#[test]
fn findings_are_written_to_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("findings.ndjson");
    let output = hunt(&["--format", "ndjson", "-o", text(&path)]);
    assert!(output.stdout.is_empty());
    let (found, alerts, _) = documents(&[]);
    assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), found.len() + alerts.len());
}

#[test]
fn the_closing_line_counts_evaluations_findings_and_missing_evidence() {
    let output = hunt(&[]);
    let errors = String::from_utf8(output.stderr).unwrap();
    let closing = errors.lines().last().unwrap();
    for part in [
        " events, ",
        " evaluated, ",
        " of them with stacks; findings: ",
        " high",
        "; missing evidence: ",
        " buffer lost",
    ] {
        assert!(closing.contains(part), "{part}: {closing}");
    }
    assert!(hunt(&["--quiet"]).stderr.is_empty());
}

#[test]
fn invalid_arguments_are_reported_in_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let etl_file = etl_file();
    let etl_file = text(&etl_file);
    let file = |name: &str, bytes: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let missing = folder.path().join("nowhere");
    let missing = text(&missing);
    let no_file = "No such file or directory (os error 2)";
    refused(&["hunt", missing], &format!("{missing}: {no_file}"));
    refused(&["hunt", etl_file, "--lists", missing], &format!("{missing}: {no_file}"));
    refused(&["hunt", etl_file, "--known-images", missing], &format!("{missing}: {no_file}"));
    refused(&["hunt", etl_file, "--images", missing], &format!("{missing}: --images needs a directory"));
    let lists = file("lists.toml", "[modules]\nsystem_call = 5\n");
    let output = stackhound(&["hunt", etl_file, "--lists", text(&lists)]);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2));
    assert!(errors.starts_with(&format!("error: {}:2: ", lists.display())), "{errors}");
    for (arguments, part) in [
        (&["--only", "CS99"][..], "there is no detection `CS99`; write an id from CS01 to CS30"),
        (
            &["--min-severity", "grave"],
            "`grave` is not a severity; write one of info, low, medium, high, critical",
        ),
    ] {
        let output = hunt(arguments);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains(part), "{errors}");
    }
}

/// A ProcessAccess event by code in no module, as a line of Winlogbeat.
const ACCESS: &str = r#"{"@timestamp":"2023-01-01T00:00:00.000Z","winlog":{"event_id":10,"provider_name":"Microsoft-Windows-Sysmon","event_data":{"SourceImage":"C:\\t.exe","SourceProcessId":"5","TargetImage":"C:\\a.exe","GrantedAccess":"0x1fffff","CallTrace":"C:\\Windows\\SYSTEM32\\ntdll.dll+9d4c4|C:\\Windows\\System32\\KERNELBASE.dll+2c13e|UNKNOWN(000000000338D572)"}}}"#;

#[test]
fn an_invalid_input_does_not_affect_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let line = format!("{ACCESS}\n");
    for (name, text) in [
        ("a.jsonl", line.as_str()),
        ("b.json", "[\n  {}\n]\n"),
        ("c.json", "{\n  \"x\": 1\n}\n"),
        ("d.evtx", "no event log"),
        ("e.txt", "no data"),
        ("f.ndjson", &line),
    ] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let files = |output: &Output| -> Vec<String> {
        let lines = std::str::from_utf8(&output.stdout).unwrap().lines();
        let lines = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
        let names = lines.filter_map(|line| Some(line["input"]["file"].as_str()?.to_owned()));
        let mut names: Vec<String> = names.collect();
        names.dedup();
        names
    };
    // In a folder, files with only the extension are reported and skipped.
    let output = stackhound(&["hunt", text(folder.path()), "--format", "ndjson", "--min-severity", "high"]);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert_eq!(files(&output), [path("a.jsonl"), path("f.ndjson")]);
    for name in ["b.json", "c.json", "d.evtx"] {
        assert!(errors.contains(&format!("{}: skipped", path(name))), "{errors}");
    }
    // Files on the command line must be readable.
    let output =
        stackhound(&["hunt", "--format", "ndjson", &path("a.jsonl"), &path("d.evtx"), &path("f.ndjson")]);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert_eq!(files(&output), [path("a.jsonl"), path("f.ndjson")]);
    assert!(errors.contains(&format!("error: {}: ", path("d.evtx"))), "{errors}");
    assert!(errors.contains(", 2 evaluated, "), "{errors}");
    assert!(errors.ends_with("error: 1 of 3 inputs could not be read completely\n"), "{errors}");
    for name in ["b.json", "c.json"] {
        let sentence =
            "expected JSON with one object per line; `jq -c '.[]?' FILE` converts a list to this form";
        refused(&["hunt", &path(name)], &format!("{}: {sentence}", path(name)));
    }
    let output = stackhound(&["hunt", &path("e.txt")]);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(errors.contains("; expected a trace, or Sysmon events"), "{errors}");
}

#[test]
#[cfg(unix)]
fn rows_are_read_from_pipes() {
    use std::io::Write;
    use std::process::{Command, Stdio};
    let given = |name: &str, bytes: &[u8]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stackhound"));
        command.args(["hunt", name, "--format", "ndjson", "--min-severity", "high"]);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // The program may have ended already, if it refuses the input.
        let _ = child.stdin.take().unwrap().write_all(bytes);
        child.wait_with_output().unwrap()
    };
    for name in ["-", "/dev/stdin"] {
        let output = given(name, ACCESS.as_bytes());
        assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
        let lines = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let [found, alert] = &lines[..] else { panic!("{lines:?}") };
        assert_eq!((&found["detection"], &found["input"]["file"]), (&"CS07".into(), &name.into()));
        assert_eq!((&alert["type"], &alert["alert"]), (&"alert".into(), &found["alert"]));
        assert_eq!(given(name, b"").status.code(), Some(0));
        let refused = given(name, b"ElfFile\0");
        let errors = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2));
        assert!(errors.contains("expected JSON with one object per line from a pipe"), "{errors}");
    }
}

#[test]
fn live_options_conflict_with_files() {
    let etl_file = etl_file();
    let output = stackhound(&["hunt", text(&etl_file), "--live-memory"]);
    assert_eq!(output.status.code(), Some(2));
    for option in ["--for", "--attach", "--session"] {
        let output = stackhound(&["kstack", "--trace", text(&etl_file), option, "1"]);
        assert_eq!(output.status.code(), Some(2), "{option}");
    }
}

#[test]
fn lists_of_the_user_are_used() {
    let folder = tempfile::tempdir().unwrap();
    let lists = folder.path().join("lists.toml");
    let own = "[modules]\nsystem_call = [\"ntdll.dll\", \"win32u.dll\", \"updater.exe\"]\n[folders]\nwritable = []\n";
    std::fs::write(&lists, own).unwrap();
    // Names in the list apply only to the folders of Windows, so the finding remains.
    let (found, _) = findings(&["--lists", text(&lists), "--only", "CS02"]);
    assert!(!found.is_empty());
}

/// Common terms lead to their detections, and are in the documentation.
#[test]
fn detections_are_found_by_common_terms() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/hunt.md");
    let page = std::fs::read_to_string(page).unwrap().to_lowercase();
    for (term, expected) in [
        ("direct system call", "CS01"),
        ("indirect system call", "CS05"),
        ("service/stub mismatch", "CS03"),
        ("private stub", "CS05"),
        ("unbacked executable memory", "CS07"),
        ("remapped or second ntdll", "CS10"),
        ("unhooking", "CS10"),
        ("call stack spoofing", "CS16"),
        ("return address not preceded by a call", "CS11"),
        ("ROP gadget", "CS12"),
        ("outside any function", "CS13"),
        ("caller/callee mismatch", "CS16"),
        ("truncated stack", "CS14"),
        ("stack root does not match the thread's start address", "CS15"),
        ("proxy call through a thread-pool callback", "CS17"),
        ("module stomping", "CS18"),
        ("patched image", "CS18"),
        ("suspicious thread start address", "CS19"),
        ("heaven's gate", "CS20"),
        ("Sleep Obfuscation", "CS21"),
        ("vectored exception handler", "CS22"),
        ("unbacked kernel code", "CS23"),
        ("suspicious LSASS handle", "CS24"),
        ("LSASS memory dump", "CS25"),
        ("kernel callback", "CS26"),
        ("T1003.001", "CS24"),
        ("written memory made executable", "CS27"),
        ("protection fluctuation", "CS28"),
        ("AMSI", "CS29"),
        ("process hollowing", "CS29"),
    ] {
        let output = stackhound(&["explain", "--search", term]);
        let found = String::from_utf8(output.stdout).unwrap();
        assert!(found.lines().any(|line| line.starts_with(expected)), "{term}: {found}");
        assert!(found.lines().count() < 24, "{term} is in all of them");
        assert!(term.starts_with('T') || page.contains(&term.to_lowercase()), "docs/hunt.md has no {term}");
    }
    refused(
        &["explain", "--search", "no such term"],
        "no detection contains `no such term`; `stackhound explain` lists all",
    );
}

#[test]
fn detections_are_explained() {
    let all = stackhound(&["explain"]);
    let list = String::from_utf8(all.stdout).unwrap();
    assert_eq!(list.lines().filter(|line| line.starts_with("CS")).count(), 30, "{list}");
    for spelling in ["CS05", "cs05"] {
        let one = stackhound(&["explain", spelling]);
        let explained = String::from_utf8(one.stdout).unwrap();
        assert_eq!(one.status.code(), Some(0));
        assert!(explained.starts_with("CS05: indirect system call: private stub\n"), "{explained}");
        assert!(explained.contains("ATT&CK: T1106, T1027.007"), "{explained}");
    }
    refused(&["explain", "CS99"], "there is no detection `CS99`; the ids are CS01 to CS30");
}

#[test]
#[cfg(not(windows))]
fn live_needs_windows() {
    let output = stackhound(&["hunt", "--live"]);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2));
    assert!(errors.contains("live sessions need Windows"), "{errors}");
}

/// Rows of Winlogbeat about one process: an access, tampering, the load and the creation of its
/// library, and its start, in the reverse order of time.
const EVIDENCE: [(u32, &str, &str); 6] = [
    (
        10,
        "2023-01-01 00:00:09.000",
        r#""SourceProcessGUID":"{1-5}","SourceProcessId":"5","SourceImage":"C:\\t.exe","TargetProcessId":"7","TargetImage":"C:\\a.exe","GrantedAccess":"0x1fffff","CallTrace":"C:\\p\\steamservice.exe+5|C:\\Windows\\SYSTEM32\\ntdll.dll+9d4c4""#,
    ),
    (25, "2023-01-01 00:00:08.000", r#""Image":"C:\\t.exe","Type":"Image is replaced""#),
    (
        7,
        "2023-01-01 00:00:07.000",
        r#""Image":"C:\\t.exe","ImageLoaded":"C:\\p\\steamservice.exe","Signed":"true","Signature":"Contoso","SignatureStatus":"Valid""#,
    ),
    (
        1,
        "2023-01-01 00:00:06.000",
        r#""Image":"C:\\t.exe","CommandLine":"t /x","User":"PC\\u","IntegrityLevel":"High","ParentProcessId":"4""#,
    ),
    (
        29,
        "2023-01-01 00:00:05.500",
        r#""Image":"C:\\d.exe","TargetFilename":"C:\\p\\SteamService.exe","Hashes":"SHA256=ABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABAB""#,
    ),
    (11, "2023-01-01 00:00:05.000", r#""Image":"C:\\d.exe","TargetFilename":"C:\\p\\steamservice.exe""#),
];

fn evidence(order: impl Iterator<Item = usize>) -> String {
    let row = |index: usize| {
        let (event, time, data) = EVIDENCE[index];
        format!(
            r#"{{"winlog":{{"event_id":{event},"provider_name":"Microsoft-Windows-Sysmon","computer_name":"PC","event_data":{{"UtcTime":"{time}","ProcessGuid":"{{1-5}}","ProcessId":"5",{data}}}}}}}"#
        ) + "\n"
    };
    order.map(row).collect()
}

#[test]
fn evidence_in_a_file_counts_in_any_order() {
    let folder = tempfile::tempdir().unwrap();
    let mut outputs = Vec::new();
    for order in [vec![0, 1, 2, 3, 4, 5], vec![5, 4, 3, 2, 1, 0], vec![3, 0, 5, 2, 4, 1]] {
        // The evidence can be in another file, before or after.
        for split in [0, 3] {
            let paths = ["a.ndjson", "b.ndjson"].map(|name| folder.path().join(name));
            std::fs::write(&paths[0], evidence(order[..split].iter().copied()) + "{}\n").unwrap();
            std::fs::write(&paths[1], evidence(order[split..].iter().copied())).unwrap();
            let output = stackhound(&["hunt", "--format", "ndjson", text(&paths[0]), text(&paths[1])]);
            let lines = std::str::from_utf8(&output.stdout).unwrap().lines();
            let mut findings: Vec<Value> = lines
                .map(|line| serde_json::from_str::<Value>(line).unwrap())
                .filter(|line| line["type"] == "finding")
                .collect();
            findings.iter_mut().for_each(|finding| {
                let finding = finding.as_object_mut().unwrap();
                finding.remove("input");
                // Its key contains the time of the first finding that was read.
                finding.remove("alert");
            });
            findings.sort_by_key(Value::to_string);
            outputs.push(findings);
        }
    }
    assert!(outputs.windows(2).all(|pair| pair[0] == pair[1]), "{outputs:#?}");
    let of = |id: &str| outputs[0].iter().find(|finding| finding["detection"] == id).expect(id);
    let direct = of("CS02");
    assert_eq!(direct["severity"], "high", "{direct:#}");
    let process = &direct["process"];
    assert_eq!(
        (&process["command_line"], &process["user"]["name"], &process["integrity"]),
        (&"t /x".into(), &r"PC\u".into(), &"high".into())
    );
    let created = &direct["created_files"][0];
    assert_eq!(
        (&created["seconds_before"], &created["process"], &created["sha256"]),
        (&3.5.into(), &r"C:\d.exe".into(), &"ab".repeat(32).into()),
        "{created:#}"
    );
    let tampering = &direct["tampering"][0];
    assert_eq!(
        (&tampering["seconds_before"], &tampering["kind"]),
        (&1.0.into(), &"Image is replaced".into())
    );
    let tampered = of("CS30");
    assert_eq!((&tampered["severity"], &tampered["event"]), (&"high".into(), &"ProcessTampering".into()));
    // As a table and as a document.
    let path = folder.path().join("all.ndjson");
    std::fs::write(&path, evidence(0..EVIDENCE.len())).unwrap();
    let output = stackhound(&["hunt", "--format", "list", text(&path)]);
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    for part in [
        "  steamservice.exe was created by d.exe (pid 5) 3.5 s before, SHA-256 abab",
        "  process tampering was reported 1.0 s before: Image is replaced",
        "HIGH  CS30  process tampering: image hollowing or herpaderping",
    ] {
        assert!(table.contains(part), "{part}: {table}");
    }
    let output = stackhound(&["hunt", "--format", "ecs", "--only", "CS02", text(&path)]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["stackhound"]["created_files"][0]["process"]["pid"], 5, "{document:#}");
}
