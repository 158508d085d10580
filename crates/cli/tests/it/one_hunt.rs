//! A policy has one meaning: lists, exceptions, rules and a baseline give the same findings in `hunt`, in the verbs that
//! hunt too, and in the library. `scripts/live-cli-check.sh` compares them with those of a live session.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use serde_json::Value;
use stackhound::detect::tuning::Tuning;
use stackhound::detect::{Binaries, Severity};
use stackhound::frames::Lists;
use stackhound::hunt::{FindingSelection, Hunt, Policy, Rules};
use stackhound::rules::Library;
use stackhound::rules::evaluate::Mode;
use stackhound::trace::TraceFiles;
use stackhound::{Passes, Pipeline};
use tempfile::TempDir;

use crate::demonstration::{demo, run};
use crate::parquet_tables::{lines, rows};

const TRACE: &str = "stackhound-demo.etl";

/// The first list gives findings that the demo has not, `[severity]` gives two detections others, and the exception
/// applies to all findings of one.
const LISTS: &str = "
[modules]
wow64 = []

[severity]
CS02 = 'critical'
CS07 = 'low'
CS08 = 'low'
CS09 = 'low'

[[exceptions]]
detection = 'CS19'
reason = 'expected here'
";

/// A rule about events, and one about the answers of a detection that the first list changes.
const RULES: [(&str, &str); 2] = [
    ("opened", "evt.name = 'OpenProcess'"),
    ("answers", "evt.name = 'RegOpenKey' and stack.finding = 'CS20'"),
];

const CONFIG: &str = "
[hunt]
lists = 'policy/lists.toml'
rules = ['policy/rules']
baseline = 'policy/baseline.ndjson'
";

/// The demo trace with a policy, whose paths are relative to the config file.
fn folder() -> TempDir {
    let folder = demo();
    let policy = folder.path().join("policy");
    fs::create_dir_all(policy.join("rules")).unwrap();
    fs::write(folder.path().join("config.toml"), CONFIG).unwrap();
    fs::write(policy.join("lists.toml"), LISTS).unwrap();
    for (id, condition) in RULES {
        let rule = format!(
            "name: rule {id}\nid: {id}\nversion: 1.0.0\nseverity: high\nmin-engine-version: 3.0.0\ncondition: >\n  {condition}\n"
        );
        fs::write(policy.join(format!("rules/{id}.yml")), rule).unwrap();
    }
    let learning = ["hunt", "-q", TRACE, "--exit-zero", "--lists", "policy/lists.toml", "--write-baseline"];
    let learned = run(folder.path(), &[&learning[..], &["policy/baseline.ndjson"]].concat());
    assert!(learned.status.success(), "{}", String::from_utf8_lossy(&learned.stderr));
    folder
}

/// The findings and the alerts of `hunt`.
fn hunt(folder: &Path, options: &[&str]) -> (Vec<Value>, Vec<Value>) {
    let arguments = ["hunt", "-q", TRACE, "--exit-zero", "--format", "ndjson"];
    let mut documents = lines(folder, &[&arguments[..], options].concat());
    documents.retain(|document| document["type"] == "finding" || document["type"] == "alert");
    documents.into_iter().partition(|document| document["type"] == "finding")
}

/// The number of findings by an id or a severity.
fn counts<'v>(documents: &'v [Value], key: impl Fn(&'v Value) -> &'v Value) -> BTreeMap<&'v str, u64> {
    let mut counts = BTreeMap::new();
    for document in documents {
        *counts.entry(key(document).as_str().unwrap()).or_default() += 1;
    }
    counts
}

fn id(finding: &Value) -> &Value {
    if finding["detection"].is_null() { &finding["rule"]["id"] } else { &finding["detection"] }
}

