//! JSON that programs can load: the type of a key does not depend on its value, and no integer is larger than all readers
//! keep.
//!
//! An ordinary run looks at the demo and at some recordings of the corpus, with `STACKHOUND_WHOLE_CORPUS=1` at all of them.
//! That other programs load what is written, as `docs/events.md` says, is what `scripts/check-json.py` checks.

mod program;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use program::{stackhound, text};
use serde_json::Value;

/// All that writes JSON, by the name of its documents; `T` is the recording, `S` the folder with symbols.
const VERBS: [(&str, &str); 16] = [
    ("info", "info --full --format json T"),
    ("event", "events --stacks --symbols full --kernel-symbols full --symbol-path S --format ndjson T"),
    ("stacks", "stacks --symbols full --symbol-path S --format json T"),
    ("thread", "kstack --user --symbol-path S --format ndjson --recording T"),
    ("threads", "kstack --user --symbol-path S --format json --recording T"),
    ("modules", "symbols list --format json T"),
    ("check", "symbols check --symbol-path S --format json T"),
    ("finding", "hunt --all --exit-zero --symbol-path S --format ndjson T"),
    ("ecs", "hunt --all --exit-zero --symbol-path S --format ecs T"),
    ("ocsf", "hunt --all --exit-zero --symbol-path S --format ocsf T"),
    ("layer", "hunt --all --exit-zero --symbol-path S --format navigator T"),
    ("providers", "providers --format json --manifest T"),
    ("calls", "calls T * --limit 300 --symbols full --symbol-path S --format ndjson"),
    ("tree", "tree T --at #400 --symbols full --symbol-path S --format json"),
    ("stack", "stack T --at #400 --symbols full --symbol-path S --format json"),
    ("backtrace", "backtrace T --at #400 --symbols full --symbol-path S --format json"),
];

/// Keys below which names of the trace are keys.
const BY_NAME: [&str; 6] =
    ["providers", "kernel_hooks", "by_header_type", "by_owner", "by_state", "verdicts"];

/// Lines of one output that are looked at.
const LINES_MAX: usize = 10_000;

const LARGEST: i64 = 1 << 53;

