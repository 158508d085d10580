//! `convert -o DIR`: the tables contain what `events` and `hunt` write. The files are read by a
//! reader that does not know their layout. `scripts/check-tables.py` compares those of any trace.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use serde_json::Value;
use stackhound::trace::TraceFiles;
use stackhound_scenario::{Mix, Scenario};

use crate::demonstration::{demo, run};
use crate::program::refused;

pub type Row = HashMap<String, Value>;

/// All files below a folder, sorted, with their content.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                folders.push(entry);
            } else {
                found.insert(entry.clone(), fs::read(entry).unwrap());
            }
        }
    }
    found
}

/// The rows of a table, in the order of their files.
pub fn rows(folder: &Path, table: &str) -> Vec<Row> {
    let value = |field: &Field| match field {
        Field::Null => Value::Null,
        Field::Bool(truth) => Value::from(*truth),
        Field::UByte(number) => Value::from(*number),
        Field::UShort(number) => Value::from(*number),
        Field::UInt(number) => Value::from(*number),
        Field::ULong(number) => Value::from(*number),
        Field::Long(number) => Value::from(*number),
        Field::Str(text) => Value::from(text.clone()),
        other => panic!("a field of another type: {other:?}"),
    };
    let mut rows = Vec::new();
    for path in files(&folder.join(table)).into_keys() {
        let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
        for row in reader.get_row_iter(None).unwrap().map(Result::unwrap) {
            rows.push(row.get_column_iter().map(|(name, field)| (name.clone(), value(field))).collect());
        }
    }
    rows
}

