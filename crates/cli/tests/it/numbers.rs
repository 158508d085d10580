//! Numbers in the output are those of what their words say, in every verb.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Cursor;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use stackhound::etl::record::Descriptor;
use stackhound::etl::write::{EtlWriter, HeaderSpec, Issuer, Payload, RecordSpec, Session};
use stackhound::{Guid, Pid, PointerSize, RawTime, Tid};

fn stackhound(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stackhound")).args(arguments).output().expect("the program runs")
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn written(arguments: &[&str]) -> String {
    let output = stackhound(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The folder of a demo, and its trace.
fn demo() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    written(&["demo", "-q", "--out", text(folder.path())]);
    let trace = text(&folder.path().join("stackhound-demo.etl")).to_owned();
    (folder, trace)
}

#[test]
fn alerts_count_events_and_not_findings() {
    let (_folder, trace) = demo();
    let hunted =
        written(&["hunt", "-q", "--exit-zero", &trace, "--min-severity", "info", "--format", "ndjson"]);
    let mut records: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for line in hunted.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let Some(key) = row["alert"].as_str() else { continue };
        if row["type"] == "alert" {
            counts.insert(key.to_owned(), row["events"].as_u64().unwrap());
        } else if row["verdict"] == "yes" {
            records.entry(key.to_owned()).or_default().insert(row["input"]["record"].as_u64().unwrap());
        }
    }
    let expected: BTreeMap<String, u64> =
        records.iter().map(|(key, records)| (key.clone(), records.len() as u64)).collect();
    assert_eq!(counts, expected);
    // The summary shows the same numbers.
    let document: Value =
        serde_json::from_str(&written(&["summary", "-q", &trace, "--format", "json"])).unwrap();
    let of_summary: BTreeSet<u64> = document[0]["alerts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|alert| alert["events"].as_u64().unwrap())
        .collect();
    assert_eq!(of_summary, expected.values().copied().collect());
}

#[test]
fn shares_of_stacks_are_those_of_the_events() {
    let (_folder, trace) = demo();
    let mut shares = BTreeSet::new();
    for line in written(&["stacks", "-q", &trace]).lines().filter(|line| line.contains(" with a stack (")) {
        let (_, counts) = line.rsplit_once(": ").expect(line);
        let numbers: Vec<f64> = counts
            .split(|c: char| !c.is_ascii_digit() && c != ',' && c != '.')
            .filter_map(|word| word.replace(',', "").parse().ok())
            .collect();
        let [events, with_stack, share, ..] = numbers[..] else { panic!("{line}") };
        assert!((100.0 * with_stack / events - share).abs() < 0.06, "{line}");
        shares.insert(format!("{share}"));
    }
    assert!(shares.len() > 2, "{shares:?}");
}

#[test]
fn sizes_of_logs_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let row = r#"{"EventID":1,"UtcTime":"2024-01-01 00:00:00.000","ProcessId":"4","Image":"C:\\a.exe"}"#;
    let rows = format!("{row}\n").repeat(3 << 20 >> 6);
    let mib = rows.len() as f64 / f64::from(1 << 20);
    fs::write(folder.path().join("sysmon.ndjson"), rows).unwrap();
    let file = folder.path().join("sysmon.ndjson");
    for input in [&file, folder.path()] {
        let errors = String::from_utf8(stackhound(&["hunt", "--no-progress", text(input)]).stderr).unwrap();
        assert!(errors.contains(&format!(", {mib:.1} MiB in ")), "{errors}");
    }
    // A trace has one size.
    let (_folder, trace) = demo();
    let size = |verb: &str| {
        let errors = String::from_utf8(stackhound(&[verb, "--no-progress", &trace]).stderr).unwrap();
        let before = errors.split_once(" MiB in ").expect(&errors).0.to_owned();
        before.rsplit_once(", ").expect(&before).1.to_owned()
    };
    assert_eq!(size("hunt"), size("events"));
}

/// A collection of .NET, whose thread suspended the others for 412 µs.
#[test]
fn short_pauses_are_not_zero() {
    const RUNTIME: Guid = Guid::from_u128(0xe13c0d23_ccbc_4e12_931b_d9cc2eee27e4);
    let session = Session::default();
    let start = session.start.0;
    let mut writer = EtlWriter::new(session, Cursor::new(Vec::new())).unwrap();
    // The times are ticks of 100 ns: suspension, start, end, and the end of the restart.
    let events: [(i64, u16, &[u32]); 4] =
        [(100, 9, &[1, 0]), (200, 1, &[1, 1, 0, 0]), (4_000, 2, &[1, 0]), (4_220, 3, &[])];
    for (time, id, fields) in events {
        let descriptor = Descriptor { id, version: 1, channel: 0, level: 4, opcode: 0, task: 0, keyword: 1 };
        let header = HeaderSpec::Event {
            provider: RUNTIME,
            descriptor,
            property: 0,
            issuer: Issuer::new(Pid(8), Tid(16)),
            activity: Guid::ZERO,
            items: &[],
        };
        let payload: Vec<u8> = fields.iter().flat_map(|field| field.to_le_bytes()).chain([0; 2]).collect();
        let (time, payload) = (RawTime(start + time), Payload::Bytes(&payload));
        let record = RecordSpec { time, pointer_size: PointerSize::Eight, header, payload };
        writer.write(0, &record).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("pause.etl");
    fs::write(&trace, writer.finish().unwrap().0.into_inner()).unwrap();
    let screen = written(&["summary", "-q", text(&trace)]);
    assert!(screen.contains("1 pause, together 0.412 ms, longest 0.412 ms"), "{screen}");
    let measured = written(&["top", "gc", "-q", text(&trace)]);
    assert!(measured.contains(" 0.412 "), "{measured}");
}

#[test]
fn no_doubtful_stack_is_called_complete() {
    let (_folder, trace) = demo();
    let shown = written(&["events", "-q", &trace, "--stacks"]);
    let states: BTreeSet<&str> =
        shown.lines().filter(|line| line.starts_with("    [")).map(str::trim).collect();
    assert!(states.contains("[complete]") && states.contains("[unconfirmed]"), "{states:?}");
    assert!(!states.iter().any(|states| states.contains(", complete")), "{states:?}");
}

/// The nearest export is a name in verbs that mark it, and only up to a distance.
#[test]
fn no_verb_names_an_address_after_a_distant_export() {
    let (folder, trace) = demo();
    let symbols = folder.path().join("symbols");
    let path = ["--symbol-path", text(&symbols), "-q"];
    let mut near = 0;
    for verb in [
        &["events", &trace, "--stacks", "--symbols", "full"][..],
        &["stacks", &trace, "--symbols", "full"],
        &["kstack", "--trace", &trace],
        &["hunt", &trace, "--exit-zero"],
        &["top", "cpu", &trace, "--by", "stack", "--offsets"],
    ] {
        let shown = written(&[verb, &path].concat());
        for before in shown.split(" [nearest_export]").filter(|before| before.contains("+0x")) {
            let Some((_, offset)) = before.rsplit_once("+0x") else { continue };
            if let Ok(offset) = u64::from_str_radix(offset, 16) {
                assert!(offset <= 0x1_0000, "{verb:?}: {offset:#x}");
                near += 1;
            }
        }
    }
    assert!(near > 1_000, "{near}");
}
