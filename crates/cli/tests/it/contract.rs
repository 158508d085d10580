//! The output contract: every JSON document follows its published schema, which contains every key.
//! The type of a key does not depend on its value, and no integer exceeds the range that all JSON
//! readers keep.
//!
//! An ordinary run checks the first documents about the demo and some traces of the corpus, with
//! `STACKHOUND_WHOLE_CORPUS=1` more of them about all traces. `scripts/check-json.py` checks that other programs load the output as described in
//! `docs/events.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use crate::program::{stackhound, text};
use serde_json::Value;

/// All commands that write JSON, by the name of their schema. `T` is the trace, `S` the folder with
/// symbols. Documents with a `type` follow the schema of that name. At #500 of the demo, the active
/// frame has calls and stack changes below it, so that no other trace is needed for any document.
const VERBS: [(&str, &str); 33] = [
    ("butterfly", "callers module --preset modules --exclude ntoskrnl --format json T"),
    ("top-costs", "top syscall --by stack --symbol-path S --format json T"),
    ("top-wait", "top wait --by readying-thread --symbol-path S --format json T"),
    ("top-chain", "top wait --tid 404 --chain --symbol-path S --format json T"),
    ("summary", "summary --symbol-path S --format json T"),
    ("top-cpu", "top cpu --by thread --symbol-path S --format json T"),
    ("info", "info --full --format json T"),
    ("event", "events --stacks --symbols full --kernel-symbols full --symbol-path S --format ndjson T"),
    ("stacks", "stacks --symbols full --symbol-path S --format json T"),
    ("kernel-stack", "kstack --user --symbol-path S --format ndjson --trace T"),
    ("kernel-stacks", "kstack --user --symbol-path S --format json --trace T"),
    ("modules", "symbols list --format json T"),
    ("symbols", "symbols check --symbol-path S --format json T"),
    ("finding", "hunt --all --exit-zero --symbol-path S --format ndjson T"),
    ("alert", "hunt --min-severity high --exit-zero --format ndjson T"),
    ("hunt-summary", "hunt --show-suppressed --min-severity critical --exit-zero --format ndjson T"),
    ("ecs", "hunt --all --exit-zero --symbol-path S --format ecs T"),
    ("ocsf", "hunt --all --exit-zero --symbol-path S --format ocsf T"),
    ("layer", "hunt --all --only CS02,CS07,CS28 --exit-zero --symbol-path S --format navigator T"),
    ("provider-list", "providers --format json --manifest T"),
    ("providers", "providers --format json Microsoft-Windows-Kernel-Process"),
    ("settings", "config show --format json"),
    ("call", "calls T * --limit 300 --symbols full --symbol-path S --format ndjson"),
    ("calls", "calls T * --limit 300 --symbols full --symbol-path S --format json"),
    ("ranges", "ranges T --at #500 --symbols full --symbol-path S --format json"),
    ("range", "ranges T --at #500 --by-call --symbols full --symbol-path S --format ndjson"),
    ("stack-changes", "events-of T --at #500 --symbols full --symbol-path S --format json"),
    ("stack-change", "events-of T --at #500 --symbols full --symbol-path S --format ndjson"),
    ("threads", "threads T --at #500 --symbols full --symbol-path S --format json"),
    ("thread", "threads T --by stack --at #500 --symbols full --symbol-path S --format ndjson"),
    ("tree", "tree T --at #500 --symbols full --symbol-path S --format json"),
    ("stack", "stack T --at #500 --symbols full --symbol-path S --format json"),
    ("backtrace", "backtrace T --at #500 --symbols full --symbol-path S --format json"),
];

/// Objects whose keys are names from the trace.
const BY_NAME: [&str; 6] =
    ["providers", "kernel_hook_ids", "by_header_type", "by_triggering_event", "by_state", "verdicts"];

/// The limit of checked lines per output in an ordinary run, and for the whole corpus.
const LINES_MAX: [usize; 2] = [1_000, 10_000];

fn is_whole() -> bool {
    std::env::var_os("STACKHOUND_WHOLE_CORPUS").is_some()
}

