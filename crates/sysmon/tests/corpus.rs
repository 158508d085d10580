//! Findings in the call traces of real machines, compared with their labels. Figures are raw events
//! unless stated as rows.

use std::collections::BTreeMap;

mod labeled;

use serde::Deserialize;
use stackhound_detect::report::EventContext;
use stackhound_detect::{DetectionId, Evaluation, Outcome, Reason, Severity, Verdict};
use stackhound_frames::Lists;
use stackhound_sysmon::call_trace::{self, FrameLocation};

const ACCESSES: [&str; 2] = ["otrf_security_datasets.jsonl", "evtx_attack_samples.jsonl"];
const THREADS: [&str; 2] = ["otrf_createremotethread.jsonl", "evtx_createremotethread.jsonl"];

#[derive(Deserialize)]
struct Label {
    #[serde(default = "one")]
    count: u64,
    #[serde(default)]
    calltrace: String,
    source_image: String,
    truth: Truth,
}

fn one() -> u64 {
    1
}

#[derive(Deserialize)]
struct Truth {
    #[serde(alias = "start_class")]
    stack_class: String,
}

struct Row {
    label: Label,
    evaluation: Evaluation,
    event_context: EventContext,
}

impl Row {
    fn class(&self) -> &str {
        &self.label.truth.stack_class
    }

    fn outcome(&self, name: &str) -> &Outcome {
        self.evaluation.outcome(DetectionId::parse(name).expect("a detection"))
    }

    fn is(&self, name: &str) -> bool {
        self.outcome(name).verdict == Verdict::Yes
    }

    /// The highest severity of the findings.
    fn severity(&self) -> Option<Severity> {
        self.evaluation.findings().map(|(_, outcome)| outcome.severity).max()
    }

    /// The findings and the stack, for messages.
    fn text(&self) -> String {
        let findings: Vec<String> = self
            .evaluation
            .findings()
            .map(|(id, outcome)| format!("{} {}", id.name(), outcome.severity.name()))
            .collect();
        let EventContext { location, summary, process, .. } = &self.event_context;
        format!(
            "{}:{} {} {} [{}] {summary}",
            location.file,
            location.record,
            self.class(),
            process.path(),
            findings.join(", ")
        )
    }
}

fn labels(name: &str) -> Option<Vec<Label>> {
    let text = stackhound_corpus::text(&format!("calltrace/{name}"))?;
    Some(text.lines().map(|line| serde_json::from_str(line).expect("a row")).collect())
}

/// Evaluated rows with their labels.
fn evaluated(names: &[&str], lists: Lists) -> Option<Vec<Row>> {
    labeled::rows(names, lists, |evaluated, _, line| {
        let label: Label = serde_json::from_str(line).expect("a row");
        assert_eq!(label.count, evaluated.row.count);
        assert_eq!(label.source_image, evaluated.row.actor.image);
        Row { label, evaluation: *evaluated.evaluation, event_context: evaluated.event_context() }
    })
}

fn events<'r>(rows: impl IntoIterator<Item = &'r Row>) -> u64 {
    rows.into_iter().map(|row| row.label.count).sum()
}

fn file_name(path: &str) -> &str {
    path.rsplit('\\').next().unwrap_or(path)
}

