//! A fact has one value: each fact of the catalogue that `events` knows about the process, the thread and the target of
//! an event has the same value in its findings, its alert, ECS, OCSF, CSV and tables, under the names that its row in the
//! catalogue states. In Python, the tables are those of `convert`.

use std::collections::HashMap;
use std::path::Path;

use serde_json::Value;
use stackhound::Predicate;
use stackhound::facts::{FactId, FactType, ProcessFact, ThreadFact};
use stackhound_sysmon::json;
use stackhound_sysmon::row::{Action, Actor, Aim, Row};

use crate::demonstration::{demo, run};
use crate::parquet_tables::{lines, nanoseconds, rows};

fn pointer(path: &str) -> String {
    format!("/{}", path.replace('.', "/"))
}

fn at<'v>(value: &'v Value, path: &str) -> &'v Value {
    value.pointer(&pointer(path)).unwrap_or(&Value::Null)
}

/// The known facts of an object of `events`.
fn known<F: FactId>(object: &Value) -> Vec<(F, &Value)> {
    F::ALL
        .iter()
        .map(|fact| (*fact, at(object, fact.row().path)))
        .filter(|(_, value)| !value.is_null())
        .collect()
}

/// An object of another schema, with the one that has the facts for which the schema has no field.
struct Mapped<'v> {
    object: &'v Value,
    others: &'v Value,
    /// Prefix of fields that are those of another object.
    without: &'static str,
}

impl Mapped<'_> {
    fn get<F: FactId>(&self, fact: F, field: Option<&str>) -> &Value {
        match field.filter(|field| self.without.is_empty() || !field.starts_with(self.without)) {
            Some(field) => at(self.object, field),
            None => at(self.others, fact.row().path),
        }
    }

    fn check_ecs<F: FactId>(&self, facts: &Value, location: &str) -> usize {
        let facts = known::<F>(facts);
        for (fact, value) in &facts {
            assert_eq!(self.get(*fact, fact.row().ecs), *value, "{location}: {} in ECS", fact.row().path);
        }
        facts.len()
    }

    fn check_ocsf<F: FactId>(&self, facts: &Value, location: &str) -> usize {
        let facts = known::<F>(facts);
        for (fact, value) in &facts {
            let row = fact.row();
            let written = self.get(*fact, row.ocsf);
            let expected = match (row.r#type, row.ocsf) {
                (FactType::Time, Some(_)) => Value::from(nanoseconds(value).unwrap().div_euclid(1_000_000)),
                (FactType::Number, Some(field)) if field.ends_with(".uid") => value.to_string().into(),
                _ => (*value).clone(),
            };
            assert_eq!(*written, expected, "{location}: {} in OCSF", row.path);
        }
        facts.len()
    }
}

/// Every key inside an object of a finding is a field of filters.
fn check_keys(object: &Value, prefix: &str) {
    for (key, value) in object.as_object().into_iter().flatten() {
        let path = format!("{prefix}.{key}");
        if value.is_object() {
            check_keys(value, &path);
        } else if !value.is_null() {
            let parsed = Predicate::parse(&format!("{path} = '1'"));
            assert!(parsed.is_ok(), "{path} is no field of filters");
        }
    }
}

/// Findings in all formats, about events in the order of `events`.
struct Outputs {
    findings: Vec<Value>,
    alerts: Vec<Value>,
    ecs: Vec<Value>,
    ocsf: Vec<Value>,
    csv: HashMap<String, HashMap<String, String>>,
}

impl Outputs {
    fn new(folder: &Path, input: &str, options: &[&str]) -> Outputs {
        let written = |format: &str| {
            let arguments = ["hunt", input, "--exit-zero", "--format", format];
            lines(folder, &[&arguments[..], options].concat())
        };
        let (alerts, findings) = written("ndjson").into_iter().partition(|line| line["type"] == "alert");
        let csv = ["hunt", input, "--exit-zero", "--format", "csv", "-q"];
        let csv = run(folder, &[&csv[..], options].concat());
        let mut reader = csv::Reader::from_reader(&*csv.stdout);
        let csv: Vec<HashMap<String, String>> = reader.deserialize().map(Result::unwrap).collect();
        Outputs {
            findings,
            alerts,
            ecs: written("ecs"),
            ocsf: written("ocsf"),
            csv: csv.into_iter().map(|row| (format!("{} {}", row["input"], row["id"]), row)).collect(),
        }
    }