pub fn lines(folder: &Path, arguments: &[&str]) -> Vec<Value> {
    let output = run(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn hex(value: &Value) -> Option<u64> {
    value.as_str().map(|text| u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap())
}

/// Nanoseconds since 1970 of a time in JSON; `None` outside of the years of the column.
pub fn nanoseconds(time: &Value) -> Option<i64> {
    let time: jiff::Timestamp = time.as_str()?.parse().ok()?;
    i64::try_from(time.as_nanosecond()).ok()
}

/// Checks the tables of a trace against what `events` and `hunt` write about it. Returns the number of
/// events, of frames and of findings.
fn check(folder: &Path, trace: &str, symbols: &[&str]) -> (usize, usize, usize) {
    let converted = run(folder, &[&["convert", "-q", trace, "-o", "lake", "--again"], symbols].concat());
    assert!(converted.status.success(), "{trace}: {}", String::from_utf8_lossy(&converted.stderr));
    let lake = folder.join("lake");
    let table = |name| rows(&lake, name);
    let mut frames: HashMap<u64, Vec<Row>> = HashMap::new();
    for frame in table("frames") {
        let stack = frames.entry(frame["stack_id"].as_u64().unwrap()).or_default();
        assert_eq!(frame["depth"], stack.len(), "{trace}");
        stack.push(frame);
    }
    let names: HashMap<_, _> = table("symbols").into_iter().map(|row| (place(&row), row)).collect();
    let bases: HashSet<_> = table("regions")
        .into_iter()
        .filter(|row| row["kind"] == "image")
        .map(|row| (row["module_id"].as_u64(), row["base"].as_u64()))
        .collect();
    let processes: HashMap<_, _> =
        table("processes").into_iter().map(|row| (row["process_uid"].as_u64().unwrap(), row)).collect();
    let events = table("events");
    let expected =
        lines(folder, &[&["events", "-q", trace, "--stacks", "--format", "ndjson"], symbols].concat());
    assert_eq!(events.len(), expected.len(), "{trace}");
    let mut frames_seen = 0;
    for (number, (row, event)) in events.iter().zip(&expected).enumerate() {
        let at = format!("{trace} {number}: {row:?}\n{event}");
        assert_eq!(row["number"], number + 1, "{at}");
        assert_eq!(row["time"].as_i64(), nanoseconds(&event["time"]), "{at}");
        for key in ["ts", "cpu", "pid", "tid", "provider", "event", "id", "opcode", "version"] {
            assert_eq!(row[key], event[key], "{key} {at}");
        }
        let fields: Value = serde_json::from_str(row["fields"].as_str().unwrap()).unwrap();
        assert_eq!(fields, event["fields"], "{at}");
        let nested = [
            ("process", "/process/name"),
            ("file_path", "/file/path"),
            ("registry_path", "/registry/path"),
            ("registry_value", "/registry/value"),
            ("target_pid", "/target/pid"),
            ("target_tid", "/target/tid"),
            ("create_requested", "/create/requested"),
            ("create_completion", "/create/completion"),
            ("create_result", "/create/result"),
            ("service", "/syscall/service"),
            ("call_completion", "/syscall/completion"),
            ("call_duration", "/syscall/duration"),
            ("stack_state", "/stack/state"),
        ];
        for (key, pointer) in nested {
            assert_eq!(&row[key], event.pointer(pointer).unwrap_or(&Value::Null), "{key} {at}");
        }
        for (key, pointer) in [
            ("create_status", "/create/status"),
            ("call_status", "/syscall/status"),
            ("call_routine", "/syscall/routine"),
        ] {
            assert_eq!(row[key].as_u64(), event.pointer(pointer).and_then(hex), "{key} {at}");
        }
        assert_eq!(row["process_uid"].is_null(), event["process"].is_null(), "{at}");
        if let Some(uid) = row["process_uid"].as_u64() {
            let (process, expected) = (&processes[&uid], &event["process"]);
            for (key, name) in [("name", "name"), ("command_line", "command_line"), ("session", "session")] {
                assert_eq!(process[key], expected[name], "{key} {at}");
            }
        }
        let list = event.pointer("/stack/frames").and_then(Value::as_array);
        let list = list.filter(|frames| !frames.is_empty());
        let also = event.pointer("/stack/also").and_then(Value::as_array).into_iter().flatten();
        let also: Vec<&str> = also.map(|state| state.as_str().unwrap()).collect();
        assert_eq!(row["stack_also"].as_str().unwrap_or_default(), also.join("|"), "{at}");
        let Some(list) = list else {
            assert!(row["stack_id"].is_null(), "{at}");
            continue;
        };
        frames_seen += list.len();
        if let Some(answer) = event.pointer("/stack/contains_unbacked") {
            assert_eq!(&row["contains_unbacked"], answer, "{at}");
        }
        let stack = &frames[&row["stack_id"].as_u64().unwrap()];
        assert_eq!(stack.len(), list.len(), "{at}");
        let mut others = row["other_addresses"].as_str().unwrap_or_default().split('|');
        for (frame, expected) in stack.iter().zip(list) {
            let at = format!("{frame:?}\n{expected}\n{at}");
            assert_eq!(frame["mode"], expected["mode"], "{at}");
            assert_eq!(frame["wow64"], expected.get("wow64").is_some(), "{at}");
            let address = hex(&expected["address"]).unwrap();
            match (frame["module_id"].as_u64(), frame["rva"].as_u64()) {
                (Some(module), Some(rva)) => {
                    let base = address.wrapping_sub(rva);
                    assert!(bases.contains(&(Some(module), Some(base))), "{at}");
                }
                _ => assert_eq!(others.next(), expected["address"].as_str(), "{at}"),
            }
            let Some(backing) = expected.get("backing") else { continue };
            assert_eq!(&frame["backing"], backing, "{at}");
            assert_eq!(frame["module"], expected["module"], "{at}");
            assert_eq!(frame["rva"].as_u64(), hex(&expected["rva"]), "{at}");
            if frame["module_id"].is_null() && frame["mode"] == "user" {
                assert_eq!(Some(&frame["region"]), expected.pointer("/region/kind"), "{at}");
            }
            let of_files = |expected: &&Value| expected["origin"] != "method";
            if let Some(name) = expected.get("symbol").filter(|name| !name.is_null() && of_files(&expected)) {
                let symbol = &names[&place(frame)];
                assert_eq!(&symbol["name"], name, "{at}");
                assert_eq!(symbol["offset"], expected["offset"], "{at}");
                assert_eq!(symbol["origin"], expected["origin"], "{at}");
            }
        }
        assert_eq!(others.next().filter(|rest| !rest.is_empty()), None, "{at}");
    }
    let hunted = [&["hunt", "-q", trace, "--exit-zero", "--format", "ndjson"], symbols].concat();
    let hunted = lines(folder, &hunted);
    let mut seen = 0;
    for (name, key) in [("findings", "finding"), ("alerts", "alert")] {
        let written = table(name);
        let expected: Vec<&Value> = hunted.iter().filter(|line| line["type"] == key).collect();
        assert_eq!(written.len(), expected.len(), "{trace} {name}");
        seen += written.len();
        for (row, expected) in written.iter().zip(expected) {
            let mut document: Value = serde_json::from_str(row["document"].as_str().unwrap()).unwrap();
            // Files have names without folders there, because tables depend on their content only.
            if let Some(input) = document.get_mut("input") {
                input["file"] = expected["input"]["file"].clone();
            }
            assert_eq!(&document, expected, "{trace}");
            assert_eq!(row["severity"], expected["severity"], "{trace}");
        }
    }
    (expected.len(), frames_seen, seen)
}

#[test]
fn processes_have_one_id_with_and_without_losses() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.etl");
    let scenario = Scenario { events: 20_000, seed: 3, mix: Mix::Reuse };
    scenario.write(File::create(&path).unwrap()).unwrap();
    let bytes = fs::read(&path).unwrap();
    let trace = TraceFiles::file(&path).open().unwrap();
    let buffers = trace.sources()[0].etl_file.index().buffers;
    // Of each process, what identifies it.
    let processes = |output: &str| -> Vec<(u64, Option<i64>, u64)> {
        let converted = run(folder.path(), &["convert", "-q", "trace.etl", "-o", output, "--host", "PC"]);
        assert!(converted.status.success(), "{}", String::from_utf8_lossy(&converted.stderr));
        let rows = rows(&folder.path().join(output), "processes").into_iter();
        let number = |row: &Row, key: &str| row[key].as_u64().unwrap();
        rows.map(|row| (number(&row, "pid"), row["created"].as_i64(), number(&row, "process_uid"))).collect()
    };
    let mut known = HashMap::new();
    let whole = processes("whole");
    known.extend(whole.iter().filter_map(|(pid, created, uid)| Some(((*pid, (*created)?), *uid))));
    let (mut same, mut others) = (0, 0);
    for (number, buffer) in buffers.iter().enumerate().skip(2).step_by(6) {
        let (start, end) = (buffer.offset as usize, buffer.offset as usize + buffer.size as usize);
        fs::write(&path, [&bytes[..start], &bytes[end..]].concat()).unwrap();
        let processes = processes(&format!("without {number}"));
        let uids: HashSet<u64> = processes.iter().map(|(.., uid)| *uid).collect();
        assert_eq!(uids.len(), processes.len(), "without {number}: {processes:?}");
        for (pid, created, uid) in processes {
            match created.and_then(|created| known.get(&(pid, created))) {
                Some(expected) => assert_eq!(uid, *expected, "without {number}: {pid}"),
                None => assert!(known.values().all(|of| *of != uid), "without {number}: {pid} {created:?}"),
            }
            *if created.is_some() { &mut same } else { &mut others } += 1;
        }
    }
    assert!(same > 20 && others > 20, "{same} {others}");
}

/// The address that a row of `frames` or `symbols` is about.
fn place(row: &Row) -> (Option<u64>, Option<u64>, bool) {
    (row["module_id"].as_u64(), row["rva"].as_u64(), row["is_return"] == true)
}

#[test]
fn tables_contain_what_the_program_writes() {
    let folder = demo();
    let counts = check(folder.path(), "stackhound-demo.etl", &["--symbol-path", "symbols"]);
    assert!(counts.0 > 10_000 && counts.1 > 10_000 && counts.2 > 100, "{counts:?}");
}

#[test]
fn converting_again_adds_nothing() {
    let folder = demo();
    let convert = |arguments: &[&str]| {
        let all = [&["convert", "stackhound-demo.etl", "-o", "lake"], arguments].concat();
        let output = run(folder.path(), &all);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && output.stdout.is_empty(), "{said}");
        (said, files(&folder.path().join("lake")))
    };
    let (said, first) = convert(&["--threads", "1"]);
    assert!(said.contains("rows in ") && said.contains(" findings"), "{said}");
    assert_eq!(first.len(), 12, "{:?}", first.keys());
    let (said, second) = convert(&[]);
    assert!(said.contains("1 trace was already complete"), "{said}");
    assert!(second == first);
    let (said, third) = convert(&["--again", "--threads", "4"]);
    assert!(!said.contains("already complete"), "{said}");
    assert!(third == first);
    // Another selection is another trace.
    let (_, both) = convert(&["--event", "Process/*"]);
    assert_eq!(both.len(), 24);
    let selected: Vec<Row> = rows(&folder.path().join("lake"), "traces");
    assert!(selected.iter().any(|row| row["selection"].as_str().unwrap().contains("Process/*")));
    // Without the last file, a trace is not complete, and is converted again.
    let last = both.keys().find(|path| path.to_str().unwrap().contains("traces")).unwrap();
    fs::remove_file(last).unwrap();
    convert(&[]);
    convert(&["--event", "Process/*"]);
    assert!(files(&folder.path().join("lake")) == both);
}

