//! Runs every command in the documentation, and compares its output with the documented output.
//!
//! A `console` block contains commands after `$ `, each optionally followed by its output. `…`
//! stands for omitted lines, and in a line for omitted text. Pictures (`.svg`) in `docs` must be
//! equal to the files of that name that the commands write; with `STACKHOUND_WRITE_PICTURES`, they
//! are written instead. All commands run in a folder where `trace.etl` is the demo trace,
//! `network.etl` a capture of packets, and `example.stacks` the trace of the examples about call
//! trees. `known.txt`, `lists.toml` and `policy.toml` are the files of `docs/hunt.md`. The commands
//! that `explain` recommends are also run there.

use crate::fixtures;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Commands that other steps of `.ci/run` run, because they take long or need other tools.
const RUN_BY_CI: [&str; 13] = [
    "cargo test --workspace",
    "scripts/fuzz.sh",
    "scripts/check-writer.py",
    ".ci/setup-windows",
    "scripts/windows-check.sh",
    "scripts/live-cli-check.sh",
    "scripts/kstack-driver.sh",
    "scripts/kstack-check.sh",
    "scripts/speedscope-check.sh",
    "scripts/check-perfetto.py",
    "scripts/tree-check.sh",
    "scripts/sysmon-speed.py",
    "scripts/instructions.py",
];

/// Commands that `scripts/python-check.sh` and the tests of the Python package run, which is a step
/// of `.ci/run` as well.
const RUN_FOR_PYTHON: [&str; 2] =
    ["pip install ./crates/python", "cargo run -p stackhound-calltree --example "];

/// Commands that the tests and `scripts/lake-check.sh` of the program stackhound-lake run, which takes long to build.
const RUN_FOR_LAKE: [&str; 2] = ["cargo install --path crates/lake", "stackhound query "];

/// Commands that `scripts/qemu-check.sh` runs, which is a step of `.ci/run` as well.
const RUN_WITH_QEMU: [&str; 3] =
    ["scripts/boot-linux.sh", "stackhound record --exact --system ", "stackhound threads boot.calls"];

/// Commands that `scripts/check-json.py` runs, which is a step of `.ci/run` as well.
const RUN_ON_EVENTS: &str = "jq ";

/// Commands that `scripts/windows-check.sh` runs, which is a step of `.ci/run` too.
const RUN_UNDER_WINE: [&str; 2] =
    ["scripts/with-fake scripts/windows-cargo test --test etw --test live", "scripts/live-check.sh"];

/// Whether a command needs Windows. Other systems parse its arguments, and refuse it.
fn is_live(arguments: &[String]) -> bool {
    let has = |wanted: &str| arguments.iter().any(|argument| argument == wanted);
    has("--live") || (arguments[0] == "record" && !has("--exact"))
}

/// Commands that take long. A short form of each runs elsewhere.
const LONG: [&str; 5] = [
    "scripts/speed.py",
    "cargo run --release -p stackhound --example fields",
    "cargo run --profile dist --locked -p stackhound-calltree --example scale",
    "STACKHOUND_LOAD=\"60 1000000\" scripts/with-fake cargo test",
    // Needs settings such as those of the step "live" of windows-check.sh.
    "STACKHOUND_FAKE=settings.txt scripts/with-fake",
];

/// Names of image files in the commands of `explain`, and the images of the demo that are used for
/// them.
const IMAGES: [(&str, &str); 3] =
    [("ntdll.dll", "ntdll.dll"), ("kernelbase.dll", "kernelbase.dll"), ("suspect.exe", "updater.exe")];

/// Parts of commands of `explain`, and a text that such commands must print for the demo.
const SHOWS: [(&str, &str); 9] = [
    ("stack.contains_unbacked='yes'", "(unbacked"),
    ("--event PageFault/", "PageFault/VirtualAlloc"),
    ("--event Thread/Start", "Thread/Start"),
    ("--event Thread/CSwitch", "Thread/CSwitch"),
    ("--event Image/Load", "Image/Load"),
    ("--event PerfInfo/SysCallEnter", "PerfInfo/SysCallEnter"),
    ("iendswith 'ntdll.dll'", "ntdll.dll"),
    ("--only CS02", "CS02"),
    ("--format ndjson", "\"stack\""),
];

