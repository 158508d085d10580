//! Completions and manual pages, which come from the definition of the arguments.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::demonstration::{demo, run};
use crate::program::{stackhound, text};

const SHELLS: [&str; 5] = ["bash", "zsh", "fish", "powershell", "elvish"];

/// Command lines, the last word of which is completed, with some of the candidates and words that are
/// none.
const LINES: [(&str, &[&str], &[&str]); 14] = [
    ("ex", &["explain"], &["events"]),
    ("top c", &["cpu"], &["wait"]),
    ("events --one", &["--one-pass"], &[]),
    ("events --format ", &["table", "ndjson", "csv"], &["json"]),
    ("explain cs0", &["CS01", "CS09"], &["CS10", "caller-unbacked"]),
    ("explain caller-u", &["caller-unbacked"], &["CS01"]),
    ("hunt T --only CS2", &["CS20", "CS29"], &["CS19"]),
    ("events T --pid ", &["4", "548", "1324"], &["99999"]),
    ("events T --process up", &["updater.exe"], &["explorer.exe"]),
    ("events T --where process.us", &["process.user.sid", "process.user"], &["process.path"]),
    ("hunt T --where target.process.i", &["target.process.integrity"], &["process.integrity"]),
    ("events T --event Process/", &["Process/Start", "Process/DCStart"], &["Thread/CSwitch"]),
    ("top cpu T --process brow", &["browser.exe"], &["writer.exe"]),
    ("stacks --event Thread/CS T --event Image/", &["Image/DCStart"], &["Thread/CSwitch"]),
];

/// The candidates that a script of a shell gets.
fn candidates(folder: &Path, shell: &str, line: &str) -> BTreeSet<String> {
    let words: Vec<&str> =
        line.split(' ').map(|word| if word == "T" { "stackhound-demo.etl" } else { word }).collect();
    let output = Command::new(env!("CARGO_BIN_EXE_stackhound"))
        .args(["--", "stackhound"])
        .args(&words)
        .current_dir(folder)
        .env("STACKHOUND_COMPLETE", shell)
        .env("_CLAP_COMPLETE_INDEX", words.len().to_string())
        .env("_CLAP_IFS", "\n")
        .output()
        .unwrap();
    assert!(output.status.success(), "{shell} {line}: {}", String::from_utf8_lossy(&output.stderr));
    let shown = String::from_utf8(output.stdout).unwrap();
    // Help texts follow the candidates.
    let ends: &[char] = if shell == "zsh" { &[':'] } else { &['\t'] };
    shown.lines().map(|line| line.split(ends).next().unwrap().trim().to_owned()).collect()
}

#[test]
fn every_shell_gets_verbs_options_ids_and_names_of_the_trace() {
    let folder = demo();
    for (line, expected, others) in LINES {
        for shell in SHELLS {
            let found = candidates(folder.path(), shell, line);
            for name in expected {
                assert!(found.contains(*name), "{shell}: {line}: {name} of {found:?}");
            }
            for name in others {
                assert!(!found.contains(*name), "{shell}: {line}: {name} of {found:?}");
            }
        }
    }
}

/// The script itself, in the shell that all systems of developers have.
#[test]
fn bash_completes_with_the_script() {
    let folder = demo();
    let script = r#"
        source <(stackhound completions bash) || exit 1
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_TYPE=9
        _clap_complete_stackhound stackhound "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let program = Path::new(env!("CARGO_BIN_EXE_stackhound")).parent().unwrap();
    let path = format!("{}:{}", text(program), std::env::var("PATH").unwrap_or_default());
    for (line, expected, others) in LINES {
        let words = line.split(' ').map(|word| if word == "T" { "stackhound-demo.etl" } else { word });
        let mut bash = Command::new("bash");
        bash.args(["-c", script, "bash", "stackhound"])
            .args(words)
            .current_dir(folder.path())
            .env("PATH", &path);
        let Ok(output) = bash.output() else {
            eprintln!("bash is missing; its script is not tested");
            return;
        };
        let shown = String::from_utf8(output.stdout).unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        let found: BTreeSet<&str> = shown.lines().map(str::trim).collect();
        for name in expected {
            assert!(found.contains(name), "{line}: {name} of {found:?}: {errors}");
        }
        assert!(others.iter().all(|name| !found.contains(name)), "{line}: {found:?}");
    }
}

