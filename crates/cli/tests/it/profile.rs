//! `profile` on the demo trace, compared with `events` and across formats.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use serde_json::Value;

struct Demo {
    folder: tempfile::TempDir,
    etl_file: PathBuf,
}

static DEMO: LazyLock<Demo> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let made = run(&["demo", "-q", "--out", text(folder.path())]);
    assert!(made.status.success());
    let etl_file = folder.path().join("stackhound-demo.etl");
    Demo { folder, etl_file }
});

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stackhound")).args(arguments).output().expect("the program runs")
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Runs `profile` on the demo trace.
fn profile(arguments: &[&str]) -> Output {
    let mut all = vec!["profile", text(&DEMO.etl_file)];
    all.extend(arguments);
    let output = run(&all);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Writes a profile to a file of this name and reads it.
fn written(name: &str, arguments: &[&str]) -> Vec<u8> {
    let path = DEMO.folder.path().join(name);
    let mut all = vec!["-q", "-o", text(&path)];
    all.extend(arguments);
    profile(&all);
    std::fs::read(path).unwrap()
}

fn folded(arguments: &[&str]) -> BTreeMap<String, u64> {
    let mut all = vec!["-q", "--format", "folded"];
    all.extend(arguments);
    let output = profile(&all);
    let lines = std::str::from_utf8(&output.stdout).unwrap().lines();
    let lines = lines.map(|line| line.rsplit_once(' ').unwrap());
    lines.map(|(path, weight)| (path.to_owned(), weight.parse().unwrap())).collect()
}

/// The output of `events`.
fn events(arguments: &[&str]) -> Vec<Value> {
    let mut all = vec!["events", "-q", "--stacks", "--format", "ndjson", text(&DEMO.etl_file)];
    all.extend(arguments);
    let output = run(&all);
    assert!(output.status.success());
    let lines = output.stdout.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
}

fn has_stack(event: &Value) -> bool {
    !event["stack"]["frames"].as_array().unwrap().is_empty()
}

/// The folded path of an event, with or without its kind.
fn path(event: &Value, with_kind: bool) -> String {
    let process = match (event["process"]["name"].as_str(), event["pid"].as_u64()) {
        (None, Some(0)) => "Idle (0)".to_owned(),
        (None, Some(4)) => "System (4)".to_owned(),
        (None, Some(pid)) => format!("unknown ({pid})"),
        (None, None) => "no process".to_owned(),
        (Some(name), pid) => format!("{name} ({})", pid.unwrap()),
    };
    let mut path = vec![process];
    match event["stack"]["state"].as_str().unwrap() {
        "complete" => {}
        "none" => path.push("[no stack]".to_owned()),
        "lost" => path.push("[stack lost]".to_owned()),
        state => path.push(format!("[{state}]")),
    }
    for frame in event["stack"]["frames"].as_array().unwrap().iter().rev() {
        path.push(match (frame["module"].as_str(), frame["rva"].as_str()) {
            (Some(module), Some(rva)) => format!("{module}+{rva}"),
            _ => frame["address"].as_str().unwrap().to_owned(),
        });
    }
    if with_kind {
        path.push(format!("[{}]", event["event"].as_str().unwrap()));
    }
    path.join(";")
}

fn counted<'e>(events: impl Iterator<Item = &'e Value>, with_kind: bool) -> BTreeMap<String, u64> {
    let mut paths = BTreeMap::new();
    for event in events {
        *paths.entry(path(event, with_kind)).or_default() += 1;
    }
    paths
}

#[test]
fn folded_stacks_are_those_of_the_events() {
    let samples = events(&["--event", "PerfInfo/SampledProfile"]);
    assert!(samples.len() > 1000);
    assert_eq!(folded(&[]), counted(samples.iter(), false));
    // One pass has fewer facts about the same samples.
    assert_eq!(folded(&["--one-pass"]).values().sum::<u64>(), samples.len() as u64);
    let window = ["--from", "+10ms", "--to", "+60ms", "--process", "*.exe"];
    let samples = events(&[&window[..], &["--event", "PerfInfo/SampledProfile"]].concat());
    assert!(!samples.is_empty());
    assert_eq!(folded(&window), counted(samples.iter(), false));
}

