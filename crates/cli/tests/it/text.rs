//! Names in traces are data: with any name, every verb and format prints the same rows, and no
//! character that a terminal, a spreadsheet, an XML parser or a JSON parser would interpret.
//!
//! In a name of a trace, of its symbols, of an archive member or of a Sysmon row, one character is
//! replaced by a special one, and in a control copy by a letter. A verb reads both. The outputs may
//! differ by this character only. An ordinary run tries 20 names; `STACKHOUND_MUTATIONS` sets
//! another number, and `scripts/text.sh` tries 5,000.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};

use crate::program::{refused, stackhound, text};
use serde_json::Value;
use stackhound_calltree::journal::Writer;
use stackhound_calltree::{
    Change, ContextId, Cpu, LocationInfo, ModuleInfo, StackInfo, StackKind, StartType,
};

/// Characters with a special meaning, as units of UTF-16. The last two are single surrogates.
const HOSTILE: [u16; 16] = [
    0x1b, 0x07, 0x0a, 0x0d, 0x09, 0x3b, 0x22, 0x3d, 0x3c, 0x7f, 0x9b, 0x202e, 0x2066, 0xfffe, 0xd800, 0xdfff,
];

/// The letter in the control copy.
const LETTER: char = 'q';

/// The letter in place of characters that do not fit into one byte.
const TWO_BYTE_LETTER: u16 = 0x101;

/// The structure of an output format, which defines how names are compared.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    /// One item per line.
    Lines,
    /// One item per line, with an order and counts that do not depend on names.
    SameLines,
    Csv,
    Json,
    /// One object per line, in time order.
    Ndjson,
    /// One object per line, aggregated by names.
    Sums,
    Xml,
    Html,
    Binary,
}

use Form::{Binary, Csv, Html, Json, Lines, Ndjson, SameLines, Sums, Xml};

/// Commands with all their formats for traces. `T` is the trace, `S` the folder with symbols, `D`
/// some detections, since the answers of all of them take most of the time.
const VERBS: [(&str, Form); 48] = [
    ("info T", Lines),
    ("info --full T", Lines),
    ("info --full --format json T", Json),
    ("events T", SameLines),
    ("events --stacks --symbols full --kernel-symbols full --symbol-path S T", SameLines),
    ("events --format csv T", Csv),
    ("events --format csv --stacks --symbols full --symbol-path S T", Csv),
    ("events --format ndjson T", Ndjson),
    ("events --format ndjson --stacks --symbols full --symbol-path S T", Ndjson),
    ("events --where pid=0x7fffffff T", Lines),
    ("stacks --symbol-path S --symbols full T", Lines),
    ("stacks --symbol-path S --symbols full --format folded T", Lines),
    ("stacks --symbol-path S --symbols full --format json T", Json),
    ("kstack --user --symbol-path S --trace T", Lines),
    ("kstack --user --symbol-path S --format json --trace T", Json),
    ("kstack --user --symbol-path S --format ndjson --trace T", Sums),
    ("symbols list T", Lines),
    ("symbols list --format json T", Json),
    ("symbols check --symbol-path S T", Lines),
    ("symbols check --verbose --symbol-path S T", Lines),
    ("symbols check --symbol-path S --format json T", Json),
    ("profile --symbol-path S --format firefox T", Json),
    ("profile --symbol-path S --format folded T", Lines),
    ("profile --symbol-path S --format speedscope T", Json),
    ("profile --symbol-path S --format flamegraph T", Xml),
    ("profile --symbol-path S --format perfetto T", Binary),
    ("hunt --all --only D --exit-zero --images S T", Lines),
    ("hunt --all --only D --exit-zero --color always --symbol-path S T", Lines),
    ("hunt --all --only D --exit-zero --symbol-path S --format ndjson T", Sums),
    ("hunt --all --only D --exit-zero --symbol-path S --format ecs T", Sums),
    ("hunt --all --only D --exit-zero --symbol-path S --format ocsf T", Sums),
    ("hunt --all --only D --exit-zero --symbol-path S --format navigator T", Sums),
    ("hunt --all --only D --exit-zero --min-severity low --symbol-path S --format list T", Lines),
    ("hunt --all --only D --exit-zero --symbol-path S --format csv T", Csv),
    ("hunt --all --only D --exit-zero --symbol-path S --format timesketch T", Csv),
    ("providers --manifest T", Lines),
    ("providers --manifest T --format json", Json),
    ("providers --manifest T *", Lines),
    ("tree --at #500 --symbol-path S --symbols full T", Lines),
    ("tree --at #500 --symbol-path S --symbols full --format html T", Html),
    ("tree --at #500 --symbol-path S --symbols full --format json T", Json),
    ("stack --at #500 --symbol-path S --symbols full T", Lines),
    ("stack --at #500 --symbol-path S --symbols full --format json T", Json),
    ("backtrace --at #500 --symbol-path S --symbols full T", Lines),
    ("backtrace --at #500 --symbol-path S --symbols full --format json T", Json),
    ("calls T * --limit 50 --symbol-path S --symbols full", Lines),
    ("calls T * --limit 50 --symbol-path S --symbols full --format ndjson", Sums),
    ("calls T * --limit 50 --symbol-path S --symbols full --format json", Json),
];