/// The types that were seen, by path.
#[derive(Default)]
struct Types(BTreeMap<String, BTreeMap<&'static str, String>>);

impl Types {
    fn add(&mut self, path: &str, value: &Value, place: &str) {
        let of_fields = path.contains(" fields.");
        let name = match value {
            // What is not known is null whatever the type.
            Value::Null => return,
            // Bounds of frames are objects, but for those outside of the trace, which are this word.
            Value::String(text) if text == "open" && (path.ends_with(".start") || path.ends_with(".end")) => {
                return;
            }
            Value::Bool(_) => "bool",
            Value::String(_) => "text",
            Value::Array(items) => {
                items.iter().for_each(|item| self.add(&format!("{path}[]"), item, place));
                "list"
            }
            Value::Object(entries) => {
                let by_name = BY_NAME.iter().any(|key| path.ends_with(&format!(".{key}")));
                for (key, value) in entries {
                    let path = match () {
                        () if key == "fields" && !of_fields => {
                            // Names of fields mean something within one kind of event.
                            for (name, value) in value.as_object().into_iter().flatten() {
                                let kind = ["provider", "event", "id", "version"]
                                    .map(|key| entries.get(key).map(Value::to_string));
                                self.add(&format!("{path} {kind:?} fields.{name}"), value, place);
                            }
                            continue;
                        }
                        () if by_name => format!("{path}.*"),
                        () => format!("{path}.{key}"),
                    };
                    self.add(&path, value, place);
                }
                "object"
            }
            Value::Number(number) => match number.as_i64() {
                Some(integer) => {
                    let largest = if of_fields { 1 << 32 } else { LARGEST };
                    assert!(integer.abs() <= largest, "{place}: {path}: {integer}");
                    "integer"
                }
                None => {
                    assert!(number.is_f64(), "{place}: {path}: {number}");
                    "fraction"
                }
            },
        };
        self.0.entry(path.to_owned()).or_default().entry(name).or_insert_with(|| place.to_owned());
    }

    fn check(&self) {
        for (path, types) in &self.0 {
            assert_eq!(types.len(), 1, "{path}: {types:?}");
        }
    }
}

/// The documents that a verb writes, the first ones of many.
fn documents(verb: &str, recording: &Path, symbols: &Path) -> Vec<Value> {
    let words = verb.split(' ').map(|word| match word {
        "T" => text(recording),
        "S" => text(symbols),
        word => word,
    });
    let mut command = Command::new(env!("CARGO_BIN_EXE_stackhound"));
    let mut run = command.args(words).arg("-q").stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let out = BufReader::new(run.stdout.take().unwrap());
    let read = |text: &str| serde_json::from_str(text).unwrap_or_else(|e| panic!("{verb}: {e}: {text:.200}"));
    let documents = if verb.contains("--format json") {
        let whole = std::io::read_to_string(out).unwrap();
        if whole.is_empty() { vec![] } else { vec![read(&whole)] }
    } else {
        out.lines().take(LINES_MAX).map(|line| read(&line.unwrap())).collect()
    };
    run.wait().unwrap();
    let _ = std::fs::remove_file(recording.with_added_extension("index"));
    documents
}

#[test]
fn the_type_of_a_key_does_not_depend_on_its_value() {
    let folder = tempfile::tempdir().unwrap();
    let made = stackhound(&["demo", "-q", "--out", text(folder.path())]);
    assert!(made.status.success());
    let symbols = folder.path().join("symbols");
    let whole = std::env::var_os("STACKHOUND_WHOLE_CORPUS").is_some();
    let mut recordings = vec![folder.path().join("stackhound-demo.etl")];
    // Copies, since indexes are kept beside recordings.
    for (index, (name, path)) in stackhound_corpus::recordings().into_iter().enumerate() {
        if whole || index % 7 == 0 {
            let copy: PathBuf =
                folder.path().join(if path.ends_with(&name) { name } else { format!("{name}.zst") });
            std::fs::copy(&path, &copy).unwrap();
            recordings.push(copy);
        }
    }
    let mut types = Types::default();
    let mut seen = BTreeSet::new();
    for recording in &recordings {
        for (name, verb) in VERBS {
            for document in documents(verb, recording, &symbols) {
                seen.insert(name);
                types.add(name, &document, &format!("{verb} of {}", text(recording)));
            }
        }
    }
    types.check();
    assert_eq!(seen.len(), VERBS.len(), "{seen:?}");
    let of = |path: &str| types.0.get(path).and_then(|types| types.keys().next().copied());
    for (path, expected) in [
        ("event.ts", "integer"),
        ("event.pid", "integer"),
        ("event.stack.frames[].addr", "text"),
        ("event.stack.frames[].rva", "text"),
        ("event.stack.frames[].offset", "integer"),
        ("finding.count", "integer"),
        ("info.size", "integer"),
    ] {
        assert_eq!(of(path), Some(expected), "{path}");
    }
}

/// A recording of the corpus has a value of each type: the numbers that the documentation states.
#[test]
fn fields_have_the_json_type_of_their_declared_type() {
    let Some(path) = stackhound_corpus::path("perfview-primitive-types.etl") else { return };
    let events = documents("events --format ndjson T", &path, Path::new("."));
    let mut seen = BTreeSet::new();
    for (name, value) in events.iter().flat_map(|event| event["fields"].as_object().unwrap()) {
        let name: &str = name;
        let is_as_stated = match name {
            "int16_type" | "uint16_type" | "int32_type" | "uint32_type" => value.is_i64(),
            "int64_type" | "uint64_type" => value.as_str().is_some_and(|text| text.parse::<i128>().is_ok()),
            "boolean_type" => value.is_boolean(),
            "char_type" | "guid_type" | "file_time_type" => value.is_string(),
            _ => continue,
        };
        assert!(is_as_stated, "{name}: {value}");
        seen.insert(name.to_owned());
    }
    assert!(seen.len() == 10, "{seen:?}");
}
