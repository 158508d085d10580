//! `rules`: the forms of its output, its exit codes and its messages.

use std::path::Path;
use std::process::Output;

use crate::program::{refused, stackhound, text};
use serde_json::Value;

const GOOD: &str = r"name: Document starts a script
id: 5f7c9f53-1d0e-4a7e-8c0c-9b0a6b1f3c55
version: 1.0.0
description: Text of the rule.
severity: high
labels:
  technique.id: T1059
condition: >
  evt.name = 'CreateProcess' and ps.parent.name ~= 'winword.exe'
action:
  - name: kill
min-engine-version: 3.0.0
";

fn written(output: &Output) -> (String, String, Option<i32>) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

/// A folder with a good rule, one with an error, a suspicious one and a file that is none.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let changed = |id: &str, from: &str, to: &str| GOOD.replace("5f7c9f53", id).replace(from, to);
    for (name, content) in [
        ("good.yml", GOOD.to_owned()),
        ("error.yaml", changed("a", "ps.parent.name", "ps.parent.nam")),
        ("lint.yml", changed("b", "'winword.exe'", "'winword.exe')")),
        ("none.yml", "a: 1\n".to_owned()),
        ("other.txt", "no rule".to_owned()),
    ] {
        std::fs::write(folder.path().join(name), content).unwrap();
    }
    folder
}

fn in_folder(folder: &Path, arguments: &[&str]) -> (String, String, Option<i32>) {
    written(&stackhound(&[arguments, &[text(folder)]].concat()))
}

#[test]
fn problems_are_shown_with_their_lines() {
    let folder = folder();
    let (shown, errors, code) = in_folder(folder.path(), &["rules", "check"]);
    let path = |name: &str| text(&folder.path().join(name)).to_owned();
    let line = "  evt.name = 'CreateProcess' and ps.parent.nam ~= 'winword.exe'";
    let expected = format!(
        "{}:1:1: error: expected a rule with `condition`, a rule of Sigma with `detection`, or a list of macros\n  a: 1\n  ^\n\
         {}:9:34: error: there is no field, function or macro `ps.parent.nam`, did you mean `ps.parent.name`?\n  {line}\n  {}^^^^^^^^^^^^^\n\
         {}:9:65: ignored-end: the parenthesis or comma is superfluous, and what follows is ignored\n  {})\n  {}^\n",
        path("none.yml"),
        path("error.yaml"),
        " ".repeat(33),
        path("lint.yml"),
        line.replace("nam ", "name "),
        " ".repeat(64),
    );
    assert_eq!(shown, expected);
    assert_eq!((errors.as_str(), code), ("3 rules, 2 errors, 1 lint finding\n", Some(1)));
    let (shown, errors, code) = in_folder(&folder.path().join("good.yml"), &["rules", "check", "-q"]);
    assert_eq!((shown.as_str(), errors.as_str(), code), ("", "", Some(0)));
}

#[test]
fn rules_are_written_as_json() {
    let folder = folder();
    let (shown, _, code) = in_folder(folder.path(), &["rules", "check", "--format", "json"]);
    let document: Value = serde_json::from_str(&shown).unwrap();
    let rules = document["rules"].as_array().unwrap();
    let of = |name: &str| {
        let has_name = |rule: &&Value| rule["file"].as_str().unwrap().ends_with(name);
        rules.iter().find(has_name).unwrap_or_else(|| panic!("{name}: {shown}"))
    };
    assert_eq!((rules.len(), code), (4, Some(1)));
    let good = of("good.yml");
    assert_eq!((&good["loads"], &good["error"]), (&Value::Bool(true), &Value::Null));
    assert_eq!(good["id"], "5f7c9f53-1d0e-4a7e-8c0c-9b0a6b1f3c55");
    assert_eq!(good["needs"], serde_json::json!(["process-events"]));
    assert_eq!(good["events"], serde_json::json!([["CreateProcess"]]));
    let error = of("error.yaml");
    assert_eq!((&error["loads"], &error["error"]["line"]), (&Value::Bool(false), &9.into()));
    assert_eq!((&error["error"]["column"], &error["needs"]), (&34.into(), &serde_json::json!([])));
    let lint = &of("lint.yml")["lints"][0];
    assert_eq!((&lint["code"], &lint["line"]), (&"ignored-end".into(), &9.into()));
    let none = of("none.yml");
    assert_eq!((&none["id"], &none["loads"]), (&Value::Null, &Value::Bool(false)));
}

