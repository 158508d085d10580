//! Every command that the documentation shows is run here, and does what is shown.
//!
//! A `console` block holds commands behind `$ ` and, if it shows any, their output; `…` stands for lines left out. All
//! commands run in a folder where `trace.etl` is the demo recording, and `example.stacks` the trace that the examples of
//! the stack model are about.

#[path = "../../calltree/tests/fixtures/mod.rs"]
mod fixtures;

use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Commands that other steps of `.ci/run` run, since they take long or need other tools.
const RUN_BY_CI: [&str; 11] = [
    "cargo run --release --locked -p stackhound-calltree --example scale",
    "cargo test --workspace",
    "scripts/fuzz.sh",
    "scripts/check-writer.py",
    ".ci/setup-windows",
    "scripts/windows-check.sh",
    "scripts/live-cli-check.sh",
    "scripts/speedscope-check.sh",
    "scripts/check-perfetto.py",
    "scripts/tree-check.sh",
    "cargo run -p stackhound-calltree --example fixture",
];

/// Commands that `scripts/python-check.sh` and the tests of the Python package run, which is a step of `.ci/run` as well.
const RUN_FOR_PYTHON: [&str; 2] =
    ["pip install ./crates/python", "cargo run -p stackhound-calltree --example "];

/// Commands that `scripts/windows-check.sh` runs, which is a step of `.ci/run` too.
const RUN_UNDER_WINE: [&str; 2] = [
    "scripts/with-double cargo test --locked --profile cross -p stackhound --test live",
    "scripts/live-check.sh",
];

/// Whether a command is for Windows. Elsewhere it is understood, and refused.
fn is_live(arguments: &[String]) -> bool {
    let has = |wanted: &str| arguments.iter().any(|argument| argument == wanted);
    has("--live") || (arguments[0] == "record" && !has("--exact"))
}

/// Commands for people with time; a short form of each is run below.
const LONG: [&str; 3] = [
    "scripts/speed.py",
    "STACKHOUND_LOAD=\"60 1000000\" scripts/with-double cargo test",
    // With settings of one's own, as the step "live" of windows-check.sh writes them.
    "STACKHOUND_DOUBLE=settings.txt scripts/with-double",
];

struct Shown {
    page: PathBuf,
    command: String,
    output: Vec<String>,
}

fn markdown(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            markdown(&path, found);
        } else if path.extension().is_some_and(|end| end == "md") {
            found.push(path);
        }
    }
}

fn commands() -> Vec<Shown> {
    let mut pages = vec![root().join("README.md"), root().join("ARCHITECTURE.md")];
    markdown(&root().join("docs"), &mut pages);
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

/// Splits a command at white space, quotes holding words together.
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

#[test]
fn every_command_shown_runs_and_does_what_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[String]| {
        let binary = env!("CARGO_BIN_EXE_stackhound");
        Command::new(binary).args(arguments).current_dir(folder.path()).output().expect("the program runs")
    };
    let made = run(&words("demo -q --out ."));
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    std::fs::rename(folder.path().join("stackhound-demo.etl"), folder.path().join("trace.etl")).unwrap();
    std::fs::write(folder.path().join("example.stacks"), fixtures::trace().as_bytes()).unwrap();
    let ci = std::fs::read_to_string(root().join(".ci/run")).unwrap();
    let wine = std::fs::read_to_string(root().join("scripts/windows-check.sh")).unwrap();
    let shown = commands();
    assert!(shown.len() >= 10, "the documentation shows {} commands", shown.len());
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
        if let Some(known) = RUN_UNDER_WINE.iter().find(|known| command.starts_with(**known)) {
            assert!(wine.contains(known), "{page}: {command}: not run by scripts/windows-check.sh");
            continue;
        }
        if LONG.iter().any(|known| command.starts_with(known)) {
            continue;
        }
        let arguments =
            command.strip_prefix("cargo run --release -- ").or(command.strip_prefix("stackhound "));
        let arguments = arguments.unwrap_or_else(|| panic!("{page}: {command}: no test runs this"));
        let (arguments, _) = arguments.split_once(" | ").unwrap_or((arguments, ""));
        let arguments = words(arguments);
        let result = run(&arguments);
        let errors = String::from_utf8_lossy(&result.stderr);
        if is_live(&arguments) && cfg!(not(windows)) {
            assert!(
                output.iter().all(|line| line.is_empty()),
                "{page}: {command}: nothing shows what it prints"
            );
            assert_eq!(result.status.code(), Some(2), "{page}: {command}: {errors}");
            let refused = errors.starts_with("error: ") && errors.contains("Windows");
            assert!(refused, "{page}: {command}: {errors}");
            continue;
        }
        assert!(result.status.success(), "{page}: {command}: {errors}");
        let printed = String::from_utf8_lossy(&result.stdout);
        let mut lines = printed.lines();
        for line in output.iter().filter(|line| !line.is_empty() && line.trim() != "…") {
            assert!(
                lines.any(|printed| printed.trim_end() == line.trim_end()),
                "{page}: {command}: does not print (in this place)\n{line}\nbut\n{printed}"
            );
        }
    }
}