    /// Compares the finding with a number, and its documents in other schemas, with its event. Returns how many facts
    /// were compared.
    fn check(&self, number: usize, event: &Value) -> usize {
        let (finding, ecs, ocsf) = (&self.findings[number], &self.ecs[number], &self.ocsf[number]);
        let input = format!("{}:{}", finding["input"]["file"].as_str().unwrap(), finding["input"]["record"]);
        let location = format!("{input} {}", finding["detection"].as_str().unwrap());
        for key in ["pid", "tid", "process", "thread", "target"] {
            assert_eq!(finding[key], event[key], "{location}: {key}");
            check_keys(&finding[key], key);
        }
        let (process, thread, target) = (&event["process"], &event["thread"], &event["target"]);
        // For the start of a process, ECS has the new process, whose parent is the actor.
        let is_start = !target.is_null() && ecs["process"]["parent"].get("thread").is_some();
        let own = if is_start { &ecs["process"]["parent"] } else { &ecs["process"] };
        let other = if is_start { &ecs["process"] } else { &ecs["Target"]["process"] };
        let others = &ecs["stackhound"];
        let without = if is_start { "parent." } else { "" };
        let mut count = Mapped { object: own, others: &others["process"], without }
            .check_ecs::<ProcessFact>(process, &location);
        count += Mapped { object: &own["thread"], others: &others["thread"], without: "" }
            .check_ecs::<ThreadFact>(thread, &location);
        count += Mapped { object: other, others: &others["target"]["process"], without }
            .check_ecs::<ProcessFact>(&target["process"], &location);

        let (evidence, others) = (&ocsf["evidences"][0], &ocsf["unmapped"]);
        let without = "";
        count += Mapped { object: &evidence["process"], others: &others["process"], without }
            .check_ocsf::<ProcessFact>(process, &location);
        count += Mapped { object: &Value::Null, others: &others["thread"], without }
            .check_ocsf::<ThreadFact>(thread, &location);
        let target_object = &evidence["data"]["target"];
        count += Mapped { object: target_object, others: &others["target"]["process"], without }
            .check_ocsf::<ProcessFact>(&target["process"], &location);

        let cells = &self.csv[&location];
        for (fact, value) in known::<ProcessFact>(process) {
            let column = format!("process.{}", fact.row().path);
            let expected = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            assert_eq!(cells[&column], expected, "{location}: {column} in CSV");
            count += 1;
        }
        count
    }

    /// An alert has the process of one of its findings.
    fn check_alerts(&self) {
        for alert in &self.alerts {
            let mut findings = self.findings.iter().filter(|finding| finding["alert"] == alert["alert"]);
            assert!(findings.any(|finding| finding["process"] == alert["process"]), "{alert}");
        }
    }
}

/// Compares the processes of tables with those of events.
fn check_tables(folder: &Path, trace: &str, events: &[Value]) -> usize {
    let converted = run(folder, &["convert", "-q", trace, "-o", "lake", "--again"]);
    assert!(converted.status.success(), "{}", String::from_utf8_lossy(&converted.stderr));
    let lake = folder.join("lake");
    let processes: HashMap<u64, _> =
        rows(&lake, "processes").into_iter().map(|row| (row["process_uid"].as_u64().unwrap(), row)).collect();
    let mut uids = rows(&lake, "events");
    uids.sort_by_key(|row| row["number"].as_u64());
    assert_eq!(uids.len(), events.len());
    let mut count = 0;
    for (row, event) in uids.iter().zip(events) {
        let Some(uid) = row["process_uid"].as_u64() else { continue };
        for (fact, value) in known::<ProcessFact>(&event["process"]) {
            let cell = &processes[&uid][fact.row().column];
            let expected = match fact.row().r#type {
                FactType::Time => Value::from(nanoseconds(value).unwrap()),
                _ => value.clone(),
            };
            assert_eq!(*cell, expected, "{}: {} of {event}", row["number"], fact.row().path);
            count += 1;
        }
    }
    count
}