/// Whether terminals, editors or parsers interpret a character, by Unicode's definition: categories
/// Cc, Zl and Zp, the bidirectional controls, and noncharacters.
fn is_special(c: char) -> bool {
    let n = u32::from(c);
    let is_control = n < 0x20 || (0x7f..0xa0).contains(&n);
    let is_bidirectional = n == 0x61c
        || [0x200e, 0x200f].contains(&n)
        || (0x202a..=0x202e).contains(&n)
        || (0x2066..=0x2069).contains(&n);
    is_control || is_bidirectional || [0x2028, 0x2029].contains(&n) || n & 0xfffe == 0xfffe
}

/// The demo trace with its names and images.
struct Demo {
    folder: tempfile::TempDir,
    etl_file: Vec<u8>,
    /// The names in the trace.
    names: Vec<String>,
    /// The images, with the names of their exports.
    images: Vec<(PathBuf, Vec<u8>, Vec<String>)>,
}

impl Demo {
    fn new() -> Demo {
        let folder = tempfile::tempdir().unwrap();
        let made = stackhound(&["demo", "-q", "--events", "8000", "--out", text(folder.path())]);
        assert!(made.status.success());
        let etl_file = fs::read(folder.path().join("stackhound-demo.etl")).unwrap();
        let names: BTreeSet<String> = utf16_names(&etl_file).chain(ascii_names(&etl_file)).collect();
        let mut images = Vec::new();
        let mut left = vec![folder.path().join("symbols")];
        while let Some(path) = left.pop() {
            for entry in fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()) {
                if entry.is_dir() {
                    left.push(entry);
                    continue;
                }
                let bytes = fs::read(&entry).unwrap();
                let names: Vec<String> = ascii_names(&bytes).collect();
                if !names.is_empty() {
                    images.push((entry, bytes, names));
                }
            }
        }
        images.sort();
        assert!(names.len() > 150 && images.len() > 10, "{} {}", names.len(), images.len());
        Demo { folder, etl_file, names: names.into_iter().collect(), images }
    }

    fn etl_file(&self) -> PathBuf {
        self.folder.path().join("stackhound-demo.etl")
    }
}

fn is_of_name(byte: u8) -> bool {
    (0x20..0x7f).contains(&byte)
}

/// Runs of at least six characters.
fn ascii_names(bytes: &[u8]) -> impl Iterator<Item = String> {
    let runs = bytes.split(|byte| !is_of_name(*byte)).filter(|run| (6..300).contains(&run.len()));
    // Runs with few letters are not names.
    runs.map(|run| String::from_utf8(run.to_vec()).unwrap())
        .filter(|name| name.bytes().filter(u8::is_ascii_alphabetic).count() > 4)
}