const LARGEST: i64 = 1 << 53;

/// The types that were found, by path.
#[derive(Default)]
struct Types(BTreeMap<String, BTreeMap<&'static str, String>>);

impl Types {
    fn add(&mut self, path: &str, value: &Value, location: &str) {
        let of_fields = path.contains(" fields.");
        let name = match value {
            // Unknown values of any type are null.
            Value::Null => return,
            Value::Bool(_) => "bool",
            Value::String(_) => "text",
            Value::Array(items) => {
                items.iter().for_each(|item| self.add(&format!("{path}[]"), item, location));
                "list"
            }
            Value::Object(entries) => {
                let by_name = BY_NAME.iter().any(|key| path.ends_with(&format!(".{key}")));
                for (key, value) in entries {
                    let path = match () {
                        () if key == "fields" && !of_fields => {
                            // The type of a field is fixed within one kind of event.
                            for (name, value) in value.as_object().into_iter().flatten() {
                                let kind = ["provider", "event", "id", "version"]
                                    .map(|key| entries.get(key).map(Value::to_string));
                                self.add(&format!("{path} {kind:?} fields.{name}"), value, location);
                            }
                            continue;
                        }
                        () if by_name => format!("{path}.*"),
                        () => format!("{path}.{key}"),
                    };
                    self.add(&path, value, location);
                }
                "object"
            }
            Value::Number(number) => match number.as_i64() {
                Some(integer) => {
                    let largest = if of_fields { 1 << 32 } else { LARGEST };
                    assert!(integer.abs() <= largest, "{location}: {path}: {integer}");
                    "integer"
                }
                None => {
                    assert!(number.is_f64(), "{location}: {path}: {number}");
                    "fraction"
                }
            },
        };
        self.0.entry(path.to_owned()).or_default().entry(name).or_insert_with(|| location.to_owned());
    }

    fn check(&self) {
        for (path, types) in &self.0 {
            assert_eq!(types.len(), 1, "{path}: {types:?}");
        }
    }
}

/// The published schemas by name, closed so that they allow no other keys.
struct Schemas(BTreeMap<String, jsonschema::Validator>);

impl Schemas {
    fn read() -> Schemas {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema/1");
        let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
        let schema = |file: PathBuf| {
            let mut schema: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
            close(&mut schema, true);
            let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
            (name, jsonschema::validator_for(&schema).unwrap())
        };
        Schemas(
            files
                .filter(|file| file.extension().is_some_and(|ending| ending == "json"))
                .map(schema)
                .collect(),
        )
    }

    /// Checks a document against the schema of this name. Formats of other tools have their own
    /// schemas elsewhere.
    fn check(&self, name: &str, document: &Value, location: &str) {
        let Some(schema) = self.0.get(document["type"].as_str().unwrap_or(name)) else {
            assert!(["ecs", "ocsf", "layer"].contains(&name), "{name} has no schema");
            return;
        };
        let errors: Vec<_> =
            schema.iter_errors(document).map(|error| format!("{}: {error}", error.instance_path())).collect();
        assert!(errors.is_empty(), "{location}: {errors:#?}\n{document:.2000}");
    }
}

/// Forbids other keys in all objects. Alternatives share the keys of their object, so only the
/// object is closed.
fn close(schema: &mut Value, is_whole: bool) {
    let Value::Object(keywords) = schema else { return };
    for (keyword, value) in keywords.iter_mut() {
        match (keyword.as_str(), value) {
            ("properties" | "$defs", Value::Object(named)) => {
                named.values_mut().for_each(|schema| close(schema, true));
            }
            ("items", schema) => close(schema, true),
            ("anyOf" | "oneOf" | "allOf", Value::Array(alternatives)) => {
                alternatives.iter_mut().for_each(|schema| close(schema, false));
            }
            _ => {}
        }
    }
    if is_whole && keywords.contains_key("properties") {
        keywords.insert("unevaluatedProperties".to_owned(), false.into());
    }
}

/// The first documents that a command writes.
fn documents(verb: &str, etl_file: &Path, symbols: &Path) -> Vec<Value> {
    let words = verb.split(' ').map(|word| match word {
        "T" => text(etl_file),
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
        out.lines().take(LINES_MAX[usize::from(is_whole())]).map(|line| read(&line.unwrap())).collect()
    };
    run.wait().unwrap();
    let _ = std::fs::remove_file(etl_file.with_added_extension("index"));
    documents
}

#[test]
fn documents_follow_their_schemas() {
    let folder = tempfile::tempdir().unwrap();
    let made = stackhound(&["demo", "-q", "--out", text(folder.path())]);
    assert!(made.status.success());
    let symbols = folder.path().join("symbols");
    let mut trace_files = vec![folder.path().join("stackhound-demo.etl")];
    for (index, (name, path)) in stackhound_corpus::trace_files().into_iter().enumerate() {
        if is_whole() || index % 12 == 0 {
            let name = if path.ends_with(&name) { name } else { format!("{name}.zst") };
            let copy = folder.path().join(name);
            std::fs::copy(&path, &copy).unwrap();
            trace_files.push(copy);
        }
    }
    let schemas = Schemas::read();
    let found = Mutex::new((Types::default(), BTreeSet::new()));
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (folder, trace_files, symbols, schemas, found) =
                (folder.path().join(thread.to_string()), &trace_files, &symbols, &schemas, &found);
            scope.spawn(move || {
                std::fs::create_dir(&folder).unwrap();
                for etl_file in trace_files {
                    // A copy for each thread, because indexes are written to the folder of the trace.
                    let copy = folder.join(etl_file.file_name().unwrap());
                    std::fs::copy(etl_file, &copy).unwrap();
                    for (name, verb) in VERBS.iter().skip(thread).step_by(2) {
                        let location = format!("{verb} of {}", text(&copy));
                        for document in documents(verb, &copy, symbols) {
                            schemas.check(name, &document, &location);
                            let name = document["type"].as_str().unwrap_or(name).to_owned();
                            let (types, seen) = &mut *found.lock().unwrap();
                            types.add(&name, &document, &location);
                            seen.insert(name);
                        }
                    }
                }
            });
        }
    });
    let (types, seen) = found.into_inner().unwrap();
    types.check();
    assert_eq!(seen.len(), VERBS.len(), "{seen:?}");
    let of = |path: &str| types.0.get(path).and_then(|types| types.keys().next().copied());
    for (path, expected) in [
        ("event.ts", "integer"),
        ("event.pid", "integer"),
        ("event.stack.frames[].address", "text"),
        ("event.stack.frames[].rva", "text"),
        ("event.stack.frames[].offset", "integer"),
        ("finding.count", "integer"),
        ("info.size", "integer"),
    ] {
        assert_eq!(of(path), Some(expected), "{path}");
    }
}

