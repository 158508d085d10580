//! Tables at different widths: on a terminal rows are cut, elsewhere they are not, and none is dropped.

use std::path::Path;
use std::process::Command;

use crate::demonstration::demo;
use crate::fixtures;
use crate::program::{refused, text};

/// All commands that write rows. `C` is a trace of calls.
const ROWS: [&str; 35] = [
    "events T",
    "events T --stacks",
    "stacks T --symbol-path symbols",
    "top cpu T",
    "top cpu T --by stack --symbol-path symbols",
    "top wait T --by function --symbol-path symbols",
    "top wait T --tid 404 --chain --all --symbol-path symbols",
    "top ready T",
    "top syscall T --by stack",
    "top disk T",
    "top file T",
    "top fault T",
    "top memory T --by stack --symbol-path symbols",
    "callers RtlUserThreadStart T --symbol-path symbols",
    "summary T T --separate",
    "kstack --trace T --user --symbol-path symbols",
    "symbols list T",
    "symbols stubs ntdll.dll",
    "symbols lookup --image ntdll.dll 0x1000 0x2000",
    "providers",
    "providers --manifest T",
    "rules list long.yml",
    "threads C --at 14",
    "tree C --at 14",
    "stack C --at 14",
    "backtrace C --at 14",
    "calls C *",
    "ranges C --at 14 --by-call",
    "events-of C --at 14",
    "calls T * --limit 20 --symbols full --symbol-path symbols",
    "threads T --at #500 --symbols full --symbol-path symbols",
    "tree T --at #500 --symbols full --symbol-path symbols",
    "stack T --at #500 --symbols full --symbol-path symbols",
    "backtrace T --at #500 --symbols full --symbol-path symbols",
    "events-of T --at #500 --symbols full --symbol-path symbols",
];

/// Commands that write sentences, hashes or settings, whose end would be missed.
const SENTENCES: [&str; 9] = [
    "info T --full",
    "hunt T --exit-zero",
    "hunt T --exit-zero --format list",
    "symbols check T",
    "rules check long.yml",
    "rules explain long long.yml",
    "config show --symbol-path LONG",
    "explain CS01",
    "images show ntdll.dll",
];

/// A folder with the inputs of all commands.
fn folder() -> tempfile::TempDir {
    let folder = demo();
    std::fs::write(folder.path().join("example.stacks"), fixtures::trace().as_bytes()).unwrap();
    let store = folder.path().join("symbols/ntdll.dll");
    let key = std::fs::read_dir(store).unwrap().next().unwrap().unwrap().path();
    std::fs::copy(key.join("ntdll.dll"), folder.path().join("ntdll.dll")).unwrap();
    let name = "long ".repeat(2_000);
    let rule = format!(
        "name: {name}\nid: 11111111-2222-3333-4444-555555555555\nversion: 1.0.0\ncondition: evt.name = 'CreateProcess'\n\
         min-engine-version: 3.0.0\n"
    );
    std::fs::write(folder.path().join("long.yml"), rule).unwrap();
    folder
}