fn utf16_names(bytes: &[u8]) -> impl Iterator<Item = String> {
    let mut names = Vec::new();
    for start in [0, 1] {
        let (units, _) = bytes[start..].as_chunks::<2>();
        let runs = units.split(|unit| unit[1] != 0 || !is_of_name(unit[0])).filter(|run| run.len() >= 6);
        names.extend(runs.map(|run| run.iter().map(|unit| char::from(unit[0])).collect::<String>()));
    }
    names.into_iter()
}

/// Replaces one character of a name at all its occurrences, in UTF-16 and in ASCII.
fn with_unit(bytes: &[u8], name: &str, at: usize, unit: u16) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let ascii = name.as_bytes().to_vec();
    let utf16: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
    for (pattern, at, replacement) in [
        // Characters that do not fit into one byte become the letter, as in the control copy.
        (ascii, at, vec![u8::try_from(unit).unwrap_or(LETTER as u8)]),
        (utf16, 2 * at, unit.to_le_bytes().to_vec()),
    ] {
        let found: Vec<usize> = memchr::memmem::find_iter(&bytes, &pattern).collect();
        for start in found {
            let location = start + at;
            bytes[location..location + replacement.len()].copy_from_slice(&replacement);
        }
    }
    bytes
}

/// Detections about stacks, images and memory, in turns.
const DETECTIONS: [&str; 5] =
    ["CS01,CS02,CS27", "CS07,CS08,CS29", "CS09,CS11,CS16", "CS06,CS19,CS24", "CS12,CS22,CS28"];

/// Standard output and standard error of a verb, with the detections of a turn.
fn run(verb: &str, turn: usize, etl_file: &Path, symbols: &Path) -> (Vec<u8>, String) {
    let arguments: Vec<&str> = verb
        .split(' ')
        .map(|word| match word {
            "T" => text(etl_file),
            "S" => text(symbols),
            "D" => DETECTIONS[turn % DETECTIONS.len()],
            word => word,
        })
        .collect();
    let output = stackhound(&[&arguments[..1], &["--no-progress"], &arguments[1..]].concat());
    let errors = String::from_utf8(output.stderr).expect("messages are UTF-8");
    assert!(!errors.contains("panicked"), "{verb}: {errors}");
    let _ = fs::remove_file(etl_file.with_added_extension("index"));
    (output.stdout, errors)
}

/// The text with the letter in place of the special character and its replacements.
fn normalized(text: &str, hostile: u16) -> String {
    let hostile = char::from_u32(hostile.into()).unwrap_or('\u{fffd}');
    let is_replaced = |c: char| c == hostile || c == '\u{fffd}' || u32::from(c) == u32::from(TWO_BYTE_LETTER);
    text.chars().map(|c| if is_replaced(c) { LETTER } else { c }).collect()
}

