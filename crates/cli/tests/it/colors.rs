//! Colors: only for people, only on a terminal or on request, and without information of their own.

use std::path::Path;
use std::process::Command;

use crate::demonstration::demo;

/// Commands whose result has colors.
const COLORED: [&str; 8] = [
    "summary T",
    "events T --stacks --pid 548",
    "stacks T --symbol-path symbols",
    "top cpu T",
    "top file T",
    "top wait T --by function",
    "kstack --trace T --user",
    "hunt T --exit-zero --images symbols",
];

/// Formats that programs read.
const DATA: [&str; 6] = [
    "summary T --format json",
    "events T --format csv",
    "events T --format ndjson --stacks",
    "top cpu T --format csv",
    "hunt T --exit-zero --format ndjson",
    "profile T --format folded",
];

fn shown(folder: &Path, line: &str, more: &[&str], variables: &[(&str, &str)]) -> String {
    let words = line.split(' ').map(|word| if word == "T" { "stackhound-demo.etl" } else { word });
    let mut command = Command::new(env!("CARGO_BIN_EXE_stackhound"));
    command.args(words).args(more).arg("-q").current_dir(folder).env("XDG_CACHE_HOME", folder.join("cache"));
    command.env_remove("_NT_SYMBOL_PATH").env_remove("COLUMNS").env_remove("NO_COLOR");
    let output = command.envs(variables.iter().copied()).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The text without sequences of colors.
fn plain(text: &str) -> String {
    let mut parts = text.split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |plain, part| plain + part.split_once('m').map_or("", |(_, rest)| rest))
}

#[test]
#[ignore = "slow: run by .ci/run"]
fn colors_add_nothing_to_the_text() {
    let folder = demo();
    for line in COLORED {
        let piped = shown(folder.path(), line, &[], &[]);
        assert!(!piped.contains('\u{1b}'), "{line}: colors in a pipe");
        for (more, variables) in [
            (&["--color", "never"][..], &[][..]),
            (&["--color", "auto"], &[("NO_COLOR", "1")]),
            (&["--color", "auto"], &[("CLICOLOR_FORCE", "0")]),
        ] {
            assert_eq!(shown(folder.path(), line, more, variables), piped, "{line} {more:?} {variables:?}");
        }
        let colored = shown(folder.path(), line, &["--color", "always"], &[]);
        assert!(colored.contains('\u{1b}'), "{line}: no color");
        assert_eq!(plain(&colored), piped, "{line}");
        // A request is stronger than the variable.
        assert_eq!(
            shown(folder.path(), line, &["--color", "always"], &[("NO_COLOR", "1")]),
            colored,
            "{line}"
        );
        // Each row ends without a color.
        for row in colored.lines().filter(|row| row.contains('\u{1b}')) {
            let last = row.rsplit('\u{1b}').next().unwrap();
            assert!(last.starts_with("[0m"), "{line}: {row:?}");
        }
        let narrow = shown(folder.path(), line, &["--color", "always"], &[("COLUMNS", "60")]);
        assert_eq!(plain(&narrow), shown(folder.path(), line, &[], &[("COLUMNS", "60")]), "{line}");
    }
}

#[test]
fn programs_get_no_colors() {
    let folder = demo();
    for line in DATA {
        let colored = shown(folder.path(), line, &["--color", "always"], &[]);
        assert!(!colored.contains('\u{1b}'), "{line}");
    }
}

#[test]
fn errors_are_colored_on_request_only() {
    let errors = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stackhound"));
        let output = command.args(arguments).env_remove("NO_COLOR").output().unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(errors(&["info", "missing.etl"]).starts_with("error: missing.etl"));
    let colored = errors(&["info", "missing.etl", "--color", "always"]);
    assert!(colored.contains('\u{1b}') && plain(&colored).starts_with("error: missing.etl"), "{colored}");
}

#[cfg(target_os = "linux")]
#[test]
fn terminals_get_colors_unless_they_are_refused() {
    let folder = demo();
    let on_terminal = |no_color: &str| -> Option<String> {
        let line = format!("{} top cpu stackhound-demo.etl -q", env!("CARGO_BIN_EXE_stackhound"));
        let mut script = Command::new("script");
        script.args(["-qec", &line, "/dev/null"]).current_dir(folder.path());
        script.env("TERM", "xterm-256color").env("COLUMNS", "120").env("NO_COLOR", no_color);
        Some(String::from_utf8(script.output().ok()?.stdout).unwrap())
    };
    let Some(colored) = on_terminal("") else {
        eprintln!("`script` is missing; terminals are not tested");
        return;
    };
    assert!(colored.contains('\u{1b}'), "{colored}");
    let refused = on_terminal("1").unwrap();
    assert!(!refused.contains('\u{1b}') && refused == plain(&colored), "{refused}");
}