#[test]
fn rules_are_listed_and_explained() {
    let folder = folder();
    let (shown, errors, code) = in_folder(folder.path(), &["rules", "list"]);
    assert_eq!((errors.as_str(), code), ("3 rules, 1 error; `stackhound rules check` shows them\n", Some(0)));
    assert!(shown.contains(
        "high      Document starts a script\n          CreateProcess\n          needs process-events\n"
    ));
    assert!(shown.contains("\n          cannot be used: "));
    let good = folder.path().join("good.yml");
    for rule in ["document STARTS", "5F7C9F53-1d0e-4a7e-8c0c-9b0a6b1f3c55"] {
        let (shown, _, code) = in_folder(&good, &["rules", "explain", rule]);
        assert_eq!(code, Some(0));
        for part in [
            "Document starts a script\n",
            "\nSeverity: high\n",
            "\nATT&CK: T1059\n",
            "\nActions (never executed on traces): kill\n",
            "\nText of the rule.\n",
            "\nEvents: CreateProcess\nNeeds: process-events\n",
            "\nCondition:\n  evt.name = 'CreateProcess' and",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    }
}

#[test]
fn invalid_arguments_are_reported_in_one_sentence() {
    let folder = folder();
    let path = text(folder.path()).to_owned();
    refused(
        &["rules", "explain", "unknown", &path],
        "no rule has the id or name `unknown`; `stackhound rules list` lists all",
    );
    let several = "several rules are named like `document`: `Document starts a script`, `Document starts a script`, `Document starts a script`";
    refused(&["rules", "explain", "document", &path], several);
    let missing = folder.path().join("missing");
    let sentence = format!("{}: No such file or directory (os error 2)", missing.display());
    refused(&["rules", "check", text(&missing)], &sentence);
    let empty = tempfile::tempdir().unwrap();
    let sentence =
        format!("{}: expected rules in YAML files (.yml, .yaml), found none", empty.path().display());
    refused(&["rules", "check", text(empty.path())], &sentence);
}

/// Names and texts of rules are data.
#[test]
fn special_characters_do_not_reach_the_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.yml");
    let rule = GOOD
        .replace("name: Document", "name: \"\\e[31mDocument")
        .replace("a script", "a script\"")
        .replace("Text of the rule.", "\"a\\eb\"");
    std::fs::write(&path, rule).unwrap();
    for verb in [&["rules", "list"][..], &["rules", "explain", "script"], &["rules", "check"]] {
        let (shown, errors, _) = in_folder(&path, verb);
        assert!(!shown.contains('\u{1b}') && !errors.contains('\u{1b}'), "{shown}{errors}");
    }
}

/// The rules of this project find what their cases state, and nothing is suspicious about them.
#[test]
fn the_rules_of_this_project_pass_their_cases() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../rules");
    let checked = stackhound(&["rules", "check", text(&folder)]);
    assert_eq!((checked.status.code(), checked.stdout.as_slice()), (Some(0), &b""[..]));
    let tested = stackhound(&["rules", "test", text(&folder)]);
    assert_eq!((tested.status.code(), tested.stdout.as_slice()), (Some(0), &b""[..]));
    let closing = String::from_utf8(tested.stderr).unwrap();
    assert!(closing.contains(" 0 failed") && !closing.contains("without cases"), "{closing}");
}

const RULE: &str = "
name: Opened by updater
id: 0b1ff1c4-5b1c-4a7e-9c40-3f0d3f0f3a11
version: 1.0.0
severity: high
labels: { tactic.id: TA0005, technique.id: T1106 }
condition: evt.name = 'OpenProcess' and ps.name = 'updater.exe' and stack.finding = 'CS06'
output: '%ps.exe opened %evt.arg[exe]'
min-engine-version: 3.0.0
";