/// Compares the output with that for the control copy.
fn check(form: Form, hostile: u16, printed: &[u8], control: &[u8], label: &str) {
    if form == Binary {
        assert_eq!(printed.is_empty(), control.is_empty(), "{label}");
        return;
    }
    let read =
        |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap_or_else(|_| panic!("{label}: not UTF-8"));
    let (printed, control) = (read(printed), read(control));
    let is_colored = label.contains("--color always");
    let is_allowed = |c: char| c == '\n' || (form == Csv && c == '\r') || (is_colored && c == '\u{1b}');
    if let Some(special) = printed.chars().find(|c| is_special(*c) && !is_allowed(*c)) {
        panic!("{label}: U+{:04X}", u32::from(special));
    }
    if is_colored {
        // The number of escape sequences does not depend on names.
        assert_eq!(printed.matches('\u{1b}').count(), control.matches('\u{1b}').count(), "{label}");
    }
    let lines = |text: &str| text.lines().count();
    assert_eq!(lines(&printed), lines(&control), "{label}: rows\n{printed}\n{control}");
    let longest = printed.lines().map(str::len).max().unwrap_or(0);
    match form {
        Lines => assert!(longest <= 4096, "{label}: a row of {longest} bytes"),
        SameLines => {
            assert!(longest <= 4096, "{label}: a row of {longest} bytes");
            for (line, control) in printed.lines().zip(control.lines()) {
                assert_eq!(normalized(line, hostile), normalized(control, hostile), "{label}");
            }
        }
        Csv => check_csv(&printed, &control, label),
        Json => drop(serde_json::from_str::<Value>(&printed).unwrap_or_else(|e| panic!("{label}: {e}"))),
        Sums => {
            for line in printed.lines() {
                serde_json::from_str::<Value>(line).unwrap_or_else(|e| panic!("{label}: {e}"));
            }
        }
        Ndjson => {
            for (line, control) in printed.lines().zip(control.lines()) {
                let mut value: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{label}: {e}"));
                let mut control: Value = serde_json::from_str(control).unwrap();
                for value in [&mut value, &mut control] {
                    map_texts(value, &|text| normalized(text, hostile));
                }
                assert_eq!(value, control, "{label}");
            }
        }
        Xml => assert_eq!(elements(&printed, label), elements(&control, label), "{label}"),
        Html => {
            let tags = |page: &str| {
                page.split('<')
                    .filter_map(|rest| rest.split(['>', ' ']).next())
                    .map(str::to_owned)
                    .collect::<Vec<_>>()
            };
            assert_eq!(tags(&printed), tags(&control), "{label}");
        }
        Binary => {}
    }
}

fn check_csv(printed: &str, control: &str, label: &str) {
    let records = |text: &str| -> Vec<csv::StringRecord> {
        let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(text.as_bytes());
        reader.records().map(|record| record.unwrap_or_else(|e| panic!("{label}: {e}"))).collect()
    };
    let (printed, control) = (records(printed), records(control));
    assert_eq!(printed.len(), control.len(), "{label}");
    for cell in printed.iter().flatten() {
        let is_formula = cell.trim_start().starts_with(['=', '+', '-', '@']) && cell.parse::<f64>().is_err();
        assert!(!is_formula, "{label}: {cell}");
    }
}

/// Every text of a value, keys included.
fn map_texts(value: &mut Value, change: &dyn Fn(&str) -> String) {
    match value {
        Value::String(text) => *text = change(text),
        Value::Array(items) => items.iter_mut().for_each(|item| map_texts(item, change)),
        Value::Object(entries) => {
            *entries = std::mem::take(entries)
                .into_iter()
                .map(|(key, mut value)| {
                    map_texts(&mut value, change);
                    (change(&key), value)
                })
                .collect();
        }
        _ => {}
    }
}

/// Counts the elements of a document, which must be well-formed.
fn elements(document: &str, label: &str) -> usize {
    use quick_xml::events::Event;
    let mut reader = quick_xml::Reader::from_str(document);
    reader.config_mut().check_end_names = true;
    let mut count = 0;
    loop {
        match reader.read_event().unwrap_or_else(|e| panic!("{label}: {e}")) {
            Event::Eof => return count,
            Event::Start(_) | Event::Empty(_) => count += 1,
            _ => {}
        }
    }
}

/// Checks messages: as many lines as for the control copy, and no special characters.
fn check_messages(errors: &str, control: &str, label: &str) {
    assert!(!errors.chars().any(|c| is_special(c) && c != '\n'), "{label}: {errors:?}");
    assert_eq!(errors.lines().count(), control.lines().count(), "{label}: {errors}\n{control}");
}

fn count() -> usize {
    std::env::var("STACKHOUND_MUTATIONS").map_or(20, |count| count.parse().expect("a number"))
}

/// Deterministic pseudorandom numbers.
fn numbers(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ seed << 40;
    move |below| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        ((u128::from(state >> 11) * below as u128) >> 53) as usize
    }
}

/// Whether only a sample is tried.
fn is_short() -> bool {
    count() < 1000
}

