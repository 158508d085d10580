//! `convert`: smaller traces.

use std::path::Path;

use serde_json::Value;

use crate::demonstration::{demo, demo_with, run};
use crate::program::refused;

/// The standard output of a command in a folder, without the parts that name the input file.
fn shown(folder: &Path, line: &str) -> Vec<String> {
    let words: Vec<&str> = line.split(' ').collect();
    let output = run(folder, &words);
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let without_input = |line: &str| match (line.find("\"input\":{"), line) {
        (Some(start), line) => {
            let end = start + line[start..].find('}').unwrap();
            format!("{}{}", &line[..start], &line[end..])
        }
        (None, line) => line.to_owned(),
    };
    // Events that describe the file itself.
    let is_of_file =
        |line: &&str| line.contains("EventTrace/Header") || line.contains(r#""provider":"Stackhound""#);
    text.lines().filter(|line| !is_of_file(line)).map(without_input).collect()
}

#[test]
fn a_smaller_trace_gives_the_same_answers() {
    let folder = demo_with(&["--events", "10000"]);
    for filter in
        ["--from +0.1s --to +0.12s", "--process browser.exe", "--event FileIo/* --event Thread/Start"]
    {
        let converted = run(
            folder.path(),
            &format!("convert stackhound-demo.etl -o part.etl {filter}").split(' ').collect::<Vec<_>>(),
        );
        let said = String::from_utf8(converted.stderr).unwrap();
        assert!(converted.status.success() && converted.stdout.is_empty(), "{said}");
        for verb in ["events -q --stacks --format ndjson", "hunt -q --all --exit-zero --format ndjson"] {
            let [whole, part] = ["stackhound-demo", "part"]
                .map(|name| shown(folder.path(), &format!("{verb} {name}.etl {filter}")));
            assert!(whole.len() > 100, "{verb} {filter}");
            assert_eq!(whole.len(), part.len(), "{verb} {filter}");
            for (whole, part) in whole.iter().zip(&part) {
                assert_eq!(part, whole, "{verb} {filter}");
            }
            if verb.starts_with("events") {
                let kept = format!("{} of ", stackhound_export::numbers::grouped(whole.len() as u64));
                assert!(
                    said.lines().any(|line| line.starts_with(&kept) && line.contains(" kept, ")),
                    "{said}"
                );
            }
        }
    }
}

/// The exit code, the document without the facts about the cut, and what was cut away that is needed.
fn measured(folder: &Path, line: &str) -> (Option<i32>, Value, usize) {
    let output = run(folder, &line.split(' ').collect::<Vec<_>>());
    let mut document: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let cut = document.as_object_mut().and_then(|document| document.remove("cut"));
    let needed = |cut: &Value| cut["needed"].as_array().map_or(0, Vec::len);
    let needed = cut.iter().flat_map(|cut| cut.as_array().unwrap()).map(needed).sum();
    (output.status.code(), document, needed)
}

/// Measurements that are the same in a smaller trace, and those that state what is missing.
const SAME: [&str; 7] = [
    "top cpu --by function",
    "top cpu --by thread",
    "top file --by stack",
    "top memory --by stack",
    "top fault",
    "top network",
    "callers ntoskrnl.exe!* --metric file",
];
const STATED: [&str; 3] = ["top wait", "top disk", "top syscall"];

/// Compares sums of a trace and of its cut, with the same filter. Returns how many have rows.
#[track_caller]
fn check_sums(folder: &Path, whole: &str, filter: &str) -> usize {
    let convert = format!("convert {whole} -o part.etl {filter}");
    let converted = run(folder, &convert.split(' ').collect::<Vec<_>>());
    assert!(converted.status.success(), "{}", String::from_utf8_lossy(&converted.stderr));
    let mut with_rows = 0;
    for verb in SAME.iter().chain(&STATED) {
        let [expected, found] = [whole, "part.etl"]
            .map(|trace| measured(folder, &format!("{verb} {trace} -q --all --format json {filter}")));
        let is_same = (&expected.0, &expected.1) == (&found.0, &found.1);
        if SAME.contains(verb) {
            assert!(is_same, "{verb} {filter}:\n{}\n{}", expected.1, found.1);
            with_rows += usize::from(expected.1["rows"].as_array().is_some_and(|rows| !rows.is_empty()));
        } else {
            assert!(
                is_same || found.2 > 0 || found.0 == Some(2),
                "{verb} {filter}:\n{}\n{}",
                expected.1,
                found.1
            );
        }
    }
    with_rows
}

/// `stackhound/tests/it/cut.rs` compares many traces and filters.
#[test]
fn a_smaller_trace_gives_the_same_sums() {
    let folder = demo();
    for filter in ["--from +0.1s --to +0.2s", "--process browser.exe"] {
        let found = check_sums(folder.path(), "stackhound-demo.etl", filter);
        assert!(found >= 6, "{filter}: {found} measurements have rows");
    }
}

/// A trace of PerfView ends with a session that has no samples.
#[test]
fn percentages_are_those_of_the_sampled_part() {
    let Some(trace) = stackhound_corpus::path("perfview-net452-x64.etl") else { return };
    let folder = tempfile::tempdir().unwrap();
    let whole = trace.to_str().unwrap();
    let line = |line: &str| run(folder.path(), &line.split(' ').collect::<Vec<_>>());
    // The last sample is at 10.9643 s.
    assert!(line(&format!("convert -q {whole} -o part.etl --to +10.965s")).status.success());
    let [expected, found] = [whole, "part.etl"]
        .map(|trace| measured(folder.path(), &format!("top cpu {trace} -q --format json")));
    for key in ["available", "busy", "idle", "not_sampled", "samples", "rows"] {
        assert_eq!(found.1[key], expected.1[key], "{key}");
    }
    assert!(expected.1["not_sampled"].as_u64() < expected.1["available"].as_u64().map(|all| all / 100));
    assert!(line(&format!("diff -q part.etl {whole} --all --exit-code")).status.success());
}

#[test]
fn a_smaller_trace_states_what_was_cut_away() {
    let folder = demo();
    let shown = |line: &str| {
        let output = run(folder.path(), &line.split(' ').collect::<Vec<_>>());
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
    };
    shown("convert -q stackhound-demo.etl -o part.etl --process browser.exe --to +0.3s");
    shown("convert -q part.etl -o smaller.etl --event FileIo/*");
    let first = "Cut by process i~ 'browser.exe', to +0.3s: ";
    let second = "Cut by event i~ 'FileIo/*': ";
    for (line, cuts) in [
        ("top cpu part.etl", &[first][..]),
        ("top wait part.etl", &[first]),
        ("top file smaller.etl", &[first, second]),
        ("top disk part.etl -q --format csv", &[first]),
        ("part.etl", &["cut by process i~ 'browser.exe', to +0.3s: "]),
    ] {
        let text = shown(line);
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for cut in cuts {
            assert!(text.contains(cut), "{line}: {text}");
        }
    }
    assert!(shown("top wait part.etl").contains("of 529 Thread/ReadyThread"));
    assert!(!shown("top file part.etl").contains("Cut away"));
    assert!(!shown("top wait stackhound-demo.etl").contains("Cut"));
}

#[test]
fn the_input_is_never_replaced_and_unknown_forms_are_refused() {
    let folder = demo();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (demo, copy) = (path("stackhound-demo.etl"), path("copy.etl"));
    let size = std::fs::metadata(&demo).unwrap().len();
    refused(&["convert", &demo, "-o", &demo], &format!("{demo}: expected another file than the input"));
    assert_eq!(std::fs::metadata(&demo).unwrap().len(), size);
    let unknown = path("part.txt");
    refused(
        &["convert", &demo, "-o", &unknown],
        &format!(
            "{unknown}: cannot derive the form from the file name; use one of the extensions .etl, .pcapng, or none for tables"
        ),
    );
    std::fs::copy(&demo, &copy).unwrap();
    let output =
        run(folder.path(), &["convert", "stackhound-demo.etl", "copy.etl", "-o", "both.etl", "--merge"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("several sessions have stack keys"), "{said}");
    assert_eq!(output.status.code(), Some(2));
    assert!(!folder.path().join("both.etl").exists());
}

/// Whether bytes contain a text as a word of its own, in UTF-16 or ASCII, in any case.
fn has_word(bytes: &[u8], text: &str) -> bool {
    let bytes = bytes.to_ascii_lowercase();
    [1, 2].into_iter().any(|size| {
        let needle: Vec<u8> = match size {
            1 => text.bytes().collect(),
            _ => text.encode_utf16().flat_map(u16::to_le_bytes).collect(),
        };
        let is_letter =
            |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_alphanumeric);
        memchr::memmem::find_iter(&bytes, &needle)
            .any(|at| !is_letter(at.checked_sub(size)) && !is_letter(Some(at + needle.len())))
    })
}

#[test]
fn names_of_users_are_replaced_and_nothing_else() {
    let folder = demo();
    let command = "convert stackhound-demo.etl -o part.etl --pseudonymize --to +0.2s";
    let converted = run(folder.path(), &command.split(' ').collect::<Vec<_>>());
    let said = String::from_utf8(converted.stderr).unwrap();
    assert!(converted.status.success(), "{said}");
    assert!(said.lines().last().unwrap().contains(" replaced by pseudonyms"), "{said}");
    let bytes = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
    let (whole, part) = (bytes("stackhound-demo.etl"), bytes("part.etl"));
    // The parts of the identifier of the user of the demo.
    let sid: Vec<u8> =
        [21_u32, 1_004_336_348, 1_177_238_915, 682_003_330].into_iter().flat_map(u32::to_le_bytes).collect();
    let texts = ["ada", "desktop-contoso", "1004336348", "1177238915", "682003330"];
    assert!(has_word(&whole, "ada") && memchr::memmem::find(&whole, &sid).is_some());
    assert!(!texts.iter().any(|text| has_word(&part, text)) && memchr::memmem::find(&part, &sid).is_none());

    let line = |name: &str| {
        shown(folder.path(), &format!("events -q --stacks --format ndjson {name}.etl --to +0.2s"))
    };
    let (whole, part) = (line("stackhound-demo"), line("part"));
    assert_eq!(whole.len(), part.len());
    let name_of = |line: &str| {
        let start = line.find(r"\\Users\\")? + r"\\Users\\".len();
        Some(line[start..start + 3].to_owned())
    };
    let name = part.iter().find_map(|line| name_of(line)).unwrap();
    let sid_of = |line: &str| {
        let start = line.find("S-1-5-21-")?;
        Some(line[start..start + line[start..].find('"')?].to_owned())
    };
    let new_sid = part.iter().find_map(|line| sid_of(line)).unwrap();
    let old_sid = whole.iter().find_map(|line| sid_of(line)).unwrap();
    assert!(new_sid != old_sid && new_sid.len() == old_sid.len());
    let computer_of = |line: &str| {
        let start = line.find("\"ComputerName\":\"")? + "\"ComputerName\":\"".len();
        Some(line[start..start + line[start..].find('"')?].to_owned())
    };
    let computer = part.iter().find_map(|line| computer_of(line)).unwrap();
    let mut replaced = 0;
    for (whole, part) in whole.iter().zip(&part) {
        replaced += u64::from(whole != part);
        let expected = whole.replace(r"\\Users\\ada\\", &format!(r"\\Users\\{name}\\"));
        let expected = expected.replace(&old_sid, &new_sid).replace("DESKTOP-CONTOSO", &computer);
        assert_eq!(*part, expected);
    }
    assert!(replaced > 100, "{replaced}");
}