#[test]
fn names_that_are_added_later_are_those_of_a_conversion_with_symbols() {
    let folder = demo();
    let said = |arguments: &[&str]| {
        let output = run(folder.path(), arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{said}");
        said
    };
    let tables = |name: &str| -> BTreeMap<PathBuf, Vec<u8>> {
        let root = folder.path().join(name).join("symbols");
        let found = files(&root).into_iter();
        found.map(|(path, bytes)| (path.strip_prefix(&root).unwrap().to_owned(), bytes)).collect()
    };
    said(&["convert", "stackhound-demo.etl", "-o", "named", "--symbol-path", "symbols"]);
    said(&["convert", "stackhound-demo.etl", "-o", "added"]);
    assert!(rows(&folder.path().join("added"), "symbols").is_empty());
    assert!(tables("added") != tables("named"));
    let named = rows(&folder.path().join("named"), "symbols").len();
    assert!(named > 100, "{named}");
    let end = said(&["symbols", "add", "added", "--symbol-path", "symbols"]);
    assert!(end.starts_with("1 trace: ") && end.contains(" addresses have names"), "{end}");
    assert!(tables("added") == tables("named"));
    // Names stay, even if their files are not found any more.
    said(&["symbols", "add", "added", "-q"]);
    assert!(tables("added") == tables("named"));
    let output = run(folder.path(), &["symbols", "add", "symbols"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(said, "error: symbols: expected a directory of tables, as `convert -o DIR` writes it\n");
}

#[test]
fn shares_cover_all_traces_once() {
    let folder = demo();
    for name in ["two", "three"] {
        fs::create_dir(folder.path().join(name)).unwrap();
        let made = run(
            folder.path(),
            &["demo", "-q", "--out", name, "--seed", if name == "two" { "2" } else { "3" }],
        );
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }
    let inputs = ["stackhound-demo.etl", "two/stackhound-demo.etl", "three/stackhound-demo.etl"];
    for (output, shards) in [("all", &["1/1"][..]), ("shares", &["1/2", "2/2"])] {
        for shard in shards {
            let arguments = [
                &["convert", "-q"][..],
                &inputs,
                &["-o", output, "--separate", "--shard", shard, "--event", "Process/*"],
            ];
            let made = run(folder.path(), &arguments.concat());
            assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        }
    }
    let relative = |output: &str| -> BTreeMap<PathBuf, Vec<u8>> {
        let root = folder.path().join(output);
        let found = files(&root).into_iter();
        found.map(|(path, bytes)| (path.strip_prefix(&root).unwrap().to_owned(), bytes)).collect()
    };
    assert_eq!(relative("all").len(), 36);
    assert!(relative("all") == relative("shares"));
}

#[test]
fn options_of_tables_are_refused_elsewhere() {
    let folder = demo();
    let trace = folder.path().join("stackhound-demo.etl");
    let trace = trace.to_str().unwrap();
    let output = folder.path().join("part.etl");
    refused(
        &["convert", trace, "-o", output.to_str().unwrap(), "--shard", "1/2"],
        "--host, --shard and --again apply to tables; use -o DIR",
    );
    let output = run(folder.path(), &["convert", trace, "-o", "lake", "--shard", "3/2"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("expected a share and the number of shares, such as 2/8"), "{said}");
}
