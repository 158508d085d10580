//! Errors in arguments: exit code 2, and one sentence that names the argument and what was expected.
//!
//! The options of all verbs are tried by the unit tests of `usage.rs`.

use crate::program::{refused, stackhound, text};

#[test]
fn bad_arguments_get_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let folder = text(folder.path());
    let directory = format!("--output: expected a file, found the directory `{folder}`");
    for (arguments, sentence) in [
        ("events --pid abc x.etl", "--pid: expected a whole number, found `abc`"),
        (
            "stacks --pid 4294967296 x.etl",
            "--pid: expected a whole number from 0 to 4294967295, found `4294967296`",
        ),
        (
            "top cpu --pid -1 x.etl",
            "`stackhound top cpu` has no option `-1`; `stackhound top cpu --help` lists the options",
        ),
        ("events --format xml x.etl", "--format: expected table, ndjson or csv, found `xml`"),
        ("info --format jsn x.etl", "--format: expected table or json, found `jsn`; did you mean `json`?"),
        ("stacks x.etl --format", "--format: expected table, folded or json, found nothing"),
        ("hunt x.etl --only", "--only: expected ID, found nothing"),
        (
            "hunt x.etl --min-severity urgent",
            "--min-severity: `urgent` is not a severity; write one of info, low, medium, high, critical",
        ),
        ("events --formt x.etl", "`stackhound events` has no option `--formt`; did you mean `--format`?"),
        (
            "stacks --no-such x.etl",
            "`stackhound stacks` has no option `--no-such`; `stackhound stacks --help` lists the options",
        ),
        ("frobnicate", "`stackhound` has no verb `frobnicate`; `stackhound --help` lists the verbs"),
        ("sumary x.etl", "`stackhound` has no verb `sumary`; did you mean `summary`?"),
        ("-q", "`stackhound` expects a verb; `stackhound --help` lists the verbs"),
        ("top -q", "`stackhound top` expects a verb; `stackhound top --help` lists the verbs"),
        ("providers a[", "NAME: `a[` is not a valid pattern: unclosed character class; missing ']'"),
        ("top cpuu", "`stackhound top` has no verb `cpuu`; did you mean `cpu`?"),
        (
            "events",
            "`stackhound events` expects <FILE>...; `stackhound events --help` explains the arguments",
        ),
        (
            "stack x.calls",
            "`stackhound stack` expects --at <POSITION>; `stackhound stack --help` explains the arguments",
        ),
        (
            "completions",
            "`stackhound completions` expects <SHELL>; `stackhound completions --help` explains the arguments",
        ),
        ("explain CS01 CS02", "`stackhound explain` expects no further argument, found `CS02`"),
        ("top cpu --all --top 3 x.etl", "--all cannot be used with --top"),
        ("tree x.calls --at 1 --at 2", "--at: expected once, found several times"),
        ("info --quiet=yes x.etl", "--quiet: expected no value, found `yes`"),
        ("profile x.etl -o t.svg --markers many", "--markers: expected a whole number, found `many`"),
        ("kstack --pid me", "--pid: expected a whole number, found `me`"),
        (
            "events --from never x.etl",
            "--from: `never` is not a valid time; write 2026-01-31T12:00:00Z, or +5s for a time since the start",
        ),
        (
            "tree x.calls --at here",
            "--at: `here` is neither a context, such as #1000, nor a time, such as +5s",
        ),
        ("demo --events some", "--events: expected a whole number, found `some`"),
        ("--threads four info x.etl", "--threads: expected a whole number, found `four`"),
        ("--color sometimes info x.etl", "--color: expected auto, always or never, found `sometimes`"),
        ("events x.etl -o DIRECTORY", &directory),
        ("record --exact -o DIRECTORY -- true", &directory),
        (
            "top cpu x.etl -o no/such/x.csv",
            "--output: expected a file in an existing directory, found the missing directory `no/such`",
        ),
    ] {
        let words: Vec<&str> =
            arguments.split(' ').map(|word| if word == "DIRECTORY" { folder } else { word }).collect();
        refused(&words, sentence);
    }
}

#[test]
fn files_of_another_kind_get_one_sentence() {
    let program = env!("CARGO_BIN_EXE_stackhound");
    let other = format!("{program}: expected a text file in UTF-8, found other bytes");
    for option in ["--lists", "--known-images", "--baseline"] {
        refused(&["hunt", "x.etl", option, program], &other);
    }
    refused(&["config", "show", "--config", program], &other);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text.yml");
    std::fs::write(&path, "only a text\n").unwrap();
    let path = text(&path);
    let found = "invalid type: string \"only a text\", expected a rule with `condition`, or a list of macros";
    for arguments in [&["rules", "list", path][..], &["hunt", program, "--rules", path]] {
        refused(arguments, &format!("{path}:1:1: {found}"));
    }
    let checked = stackhound(&["rules", "check", path]);
    let shown = String::from_utf8(checked.stdout).unwrap();
    assert_eq!(checked.status.code(), Some(1), "{}", String::from_utf8_lossy(&checked.stderr));
    assert!(shown.starts_with(&format!("{path}:1:1: error: {found}\n")), "{shown}");
}

/// Not an error in an argument, but a question: the verbs are the answer.
#[test]
fn the_program_alone_shows_its_verbs() {
    for (arguments, listed) in [(&[][..], "Look at a trace:"), (&["top"], "interrupt")] {
        let output = stackhound(arguments);
        let shown = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{shown}");
        assert!(output.stdout.is_empty() && shown.contains(listed), "{shown}");
    }
    for arguments in [&["--help"][..], &["help"], &["-h"]] {
        let output = stackhound(arguments);
        let shown = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && shown.contains("\nLook at a trace:\n"), "{arguments:?}: {shown}");
        assert!(shown.lines().all(|line| line.chars().count() <= 110), "{shown}");
    }
    let of_verb = String::from_utf8(stackhound(&["events", "--help"]).stdout).unwrap();
    assert!(
        of_verb.starts_with("Show events in time order") && !of_verb.contains("Look at a trace"),
        "{of_verb}"
    );
}
