//! Files of several machines, boots and times: the results of one capture do not depend on the
//! others.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Output;

use crate::program::{refused, stackhound, text};
use serde_json::Value;

/// The offsets of the boot time in a file of 64-bit Windows.
const BOOT_TIME: std::ops::Range<usize> = 0x160..0x168;
const DAY: u64 = 864_000_000_000;

/// A folder with the demo and a trace of another system of the same time, booted one day earlier.
fn two_machines() -> (tempfile::TempDir, [PathBuf; 2]) {
    let folder = tempfile::tempdir().unwrap();
    let files = [("1", "a.etl", 0), ("2", "b.etl", DAY)].map(|(seed, name, earlier)| {
        let made = tempfile::tempdir().unwrap();
        let out = text(made.path());
        let demo = stackhound(&["demo", "-q", "--events", "8000", "--seed", seed, "--out", out]);
        assert!(demo.status.success(), "{}", errors(&demo));
        let mut bytes = std::fs::read(made.path().join("stackhound-demo.etl")).unwrap();
        let booted = u64::from_le_bytes(bytes[BOOT_TIME].try_into().unwrap()) - earlier;
        bytes[BOOT_TIME].copy_from_slice(&booted.to_le_bytes());
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    });
    (folder, files)
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn output(arguments: &[&str], paths: &[&Path]) -> String {
    let paths = paths.iter().map(|path| text(path));
    let arguments: Vec<&str> = arguments.iter().copied().chain(paths).collect();
    let output = stackhound(&arguments);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{arguments:?}: {}", errors(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// The findings in order, and the alerts, which are ordered by score.
fn documents(lines: &str) -> (Vec<&str>, BTreeSet<&str>) {
    let (alerts, findings) = lines.lines().partition(|line| line.starts_with(r#"{"type":"alert""#));
    (findings, BTreeSet::from_iter::<Vec<_>>(alerts))
}

const HUNT: &[&str] = &["hunt", "-q", "--symbol-path", "", "--format", "ndjson"];
/// With undetermined answers, of some detections; those of all take most of the time.
const HUNT_ALL: &[&str] =
    &["hunt", "-q", "--symbol-path", "", "--format", "ndjson", "--only", "CS09,CS28", "--all"];

#[test]
#[ignore = "slow: run by .ci/run"]
fn findings_of_a_machine_do_not_depend_on_others_in_the_folder() {
    let (folder, [a, b]) = two_machines();
    let check = |verb: &[&str]| {
        let (of_a, of_b) = (output(verb, &[&a]), output(verb, &[&b]));
        assert!(of_a.lines().count() > 20);
        let (together, reversed) = (format!("{of_a}{of_b}"), format!("{of_b}{of_a}"));
        let both = documents(&together);
        assert!(of_a != of_b);
        assert!(documents(&output(verb, &[folder.path()])) == both);
        // Both captures start at the same time, so the first argument is first.
        assert!(documents(&output(verb, &[&b, &a])) == documents(&reversed));
        assert!(documents(&output(&[verb, &["--separate"]].concat(), &[folder.path()])) == both);
        assert!(documents(&output(&[verb, &["--merge"]].concat(), &[folder.path()])) != both);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| check(HUNT));
        check(HUNT_ALL);
    });
}

#[test]
fn verbs_analyze_one_capture_after_the_other() {
    let (folder, [a, b]) = two_machines();
    let events = ["events", "-q", "--stacks", "--symbols", "modules", "--time", "relative"];
    assert!(output(&events, &[folder.path()]) == output(&events, &[&a]) + &output(&events, &[&b]));

    let stacks = ["stacks", "-q", "--symbols", "modules", "--format", "json"];
    let json = |paths: &[&Path]| -> Value { serde_json::from_str(&output(&stacks, paths)).unwrap() };
    let both = json(&[folder.path()]);
    for (capture, file) in both["captures"].as_array().unwrap().iter().zip([&a, &b]) {
        assert_eq!(capture["computer_name"], "DESKTOP-CONTOSO");
        assert_eq!(capture["files"], serde_json::json!([text(file)]));
        assert!(capture["kinds"] == json(&[file])["kinds"], "{}", file.display());
    }

    // The counts of equal lines are summed.
    let folded = ["stacks", "-q", "--symbols", "modules", "--format", "folded"];
    let counted = |text: &str| -> u64 {
        text.lines().map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    };
    let of = |paths: &[&Path]| counted(&output(&folded, paths));
    assert_eq!(of(&[folder.path()]), of(&[&a]) + of(&[&b]));

    let profile = ["profile", "-q", "--symbols", "modules", "--format", "folded"];
    let of = |paths: &[&Path]| counted(&output(&profile, paths));
    assert_eq!(of(&[folder.path()]), of(&[&a]) + of(&[&b]));
}

#[test]
fn captures_are_reported() {
    let (folder, [a, b]) = two_machines();
    let line = |number: u32, booted: &str, file: &Path| {
        format!(
            "capture {number} of 2: DESKTOP-CONTOSO, booted {booted}T23:58:20.0000000Z, build 19041, 4 processors, 64-bit; "
        ) + "2024-01-01T00:00:00.0000000Z to 2024-01-01T00:00:00."
            + &format!(" {}", file.display())
    };
    let without_end = |text: &str| -> Vec<String> {
        let named = text.lines().filter(|line| line.starts_with("capture"));
        let shortened = named.map(|line| {
            let (start, end) = line.split_once(" to 2024-01-01T00:00:00.").unwrap();
            format!("{start} to 2024-01-01T00:00:00. {}", end.split_once("; ").unwrap().1)
        });
        shortened.collect()
    };
    let expected = [line(1, "2023-12-31", &a), line(2, "2023-12-30", &b)];
    for verb in ["events", "hunt", "stacks"] {
        let both = stackhound(&[verb, text(folder.path()), "--symbol-path", "", "--no-progress"]);
        assert_eq!(without_end(&errors(&both)), expected, "{verb}");
        let one = stackhound(&[verb, text(&a), "--symbol-path", "", "--no-progress"]);
        assert_eq!(without_end(&errors(&one)), [""; 0], "{verb}");
    }
    let info = output(&["info"], &[folder.path()]);
    assert_eq!(info.lines().filter(|line| line.starts_with("capture ")).count(), 2, "{info}");
    let json: Value = serde_json::from_str(&output(&["info", "--format", "json"], &[folder.path()])).unwrap();
    assert_eq!(json["captures"][1]["boot_time"], "2023-12-30T23:58:20.0000000Z");
    let merged = output(&["info", "--format", "json", "--merge"], &[folder.path()]);
    assert_eq!(serde_json::from_str::<Value>(&merged).unwrap()["captures"], Value::Null);
}

#[test]
fn verbs_about_one_position_refuse_several_captures() {
    let (folder, [a, b]) = two_machines();
    let captures = format!("({}) ({})", a.display(), b.display());
    let sentence = format!(
        "the files are 2 captures, which cannot be read as one trace: {captures}; pass the files of one capture, or \
         use --merge to read them as one"
    );
    let folder = text(folder.path());
    for verb in [
        &["tree", folder, "--at", "5"][..],
        &["stack", folder, "--at", "5"],
        &["calls", folder, "x"],
        &["kstack", "--trace", folder],
    ] {
        refused(verb, &sentence);
        let merged = stackhound(&[verb, &["--merge", "-q"]].concat());
        assert!(!errors(&merged).contains("captures"), "{}", errors(&merged));
    }
    let both = stackhound(&["info", folder, "--merge", "--separate"]);
    assert_eq!(both.status.code(), Some(2));
}

/// The names of the corpus files of each capture.
fn captures_of(folder: &Path) -> Vec<Vec<String>> {
    let json: Value = serde_json::from_str(&output(&["info", "--format", "json"], &[folder])).unwrap();
    let files = |capture: &Value| {
        let files = capture["files"].as_array().unwrap().iter();
        files.map(|file| file.as_str().unwrap().to_owned()).collect()
    };
    json["captures"].as_array().unwrap().iter().map(files).collect()
}

/// The output for a folder, and the concatenated output for each of its captures alone.
fn together_and_alone(verb: &[&str], folder: &Path) -> (String, String) {
    let of_capture = |files: &Vec<String>| output(verb, &files.iter().map(Path::new).collect::<Vec<_>>());
    let alone = captures_of(folder).iter().map(of_capture).collect();
    (output(verb, &[folder]), alone)
}

#[test]
fn findings_of_the_corpus_equal_those_of_its_captures() {
    let Some(corpus) = stackhound_corpus::folder() else { return };
    let folder = corpus.join("etl");
    let captures = captures_of(&folder);
    let sizes_of = |name: &str| -> Vec<usize> {
        let with_name = captures.iter().filter(|files| files.iter().any(|file| file.contains(name)));
        with_name.map(Vec::len).collect()
    };
    assert_eq!(captures.iter().map(Vec::len).sum::<usize>(), 36);
    assert_eq!(sizes_of("diaghub"), [4]);
    assert_eq!(sizes_of("sawbuck"), [1; 11]);
    assert_eq!(captures.len(), 33);

    let (together, alone) = together_and_alone(HUNT, &folder);
    assert!(together == alone, "findings of a folder differ from those of its captures");
}

/// Small files; `cargo xtask mixture` does the same with all of them.
#[cfg(unix)]
#[test]
fn answers_for_the_corpus_do_not_depend_on_other_captures() {
    const SIZE_MAX: u64 = 600_000;
    let folder = tempfile::tempdir().unwrap();
    for (_, path) in stackhound_corpus::trace_files() {
        if path.metadata().unwrap().len() <= SIZE_MAX {
            let path = path.canonicalize().unwrap();
            std::os::unix::fs::symlink(&path, folder.path().join(path.file_name().unwrap())).unwrap();
        }
    }
    if stackhound_corpus::folder().is_none() {
        return;
    }
    let (together, alone) = together_and_alone(HUNT_ALL, folder.path());
    assert!(together.lines().count() > 1_000, "{}", together.lines().count());
    assert!(together == alone, "answers for a folder differ from those for its captures");
}