/// Parts of commands of `explain` that select nothing in the demo, which has no thread pools and no
/// second `ntdll.dll`.
const NOT_IN_DEMO: [&str; 3] =
    ["--event ThreadPool/*", "--only CS10 ", "--provider Microsoft-Windows-Threat-Intelligence"];

struct Shown {
    page: PathBuf,
    command: String,
    output: Vec<String>,
}

fn files(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files(&path, extension, found);
        } else if path.extension().is_some_and(|end| end == extension) {
            found.push(path);
        }
    }
}

fn commands() -> Vec<Shown> {
    let mut pages = vec![root().join("README.md"), root().join("ARCHITECTURE.md")];
    files(&root().join("docs"), "md", &mut pages);
    let mut shown: Vec<Shown> = Vec::new();
    for page in pages {
        let text = std::fs::read_to_string(&page).expect("a page");
        let mut inside = false;
        for line in text.lines() {
            if line.starts_with("```") {
                inside = line == "```console";
            } else if let Some(command) = line.strip_prefix("$ ").filter(|_| inside) {
                shown.push(Shown { page: page.clone(), command: command.to_owned(), output: Vec::new() });
            } else if inside {
                let last = shown.last_mut().expect("a command before its output");
                last.output.push(line.to_owned());
            }
        }
    }
    shown
}

/// Splits a command at spaces outside of quotes.
fn words(command: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for c in command.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            None if c == '"' => quote = Some(c),
            None if c == ' ' => words.push(String::new()),
            _ => words.last_mut().expect("a word").push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Whether a printed line is the documented one, in which `…` stands for omitted text.
fn is_shown(printed: &str, documented: &str) -> bool {
    let (printed, documented) = (printed.trim_end(), documented.trim_end());
    let mut parts = documented.split('…');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = printed.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[test]
fn omitted_text_is_anything_and_other_text_is_not() {
    for (printed, documented, expected) in [
        ("a  b", "a  b", true),
        ("a  b ", "a  b", true),
        ("a  b c", "a  b", false),
        ("a  b", "a  b c", false),
        ("a < b < c < d", "a …", true),
        ("a < b < c < d", "a < … < c < …", true),
        ("a < b < c < d", "… < c < d", true),
        ("a < b < c < d", "… < c", false),
        ("a < b < c < d", "b …", false),
        ("a < b < c < d", "a … c … b …", false),
        ("abc", "ab…bc", false),
    ] {
        assert_eq!(is_shown(printed, documented), expected, "{printed:?} as {documented:?}");
    }
}

/// Compares the pictures of the documentation with those that the commands wrote.
fn check_pictures(folder: &Path) {
    let mut pictures = Vec::new();
    files(&root().join("docs"), "svg", &mut pictures);
    assert!(!pictures.is_empty(), "the documentation has no pictures");
    for picture in pictures {
        let name = picture.file_name().expect("a name");
        let drawn = std::fs::read_to_string(folder.join(name))
            .unwrap_or_else(|error| panic!("no command draws {}: {error}", picture.display()));
        if std::env::var_os("STACKHOUND_WRITE_PICTURES").is_some() {
            std::fs::write(&picture, &drawn).unwrap();
        }
        let shown = std::fs::read_to_string(&picture).unwrap();
        assert!(
            shown == drawn,
            "{} differs from what the program draws; STACKHOUND_WRITE_PICTURES=1 writes it",
            picture.display()
        );
        assert!(shown.len() <= 100_000, "{} is too large: {} bytes", picture.display(), shown.len());
    }
}

/// A folder with all files that the commands need.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let made = run(folder.path(), &words("demo -q --out ."));
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let location = |name: &str| folder.path().join(name);
    std::fs::rename(location("stackhound-demo.etl"), location("trace.etl")).unwrap();
    crate::packets::example(&location("network.etl"));
    std::fs::write(location("example.stacks"), fixtures::trace().as_bytes()).unwrap();
    std::fs::write(location("known.txt"), "C:\\Windows\\explorer.exe\n").unwrap();
    std::fs::write(location("lists.toml"), "[alerts]\nwindow_seconds = 300\n").unwrap();
    std::fs::write(location("policy.toml"), "[hunt]\nlists = 'lists.toml'\n").unwrap();
    rules(folder.path());
    for (name, image) in IMAGES {
        std::fs::copy(stored(&location("symbols"), image), location(name)).unwrap();
    }
    folder
}

/// Writes the files of docs/rules.md, whose first line names them.
fn rules(folder: &Path) {
    let page = std::fs::read_to_string(root().join("docs/rules.md")).expect("a page");
    let mut count = 0;
    for block in page.split("```yaml\n# ").skip(1) {
        let (name, rest) = block.split_once('\n').expect("a name");
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).unwrap();
        std::fs::write(path, rest.split("```").next().expect("a text")).unwrap();
        count += 1;
    }
    assert_eq!(count, 5);
}