#[test]
fn other_events_can_be_samples() {
    let chosen = events(&["--event", "FileIo/*"]);
    assert!(chosen.iter().any(has_stack));
    assert_eq!(folded(&["--samples", "FileIo/*"]), counted(chosen.iter(), true));
    let all = events(&["--event", "Process/*", "--event", "FileIo/*"]);
    let arguments = ["--event", "Process/*", "--event", "FileIo/*"];
    assert_eq!(folded(&arguments), counted(all.iter().filter(|event| has_stack(event)), true));
    let output = profile(&[&arguments[..], &["--format", "folded"]].concat());
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        errors.contains("The trace has no profile samples; each event with a stack counts as one sample.\n"),
        "{errors}"
    );
    let output = profile(&["--format", "folded"]);
    assert!(!String::from_utf8_lossy(&output.stderr).contains("has no profile samples"));
}

#[test]
fn all_formats_have_the_same_total_weight() {
    let samples = folded(&[]).values().sum::<u64>();
    let sum = |weights: &Value| {
        weights.as_array().unwrap().iter().map(|weight| weight.as_u64().unwrap()).sum::<u64>()
    };
    let speedscope: Value = serde_json::from_slice(&written("a.speedscope.json", &[])).unwrap();
    let profiles = speedscope["profiles"].as_array().unwrap();
    assert_eq!(profiles.iter().map(|profile| sum(&profile["weights"])).sum::<u64>(), samples);
    let firefox: Value = serde_json::from_slice(&written("a.json", &[])).unwrap();
    let threads = firefox["threads"].as_array().unwrap();
    assert_eq!(threads.iter().map(|thread| sum(&thread["samples"]["weight"])).sum::<u64>(), samples);
    let picture = String::from_utf8(written("a.svg", &[])).unwrap();
    let idle: u64 = folded(&["--where", "pid = 0"]).values().sum();
    assert!(idle > 0 && picture.contains(&format!("data-total=\"{}\"", samples - idle)));
}

#[test]
fn files_do_not_depend_on_threads_and_are_compressed_by_extension() {
    for name in ["b.json", "b.speedscope.json", "b.pftrace", "b.folded"] {
        let plain = written(name, &["--threads", "1"]);
        assert_eq!(plain, written(name, &["--threads", "4"]), "{name}");
        let packed = written(&format!("{name}.gz"), &[]);
        let mut unpacked = Vec::new();
        flate2::read::GzDecoder::new(&*packed).read_to_end(&mut unpacked).unwrap();
        assert_eq!(plain, unpacked, "{name}");
    }
}

/// Every event is a sample, a context switch or a marker, or is counted as dropped.
#[test]
fn dropped_events_are_counted() {
    let all = events(&[]);
    let of = |name: &str| all.iter().filter(|event| event["event"] == name).count();
    let (samples, switches) = (of("PerfInfo/SampledProfile"), of("Thread/CSwitch"));
    let markers = all.len() - samples - switches;
    let path = DEMO.folder.path().join("c.json");
    let errors = profile(&["-o", text(&path), "--markers", "10", "--switches", "7"]);
    let errors = String::from_utf8_lossy(&errors.stderr).replace(',', "");
    assert!(errors.contains(&format!("{samples} samples 7 context switches 10 markers\n")), "{errors}");
    assert!(errors.contains(&format!("{} events were not written as markers", markers - 10)), "{errors}");
    assert!(errors.contains(&format!("{} context switches were not written", switches - 7)), "{errors}");
}