/// The standard output of a command that is shown with this number of columns, or through a pipe.
fn shown(folder: &Path, command: &str, columns: Option<usize>, more: &[&str]) -> String {
    let long = format!("srv*{}", "/a/folder".repeat(1_000));
    let words = command.split(' ').map(|word| match word {
        "T" => "stackhound-demo.etl",
        "C" => "example.stacks",
        "LONG" => &long,
        word => word,
    });
    let mut program = Command::new(env!("CARGO_BIN_EXE_stackhound"));
    program.args(words).args(more).arg("-q").current_dir(folder);
    program.env("XDG_CACHE_HOME", folder.join("cache")).env_remove("_NT_SYMBOL_PATH").env_remove("COLUMNS");
    program.envs(columns.map(|columns| ("COLUMNS", columns.to_string())));
    let output = program.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code().is_some_and(|code| code < 2), "{command}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

fn width(line: &str) -> usize {
    line.chars().count()
}

#[test]
#[ignore = "slow: run by .ci/run"]
fn tables_cut_columns_and_never_rows() {
    let folder = folder();
    for command in ROWS {
        let piped = shown(folder.path(), command, None, &[]);
        let rows: Vec<&str> = piped.lines().collect();
        assert!(!rows.is_empty(), "{command} shows nothing");
        assert!(rows.iter().all(|row| row.len() <= 4096), "{command}");
        for columns in [60, 100, 200] {
            let cut = shown(folder.path(), command, Some(columns), &[]);
            // Headings of tables are sentences, which are wrapped.
            let table = |rows: &mut dyn Iterator<Item = &str>| match command.starts_with("top")
                || command.starts_with("callers")
            {
                true => rows.skip_while(|row| !row.is_empty()).count(),
                false => rows.count(),
            };
            let headings = cut.lines().count() - table(&mut cut.lines());
            assert_eq!(
                table(&mut cut.lines()),
                table(&mut rows.iter().copied()),
                "{command} at {columns}\n{cut}"
            );
            let whole_headings = rows.len() - table(&mut rows.iter().copied());
            for (row, whole) in cut.lines().skip(headings).zip(&rows[whole_headings..]) {
                assert!(width(row) <= columns, "{command} at {columns}: {row}");
                assert!(
                    row == *whole || row.contains('…') || is_repadded(row, whole),
                    "{command}: {row}\n{whole}"
                );
            }
            assert!(cut.lines().all(|row| width(row) <= columns), "{command} at {columns}: {cut}");
            if rows.iter().all(|row| width(row) <= columns) {
                assert_eq!(cut, piped, "{command} at {columns} is changed although it fits");
            }
        }
    }
}

/// Whether only spaces differ: a column became narrower because of another row.
fn is_repadded(row: &str, whole: &str) -> bool {
    row.split_whitespace().eq(whole.split_whitespace())
}

#[test]
fn numbers_and_names_stay_in_narrow_tables() {
    let folder = folder();
    for command in ["top cpu T", "top cpu T --by stack --symbol-path symbols", "top file T"] {
        // The first number and the name of each row.
        let ends = |columns| -> Vec<(String, bool)> {
            let shown = shown(folder.path(), command, columns, &[]);
            let rows = shown.lines().skip_while(|line| !line.is_empty()).skip(2);
            let end = |row: &str| {
                let mut words = row.split_whitespace();
                (words.next().unwrap().to_owned(), row.len() > 30 && words.nth(2).is_some())
            };
            rows.map(end).collect()
        };
        assert!(ends(None).len() > 3, "{command}");
        assert_eq!(ends(Some(60)), ends(None), "{command}");
    }
    let files = shown(folder.path(), "top file T", Some(60), &[]);
    let row = files.lines().find(|row| row.contains("Quarter.docx")).expect("the end of a path");
    assert!(row.contains(" … C:\\"), "{row}");
}

#[test]
fn sentences_are_not_cut_at_the_width_of_the_terminal() {
    let folder = folder();
    for command in SENTENCES {
        let piped = shown(folder.path(), command, None, &[]);
        assert_eq!(shown(folder.path(), command, Some(60), &[]), piped, "{command}");
        assert!(piped.lines().all(|row| row.len() <= 4096), "{command}");
    }
}

#[test]
fn long_rows_say_how_much_is_missing() {
    let folder = folder();
    for command in ["rules list long.yml", "config show --symbol-path LONG"] {
        let piped = shown(folder.path(), command, None, &[]);
        let row = piped.lines().find(|row| row.ends_with(" more characters)"));
        let row = row.unwrap_or_else(|| panic!("{command}: no row is cut"));
        assert!((3_900..=4096).contains(&row.len()), "{command}: {}", row.len());
    }
}

#[test]
fn files_get_whole_rows() {
    let folder = folder();
    for command in ["events T --stacks", "top cpu T --by stack --symbol-path symbols", "calls C *"] {
        let path = folder.path().join("rows.txt");
        let nothing = shown(folder.path(), command, Some(60), &["-o", text(&path)]);
        assert_eq!(nothing, "");
        let written = std::fs::read_to_string(&path).unwrap();
        assert_eq!(written, shown(folder.path(), command, None, &[]), "{command}");
    }
}

/// Commands with the formats that their file name can choose.
const FORMATS: [(&str, &[(&str, &str)]); 23] = [
    ("summary T", &[("json", "json")]),
    ("info T", &[("json", "json")]),
    ("events T", &[("csv", "csv"), ("ndjson", "ndjson"), ("jsonl", "ndjson"), ("CSV", "csv")]),
    ("stacks T", &[("json", "json"), ("folded", "folded")]),
    ("top cpu T", &[("csv", "csv"), ("json", "json")]),
    ("top wait T", &[("csv", "csv"), ("json", "json")]),
    ("top file T", &[("csv", "csv"), ("json", "json")]),
    ("diff T T", &[("csv", "csv"), ("json", "json"), ("svg", "flamegraph")]),
    ("kstack --trace T", &[("json", "json"), ("ndjson", "ndjson")]),
    ("symbols list T", &[("json", "json")]),
    ("symbols check T", &[("json", "json")]),
    ("symbols stubs ntdll.dll", &[("json", "json")]),
    ("images show ntdll.dll", &[("json", "json")]),
    ("providers", &[("json", "json")]),
    ("config show", &[("json", "json")]),
    ("rules check long.yml", &[("json", "json")]),
    ("tree C --at 14", &[("html", "html"), ("htm", "html"), ("json", "json")]),
    ("stack C --at 14", &[("json", "json")]),
    ("calls C *", &[("json", "json"), ("ndjson", "ndjson")]),
    ("threads C", &[("json", "json"), ("ndjson", "ndjson")]),
    ("ranges C --at 14", &[("json", "json"), ("ndjson", "ndjson")]),
    ("hunt T --exit-zero", &[("csv", "csv"), ("ndjson", "ndjson"), ("jsonl", "ndjson")]),
    (
        "profile T",
        &[("json", "firefox"), ("svg", "flamegraph"), ("txt", "folded"), ("speedscope.json", "speedscope")],
    ),
];

#[test]
#[ignore = "slow: run by .ci/run"]
fn file_names_choose_the_format() {
    let folder = folder();
    for (command, formats) in FORMATS {
        for (extension, format) in formats {
            let path = folder.path().join("out").with_extension(extension);
            assert_eq!(shown(folder.path(), command, None, &["-o", text(&path)]), "");
            let written = std::fs::read_to_string(&path).unwrap();
            let expected = shown(folder.path(), command, None, &["--format", format]);
            assert!(written == expected, "{command} -o {extension}: {written:.300}\n{expected:.300}");
            std::fs::remove_file(path).unwrap();
        }
    }
}

#[test]
fn differences_fit_into_the_terminal() {
    let folder = folder();
    let command = "diff T T --by process,stack --all --symbol-path symbols";
    let rows = |text: &str| text.lines().filter(|line| line.starts_with("  noise")).count();
    let piped = shown(folder.path(), command, None, &[]);
    assert!(rows(&piped) > 10 && piped.lines().any(|line| width(line) > 200), "{piped}");
    for columns in [60, 100, 200] {
        let cut = shown(folder.path(), command, Some(columns), &[]);
        assert!(cut.lines().all(|line| width(line) <= columns), "{columns}: {cut}");
        assert_eq!(rows(&cut), rows(&piped), "{columns}: {cut}");
    }
}

#[test]
fn tables_are_not_written_to_files_for_programs() {
    let endings = ".json";
    for (arguments, ending) in [
        (&["summary", "x.etl", "-o", "x.csv"][..], endings),
        (&["events", "x.etl", "-o", "x.json"], ".ndjson, .jsonl, .csv"),
        (&["top", "cpu", "x.etl", "-o", "x.svg"], ".csv, .json"),
        (&["diff", "x.etl", "x.etl", "-o", "x.ndjson"], ".csv, .json, .flamegraph, .svg"),
    ] {
        let path = arguments.last().unwrap();
        let sentence = "cannot derive the format from the file name; use --format, or one of the extensions";
        refused(arguments, &format!("{path}: {sentence} {ending}"));
    }
}

#[test]
fn the_summary_uses_the_width_of_the_terminal() {
    let folder = folder();
    let of = |columns| shown(folder.path(), "summary T", columns, &[]);
    assert_eq!(of(None), of(Some(100)));
    for columns in [60, 100, 200] {
        let screen = of(Some(columns));
        assert!((10..=24).contains(&screen.lines().count()), "{screen}");
        let facts = screen.lines().take_while(|line| !line.is_empty());
        assert!(facts.clone().count() > 8 && facts.clone().all(|line| width(line) <= columns), "{screen}");
        // Commands can be copied.
        assert!(
            screen.lines().skip_while(|line| !line.is_empty()).all(|line| !line.contains('…')),
            "{screen}"
        );
    }
}

/// A real terminal, with the program that records sessions of terminals.
#[cfg(target_os = "linux")]
#[test]
fn terminals_have_their_own_width() {
    let folder = folder();
    let on_terminal = |columns: usize, command: &str| -> Option<String> {
        let line = format!("stty cols {columns} rows 24; {} {command} -q", env!("CARGO_BIN_EXE_stackhound"));
        let mut script = Command::new("script");
        script.args(["-qec", &line, "/dev/null"]).current_dir(folder.path()).env_remove("COLUMNS");
        let output = script.env("NO_COLOR", "1").output().ok()?;
        Some(String::from_utf8(output.stdout).unwrap().replace("\r\n", "\n"))
    };
    for (command, columns) in [("events T", 60), ("top file T", 100)] {
        let of_terminal = on_terminal(columns, &command.replace('T', "stackhound-demo.etl"));
        let Some(of_terminal) = of_terminal else {
            eprintln!("`script` is missing; terminals are not tested");
            return;
        };
        assert_eq!(of_terminal, shown(folder.path(), command, Some(columns), &[]), "{command}");
        assert!(of_terminal.contains('…'), "{of_terminal}");
    }
}