#[test]
fn every_shell_has_a_script() {
    for shell in SHELLS {
        let output = stackhound(&["completions", shell]);
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && script.contains("STACKHOUND_COMPLETE"), "{shell}: {script}");
    }
}

#[test]
fn every_verb_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    let written = run(folder.path(), &["man", "pages/section1"]);
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    let pages = std::fs::read_dir(folder.path().join("pages/section1")).unwrap();
    let pages: BTreeSet<String> =
        pages.map(|page| page.unwrap().file_name().into_string().unwrap()).collect();
    let said = String::from_utf8(written.stderr).unwrap();
    assert_eq!(said, format!("{} pages in pages/section1\n", pages.len()));
    // The verbs, as the help lists them.
    let verbs = |arguments: &[&str]| -> Vec<String> {
        let help = String::from_utf8(stackhound(arguments).stdout).unwrap();
        let rows = help.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
        let names = rows.filter_map(|row| row.split_whitespace().next());
        let is_verb = |name: &&str| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
        names
            .filter(|name| {
                is_verb(name) && !name.starts_with('-') && *name != "help" && *name != "stackhound"
            })
            .map(str::to_owned)
            .collect()
    };
    let all = verbs(&["-h"]);
    assert!(all.len() > 20, "{all:?}");
    for verb in &all {
        let page = format!("stackhound-{verb}.1");
        assert!(pages.contains(&page), "{page} of {pages:?}");
        let text = std::fs::read_to_string(folder.path().join("pages/section1").join(&page)).unwrap();
        assert!(text.contains(".TH"), "{page}");
        assert!(text.contains("SH NAME") && text.contains("SH OPTIONS"), "{page}");
    }
    for verb in verbs(&["top", "-h"]) {
        assert!(pages.contains(&format!("stackhound-top-{verb}.1")), "{verb} of {pages:?}");
    }
    assert!(pages.contains("stackhound.1") && pages.contains("stackhound-top-cpu.1"), "{pages:?}");
    let alone = stackhound(&["man"]);
    assert!(alone.status.success() && alone.stdout.starts_with(b".ie"));
}

#[test]
fn detections_and_reasons_are_explained_by_any_spelling() {
    let explain = |name: &str| {
        let output = stackhound(&["explain", name]);
        let shown = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
        (output.status.code(), shown.lines().next().unwrap_or_default().to_owned(), shown.lines().count())
    };
    for (name, first) in [
        ("cs5", "CS05: indirect system call: private stub"),
        ("5", "CS05: indirect system call: private stub"),
        ("heaven", "CS20: Heaven's Gate: 64-bit call from 32-bit code"),
        ("T1014", "CS23: unbacked kernel code"),
        ("caller-unbacked", "caller-unbacked: The frame, in no module, calls the native API."),
        ("CALLER_UNBACKED", "caller-unbacked: The frame, in no module, calls the native API."),
    ] {
        let (code, shown, _) = explain(name);
        assert_eq!((code, &*shown), (Some(0), first), "{name}");
    }
    let (code, first, rows) = explain("sleep obfuscation");
    assert_eq!((code, rows), (Some(0), 2));
    assert!(first.starts_with("CS21  medium    sleep obfuscation: wait inside a callback"), "{first}");
    for (name, sentence) in [
        (
            "caller-unbaked",
            "there is no detection or reason `caller-unbaked`; did you mean `caller-unbacked`?",
        ),
        ("quux", "there is no detection or reason `quux`; `stackhound explain` without a name lists all"),
    ] {
        assert_eq!(explain(name), (Some(2), format!("error: {sentence}"), 1));
    }
    let hunted = stackhound(&["hunt", "x.etl", "--only", "cs5,99"]);
    let errors = String::from_utf8(hunted.stderr).unwrap();
    assert_eq!(errors, "error: --only: there is no detection `99`; write an id from CS01 to CS30\n");
}
