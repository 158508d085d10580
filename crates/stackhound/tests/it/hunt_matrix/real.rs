//! Real stacks with modifications: the backed stacks of the corpus, each with one change that
//! determines the answer.

use std::io::Cursor;
use std::ops::ControlFlow;

use stackhound::detect::{Binaries, DetectionId, Detector, Verdict};
use stackhound::frames::Lists;
use stackhound_sysmon::{Found, Sysmon};

/// One in this number of stacks is used, so that the test is fast.
const EVERY: usize = 7;

/// The parts of a row of the corpus that are used.
struct Base {
    source: String,
    frames: Vec<String>,
}

/// The complete stacks of 64-bit programs that begin with the stub of a handle operation and are
/// not suspicious.
fn bases() -> Option<Vec<Base>> {
    let text = stackhound_corpus::text("calltrace/otrf_security_datasets.jsonl")?;
    let mut bases = Vec::new();
    for line in text.lines() {
        let row: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let trace = row["calltrace"].as_str().expect("a stack");
        let frames: Vec<String> = trace.split('|').map(str::to_owned).collect();
        // Shorter than the limit of any version, also with an additional frame.
        let is_complete = frames.len() < 15
            && frames.iter().filter(|frame| frame.to_ascii_lowercase().contains("kernelbase.dll")).count()
                == 1
            && frames.len() > 5
            && in_file(&frames[frames.len() - 2], "kernel32.dll")
            && in_file(&frames[frames.len() - 1], "ntdll.dll")
            && in_file(&frames[0], "ntdll.dll")
            && in_file(&frames[1], "kernelbase.dll");
        if row["truth"]["stack_class"] == "backed" && is_complete && !trace.contains("wow64") {
            bases.push(Base { source: row["source_image"].as_str().expect("a path").to_owned(), frames });
        }
    }
    Some(bases.into_iter().step_by(EVERY).collect())
}

fn in_file(frame: &str, name: &str) -> bool {
    frame
        .rsplit_once('+')
        .is_some_and(|(path, _)| path.to_ascii_lowercase().ends_with(&format!("system32\\{name}")))
}

const SHELLCODE: &str = "UNKNOWN(000001F4300002B1)";
const PROGRAM: &str = r"C:\ProgramData\Contoso\agent.exe+1234";
const COPY: &str = r"C:\Users\Public\ntdll.dll+9c524";
const KERNEL: &str = "UNKNOWN(FFFFF80120001234)";

/// A change to a stack, and the detections that then answer "yes" and "no".
type Change = (&'static str, fn(&mut Vec<String>), &'static [&'static str], &'static [&'static str]);

const CHANGES: &[Change] = &[
    ("nothing", |_| (), &[], &["CS01", "CS02", "CS06", "CS07", "CS08", "CS09", "CS10", "CS14"]),
    (
        "shellcode replaces the stub and the Win32 base",
        |frames| drop(frames.splice(..2, [SHELLCODE.to_owned()])),
        &["CS01"],
        &["CS02", "CS06", "CS07"],
    ),
    (
        "a program with its own stub replaces them",
        |frames| drop(frames.splice(..2, [PROGRAM.to_owned()])),
        &["CS02"],
        &["CS01", "CS06", "CS07", "CS08"],
    ),
    (
        "a program calls the stub",
        |frames| frames[1] = PROGRAM.to_owned(),
        &["CS06"],
        &["CS01", "CS02", "CS07", "CS08"],
    ),
    (
        "shellcode calls the Win32 base",
        |frames| frames.insert(2, SHELLCODE.to_owned()),
        &["CS07"],
        &["CS01", "CS02"],
    ),
    (
        "shellcode further out",
        |frames| frames.insert(3, SHELLCODE.to_owned()),
        &["CS08"],
        &["CS01", "CS02", "CS07"],
    ),
    ("a copy of ntdll.dll", |frames| frames[0] = COPY.to_owned(), &["CS10"], &["CS01", "CS07", "CS08"]),
    (
        "the root is cut off",
        |frames| frames.truncate(frames.len() - 2),
        &["CS14"],
        &["CS01", "CS02", "CS07", "CS08"],
    ),
    (
        "the kernel called back",
        |frames| frames.insert(4, KERNEL.to_owned()),
        &[],
        &["CS01", "CS02", "CS07", "CS08", "CS14"],
    ),
];

#[test]
fn changes_to_real_stacks_are_found() {
    let Some(bases) = bases() else { return };
    assert!(bases.len() > 100, "{} stacks", bases.len());
    let (mut rows, mut questions) = (String::new(), Vec::new());
    for base in &bases {
        for (title, change, yes, no) in CHANGES {
            let mut frames = base.frames.clone();
            change(&mut frames);
            // If the stack ends in a library that can contain roots, the answer depends on names.
            let is_open = *title == "the root is cut off"
                && frames
                    .last()
                    .is_none_or(|last| in_file(last, "ntdll.dll") || in_file(last, "kernel32.dll"));
            rows += &serde_json::json!({
                "event_id": 10, "source_image": base.source, "target_image": r"C:\Windows\System32\svchost.exe",
                "granted_access": "0x1000", "calltrace": frames.join("|"),
            })
            .to_string();
            rows.push('\n');
            questions.push(if is_open { None } else { Some((title, yes, no)) });
        }
    }
    let mut detector = Detector::new(Lists::default(), Binaries::none());
    let mut sysmon = Sysmon::new(detector.lists());
    let mut complaints = Vec::new();
    let mut evaluated = 0;
    let on = |found: Found<'_>| {
        let Found::Evaluated(row) = found else { panic!("all rows can be read") };
        evaluated += 1;
        let Some((title, yes, no)) = questions[row.record() as usize - 1] else {
            return ControlFlow::Continue(());
        };
        let expected = [(Verdict::Yes, *yes), (Verdict::No, *no)];
        for (verdict, detections) in expected {
            for name in detections {
                let outcome = row.evaluation.outcome(DetectionId::parse(name).expect("a detection"));
                if outcome.verdict != verdict {
                    let line = rows.lines().nth(row.record() as usize - 1).unwrap_or_default();
                    complaints.push(format!("{name} after “{title}” is {}: {line}", outcome.verdict.name()));
                }
            }
        }
        ControlFlow::Continue(())
    };
    sysmon.hunt(Cursor::new(rows.as_bytes()), "changed.ndjson", &mut detector, on).expect("rows");
    println!("{} real stacks, {evaluated} rows", bases.len());
    assert_eq!(evaluated, questions.len());
    let shown: Vec<_> = complaints.iter().take(20).map(String::as_str).collect();
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), shown.join("\n"));
}