/// Documents that need other inputs than one trace: several captures, and images.
#[test]
fn documents_of_other_inputs_follow_their_schemas() {
    let folder = tempfile::tempdir().unwrap();
    let schemas = Schemas::read();
    let one = folder.path().join("one");
    assert!(stackhound(&["demo", "-q", "--out", text(&one)]).status.success());
    let other = folder.path().join("other");
    assert!(stackhound(&["demo", "-q", "--seed", "2", "--out", text(&other)]).status.success());
    let other = other.join("stackhound-demo.etl");
    let calls = folder.path().join("calls.stacks");
    std::fs::write(&calls, crate::fixtures::trace().as_bytes()).unwrap();
    let image = folder.path().join("ntdll.dll");
    let genuine = stackhound_corpus::bytes("symbols/wine/ntdll.dll");
    std::fs::write(&image, genuine.as_deref().unwrap_or_default()).unwrap();
    let rules = folder.path().join("rules");
    std::fs::create_dir(&rules).unwrap();
    for (name, condition) in [("a", "evt.name = 'CreateProcess') and"), ("b", "evt.nam = 'CreateProcess'")] {
        let rule = format!(
            "name: {name}\nid: {name}\nversion: 1.0.0\ncondition: {condition}\nmin-engine-version: 3.0.0\n"
        );
        std::fs::write(rules.join(format!("{name}.yml")), rule).unwrap();
    }
    for (name, verb) in [
        ("info-files", "info --format json T O"),
        ("call-stacks", "stacks --format json C"),
        ("stacks-of-captures", "stacks --separate --format json T O"),
        ("diff", "diff --all --by finding,function,total,module,stack,process --format json T O"),
        ("diff", "diff --by stack --normalize total --where pid=4 --format json T O"),
        ("top-cpu-of-captures", "top cpu --separate --format json T O"),
        ("butterfly", "callees ntdll! --metric syscall --format json T"),
        ("butterfly-of-captures", "callees ntdll! --separate --metric wait --format json T O"),
        ("top-cpu", "top cpu --by function --preset just-my-code --own C:\\x --group a->b --format json T"),
        ("top-wait", "top wait --by stack --preset modules --fold ntdll --format json T"),
        ("top-costs", "top memory --preset modules --include ntdll --exclude zz --format json T"),
        ("top-costs", "top disk --by file --format json T"),
        ("top-costs", "top memory --by stack --format json T"),
        ("top-costs-of-captures", "top interrupt --separate --format json T O"),
        ("top-wait-of-captures", "top ready --separate --format json T O"),
        ("names", "symbols lookup --format json --image I 0x1000 0x2000"),
        ("rules", "rules check --format json R"),
        ("stubs", "symbols stubs --format json I"),
    ] {
        if verb.contains('I') && genuine.is_none() {
            continue;
        }
        let trace = one.join("stackhound-demo.etl");
        let words = verb.split(' ').map(|word| match word {
            "T" => text(&trace),
            "O" => text(&other),
            "C" => text(&calls),
            "I" => text(&image),
            "R" => text(&rules),
            word => word,
        });
        let output = stackhound(&words.chain(["-q"]).collect::<Vec<_>>());
        // Something was found.
        let code = i32::from(name == "rules");
        assert_eq!(output.status.code(), Some(code), "{verb}: {}", String::from_utf8_lossy(&output.stderr));
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(document.as_array().is_none_or(|items| !items.is_empty()), "{verb}: nothing");
        schemas.check(name, &document, verb);
    }
}

