//! Inputs of all formats, truncated and with flipped bits: the program ends and reports what it
//! could not read, and `--strict` sets the exit code.
//!
//! An ordinary run tries 150 of each; `STACKHOUND_MUTATIONS` is another number, and
//! `scripts/mutations.sh` tries 5,000.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use serde_json::Value;
use stackhound_calltree::journal::Writer;
use stackhound_calltree::{Change, ContextId, Cpu, StackInfo, StackKind, StartType};

fn stackhound(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stackhound")).args(arguments).output().expect("the program runs")
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// An input format and the command that reads it.
struct Format {
    name: &'static str,
    bytes: Vec<u8>,
    /// The verb with its arguments; the file follows the first one.
    verb: &'static [&'static str],
    /// Whether every change is detected by checksums or lengths.
    is_checked: bool,
}

const INFO: &[&str] = &["info", "--format", "json"];
const HUNT: &[&str] = &["hunt", "--format", "ndjson", "--all", "--exit-zero"];

fn formats() -> Vec<Format> {
    let folder = tempfile::tempdir().unwrap();
    let made = stackhound(&["demo", "-q", "--events", "8000", "--out", text(folder.path())]);
    assert!(made.status.success());
    let etl = fs::read(folder.path().join("stackhound-demo.etl")).unwrap();
    let frames = etl.chunks(100_000).flat_map(|chunk| compress_to_vec(chunk, CompressionLevel::Fastest));
    let frames: Vec<u8> = frames.collect();
    let mut archive = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    archive.start_file("a.etl", zip::write::SimpleFileOptions::default()).unwrap();
    archive.write_all(&etl).unwrap();
    let archive = archive.finish().unwrap().into_inner();
    let row = |number: u32| {
        format!(
            r#"{{"EventID":10,"SourceName":"Microsoft-Windows-Sysmon","SourceProcessId":"{number}","TargetImage":"b","CallTrace":"x+1"}}"#
        )
    };
    let rows: String = (0..50).map(|number| row(number) + "\n").collect();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packed.write_all(rows.as_bytes()).unwrap();
    let format = |name, bytes, verb, is_checked| Format { name, bytes, verb, is_checked };
    vec![
        format("a.etl", etl, INFO, false),
        format("b.etl.zst", frames, INFO, true),
        format("c.etl.zip", archive, INFO, true),
        format("d.json", rows.into_bytes(), HUNT, false),
        format("e.json.gz", packed.finish().unwrap(), HUNT, true),
        format("f.calls", journal(), &["tree", "--at", "#0", "--format", "json"], false),
    ]
}

fn journal() -> Vec<u8> {
    let mut writer = Writer::new(Vec::new()).unwrap();
    let (kind, thread) = (StackKind::User, Some(1));
    let stack = StackInfo { kind, process: thread, thread, cpu: None, name: None, region: None };
    let stack = writer.stack(&stack).unwrap();
    writer.change(Change::Enter { cpu: Cpu(0), stack, first: ContextId(0) }).unwrap();
    for context in 0..200 {
        let (start, location) = (StartType::Call, None);
        writer.change(Change::Open { stack, first: ContextId(context), start, location }).unwrap();
        writer.flush().unwrap();
    }
    writer.finish(300).unwrap()
}

/// Runs the program. Returns its exit code and standard output.
fn run(format: &Format, folder: &Path, bytes: &[u8]) -> (i32, Vec<u8>) {
    let path: PathBuf = folder.join(format.name);
    fs::write(&path, bytes).unwrap();
    let arguments = [&format.verb[..1], &["--strict", "-q", text(&path)], &format.verb[1..]].concat();
    let output = stackhound(&arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!errors.contains("panicked"), "{}: {errors}", format.name);
    let code = output.status.code().unwrap_or_else(|| panic!("{}: {:?}", format.name, output.status));
    assert_eq!(code == 2, errors.contains("error: "), "{} {code}: {errors}", format.name);
    let _ = fs::remove_file(path.with_added_extension("index"));
    (code, output.stdout)
}

fn count() -> u64 {
    std::env::var("STACKHOUND_MUTATIONS").map_or(150, |count| count.parse().expect("a number"))
}

/// Deterministic pseudorandom numbers.
fn numbers() -> impl FnMut(usize) -> usize {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    move |below| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        ((u128::from(state >> 11) * below as u128) >> 53) as usize
    }
}

#[test]
fn truncated_inputs_are_never_complete() {
    let (formats, mut number) = (formats(), numbers());
    let folder = tempfile::tempdir().unwrap();
    for format in &formats {
        assert_eq!(run(format, folder.path(), &format.bytes).0, 0, "{}", format.name);
    }
    for turn in 0..count() {
        let format = &formats[turn as usize % formats.len()];
        let length = number(format.bytes.len());
        let (code, printed) = run(format, folder.path(), &format.bytes[..length]);
        let context = || format!("{}: {length} of {} bytes: {code}", format.name, format.bytes.len());
        match format.name {
            // A cut between two lines, or at the end of one, cannot be detected.
            "d.json" if format.bytes[..length].last().is_none_or(|byte| b"\n}".contains(byte)) => {}
            _ => assert!(matches!(code, 2 | 3), "{}", context()),
        }
        if format.name == "a.etl" && code == 3 {
            let info: Value = serde_json::from_slice(&printed).unwrap();
            let [read, unreadable] =
                ["bytes_read", "bytes_unreadable"].map(|key| info[key].as_u64().unwrap());
            assert_eq!(read + unreadable, length as u64, "{}", context());
        }
    }
}

#[test]
fn flipped_bits_are_reported_or_change_nothing() {
    let (formats, mut number) = (formats(), numbers());
    let folder = tempfile::tempdir().unwrap();
    let whole: Vec<Vec<u8>> =
        formats.iter().map(|format| run(format, folder.path(), &format.bytes).1).collect();
    for turn in 0..count() {
        let (format, whole) =
            (&formats[turn as usize % formats.len()], &whole[turn as usize % formats.len()]);
        let mut bytes = format.bytes.clone();
        let bit = number(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        let (code, printed) = run(format, folder.path(), &bytes);
        assert!(matches!(code, 0 | 2 | 3), "{}: bit {bit}: {code}", format.name);
        if format.is_checked && code == 0 {
            assert_eq!(&printed, whole, "{}: bit {bit} changes what is read", format.name);
        }
    }
}
