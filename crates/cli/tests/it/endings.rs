//! How verbs end: interrupted, with a closed pipe, without a match, with a wrong file; and the lines
//! after the result.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::demonstration::demo;
use crate::fixtures;

/// All verbs that read a trace. `T` is the trace, `C` a trace of calls.
const TRACES: [&str; 28] = [
    "summary T",
    "info T --full",
    "events T",
    "events T --stacks --format ndjson",
    "stacks T",
    "top cpu T",
    "top wait T",
    "top ready T",
    "top interrupt T",
    "top syscall T",
    "top disk T",
    "top file T",
    "top fault T",
    "top network T",
    "top memory T",
    "top gc T",
    "top jit T",
    "profile T --format folded",
    "kstack --trace T",
    "symbols list T",
    "symbols check T",
    "hunt T --exit-zero",
    "threads T",
    "tree T --at #500",
    "stack T --at #500",
    "backtrace T --at #500",
    "ranges T --at #500",
    "calls T *",
];

/// Verbs that read something else.
const OTHERS: [&str; 14] = [
    "tree C --at 14",
    "events-of C --at 14",
    "calls C *",
    "providers",
    "providers --manifest T",
    "symbols stubs I",
    "symbols lookup --image I 0x1000",
    "images show I",
    "rules list R",
    "rules check R",
    "config show",
    "explain",
    "explain CS01",
    "man",
];

/// Verbs with filters, and one of their filters that selects nothing.
const FILTERED: [&str; 20] = [
    "events T --pid 99999",
    "events T --process missing.exe",
    "events T --provider No-Such",
    "events T --event No/Such",
    "events T --where pid=99999",
    "events T --from +60min",
    "events T --format csv --pid 99999",
    "stacks T --pid 99999",
    "profile T --format folded --pid 99999",
    "convert T -o cut.etl --pid 99999",
    "hunt T --pid 99999",
    "top cpu T --pid 99999",
    "top wait T --pid 99999",
    "top ready T --pid 99999",
    "top syscall T --pid 99999",
    "top interrupt T --event No/Such",
    "top disk T --pid 99999",
    "top file T --process missing.exe",
    "top fault T --pid 99999",
    "top memory T --pid 99999",
];

/// A folder with the inputs.
fn folder(events: &str) -> tempfile::TempDir {
    let folder = match events {
        "" => demo(),
        events => {
            let folder = tempfile::tempdir().unwrap();
            let made = command(folder.path(), &format!("demo -q --out . --events {events}"));
            assert!({ made }.output().unwrap().status.success());
            folder
        }
    };
    std::fs::write(folder.path().join("example.stacks"), fixtures::trace().as_bytes()).unwrap();
    let store = folder.path().join("symbols/ntdll.dll");
    let key = std::fs::read_dir(store).unwrap().next().unwrap().unwrap().path();
    std::fs::copy(key.join("ntdll.dll"), folder.path().join("ntdll.dll")).unwrap();
    std::fs::write(
        folder.path().join("rule.yml"),
        "name: a\nid: b\nversion: 1.0.0\ncondition: evt.name = 'c'\nmin-engine-version: 3.0.0\n",
    )
    .unwrap();
    folder
}

/// A command about files in a folder.
fn command(folder: &Path, line: &str) -> Command {
    about(folder, line, "stackhound-demo.etl")
}

/// A command about a trace.
fn about(folder: &Path, line: &str, trace: &str) -> Command {
    let words = line.split(' ').map(|word| match word {
        "T" => trace,
        "C" => "example.stacks",
        "I" => "ntdll.dll",
        "R" => "rule.yml",
        word => word,
    });
    let mut command = Command::new(env!("CARGO_BIN_EXE_stackhound"));
    command.args(words).current_dir(folder).env("XDG_CACHE_HOME", folder.join("cache"));
    command.env_remove("_NT_SYMBOL_PATH").env_remove("COLUMNS").stdin(Stdio::null());
    command
}