/// Finds a file in a store by its name, with any key.
fn stored(store: &Path, name: &str) -> PathBuf {
    let entries = |folder: &Path| {
        let entries =
            std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        entries.map(|entry| entry.expect("an entry").path()).collect::<Vec<_>>()
    };
    let is_it = |path: &PathBuf| path.file_name().is_some_and(|found| found.eq_ignore_ascii_case(name));
    let of_name = entries(store).into_iter().find(is_it).unwrap_or_else(|| panic!("no {name} in the store"));
    let of_key = entries(&of_name).pop().expect("a key");
    entries(&of_key).pop().expect("a file")
}

fn run(folder: &Path, arguments: &[String]) -> Output {
    let binary = env!("CARGO_BIN_EXE_stackhound");
    Command::new(binary).args(arguments).current_dir(folder).output().expect("the program runs")
}

/// Whether a command succeeded. `hunt` and `rules check` exit with 1 if they have findings.
fn is_done(arguments: &[String], result: &Output) -> bool {
    let can_find = ["hunt", "rules"].contains(&&*arguments[0]);
    result.status.success() || (can_find && result.status.code() == Some(1))
}

#[test]
fn every_recommended_command_runs() {
    let folder = folder();
    let listed = run(folder.path(), &words("explain"));
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let ids: Vec<&str> =
        listed.lines().filter_map(|line| line.split(' ').next()).filter(|id| id.starts_with("CS")).collect();
    assert_eq!(ids.len(), 30, "{listed}");
    let mut commands = BTreeSet::new();
    for id in ids {
        let explained = run(folder.path(), &words(&format!("explain {id}")));
        let explained = String::from_utf8_lossy(&explained.stdout).into_owned();
        let of_this = explained.lines().filter_map(|line| line.trim_start().strip_prefix("$ stackhound "));
        let of_this: Vec<String> = of_this.map(str::to_owned).collect();
        assert!(!of_this.is_empty(), "{id} recommends nothing");
        commands.extend(of_this);
    }
    for command in &commands {
        let arguments = words(command);
        let result = run(folder.path(), &arguments);
        assert!(is_done(&arguments, &result), "{command}: {}", String::from_utf8_lossy(&result.stderr));
        let (shown, command) = (String::from_utf8_lossy(&result.stdout), arguments.join(" "));
        if NOT_IN_DEMO.iter().any(|part| command.contains(part)) {
            assert_eq!(shown, "", "{command} shows something now");
            continue;
        }
        assert!(!shown.is_empty(), "{command} shows nothing");
        for (_, expected) in SHOWS.iter().filter(|(part, _)| command.contains(part)) {
            assert!(shown.contains(expected), "{command} does not show {expected}");
        }
    }
    for (part, _) in SHOWS {
        assert!(commands.iter().any(|command| words(command).join(" ").contains(part)), "nothing has {part}");
    }
}