/// Compares all findings about a trace. Returns how many facts of findings and of tables were compared.
fn check(folder: &Path, trace: &str, options: &[&str]) -> (usize, usize) {
    let mut events = lines(folder, &["events", trace, "--format", "ndjson"]);
    for event in &mut events {
        // A key that is absent here is null in findings.
        event.as_object_mut().unwrap().entry("target").or_insert(Value::Null);
    }
    let outputs = Outputs::new(folder, trace, options);
    let mut count = 0;
    for (number, finding) in outputs.findings.iter().enumerate() {
        let record = finding["input"]["record"].as_u64().unwrap() as usize;
        count += outputs.check(number, &events[record - 1]);
    }
    outputs.check_alerts();
    (count, check_tables(folder, trace, &events))
}

#[test]
fn facts_of_the_demo_are_the_same_everywhere() {
    let folder = demo();
    let (findings, tables) = check(folder.path(), "stackhound-demo.etl", &["--min-severity", "info"]);
    assert!(findings > 1_000 && tables > 10_000, "{findings} of findings, {tables} of tables");
}

#[test]
fn facts_of_genuine_traces_are_the_same_everywhere() {
    for name in ["tx-Process.etl.zst", "perfview-diaghub.kernel.1.etl.zst"] {
        let Some(trace) = stackhound_corpus::path(name) else { return };
        let folder = tempfile::tempdir().unwrap();
        let options = ["--all", "--min-severity", "info", "--only", "CS02,CS28"];
        let compared = check(folder.path(), trace.to_str().unwrap(), &options);
        assert!(compared.0 > 0 && compared.1 > 0, "{name}: {compared:?}");
    }
}

/// What Sysmon states about a process is in its findings, and in their documents.
#[test]
fn facts_of_sysmon_are_the_same_everywhere() {
    let actor = Actor { pid: Some(5), guid: "{g}", image: r"C:\Users\Public\a.exe", tid: Some(6) };
    let row = |time, action| Row { count: 1, host: "PC", time: Some(time), actor, action };
    let start = 132_476_682_550_000_000;
    let target = Aim { pid: Some(700), image: r"C:\Windows\System32\lsass.exe" };
    let rows = [
        row(
            start,
            Action::ProcessCreate {
                command_line: "a /b",
                parent_pid: Some(4),
                user: r"CONTOSO\user",
                integrity: "High",
            },
        ),
        row(
            start + 10_000_000,
            Action::ProcessAccess {
                target,
                access: Some(0x1f_ffff),
                call_trace: r"C:\Windows\SYSTEM32\ntdll.dll+9d934|UNKNOWN(0000024F64B7B7A1)",
            },
        ),
    ];
    let folder = tempfile::tempdir().unwrap();
    let text: String = rows.iter().map(|row| json::winlogbeat(row) + "\n").collect();
    std::fs::write(folder.path().join("log.ndjson"), text).unwrap();
    let outputs = Outputs::new(folder.path(), "log.ndjson", &["--min-severity", "info"]);
    assert!(!outputs.findings.is_empty());
    for (number, finding) in outputs.findings.iter().enumerate() {
        for (path, expected) in [
            ("process.name", Value::from("a.exe")),
            ("process.path", r"C:\Users\Public\a.exe".into()),
            ("process.command_line", "a /b".into()),
            ("process.parent.pid", 4.into()),
            ("process.user.name", r"CONTOSO\user".into()),
            ("process.integrity", "high".into()),
            ("process.start_time", "2020-10-20T11:50:55.0000000Z".into()),
            ("process.entity", "{g}".into()),
            ("target.pid", 700.into()),
            ("target.process.name", "lsass.exe".into()),
            ("target.process.path", r"C:\Windows\System32\lsass.exe".into()),
        ] {
            assert_eq!(*at(finding, path), expected, "{path}");
        }
        assert!(outputs.check(number, finding) > 20);
    }
    outputs.check_alerts();
    // The same names select the rows.
    for filter in [
        "process.user = 'CONTOSO\\user' and process.integrity = 'high'",
        "process.parent.pid = 4 and process.entity = '{g}' and process.command_line icontains 'a /B'",
        "target.process.path iendswith 'lsass.exe' and target.pid = 700",
    ] {
        let options = ["--min-severity", "info", "--where", filter];
        let selected = Outputs::new(folder.path(), "log.ndjson", &options);
        assert_eq!(selected.findings.len(), outputs.findings.len(), "{filter}");
        let options = ["--min-severity", "info", "--where", &format!("not ({filter})")];
        assert!(Outputs::new(folder.path(), "log.ndjson", &options).findings.is_empty(), "not {filter}");
    }
}