#[test]
fn markers_have_the_fields_and_stacks_of_their_events() {
    let profile: Value =
        serde_json::from_slice(&written("d.json", &["--event", "Registry/*", "--samples", "none"])).unwrap();
    let expected = events(&["--event", "Registry/*"]);
    let (mut with_stack, mut names) = (0, Vec::new());
    for thread in profile["threads"].as_array().unwrap() {
        for data in thread["markers"]["data"].as_array().unwrap() {
            with_stack += usize::from(data.get("cause").is_some());
            names.extend(data.get("KeyName").map(|name| name.as_str().unwrap().to_owned()));
        }
    }
    assert_eq!(with_stack, expected.iter().filter(|event| has_stack(event)).count());
    let field = |event: &Value| event["fields"].get("KeyName").map(|name| name.as_str().unwrap().to_owned());
    let mut expected: Vec<String> = expected.iter().filter_map(field).collect();
    assert!(!expected.is_empty());
    names.sort();
    expected.sort();
    assert_eq!(names, expected);
}

#[test]
fn a_file_name_without_a_known_format_is_refused() {
    let refused = |arguments: &[&str]| {
        let mut all = vec!["profile", text(&DEMO.etl_file)];
        all.extend(arguments);
        let output = run(&all);
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    let errors = refused(&["-o", "x.png"]);
    assert!(
        errors.starts_with("error: x.png: cannot derive the format from the file name; use --format"),
        "{errors}"
    );
    let errors = refused(&[]);
    assert_eq!(
        errors,
        "error: expected an output file or format; use -o FILE, or --format for standard output\n"
    );
    let errors = refused(&["--format", "flamegraph", "--event", "nothing"]);
    let (report, error) = errors.split_once('\n').unwrap();
    assert!(report.starts_with("0 of ") && report.contains(" events match; events: "), "{report}");
    assert_eq!(error, "error: no selected event has a stack, so there is no flame graph to draw\n");
    let errors = refused(&["-o", "x.folded", "--icicle"]);
    assert_eq!(errors, "error: --icicle changes flame graphs; use -o FILE.svg or --format flamegraph\n");
    let errors = refused(&["-o", "x.svg", "--unsymbolicated"]);
    assert!(errors.starts_with("error: --unsymbolicated is for the Firefox Profiler"), "{errors}");
}

#[test]
fn pictures_show_their_selection_without_idle_processors() {
    let picture = |arguments: &[&str]| String::from_utf8(written("d.svg", arguments)).unwrap();
    let all = picture(&[]);
    assert!(
        !all.contains("<title>Idle (0)") && all.contains(">idle: ") && all.contains(">stackhound-demo.etl<")
    );
    assert!(!all.contains(">filter: "));
    let some = picture(&["--process", "explorer.exe", "--icicle"]);
    assert!(some.contains(">filter: process i~ &#39;explorer.exe&#39;<") && !some.contains(">idle: "));
    let some = picture(&["--process", "explorer.exe", "--from", "+10ms", "--to", "+0.09s"]);
    let filter = ">filter: process i~ &#39;explorer.exe&#39;, from +0.01s, to +0.09s<";
    assert!(some.contains(filter), "{some}");
    // Profile samples that were chosen are the same samples.
    let total =
        |picture: &str| picture.split("data-total=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let chosen = picture(&["--samples", "PerfInfo/SampledProfile"]);
    assert!(!chosen.contains("<title>Idle (0)"));
    assert_eq!(total(&chosen), total(&all));
    // Events of other kinds in process 0 are not idle time.
    let switches = picture(&["--samples", "Thread/CSwitch"]);
    let count = events(&["--event", "Thread/CSwitch"]).len();
    assert!(switches.contains(&format!("data-total=\"{count}\"")));
}

/// Without symbols, no frame of an image has a name.
#[test]
fn unnamed_frames_fold_by_module() {
    // Before the loss, no address in no module is of both kinds.
    let window = ["--to", "+0.2s"];
    let offsets = folded(&window);
    let samples = events(&[&window[..], &["--event", "PerfInfo/SampledProfile"]].concat());
    let backings: BTreeMap<&str, &str> = samples
        .iter()
        .flat_map(|event| event["stack"]["frames"].as_array().unwrap())
        .map(|frame| (frame["address"].as_str().unwrap(), frame["backing"].as_str().unwrap()))
        .collect();
    let module = |frame: &str| frame.split_once('+').map(|(module, _)| format!("{module}!?"));
    let mut expected = BTreeMap::<Vec<String>, u64>::new();
    for (path, weight) in &offsets {
        let names = path.split(';').skip(1).map(|frame| match backings.get(frame) {
            Some(backing) => format!("[{backing}]"),
            None => module(frame).unwrap_or_else(|| frame.to_owned()),
        });
        let mut names: Vec<String> = names.collect();
        names.dedup();
        *expected.entry(names).or_default() += weight;
    }
    let shown = |arguments: &[&str]| {
        let file: Value = serde_json::from_slice(&written("e.speedscope.json", arguments)).unwrap();
        let names = &file["shared"]["frames"];
        let mut paths = BTreeMap::<Vec<String>, u64>::new();
        for thread in file["profiles"].as_array().unwrap() {
            let stacks = thread["samples"].as_array().unwrap().iter();
            for (stack, weight) in stacks.zip(thread["weights"].as_array().unwrap()) {
                let stack = stack.as_array().unwrap().iter();
                let path =
                    stack.map(|at| names[at.as_u64().unwrap() as usize]["name"].as_str().unwrap().to_owned());
                *paths.entry(path.collect()).or_default() += weight.as_u64().unwrap();
            }
        }
        paths
    };
    assert_eq!(shown(&window), expected);
    let with_offsets = shown(&[&window[..], &["--offsets"]].concat());
    assert_eq!(with_offsets.values().sum::<u64>(), offsets.values().sum::<u64>());
    assert!(with_offsets.len() > expected.len());
}

/// The number of samples with a frame of each category, in the Firefox profile of a trace.
fn samples_by_category(etl_file: &Path, arguments: &[&str]) -> BTreeMap<String, u64> {
    let output = run(&[&["profile", "-q", "--format", "firefox", text(etl_file)], arguments].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let profile: Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut counts = BTreeMap::new();
    for thread in profile["threads"].as_array().unwrap() {
        let at = |table: &str, column: &str, index: u64| &thread[table][column][index as usize];
        for stack in thread["samples"]["stack"].as_array().unwrap() {
            let mut categories = std::collections::BTreeSet::new();
            let mut stack = stack.as_u64();
            while let Some(index) = stack {
                let frame = at("stackTable", "frame", index).as_u64().unwrap();
                categories.insert(at("frameTable", "category", frame).as_u64().unwrap());
                stack = at("stackTable", "prefix", index).as_u64();
            }
            for category in categories {
                let name = profile["meta"]["categories"][category as usize]["name"].as_str().unwrap();
                *counts.entry(name.to_owned()).or_default() += 1;
            }
        }
    }
    counts
}

#[test]
fn code_is_unbacked_or_unknown_as_in_events() {
    // The attack runs from private memory; some stacks are older than the modules of their process, and
    // the trace has a loss.
    for event in ["PerfInfo/SampledProfile", "Thread/CSwitch"] {
        let found = samples_by_category(&DEMO.etl_file, &["--samples", event]);
        let events = events(&["--event", event]);
        for (category, backing) in [("Unbacked", "unbacked"), ("Unknown", "unknown")] {
            let is_in = |event: &&Value| {
                let mut frames = event["stack"]["frames"].as_array().unwrap().iter();
                // Frames with a name have its category, even where records are missing.
                frames.any(|frame| frame["backing"] == backing && frame["module"].is_null())
            };
            let expected = events.iter().filter(is_in).count() as u64;
            assert_eq!(found.get(category).copied().unwrap_or(0), expected, "{event}: {category}");
            assert!(expected > 0, "{event}: {category}");
        }
    }
    let image = String::from_utf8(written("b.svg", &[])).unwrap();
    assert!(image.contains(">[unbacked] (unbacked, ") && image.contains(">unbacked</text>"));
    let before = String::from_utf8(written("b.svg", &["--to", "+0.2s"])).unwrap();
    assert!(image.contains(">unknown</text>") && !before.contains(">unknown</text>"));
    // Without modules, nothing is known.
    let off = samples_by_category(&DEMO.etl_file, &["--symbols", "off"]);
    assert_eq!(off.get("Unbacked"), None);
}

/// If the trace does not state which images are loaded, no code is called unbacked.
#[test]
fn missing_modules_do_not_make_code_unbacked() {
    use stackhound::schema::kernel::class_guid;
    use stackhound::testing::{RecordBuilder, StackForm, TraceBuilder, write_etl};
    const USER: [u64; 2] = [0x7ff6_0000_1000, 0x1f_0000];
    type Modules = &'static [(u64, u64, &'static str)];
    let all: Modules = &[(0x7ff6_0000_0000, 0x1_0000, r"\Device\HarddiskVolume3\Windows\System32\ntdll.dll")];
    let some: Modules = &[(0x7ff6_0000_0000, 0x1_0000, r"\Device\HarddiskVolume3\app.exe")];
    // The modules of the process that the trace states, and the categories of the frames. There is
    // no process without ntdll.dll.
    let table: [(Modules, &[&str]); 3] =
        [(all, &["Unbacked", "User"]), (some, &["Unknown", "User"]), (&[], &["Unknown"])];
    for (modules, expected) in table {
        let sample =
            RecordBuilder::classic(class_guid::PROCESS, 1, 4).pid(8).tid(12).with("ProcessId", 16_u32);
        let events = TraceBuilder::new()
            .process(8, "app.exe", modules)
            .event_with_stack(sample, StackForm::Walk, &[], &USER)
            .build()
            .unwrap();
        let folder = tempfile::tempdir().unwrap();
        let etl_file = folder.path().join("trace.etl");
        write_etl(std::fs::File::create(&etl_file).unwrap(), events).unwrap();
        let found = samples_by_category(&etl_file, &["--samples", "Process/Start"]);
        let names: Vec<&str> = found.keys().map(String::as_str).filter(|&name| name != "Remark").collect();
        assert_eq!(names, expected, "{modules:?}");
    }
}

/// `facts.json` counts 79,528 profile samples in this trace.
#[test]
fn a_trace_written_by_windows_keeps_every_sample() {
    let Some(etl_file) = stackhound_corpus::path("perfview-net452-x64.etl") else { return };
    let output = run(&["profile", "-q", "--format", "folded", text(&etl_file)]);
    let lines = String::from_utf8(output.stdout).unwrap();
    let weights = lines.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap());
    assert_eq!(weights.sum::<u64>(), 79_528);
}

/// This trace has samples in interrupts of idle processors. They are work.
#[test]
fn a_flame_graph_has_the_samples_of_the_processor_time() {
    let Some(etl_file) = stackhound_corpus::path("perfview-net452-x64.etl") else { return };
    let output = run(&["top", "cpu", "-q", "--all", "--format", "json", text(&etl_file)]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut expected = BTreeMap::<String, u64>::new();
    for row in report["rows"].as_array().unwrap() {
        *expected.entry(row["name"].as_str().unwrap().to_owned()).or_default() +=
            row["samples"].as_u64().unwrap();
    }
    assert!(expected["DPC"] > 0 && expected["ISR"] > 0);
    let output = run(&["profile", "-q", "--format", "flamegraph", text(&etl_file)]);
    let picture = String::from_utf8(output.stdout).unwrap();
    let boxes = picture.split("<title>").filter_map(|part| part.split_once(" (process, "));
    let boxes = boxes.map(|(name, rest)| {
        (name.to_owned(), rest.split(' ').next().unwrap().replace(',', "").parse::<u64>().unwrap())
    });
    assert_eq!(boxes.collect::<BTreeMap<_, _>>(), expected);
}