#[test]
fn names_of_traces_and_symbols_are_data() {
    // Each thread has its own copy of the symbols.
    std::thread::scope(|scope| {
        for thread in 0..2 {
            scope.spawn(move || names_are_data(thread, (thread..count()).step_by(2)));
        }
    });
}

fn names_are_data(thread: usize, turns: impl Iterator<Item = usize>) {
    let (demo, mut number) = (Demo::new(), numbers(thread as u64));
    let symbols = demo.folder.path().join("symbols");
    let path = demo.folder.path().join("a.etl");
    for turn in turns {
        let (verb, form) = VERBS[turn % VERBS.len()];
        let unit = HOSTILE[number(HOSTILE.len())];
        // A quarter of the commands that read symbols get the name in a symbol file.
        let of_symbol =
            (verb.contains(" S") && number(4) == 0).then(|| &demo.images[number(demo.images.len())]);
        let name = match of_symbol {
            Some((_, _, names)) => &names[number(names.len())],
            None => &demo.names[number(demo.names.len())],
        };
        // A broken manifest would change the decoding of its events.
        if name.contains(['<', '>', '"']) {
            continue;
        }
        let at = number(name.len());
        let label = format!("{verb}: U+{unit:04X} in {name:?} at {at}");
        let letter = if unit > 0xff { TWO_BYTE_LETTER } else { LETTER as u16 };
        let [(printed, errors), (control, control_errors)] = [unit, letter].map(|unit| match of_symbol {
            Some((image, bytes, _)) => {
                fs::write(image, with_unit(bytes, name, at, unit)).unwrap();
                let result = run(verb, turn, &demo.etl_file(), &symbols);
                fs::write(image, bytes).unwrap();
                result
            }
            None => {
                fs::write(&path, with_unit(&demo.etl_file, name, at, unit)).unwrap();
                run(verb, turn, &path, &symbols)
            }
        });
        check(form, unit, &printed, &control, &label);
        check_messages(&errors, &control_errors, &label);
    }
}

/// Names of archive members, of files, and of call traces.
#[test]
fn names_of_inputs_are_data() {
    let demo = Demo::new();
    let folder = tempfile::tempdir().unwrap();
    let mut number = numbers(0);
    for unit in HOSTILE {
        // File names on Linux are bytes and those in archives are text, so they contain no single
        // surrogates.
        let Some(hostile) = char::from_u32(unit.into()).filter(|_| !is_short() || number(6) == 0) else {
            continue;
        };
        let names = [hostile, LETTER].map(|c| format!("a{c}b"));
        for (kind, verbs) in [("member", &VERBS[..14]), ("file", &VERBS[..14]), ("calls", &VERBS[38..])] {
            let paths = names.clone().map(|name| {
                let path = match kind {
                    "member" => {
                        folder.path().join(if name.contains(LETTER) { "t.etl.zip" } else { "h.etl.zip" })
                    }
                    "file" => folder.path().join(format!("{name}.etl")),
                    _ => folder.path().join(format!("{name}.calls")),
                };
                let bytes = match kind {
                    "member" => {
                        let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
                        archive
                            .start_file(format!("{name}.etl"), zip::write::SimpleFileOptions::default())
                            .unwrap();
                        archive.write_all(&demo.etl_file[..65_536 * 3]).unwrap();
                        archive.finish().unwrap().into_inner()
                    }
                    "file" => demo.etl_file[..65_536 * 3].to_vec(),
                    _ => journal(&name),
                };
                fs::write(&path, bytes).unwrap();
                path
            });
            for (verb, form) in verbs {
                let verb = verb.replace("#500", "#50");
                let label = format!("{verb}: U+{unit:04X} in the {kind}'s name");
                let [(printed, errors), (control, control_errors)] =
                    [&paths[0], &paths[1]].map(|path| run(&verb, 0, path, folder.path()));
                assert!(!control.is_empty() || verb.contains("0x7fffffff"), "{label}: {control_errors}");
                check(*form, unit, &printed, &control, &label);
                check_messages(&errors, &control_errors, &label);
            }
        }
    }
    let missing = folder.path().join("a\u{1b}\nb.none");
    let shown = text(folder.path());
    let sentence = format!("{shown}/a\u{fffd}\u{fffd}b.none: No such file or directory (os error 2)");
    refused(&["events", text(&missing)], &sentence);
}