/// The page about the schemas has an example of each document, under a heading with the name of its
/// schema.
#[test]
fn examples_follow_their_schemas() {
    let schemas = Schemas::read();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema/README.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut shown = BTreeSet::new();
    for section in page.split("\n### ").skip(1) {
        let name = section.lines().next().unwrap();
        let example = section.split("```json\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        assert!(schemas.0.contains_key(name), "{name}");
        schemas.check(name, &serde_json::from_str(example).unwrap(), name);
        shown.insert(name);
    }
    assert_eq!(shown.len(), schemas.0.len());
}

/// The schemas reject documents that break the contract.
#[test]
fn documents_that_break_the_contract_are_found() {
    let schemas = Schemas::read();
    let alert = serde_json::json!({
        "type": "alert", "schema_version": 1, "alert": "0", "score": 1, "severity": "low", "count": 1, "host": null,
        "events": 1, "pid": null, "first_seen": null, "last_seen": null, "detections": [], "attack": [],
        "process": {
            "name": null, "path": null, "command_line": null, "parent": null, "user": null, "session": null,
            "integrity": null, "start_time": null, "entity": "1@0", "image": null
        },
    });
    schemas.check("alert", &alert, "as it is");
    for (pointer, value) in [
        ("/severity", serde_json::json!("grave")),
        ("/count", serde_json::json!("1")),
        ("/process", serde_json::json!({ "name": null, "image": "a.exe" })),
        ("/first_seen", serde_json::json!("2024-01-01 00:00:00")),
        ("/detections", serde_json::json!([{ "id": "CS01" }])),
    ] {
        let mut broken = alert.clone();
        *broken.pointer_mut(pointer).unwrap() = value;
        assert!(schemas.0["alert"].iter_errors(&broken).next().is_some(), "{pointer}");
    }
}

/// A trace of the corpus has a field of each type, which has the documented JSON type.
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