#[test]
fn every_call_trace_is_written_back_and_classified() {
    let mut rows = 0;
    for name in ACCESSES {
        let Some(labels) = labels(name) else { return };
        for Label { calltrace, truth, .. } in labels {
            let frames: Vec<_> =
                call_trace::frames(&calltrace).map(|frame| frame.expect("a frame")).collect();
            assert_eq!(call_trace::text(frames.iter().copied()), calltrace);
            let Some(first) = frames.first() else { panic!("no frames") };
            let enters = match first.location {
                FrameLocation::Module { path, .. } => {
                    let name = file_name(path).to_ascii_lowercase();
                    name == "ntdll.dll" || name == "win32u.dll" || name.starts_with("wow64")
                }
                FrameLocation::Unknown { .. } => false,
            };
            let unknown = |is_kernel| {
                frames.iter().any(|frame| {
                    matches!(frame.location, FrameLocation::Unknown { .. }) && frame.is_kernel() == is_kernel
                })
            };
            let classes: &[&str] = match (enters, unknown(false), unknown(true)) {
                (false, ..) => &["direct_syscall_image", "direct_syscall_unbacked"],
                (true, true, _) => &["managed_jit", "unbacked_native", "unbacked_benign"],
                (true, false, true) => &["kernel_callback"],
                (true, false, false) => &["backed", "native_api_image"],
            };
            assert!(classes.contains(&truth.stack_class.as_str()), "{} {calltrace}", truth.stack_class);
            rows += 1;
        }
    }
    println!("{rows} call traces written back unchanged, each classified as labeled");
}