/// A trace of calls of functions with such a name.
fn journal(name: &str) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new()).unwrap();
    let (kind, thread) = (StackKind::User, Some(1));
    let stack = StackInfo { kind, process: thread, thread, cpu: None, name: Some(name.into()), region: None };
    let stack = writer.stack(&stack).unwrap();
    let module = ModuleInfo { name: format!("{name}.dll"), path: Some(format!("C:\\{name}")), base: None };
    let module = writer.module(&module).unwrap();
    writer.change(Change::Enter { cpu: Cpu(0), stack, first: ContextId(0) }).unwrap();
    for context in 0..80 {
        let symbol = Some(format!("{name}{}", context % 7));
        let rva = Some(context);
        let location = LocationInfo { address: None, module: Some(module), rva, symbol, symbol_offset: 0 };
        let location = Some(writer.location(&location).unwrap());
        writer
            .change(Change::Open { stack, first: ContextId(context), start: StartType::Call, location })
            .unwrap();
    }
    writer.finish(100).unwrap()
}

/// Names in Sysmon events.
#[test]
fn names_of_rows_are_data() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.json");
    let hunts: Vec<_> = VERBS.iter().filter(|(verb, _)| verb.starts_with("hunt")).collect();
    // JSON has no single surrogates.
    let mut number = numbers(0);
    let is_character = |unit: &u16| char::from_u32((*unit).into()).is_some();
    for unit in HOSTILE.into_iter().filter(is_character).filter(|_| !is_short() || number(4) == 0) {
        for (verb, form) in &hunts {
            let label = format!("{verb}: U+{unit:04X} in rows");
            let [(printed, errors), (control, control_errors)] = [unit, LETTER as u16].map(|unit| {
                let c = format!("\\u{unit:04x}");
                let row = format!(
                    r#"{{"EventID":10,"SourceName":"Microsoft-Windows-Sysmon","Hostname":"PC{c}","SourceProcessId":"7","SourceImage":"C:\\a{c}b.exe","TargetImage":"C:\\Windows\\System32\\lsass{c}.exe","GrantedAccess":"0x1410","CallTrace":"C:\\Windows\\SYSTEM32\\ntdll.dll+9d4c4|C:\\x{c}y.dll+2730e|UNKNOWN(000001F0AABB1234)"}}"#
                );
                fs::write(&path, format!("{row}\n{row}\n")).unwrap();
                run(verb, 0, &path, folder.path())
            });
            assert!(!control.is_empty(), "{label}: {control_errors}");
            check(*form, unit, &printed, &control, &label);
            check_messages(&errors, &control_errors, &label);
        }
    }
}

/// A value of 300,000 characters is truncated in tables, but not in other formats.
#[test]
fn rows_of_tables_have_a_limit() {
    let long = "x".repeat(300_000);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.json");
    let row = format!(
        r#"{{"EventID":10,"SourceName":"Microsoft-Windows-Sysmon","SourceProcessId":"7","SourceImage":"C:\\{long}.exe","TargetImage":"C:\\lsass.exe","GrantedAccess":"0x1410","CallTrace":"C:\\Windows\\SYSTEM32\\ntdll.dll+9d4c4|UNKNOWN(000001F0AABB1234)"}}"#
    );
    fs::write(&path, row).unwrap();
    let longest = |format: &str| {
        let (printed, _) =
            run(&format!("hunt --all --only D --exit-zero --format {format} T"), 0, &path, folder.path());
        String::from_utf8(printed).unwrap().lines().map(str::len).max().unwrap()
    };
    assert!(longest("table") < 20_000);
    assert!(longest("list") < 20_000);
    assert!(longest("ndjson") > 300_000);
}