fn json(folder: &Path, arguments: &[&str]) -> Value {
    let output = run(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_policy_gives_the_same_findings_in_every_verb() {
    let folder = folder();
    let folder = folder.path();
    let config = ["--config", "config.toml"];
    let (findings, alerts) = hunt(folder, &config);
    let (plain, _) = hunt(folder, &[]);
    let options =
        ["--lists", "policy/lists.toml", "--rules", "policy/rules", "--baseline", "policy/baseline.ndjson"];
    assert_eq!(hunt(folder, &options), (findings.clone(), alerts.clone()));
    // Each part of the policy has an effect.
    let (by_id, without) = (counts(&findings, id), counts(&plain, id));
    assert!(by_id["opened"] > 0 && by_id["answers"] > 0 && by_id["CS20"] > 0, "{by_id:?}");
    assert!(!without.contains_key("CS20") && without["CS19"] > 0, "{without:?}");
    assert!(!by_id.contains_key("CS08") && !by_id.contains_key("CS19"), "{by_id:?}, {without:?}");
    assert!(findings.iter().any(|finding| finding["severity"] == "critical"));
    let (shown, _) = hunt(folder, &[&config[..], &["--show-suppressed"]].concat());
    for by in ["exception", "baseline"] {
        assert!(shown.iter().any(|finding| finding["suppressed"]["by"] == by), "{by}");
    }

    // The tables.
    let converted = run(folder, &["convert", "-q", TRACE, "-o", "lake", "--config", "config.toml"]);
    assert!(converted.status.success(), "{}", String::from_utf8_lossy(&converted.stderr));
    for (table, key, expected) in [("findings", "number", &findings), ("alerts", "alert", &alerts)] {
        let mut rows = rows(&folder.join("lake"), table);
        rows.sort_by_key(|row| row[key].as_u64());
        let documents =
            rows.iter().map(|row| serde_json::from_str(row["document"].as_str().unwrap()).unwrap());
        assert_eq!(documents.collect::<Vec<Value>>(), *expected, "{table}");
    }

    // The first answers: all severities.
    let (all, all_alerts) = hunt(folder, &[&config[..], &["--min-severity", "info"]].concat());
    let summary = &json(folder, &["summary", "-q", TRACE, "--format", "json", "--config", "config.toml"])[0];
    let by_severity = summary["findings"].as_array().unwrap().iter();
    let by_severity: BTreeMap<&str, u64> = by_severity
        .map(|row| (row["severity"].as_str().unwrap(), row["findings"].as_u64().unwrap()))
        .collect();
    assert_eq!(by_severity, counts(&all, |finding| &finding["severity"]));
    let scores = |alerts: &[Value]| {
        let facts = |alert: &Value| (alert["score"].clone(), alert["pid"].clone(), alert["events"].clone());
        alerts.iter().map(facts).collect::<Vec<_>>()
    };
    assert_eq!(scores(summary["alerts"].as_array().unwrap()), scores(&all_alerts));

    // A comparison of the trace with itself, of at least medium severity.
    fs::copy(folder.join(TRACE), folder.join("same.etl")).unwrap();
    let arguments = ["diff", "-q", TRACE, "same.etl", "--by", "finding", "--all", "--format", "json"];
    let diff = json(folder, &[&arguments[..], &config[..]].concat());
    let mut compared: BTreeMap<&str, u64> = BTreeMap::new();
    for row in diff["findings"]["rows"].as_array().unwrap() {
        assert_eq!(row["a"], row["b"]);
        *compared.entry(row["id"].as_str().unwrap()).or_default() += row["a"].as_u64().unwrap();
    }
    let severe =
        |finding: &&Value| Severity::of(finding["severity"].as_str().unwrap()) >= Some(Severity::Medium);
    let severe: Vec<Value> = findings.iter().filter(severe).cloned().collect();
    assert_eq!(compared, counts(&severe, id));
}

#[test]
fn rules_are_tested_with_the_lists_of_the_policy() {
    let folder = folder();
    let folder = folder.path();
    let case = |verdict: &str| {
        format!(
            "rule: answers\ncases:\n  - name: the demo\n    verdict: {verdict}\n    trace: ../../{TRACE}\n"
        )
    };
    // Without the lists, no event has the finding. Whether one has is open where its stack is lost.
    for (verdict, config) in [("yes", "config.toml"), ("undetermined", "empty.toml")] {
        fs::write(folder.join("empty.toml"), "").unwrap();
        fs::write(folder.join("policy/rules/answers_test.yml"), case(verdict)).unwrap();
        let tested = run(folder, &["rules", "test", "policy/rules", "--config", config]);
        let errors = String::from_utf8_lossy(&tested.stderr).into_owned();
        assert!(tested.status.success(), "{verdict}: {}{errors}", String::from_utf8_lossy(&tested.stdout));
    }
}

#[test]
fn the_library_has_the_findings_of_the_program() {
    let folder = folder();
    let folder = folder.path();
    let (findings, alerts) =
        hunt(folder, &["--lists", "policy/lists.toml", "--rules", "policy/rules", "--symbol-path", "none"]);
    let files = RULES.map(|(id, _)| {
        let file = format!("policy/rules/{id}.yml");
        let content = fs::read(folder.join(&file)).unwrap();
        (file, content)
    });
    let library = Library::read(files.iter().map(|(file, content)| (file.as_str(), content.as_slice())));
    let policy = Policy {
        lists: Lists::with(LISTS).unwrap(),
        tuning: Tuning::parse(LISTS).unwrap(),
        rules: Rules::new(library, Mode::Strict),
        ..Policy::default()
    };
    let trace = TraceFiles::file(folder.join(TRACE)).open().unwrap();
    let mut found = Vec::new();
    let hunt = Hunt::new(policy, Binaries::none(), FindingSelection::default());
    let (mut hunt, _) = hunt.run(
        Pipeline::new(&trace, Passes::Two),
        vec![TRACE.to_owned()],
        |_| ControlFlow::Continue(true),
        |event| {
            let one = |finding: &stackhound::detect::report::Finding| {
                (finding.analytic.name().to_owned(), event.context.location.record, finding.alert.clone())
            };
            found.extend(event.findings.iter().map(one));
            ControlFlow::Continue(())
        },
    );
    let expected = findings.iter().map(|finding| {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        (text(id(finding)), finding["input"]["record"].as_u64().unwrap(), text(&finding["alert"]))
    });
    assert_eq!(found, expected.collect::<Vec<_>>());
    let report = hunt.take_report();
    assert_eq!(report.alerts.len(), alerts.len());
    assert_eq!(
        report.totals.findings(Severity::High),
        counts(&findings, |finding| &finding["severity"])["high"]
    );
}