/// Findings of rules are in the same alerts and formats as those of detections, and exceptions apply to them.
#[test]
fn findings_of_rules_are_findings() {
    let folder = tempfile::tempdir().unwrap();
    let location = |name: &str| folder.path().join(name);
    assert!(stackhound(&["demo", "-q", "--out", text(folder.path())]).status.success());
    std::fs::write(location("rule.yml"), RULE).unwrap();
    let (trace, rule) = (location("stackhound-demo.etl"), location("rule.yml"));
    let hunt = |more: &[&str]| {
        let fixed = ["hunt", "-q", text(&trace), "--rules", text(&rule), "--symbol-path", "", "--exit-zero"];
        let output = stackhound(&[&fixed[..], more].concat());
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let lines = hunt(&["--format", "ndjson"]);
    let documents: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let findings: Vec<_> = documents.iter().filter(|document| !document["rule"].is_null()).collect();
    // Two of the three events are opens with an unusual stack, by the answers of CS06.
    let opens = documents
        .iter()
        .filter(|document| document["detection"] == "CS06" && document["event"] == "OpenProcess");
    assert_eq!((findings.len(), opens.count()), (2, 2));
    for finding in findings {
        assert_eq!(
            finding["rule"]["text"],
            r"C:\ProgramData\Contoso\updater.exe opened C:\Windows\explorer.exe"
        );
        assert_eq!((&finding["severity"], &finding["attack"][0]), (&"high".into(), &"T1106".into()));
        let of_alert = documents
            .iter()
            .find(|document| document["type"] == "alert" && document["alert"] == finding["alert"]);
        let detections = of_alert.unwrap()["detections"].as_array().unwrap();
        assert!(detections.iter().any(|one| one["detection"] == finding["detection"]));
    }
    assert!(hunt(&["--format", "table"]).contains("0b1ff1c4 high 2"));
    for format in ["ecs", "ocsf", "navigator", "csv", "timesketch", "list", "summary"] {
        assert!(hunt(&["--format", format]).contains("Opened by updater"), "{format}");
    }
    let lists = "[[exceptions]]\nrule = 'Opened by*'\nreason = 'expected'\n";
    std::fs::write(location("lists.toml"), lists).unwrap();
    let tuned = hunt(&["--format", "ndjson", "--lists", text(&location("lists.toml"))]);
    assert!(!tuned.contains("Opened by updater") && tuned.contains("CS06"));
}

const RULE_OF_LOGS: &str = "\
name: Started
id: 0b1ff1c4-1111-4222-8333-444455556666
version: 1.0.0
min-engine-version: 3.0.0
severity: high
condition: evt.name = 'CreateProcess'
";

/// Filters select the findings of rules in logs by their last event.
#[test]
fn filters_select_findings_of_rules_in_logs() {
    let folder = tempfile::tempdir().unwrap();
    let location = |name: &str| folder.path().join(name);
    std::fs::write(location("rule.yml"), RULE_OF_LOGS).unwrap();
    let row = |minute: u32, image: &str| {
        format!(
            "{{\"EventID\":1,\"Channel\":\"Microsoft-Windows-Sysmon/Operational\",\"UtcTime\":\"2026-01-01 00:{minute:02}:00.000\",\
             \"ProcessId\":\"{minute}\",\"Image\":\"C:\\\\\\\\Temp\\\\\\\\{image}\",\"CommandLine\":\"{image} -x\"}}\n"
        )
    };
    let rows = row(1, "one.exe") + &row(2, "two.exe") + &row(3, "one.exe");
    std::fs::write(location("sysmon.jsonl"), rows).unwrap();
    for (filter, expected) in [
        (&[][..], "1 2 3"),
        (&["--process", "one.exe"], "1 3"),
        (&["--where", "id = 1 and not process = 'one.exe'"], "2"),
        (&["--from", "2026-01-01T00:02:00Z"], "2 3"),
        (&["--where", "fields.SourceImage = 'x'"], ""),
    ] {
        let (rows, rule) = (location("sysmon.jsonl"), location("rule.yml"));
        let fixed = ["hunt", "-q", text(&rows), "--rules", text(&rule), "--format", "ndjson", "--exit-zero"];
        let output = stackhound(&[&fixed[..], filter].concat());
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        let lines = String::from_utf8(output.stdout).unwrap();
        let documents = lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let pids: Vec<String> = documents
            .filter(|document| document["type"] == "finding")
            .map(|document| document["pid"].to_string())
            .collect();
        assert_eq!(pids.join(" "), expected, "{filter:?}");
    }
}