#[test]
fn every_documented_command_prints_the_documented_output() {
    let folder = folder();
    // A command that is on several pages runs once.
    let mut results: BTreeMap<Vec<String>, Output> = BTreeMap::new();
    let ci = std::fs::read_to_string(root().join(".ci/run")).unwrap();
    let lake = std::fs::read_to_string(root().join("scripts/lake-check.sh")).unwrap();
    let wine = std::fs::read_to_string(root().join("scripts/windows-check.sh")).unwrap();
    let shown = commands();
    assert!(shown.len() >= 10, "the documentation shows {} commands", shown.len());
    let mut mismatches = String::new();
    for Shown { page, command, output } in shown {
        let page = page.display();
        if let Some(known) = RUN_BY_CI.iter().find(|known| command.starts_with(**known)) {
            assert!(ci.contains(known), "{page}: {command}: not run by .ci/run");
            continue;
        }
        if RUN_FOR_PYTHON.iter().any(|known| command.starts_with(known)) {
            assert!(ci.contains("scripts/python-check.sh"), "{page}: {command}: not run by .ci/run");
            continue;
        }
        if RUN_FOR_LAKE.iter().any(|known| command.starts_with(known)) {
            assert!(lake.contains("cargo test"), "{page}: {command}: not run by scripts/lake-check.sh");
            continue;
        }
        if RUN_WITH_QEMU.iter().any(|known| command.starts_with(known)) {
            assert!(ci.contains("scripts/qemu-check.sh"), "{page}: {command}: not run by .ci/run");
            continue;
        }
        if command.starts_with(RUN_ON_EVENTS) {
            assert!(ci.contains("scripts/check-json.py"), "{page}: {command}: not run by .ci/run");
            continue;
        }
        if let Some(known) = RUN_UNDER_WINE.iter().find(|known| command.starts_with(**known)) {
            assert!(wine.contains(known), "{page}: {command}: not run by scripts/windows-check.sh");
            continue;
        }
        if LONG.iter().any(|known| command.starts_with(known)) {
            continue;
        }
        let arguments = command.strip_prefix("cargo run -- ").or(command.strip_prefix("stackhound "));
        let arguments = arguments.unwrap_or_else(|| panic!("{page}: {command}: no test runs this"));
        let (arguments, _) = arguments.split_once(" | ").unwrap_or((arguments, ""));
        let arguments = words(arguments);
        let result = results.entry(arguments.clone()).or_insert_with(|| run(folder.path(), &arguments));
        let errors = String::from_utf8_lossy(&result.stderr);
        if is_live(&arguments) && cfg!(not(windows)) {
            assert!(
                output.iter().all(|line| line.is_empty()),
                "{page}: {command}: its output cannot be tested here"
            );
            assert_eq!(result.status.code(), Some(2), "{page}: {command}: {errors}");
            let refused = errors.starts_with("error: ") && errors.contains("Windows");
            assert!(refused, "{page}: {command}: {errors}");
            continue;
        }
        // Packages of distributions lack this emulator.
        if arguments.contains(&"--with".to_owned()) && !result.status.success() {
            let refused = errors.contains("recording a program in QEMU needs qemu-x86_64 10 or later");
            assert!(refused, "{page}: {command}: {errors}");
            continue;
        }
        assert!(is_done(&arguments, result), "{page}: {command}: {errors}");
        let printed = String::from_utf8_lossy(&result.stdout);
        let mut lines = printed.lines();
        let mut expected = output.iter().filter(|line| !line.is_empty() && line.trim() != "…");
        if let Some(line) = expected.find(|line| !lines.any(|printed| is_shown(printed, line))) {
            mismatches +=
                &format!("{page}: {command}: does not print (in this order)\n{line}\nbut\n{printed}\n\n");
        }
    }
    assert!(mismatches.is_empty(), "{mismatches}");
    check_pictures(folder.path());
}
