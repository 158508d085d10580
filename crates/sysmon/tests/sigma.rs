//! Compares Sigma's public rules about call stacks with the detections, on the same rows of the
//! corpus. `docs/sigma.md` has the figures and explains the differences. This test checks the
//! figures.
//!
//! An independent program counted the rows that each rule matches, from the text of the rules, and
//! how many of these rows the corpus labels as unbacked native code.

#[path = "sigma/rules.rs"]
mod rules;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::BufReader;
use std::ops::ControlFlow;
use std::path::Path;

use stackhound_detect::catalogue::DETECTIONS;
use stackhound_detect::{Binaries, DetectionId, Detector, Severity, Verdict};
use stackhound_frames::Lists;
use stackhound_sysmon::row::Action;
use stackhound_sysmon::{Found, Sysmon};

use rules::{Access, RULES};

/// The files with accesses to processes.
const FILES: [&str; 2] = ["evtx_attack_samples.jsonl", "otrf_security_datasets.jsonl"];

/// The answers of one detection in several rows.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Answers {
    yes: u64,
    undetermined: u64,
    no: u64,
}

/// The counts of a set of rows.
#[derive(Clone, Default, Debug)]
struct Figures {
    rows: u64,
    events: u64,
    /// Rows with a finding of at least [`Severity::Medium`].
    alarming: u64,
    answers: [Answers; DETECTIONS.len()],
}

#[derive(Default)]
struct Counted {
    rules: BTreeMap<&'static str, Figures>,
    all: Figures,
    /// By detection: rows and events with such a finding that no rule matches.
    alone: [(u64, u64); DETECTIONS.len()],
    unruled: (u64, u64),
}

fn count(folder: &Path) -> Counted {
    let lists = Lists::default();
    let mut detector = Detector::new(Lists::default(), Binaries::none());
    let mut sysmon = Sysmon::new(&lists);
    let mut counted = Counted::default();
    for file in FILES {
        let input = BufReader::new(File::open(folder.join(file)).expect("a file of the corpus"));
        let totals = sysmon.hunt(input, file, &mut detector, |found| {
            let Found::Evaluated(evaluated) = found else { return ControlFlow::Continue(()) };
            let Action::ProcessAccess { target, access, call_trace } = evaluated.row.action else {
                return ControlFlow::Continue(());
            };
            let rights = access.map_or_else(String::new, |access| format!("{access:#x}"));
            let access = Access {
                source: evaluated.row.actor.image,
                target: target.image,
                access: &rights,
                trace: call_trace,
            };
            let mut is_ruled = false;
            let is_alarming = |severity, verdict| verdict == Verdict::Yes && severity >= Severity::Medium;
            let add = |figures: &mut Figures| {
                figures.rows += 1;
                figures.events += evaluated.row.count;
                let mut outcomes = evaluated.evaluation.iter();
                figures.alarming +=
                    u64::from(outcomes.any(|(_, outcome)| is_alarming(outcome.severity, outcome.verdict)));
                for (id, outcome) in evaluated.evaluation.iter() {
                    let answers = &mut figures.answers[id.index()];
                    match outcome.verdict {
                        Verdict::Yes => answers.yes += 1,
                        Verdict::Undetermined => answers.undetermined += 1,
                        Verdict::No => answers.no += 1,
                    }
                }
            };
            add(&mut counted.all);
            for rule in RULES {
                if rule.hits(&access) {
                    is_ruled = true;
                    add(counted.rules.entry(rule.id).or_default());
                }
            }
            if !is_ruled {
                let mut any = false;
                for (id, outcome) in evaluated.evaluation.iter() {
                    if is_alarming(outcome.severity, outcome.verdict) {
                        let (rows, events) = &mut counted.alone[id.index()];
                        *rows += 1;
                        *events += evaluated.row.count;
                        any = true;
                    }
                }
                counted.unruled.0 += u64::from(any);
                counted.unruled.1 += if any { evaluated.row.count } else { 0 };
            }
            ControlFlow::Continue(())
        });
        totals.expect("a file that can be read");
    }
    counted
}