#[test]
fn exactly_the_direct_calls_are_found() {
    let Some(rows) = evaluated(&ACCESSES, Lists::default()) else { return };
    let is_direct = |row: &&Row| row.is("CS01") || row.is("CS02");
    let labeled = |row: &&Row| row.class().starts_with("direct_syscall");
    let (found, expected) = (rows.iter().filter(is_direct), rows.iter().filter(labeled));
    let texts = |rows: Vec<&Row>| rows.into_iter().map(Row::text).collect::<Vec<_>>();
    let (found, expected) = (found.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    println!(
        "direct: {} events found, {} labeled",
        events(found.iter().copied()),
        events(expected.iter().copied())
    );
    assert!(!expected.is_empty());
    assert_eq!(texts(found), texts(expected));
}

#[test]
fn native_callers_outside_of_windows_are_found() {
    let Some(rows) = evaluated(&ACCESSES, Lists::default()) else { return };
    let mut undetermined = 0;
    for row in &rows {
        let is_outside =
            row.class() == "native_api_image" && !row.label.source_image.starts_with(r"C:\Windows\");
        assert_eq!(row.is("CS06"), is_outside, "{}", row.text());
        if row.class() == "native_api_image" && !is_outside {
            assert_eq!(row.outcome("CS06").verdict, Verdict::Undetermined, "{}", row.text());
            undetermined += 1;
        }
    }
    let found = rows.iter().filter(|row| row.is("CS06"));
    println!("native API: {} events found, {undetermined} rows undetermined", events(found));
    assert!(undetermined > 0);
    // Components of Windows that call the native API to open processes.
    let known = [
        "appinfo.dll",
        "basesrv.dll",
        "bisrv.dll",
        "consent.exe",
        "csrsrv.dll",
        "dbghelp.dll",
        "explorer.exe",
        "fntcache.dll",
        "logoncontroller.dll",
        "lsaadt.dll",
        "lsasrv.dll",
        "lsm.dll",
        "msctf.dll",
        "psmserviceexthost.dll",
        "rpcrt4.dll",
        "samsrv.dll",
        "services.exe",
        "smss.exe",
        "svchost.exe",
        "themeservice.dll",
        "winlogon.exe",
        "winsrv.dll",
        "winsrvext.dll",
        "winsta.dll",
    ];
    let rows = evaluated(&ACCESSES, Lists::default().with_known_images(&known.join("\n"))).expect("the same");
    for row in &rows {
        assert_eq!(row.is("CS06"), row.class() == "native_api_image", "{}", row.text());
    }
    println!("with known images: {} events found", events(rows.iter().filter(|row| row.is("CS06"))));
}

#[test]
fn remote_threads_are_found_by_their_start_address() {
    let Some(rows) = evaluated(&THREADS, Lists::default()) else { return };
    let mut found: BTreeMap<(&str, bool), u64> = BTreeMap::new();
    for row in &rows {
        *found.entry((row.class(), row.severity().is_some())).or_default() += row.label.count;
        match row.class() {
            "unbacked_start" | "loadlibrary_start" => {
                assert!(row.is("CS19"), "{}", row.text());
                assert_eq!(row.outcome("CS19").severity, Severity::High);
            }
            "console_ctrl_routine" | "kernel_start" => assert_eq!(row.severity(), None, "{}", row.text()),
            class => assert_eq!(class, "backed_start"),
        }
    }
    println!("remote threads, by class and whether there were findings: {found:?}");
}

#[test]
fn unbacked_code_is_distinguished_from_jit_code() {
    let Some(rows) = evaluated(&ACCESSES, Lists::default()) else { return };
    let is_severe = |row: &&Row| row.severity() >= Some(Severity::Medium);
    let unbacked: Vec<&Row> = rows.iter().filter(|row| row.class() == "unbacked_native").collect();
    let all = events(unbacked.iter().copied());
    let found = events(unbacked.iter().copied().filter(|row| is_severe(row)));
    let is_of_unbacked = |row: &&Row| {
        ["CS07", "CS08"].iter().any(|name| row.is(name) && row.outcome(name).severity >= Severity::Medium)
    };
    let others: Vec<&Row> =
        rows.iter().filter(|row| row.class() != "unbacked_native").filter(is_of_unbacked).collect();
    println!("unbacked: {found} of {all} events; {} other rows at medium or above:", others.len());
    others.iter().for_each(|row| println!("  {}", row.text()));
    let severe = rows.iter().filter(|row| row.class() != "unbacked_native").filter(is_severe);
    println!("all other rows at medium or above, by any detection:");
    severe.for_each(|row| println!("  {}", row.text()));
    for row in unbacked.iter().filter(|row| !is_severe(row)) {
        println!("  missed: {}", row.text());
    }
    assert!(found as f64 >= 0.999 * all as f64);
    assert!(others.len() <= 10);
    for row in &rows {
        match row.class() {
            "kernel_callback" => assert_eq!(row.severity(), None, "{}", row.text()),
            // A runtime does not lower a handle to LSASS with all rights.
            "managed_jit" if row.outcome("CS24").reasons.has(Reason::AllRights) => {}
            "managed_jit" => assert!(row.severity() <= Some(Severity::Low), "{}", row.text()),
            _ => {}
        }
    }
}

#[test]
fn truncated_stacks_are_few_and_are_listed() {
    let Some(rows) = evaluated(&ACCESSES, Lists::default()) else { return };
    let may_be_truncated = |row: &Row| {
        let length = row.label.calltrace.split('|').count();
        row.label.calltrace.contains("UNKNOWN") || length == 24 || length == 16
    };
    let truncated: Vec<&Row> = rows.iter().filter(|row| row.is("CS14") && !may_be_truncated(row)).collect();
    println!("{} rows are truncated:", truncated.len());
    truncated.iter().for_each(|row| println!("  {}", row.text()));
    assert!(truncated.len() <= 20);
    let mimikatz: Vec<&Row> =
        rows.iter().filter(|row| file_name(&row.label.source_image) == "mimikatz.exe").collect();
    mimikatz.iter().for_each(|row| println!("  {} {}", row.text(), row.label.calltrace));
    assert!(mimikatz.len() == 2 && mimikatz.iter().all(|row| row.is("CS14")));
}

#[test]
fn findings_by_class() {
    let Some(rows) = evaluated(&ACCESSES, Lists::default()) else { return };
    let mut table: BTreeMap<(&str, &str, &str), (u64, u64)> = BTreeMap::new();
    for row in &rows {
        for (id, outcome) in row.evaluation.findings() {
            let key = (id.name(), outcome.severity.name(), row.class());
            let (rows, events) = table.entry(key).or_default();
            *rows += 1;
            *events += row.label.count;
        }
    }
    println!("finding, severity, class: rows, events");
    table.iter().for_each(|(key, figures)| println!("{key:?}: {figures:?}"));
    // The corpus contains no evidence for these.
    for detection in ["CS03", "CS09", "CS18", "CS19", "CS21", "CS23"] {
        assert!(rows.iter().all(|row| !row.is(detection)), "{detection}");
    }
}
