//! Inlined functions and source lines in the output of the verbs, with a PDB of the corpus.
//!
//! The expected functions and lines are those that `llvm-symbolizer` finds.

use std::path::Path;

use serde_json::Value;
use stackhound::schema::kernel::class_guid;
use stackhound::testing::{RecordBuilder, StackForm, TraceBuilder, write_etl};

use crate::program::{stackhound, text};

const BASE: u64 = 0x7ffa_0000_0000;
/// Of the image.
const SIZE: u64 = 0x4_2000;
const TIME_DATE_STAMP: u32 = 0x5eba_81a4;
/// The sampled instruction, and a return address. The call before it is in two inlined functions,
/// the instruction after it is in none.
const SAMPLED: u64 = BASE + 0x5000;
const RETURN: u64 = BASE + 0xf851;

const SOURCES: &str = "/builds/worker/checkouts/gecko/security/nss/lib/softoken";

/// The frames of the stack, innermost first: the function, the offset of an address in it, the
/// source file and the line.
const FRAMES: [(&str, Option<u64>, &str, u64); 4] = [
    ("sftk_AuditCryptInit", Some(0x80), "fipsaudt.c", 170),
    ("sftk_tokenKeyUnlock", None, "pkcs11u.c", 904),
    ("SFTK_ClearTokenKeyHashTable", None, "pkcs11u.c", 922),
    ("SFTK_ShutdownSlot", Some(0x61), "pkcs11.c", 2989),
];

/// The names of the frames, as functions.
fn functions() -> [String; 4] {
    FRAMES.map(|(name, offset, ..)| {
        format!("softokn3.dll!{name}{}", if offset.is_some() { "" } else { " [inlined]" })
    })
}