/// The tables of the page: the cells of each row, by the first cell of the table's head.
fn tables(page: &str) -> BTreeMap<String, Vec<Vec<String>>> {
    let mut tables: BTreeMap<String, Vec<Vec<String>>> = BTreeMap::new();
    let mut name: Option<String> = None;
    for line in page.lines() {
        if !line.starts_with('|') {
            name = None;
            continue;
        }
        let cells: Vec<String> =
            line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect();
        match &name {
            None => name = Some(cells[0].clone()),
            Some(_) if cells[0].starts_with("---") => {}
            Some(name) => tables.entry(name.clone()).or_default().push(cells),
        }
        if let Some(name) = &name {
            tables.entry(format!("{name} head")).or_insert_with(|| {
                vec![line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect()]
            });
        }
    }
    tables
}

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/sigma.md");
    fs::read_to_string(path).expect("docs/sigma.md")
}

fn spelled(answers: &Answers) -> String {
    format!("{}/{}/{}", answers.yes, answers.undetermined, answers.no)
}

#[test]
fn every_rule_is_on_the_page_once() {
    let tables = tables(&page());
    let mut stated: Vec<&str> = tables["rule"].iter().map(|row| row[0].trim_matches('`')).collect();
    let mut known: Vec<&str> = RULES.iter().map(|rule| rule.id).collect();
    stated.sort_unstable();
    known.sort_unstable();
    assert_eq!(stated, known);
    for row in &tables["rule"] {
        assert!(!row[1].is_empty() && !row[4].is_empty(), "{row:?}");
    }
}

#[test]
fn figures_on_the_page_are_correct() {
    let Some(corpus) = stackhound_corpus::folder() else { return };
    let counted = count(&corpus.join("calltrace"));
    let tables = tables(&page());
    let mut wrong = Vec::new();
    let mut compare = |figure: String, stated: String, counted: String| {
        if stated != counted {
            wrong.push(format!("{figure}: the page has {stated}, counted {counted}"));
        }
    };
    let none = Figures::default();
    let figures = |id: &str| counted.rules.get(id.trim_matches('`')).unwrap_or(&none);
    for row in &tables["rule"] {
        let figures = figures(&row[0]);
        compare(format!("rows of {}", row[0]), row[2].clone(), figures.rows.to_string());
        compare(format!("events of {}", row[0]), row[3].clone(), figures.events.to_string());
    }
    // Each rule that matches a row has its answers.
    let mut answered: Vec<&str> = tables["rows of rule"].iter().map(|row| row[0].trim_matches('`')).collect();
    answered.sort_unstable();
    let hitting: Vec<&str> = counted.rules.keys().copied().collect();
    compare("rules with answers".to_owned(), answered.join(" "), hitting.join(" "));
    let head = &tables["rows of rule head"][0];
    let columns: Vec<DetectionId> = head.iter().filter_map(|name| DetectionId::parse(name)).collect();
    for row in &tables["rows of rule"] {
        let figures = figures(&row[0]);
        compare(format!("alarming of {}", row[0]), row[1].clone(), figures.alarming.to_string());
        for (id, cell) in columns.iter().zip(&row[2..]) {
            let counted = spelled(&figures.answers[id.index()]);
            compare(format!("{} of {}", id.name(), row[0]), cell.clone(), counted);
        }
    }
    // Detections without a column have no findings in any row.
    for (id, answers) in DetectionId::all().zip(&counted.all.answers) {
        let row = tables["in all rows"].iter().find(|row| row[1].split(", ").any(|name| name == id.name()));
        let stated = row.map_or("a column", |row| row[0].as_str());
        let holds = match stated {
            "a column" => answers.yes > 0,
            "undetermined" => answers.yes + answers.no == 0,
            "no" => answers.yes + answers.undetermined == 0,
            "undetermined or no" => answers.yes == 0,
            _ => false,
        };
        compare(format!("{} is {stated}: {answers:?}", id.name()), "true".to_owned(), holds.to_string());
        let has_column = columns.contains(&id);
        compare(format!("{} has a column", id.name()), has_column.to_string(), row.is_none().to_string());
    }
    for row in &tables["found by no rule"] {
        let (rows, events) = match DetectionId::parse(&row[0]) {
            Some(id) => counted.alone[id.index()],
            None => counted.unruled,
        };
        compare(format!("{} without rule", row[0]), row[1].clone(), rows.to_string());
        compare(format!("events of {} without rule", row[0]), row[2].clone(), events.to_string());
    }
    for (id, alone) in DetectionId::all().zip(counted.alone) {
        let is_stated = tables["found by no rule"].iter().any(|row| row[0] == id.name());
        compare(
            format!("{} is in the last table", id.name()),
            is_stated.to_string(),
            (alone.0 > 0).to_string(),
        );
    }
    assert!(wrong.is_empty(), "{wrong:#?}\n{counted:#?}", counted = counted.rules);
}
