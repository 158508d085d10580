//! Precision and recall on the labeled rows of the corpus. An alarming row has a finding of at
//! least medium severity. `docs/sigma.md` has the figures; this test checks them.

use std::collections::BTreeMap;
use std::path::Path;

mod labeled;

use serde::Deserialize;
use stackhound_detect::{DetectionId, Evaluation, Severity, Verdict};
use stackhound_frames::Lists;

const FILES: [&str; 2] = ["evtx_attack_samples.jsonl", "otrf_security_datasets.jsonl"];

#[derive(Deserialize)]
struct Truth {
    stack_class: String,
    actor: String,
}

#[derive(Deserialize)]
struct Label {
    target_image: String,
    granted_access: String,
    calltrace: String,
    truth: Truth,
}

struct Row {
    label: Label,
    evaluation: Evaluation,
    text: String,
}

impl Label {
    /// Whether the handle to `lsass.exe` allows its memory to be read.
    fn reads_lsass(&self) -> bool {
        self.target_image.to_ascii_lowercase().ends_with(r"\lsass.exe") && self.access() & 0xd0 != 0
    }

    fn access(&self) -> u32 {
        let digits = self.granted_access.trim_start_matches("0x");
        u32::from_str_radix(digits, 16).expect("access rights")
    }

    /// Whether a library that writes memory dumps requested such a handle.
    fn is_dump(&self) -> bool {
        let trace = self.calltrace.to_ascii_lowercase();
        let libraries = [r"\dbghelp.dll+", r"\dbgcore.dll+", r"\comsvcs.dll+"];
        self.reads_lsass() && libraries.iter().any(|library| trace.contains(library))
    }

    /// What the row is evidence of.
    fn evidence(&self) -> Evidence {
        let class = self.truth.stack_class.as_str();
        let is_by_class = ["direct_syscall", "native_api", "unbacked_native"]
            .iter()
            .any(|suspicious| class.starts_with(suspicious));
        let is_attacker = self.truth.actor == "attacker";
        match (is_by_class || self.is_dump() || (is_attacker && self.reads_lsass()), is_attacker) {
            (true, _) => Evidence::Attack,
            (false, true) => Evidence::Ordinary,
            (false, false) => Evidence::Other,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Evidence {
    /// An attack that the stack shows: by its class, or because it reads the memory of LSASS. The
    /// corpus does not attribute dumps of LSASS by programs of Windows, but they are dumps.
    Attack,
    /// An ordinary stack and target of a tool of an attack. Neither a finding nor its absence is an
    /// error.
    Ordinary,
    /// Not known to be part of an attack.
    Other,
}

impl Row {
    fn severity(&self, detection: &str) -> Option<Severity> {
        let outcome = self.evaluation.outcome(DetectionId::parse(detection).expect("a detection"));
        (outcome.verdict == Verdict::Yes).then_some(outcome.severity)
    }

    fn is_alarming(&self) -> bool {
        self.evaluation.findings().any(|(_, outcome)| outcome.severity >= Severity::Medium)
    }
}

fn rows() -> Option<Vec<Row>> {
    labeled::rows(&FILES, Lists::default(), |evaluated, name, line| {
        let label: Label = serde_json::from_str(line).expect("a row");
        let (record, image) = (evaluated.record(), evaluated.row.actor.image);
        let summary = evaluated.event_context().summary;
        let text = format!("{name}:{record} {image} {} {summary}", label.granted_access);
        Row { label, evaluation: *evaluated.evaluation, text }
    })
}

/// Counts of one class: rows, rows of attacks, and alarming rows of attacks and others.
#[derive(Clone, Copy, Default)]
struct Counts {
    rows: u64,
    attacks: u64,
    found: u64,
    others: u64,
}

impl Counts {
    /// The cells of the table: rows, rows of attacks, found, other alarming rows, recall, and
    /// precision.
    fn cells(self) -> [String; 6] {
        let Counts { rows, attacks, found, others } = self;
        let [rows, of_attacks, is_found, is_other] =
            [rows, attacks, found, others].map(|count| count.to_string());
        let (recall, precision) = (percent(found, attacks), percent(found, found + others));
        [rows, of_attacks, is_found, is_other, recall, precision]
    }
}

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/sigma.md");
    std::fs::read_to_string(path).expect("docs/sigma.md")
}

fn percent(part: u64, all: u64) -> String {
    if all == 0 { "-".to_owned() } else { format!("{:.1} %", 100.0 * part as f64 / all as f64) }
}

#[test]
fn precision_and_recall_by_class() {
    let Some(rows) = rows() else { return };
    let mut classes: BTreeMap<String, Counts> = BTreeMap::new();
    for row in &rows {
        for class in [row.label.truth.stack_class.as_str(), "all"] {
            let counts = classes.entry(class.to_owned()).or_default();
            counts.rows += 1;
            match row.label.evidence() {
                Evidence::Attack => {
                    counts.attacks += 1;
                    counts.found += u64::from(row.is_alarming());
                }
                Evidence::Other => counts.others += u64::from(row.is_alarming()),
                Evidence::Ordinary => {}
            }
        }
    }
    let page = page();
    for (class, counts) in &classes {
        let cells = counts.cells();
        println!("{class}: {}", cells.join(" | "));
        let spelled = if class == "all" { class.clone() } else { format!("`{class}`") };
        let row = page.lines().find(|line| {
            line.starts_with(&format!("| {spelled} | {} |", cells[0])) && line.split(" | ").count() == 8
        });
        let row = row.unwrap_or_else(|| panic!("docs/sigma.md has no row of {class}"));
        let mut stated: Vec<&str> = row.trim_matches(['|', ' ']).split(" | ").skip(1).collect();
        // The figure of an earlier state.
        stated.remove(2);
        assert_eq!(stated, cells, "{class}");
    }
    for row in &rows {
        match (row.label.evidence(), row.is_alarming()) {
            (Evidence::Attack, false) => println!("missed: {}", row.text),
            (Evidence::Other, true) => println!("other: {}", row.text),
            _ => {}
        }
    }
}

/// Dumps of LSASS through a library alarm, and CS25 finds nothing else.
#[test]
fn every_dump_of_lsass_is_alarming() {
    let Some(rows) = rows() else { return };
    let dumps = rows.iter().filter(|row| row.label.is_dump()).count();
    println!("{dumps} dumps of LSASS");
    assert_eq!(dumps, 11);
    for row in &rows {
        let severity = row.severity("CS25");
        assert_eq!(severity >= Some(Severity::Medium), row.label.is_dump(), "{}", row.text);
        assert!(severity.is_none() || row.label.is_dump(), "{}", row.text);
        // Callbacks of real programs go through the dispatcher.
        assert_eq!(row.severity("CS26"), None, "{}", row.text);
        // A runtime does not lower a handle to LSASS with all rights.
        let is_managed = row.label.truth.stack_class == "managed_jit";
        let has_all_rights = row.label.reads_lsass() && row.label.access() & 0x1f_0fff == 0x1f_0fff;
        if is_managed {
            assert_eq!(row.is_alarming(), has_all_rights, "{}", row.text);
        }
    }
}