/// A folder with the image, its PDB, and a trace with one sample in it.
fn folder() -> Option<tempfile::TempDir> {
    let folder = tempfile::tempdir().unwrap();
    for name in ["softokn3.dll", "softokn3.pdb"] {
        let bytes = stackhound_corpus::bytes(&format!("symbols/pairs/samply/{name}"))?;
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    let classic = |class, opcode, version| RecordBuilder::classic(class, opcode, version).pid(8).tid(12);
    let image = classic(class_guid::IMAGE, 10, 3)
        .with("ProcessId", 8_u32)
        .with("ImageBase", BASE)
        .with("ImageSize", SIZE)
        .with("TimeDateStamp", TIME_DATE_STAMP)
        .with("FileName", r"\Device\HarddiskVolume3\softokn3.dll");
    let thread = classic(class_guid::THREAD, 3, 3).with("ProcessId", 8_u32).with("TThreadId", 12_u32);
    let sample = classic(class_guid::PERF_INFO, 46, 2)
        .with("InstructionPointer", SAMPLED)
        .with("ThreadId", 12_u32)
        .with("Count", 1_u16);
    let events = TraceBuilder::new()
        .process(8, "app.exe", &[])
        .event(image)
        .event(thread)
        .event_with_stack(sample, StackForm::Walk, &[], &[SAMPLED, RETURN])
        .build()
        .unwrap();
    write_etl(std::fs::File::create(folder.path().join("trace.etl")).unwrap(), events).unwrap();
    Some(folder)
}

fn run(folder: &Path, verb: &[&str], options: &[&str]) -> String {
    let trace = folder.join("trace.etl");
    let common = [text(&trace), "-q", "--symbol-path", text(folder)];
    let output = stackhound(&[verb, &common, options].concat());
    assert!(output.status.success(), "{verb:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The lines of a table after the mode and the address of each frame.
fn shown() -> Vec<String> {
    let frames = FRAMES.iter().zip(functions());
    let shown = frames.map(|((_, offset, file, line), function)| {
        let offset = offset.map_or(String::new(), |offset| format!("+{offset:#x} [pdb]"));
        format!("{function}{offset} ({SOURCES}/{file}:{line})")
    });
    shown.collect()
}

#[test]
fn tables_show_them_as_frames() {
    let Some(folder) = folder() else { return };
    let sample = ["--event", "PerfInfo/SampledProfile", "--symbols", "full"];
    let events = run(folder.path(), &["events", "--stacks"], &sample);
    let addresses = [Some(SAMPLED), None, None, Some(RETURN)];
    let expected = shown().into_iter().zip(addresses).map(|(shown, address)| {
        let address = address.map_or("-".to_owned(), |address| format!("{address:#018x}"));
        format!("    user   {address:<18} {shown}")
    });
    let lines: Vec<&str> = events.lines().skip_while(|line| !line.contains("sftk_")).collect();
    assert_eq!(lines, expected.collect::<Vec<_>>(), "{events}");
    let stacks = run(folder.path(), &["stacks"], &[]);
    let lines: Vec<&str> = stacks.lines().filter(|line| line.starts_with("    user")).collect();
    assert_eq!(lines, shown().iter().map(|shown| format!("    user   {shown}")).collect::<Vec<_>>());
    let csv = run(folder.path(), &["events", "--stacks", "--format", "csv"], &sample);
    let frames = shown().into_iter().map(|shown| shown.rsplit_once(" (").unwrap().0.to_owned());
    assert!(csv.contains(&frames.collect::<Vec<_>>().join("|")), "{csv}");
}

#[test]
fn json_has_them_in_the_frame_that_contains_their_code() {
    let Some(folder) = folder() else { return };
    let sample = ["--event", "PerfInfo/SampledProfile", "--symbols", "full"];
    let event = run(folder.path(), &["events", "--stacks", "--format", "ndjson"], &sample);
    let event: Value = serde_json::from_str(&event).unwrap();
    let stacks: Value =
        serde_json::from_str(&run(folder.path(), &["stacks", "--format", "json"], &[])).unwrap();
    for stack in [&event["stack"], &stacks["kinds"][0]["stacks"][0]["stack"]] {
        let frames = stack["frames"].as_array().unwrap();
        let line = |index: usize| serde_json::json!({"file": format!("{SOURCES}/{}", FRAMES[index].2), "line": FRAMES[index].3});
        let inlined =
            [1, 2].map(|index| serde_json::json!({"function": FRAMES[index].0, "source": line(index)}));
        assert_eq!(frames.len(), 2);
        assert_eq!((&frames[0]["source"], &frames[0]["inlines"]), (&line(0), &Value::Array(vec![])));
        assert_eq!((&frames[1]["source"], &frames[1]["inlines"]), (&line(3), &Value::from(inlined.to_vec())));
    }
}

#[test]
fn time_counts_for_them() {
    let Some(folder) = folder() else { return };
    let rows = |by: &str| {
        let document = run(folder.path(), &["top", "cpu", "--by", by, "--format", "json"], &[]);
        let document: Value = serde_json::from_str(&document).unwrap();
        document["rows"].as_array().unwrap().clone()
    };
    // Each function once: only the innermost one has samples of its own.
    let named = |by: &str| {
        let rows = rows(by).into_iter().map(|row| {
            let samples = |key: &str| row[key].as_u64().unwrap();
            (row["name"].as_str().unwrap().to_owned(), samples("samples"), samples("total_samples"))
        });
        let mut rows: Vec<_> = rows.collect();
        rows.sort();
        rows
    };
    let mut functions: Vec<_> = functions().into_iter().zip([1, 0, 0, 0]).collect();
    functions.sort();
    assert_eq!(
        named("function"),
        functions.into_iter().map(|(name, own)| (name, own, 1)).collect::<Vec<_>>()
    );
    let lines = FRAMES.iter().zip(self::functions()).zip([1, 0, 0, 0]);
    let lines =
        lines.map(|(((.., file, line), name), own)| (format!("{name} ({SOURCES}/{file}:{line})"), own, 1));
    let mut lines: Vec<_> = lines.collect();
    lines.sort();
    assert_eq!(named("line"), lines);
    assert_eq!(named("module"), [("softokn3.dll".to_owned(), 1, 1)]);
    let stack = rows("stack")[0]["stack"].clone();
    let mut expected = self::functions().to_vec();
    expected.push("app.exe (8)".to_owned());
    assert_eq!(stack, Value::from(expected));
}

#[test]
fn profiles_have_them_as_frames() {
    let Some(folder) = folder() else { return };
    let outermost_first = |names: [String; 4]| names.into_iter().rev().collect::<Vec<_>>();
    let expected = outermost_first(functions());
    let folded = run(folder.path(), &["profile", "--format", "folded"], &[]);
    assert_eq!(folded, format!("app.exe (8);{} 1\n", expected.join(";")));
    let folded = run(folder.path(), &["stacks", "--format", "folded"], &[]);
    assert_eq!(folded, format!("app.exe;{};PerfInfo/SampledProfile 1\n", expected.join(";")));

    let speedscope = run(folder.path(), &["profile", "--format", "speedscope"], &[]);
    let speedscope: Value = serde_json::from_str(&speedscope).unwrap();
    let frames = speedscope["profiles"][0]["samples"][0].as_array().unwrap();
    let frames = frames.iter().map(|frame| &speedscope["shared"]["frames"][frame.as_u64().unwrap() as usize]);
    let frames: Vec<_> =
        frames.map(|frame| (frame["name"].as_str().unwrap(), frame["file"].as_str().unwrap())).collect();
    let files = FRAMES.map(|(_, _, file, _)| format!("{SOURCES}/{file}"));
    let files = outermost_first(files);
    assert_eq!(
        frames,
        expected.iter().map(|name| &**name).zip(files.iter().map(|file| &**file)).collect::<Vec<_>>()
    );

    let image = run(folder.path(), &["profile", "--format", "flamegraph"], &[]);
    for name in &expected {
        assert!(image.contains(&format!("<title>{name} (user, 1 sample, 100.00 %)</title>")), "{name}");
    }

    let firefox: Value =
        serde_json::from_str(&run(folder.path(), &["profile", "--format", "firefox"], &[])).unwrap();
    let threads = firefox["threads"].as_array().unwrap().iter();
    let thread = threads.into_iter().find(|thread| thread["samples"]["length"] == 1).unwrap();
    let at = |table: &str, column: &str, index: &Value| {
        thread[table][column][index.as_u64().unwrap() as usize].clone()
    };
    let mut names = Vec::new();
    let mut stack = thread["samples"]["stack"][0].clone();
    while !stack.is_null() {
        let frame = at("stackTable", "frame", &stack);
        let name = at("funcTable", "name", &at("frameTable", "func", &frame));
        let name = &thread["stringArray"][name.as_u64().unwrap() as usize];
        let category = at("frameTable", "category", &frame).as_u64().unwrap() as usize;
        let subcategory = at("frameTable", "subcategory", &frame).as_u64().unwrap() as usize;
        let category = &firefox["meta"]["categories"][category];
        names.push((name.as_str().unwrap().to_owned(), category["subcategories"][subcategory].clone()));
        stack = at("stackTable", "prefix", &stack);
    }
    let named = functions().map(|name| {
        let origin = if name.ends_with("[inlined]") { "inlined, named by PDB" } else { "named by PDB" };
        (name, Value::from(origin))
    });
    assert_eq!(names, named);
}