#[test]
fn a_closed_pipe_is_no_error_of_any_verb() {
    let folder = folder("");
    for line in TRACES.iter().chain(&OTHERS) {
        let mut child =
            command(folder.path(), line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let mut errors = String::new();
        child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        let code = child.wait().unwrap().code();
        let has_nothing = errors.contains("error: the trace has no ");
        assert!(
            code == Some(0) || has_nothing || line.starts_with("rules check"),
            "{line}: {code:?} {errors}"
        );
        assert!(!errors.contains("Broken pipe") && !errors.contains("panicked"), "{line}: {errors}");
    }
}

#[test]
fn lines_of_events_do_not_depend_on_the_number_of_threads() {
    let folder = folder("20000");
    for options in ["", " --stacks"] {
        let lines = |threads: u32| {
            let line = format!("events T -q --format ndjson{options} --threads {threads}");
            let output = command(folder.path(), &line).output().unwrap();
            assert!(output.status.success());
            output.stdout
        };
        let expected = lines(1);
        assert!(expected.split(|byte| *byte == b'\n').count() > 10_000);
        for threads in [2, 3, 8] {
            assert!(lines(threads) == expected, "{options} {threads}");
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_device_is_reported_with_any_number_of_threads() {
    let folder = folder("");
    for threads in [1, 2, 8] {
        let line = format!("events T -q --format ndjson --threads {threads} -o /dev/full");
        let output = command(folder.path(), &line).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(errors, "error: No space left on device (os error 28)\n");
        assert_eq!(output.status.code(), Some(2), "{threads}");
    }
}

#[cfg(unix)]
#[test]
#[ignore = "slow: run by .ci/run"]
fn an_interrupt_is_declared_and_leaves_no_file() {
    use std::os::unix::process::ExitStatusExt;

    let folder = folder("150000");
    let names = |folder: &Path| {
        let mut names: Vec<PathBuf> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort();
        names
    };
    let before = names(folder.path());
    // These read nothing but headers or a short list.
    let quick =
        ["top gc T", "top jit T", "symbols list T", "symbols check T", "stack T", "backtrace T", "ranges T"];
    for line in TRACES.iter().filter(|line| !quick.iter().any(|quick| line.starts_with(quick))) {
        // On a fast machine the verb can be done earlier, on a slow one the signal can be too early.
        let declared = [400, 200, 100, 50, 25, 800, 1600].into_iter().any(|delay| {
            let mut child = command(folder.path(), line);
            child.args(["-o", "result"]).stdout(Stdio::null()).stderr(Stdio::piped());
            if line.starts_with("summary") || line.starts_with("hunt") {
                child.args(["--format", if line.starts_with("hunt") { "csv" } else { "json" }]);
            }
            let mut child = child.spawn().unwrap();
            std::thread::sleep(Duration::from_millis(delay));
            let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
            let mut errors = String::new();
            child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
            let status = child.wait().unwrap();
            let _ = std::fs::remove_file(folder.path().join("stackhound-demo.etl.index"));
            if sent.is_err() || status.code() != Some(130) {
                assert!(status.success() || status.signal() == Some(2), "{line}: {status} {errors}");
                let _ = std::fs::remove_file(folder.path().join("result"));
                return false;
            }
            assert!(errors.ends_with("interrupted: the result is incomplete\n"), "{line}: {errors}");
            true
        });
        assert!(declared, "{line} is never interrupted");
        assert_eq!(names(folder.path()), before, "{line}");
    }
}

#[test]
fn nothing_selected_is_said_once() {
    let folder = folder("");
    for line in FILTERED {
        let output = command(folder.path(), line).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{line}: {errors}");
        let said = errors.lines().filter(|error| error.starts_with("0 of ") && error.contains(" match"));
        assert_eq!(said.count(), 1, "{line}: {errors}");
        assert!(!errors.contains("error:"), "{line}: {errors}");
    }
    for (line, sentence) in [
        ("calls C NoSuch!*", "0 calls"),
        ("providers NoSuch", "error: provider NoSuch is unknown"),
        ("explain --search nosuchthing", "error: no detection contains `nosuchthing`"),
        ("rules explain nosuch R", "error: no rule has the id or name `nosuch`"),
        ("kstack --trace T --pid 99999", "error: there is no process 99999"),
    ] {
        let output = command(folder.path(), line).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(errors.contains(sentence) && output.stdout.is_empty(), "{line}: {errors}");
        assert_eq!(output.status.code(), Some(if sentence.starts_with("error") { 2 } else { 0 }), "{line}");
    }
}

#[test]
fn a_wrong_file_gets_one_sentence_with_its_path() {
    let folder = folder("");
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
    write("empty.etl", b"");
    write("zeros.etl", &[0; 100_000]);
    write("text.etl", "a line of text\n".repeat(1_000).as_bytes());
    std::fs::create_dir(folder.path().join("nothing")).unwrap();
    let program = env!("CARGO_BIN_EXE_stackhound");
    for file in ["empty.etl", "zeros.etl", "text.etl", "nothing", "missing.etl", "ntdll.dll", program] {
        for line in TRACES {
            let output = about(folder.path(), line, file).output().unwrap();
            let errors = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(2), "{line} {file}: {errors}");
            assert!(output.stdout.is_empty(), "{line} {file}");
            assert_eq!(errors.lines().count(), 1, "{line} {file}: {errors}");
            assert!(errors.starts_with(&format!("error: {file}: ")), "{line} {file}: {errors}");
        }
    }
    for (line, path) in [
        ("symbols stubs stackhound-demo.etl", "stackhound-demo.etl"),
        ("symbols lookup --image missing.dll 0x1", "missing.dll"),
        ("images show stackhound-demo.etl", "stackhound-demo.etl"),
        ("rules list ntdll.dll", "ntdll.dll"),
        ("rules check missing.yml", "missing.yml"),
        ("providers --manifest missing.man", "missing.man"),
        ("hunt T --rules missing.yml", "missing.yml"),
        ("hunt T --lists ntdll.dll", "ntdll.dll"),
        ("events T --manifest I --config I", "ntdll.dll"),
    ] {
        let output = command(folder.path(), line).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        let is_checked = line.starts_with("rules") && output.status.code() == Some(1);
        assert!(is_checked || output.status.code() == Some(2), "{line}: {errors}");
        assert!(errors.contains(path) || is_checked, "{line}: {errors}");
        assert!(errors.lines().count() <= 1 || is_checked, "{line}: {errors}");
    }
}

/// Standard output and standard error of a command, in the order of writing.
fn in_order(folder: &Path, line: &str) -> String {
    let path = folder.join("order.txt");
    let file = std::fs::File::create(&path).unwrap();
    let status = command(folder, line).stdout(file.try_clone().unwrap()).stderr(file).status().unwrap();
    assert!(status.success(), "{line}");
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn closing_lines_and_advice_follow_the_result() {
    let folder = folder("");
    for line in [
        "events T --pid 4 --stacks --symbols full",
        "stacks T --pid 4",
        "top cpu T --pid 4",
        "top file T --by stack",
        "top wait T --by function",
        "kstack --trace T",
        "hunt T --exit-zero",
    ] {
        let shown = in_order(folder.path(), line);
        let lines: Vec<&str> = shown.lines().collect();
        let is_closing = |line: &&&str| line.contains(" M events/s)");
        let advises = |line: &&&str| line.contains("`stackhound symbols check FILE` shows remedies");
        assert_eq!(lines.iter().filter(is_closing).count(), 1, "{line}: {shown}");
        assert!(lines.iter().filter(advises).count() <= 1, "{line}: {shown}");
        let closing = lines.iter().position(|line| is_closing(&line)).unwrap();
        assert!(lines.len() - closing <= 3, "{line}: {shown}");
        if !line.starts_with("hunt") {
            assert!(lines.last().is_some_and(|last| advises(&last) && last.len() < 200), "{line}: {shown}");
        }
    }
}

#[test]
fn closing_lines_count_what_was_selected() {
    let folder = folder("");
    let closing = |line: &str| -> String {
        let output = command(folder.path(), line).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        errors.lines().find(|line| line.contains(" M events/s)")).expect("a closing line").to_owned()
    };
    let number = |text: &str| text.replace(',', "").parse::<u64>().unwrap();
    let all = number(closing("events T").split(' ').next().unwrap());
    let output = command(folder.path(), "events T -q --pid 4 --format ndjson").output().unwrap();
    let of_system = output.stdout.iter().filter(|byte| **byte == b'\n').count() as u64;
    for line in
        ["events T --pid 4", "stacks T --pid 4", "events T --where pid=4", "hunt T --pid 4 --exit-zero"]
    {
        let text = closing(line);
        let words: Vec<&str> = text.split(' ').collect();
        assert_eq!((number(words[0]), words[1], number(words[2])), (of_system, "of", all), "{line}: {text}");
    }
    assert!(closing("stacks T").starts_with(&format!("{},{:03} events, ", all / 1000, all % 1000)));
    let rate = closing("events T");
    let rate = rate.split(" (").nth(1).unwrap().split(' ').next().unwrap();
    assert_eq!(rate.split_once('.').unwrap().1.len(), 2, "{rate}");
}

/// Two captures have two closing lines, and one advice.
#[test]
fn advice_is_given_once_for_several_captures() {
    let folder = folder("");
    let output = command(folder.path(), "stacks T T --separate").output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(errors.lines().filter(|line| line.contains(" M events/s)")).count(), 2, "{errors}");
    assert_eq!(errors.matches("symbols check").count(), 1, "{errors}");
    assert!(errors.lines().last().unwrap().contains("symbols check"), "{errors}");
}
