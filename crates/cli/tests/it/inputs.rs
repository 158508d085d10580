//! Incomplete, endless and invalid inputs, and runs that end early: messages, exit codes and
//! leftover files.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::program::{refused, stackhound, text};
use stackhound_calltree::journal::Writer;
use stackhound_calltree::{Change, ContextId, Cpu, StackInfo, StackKind};
use tempfile::TempDir;

/// A folder with the demo trace as `a.etl`.
fn demo(events: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let made = stackhound(&["demo", "-q", "--events", events, "--out", text(folder.path())]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let path = folder.path().join("a.etl");
    fs::rename(folder.path().join("stackhound-demo.etl"), &path).unwrap();
    (folder, path)
}

const FOLDED: [&str; 3] = ["profile", "--format", "folded"];

fn zst(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

/// The exit codes of a verb without and with `--strict`.
fn codes(verb: &[&str], path: &Path) -> [Option<i32>; 2] {
    let run = |strict: &[&str]| {
        let output = stackhound(&[verb, strict, &["-q", text(path)]].concat());
        output.status.code()
    };
    [run(&[]), run(&["--strict"])]
}

#[test]
fn a_trace_that_is_cut_between_buffers_is_incomplete_for_every_verb() {
    let (folder, path) = demo("8000");
    let bytes = fs::read(&path).unwrap();
    let size = 65_536;
    assert!(bytes.len() > 4 * size && bytes.len().is_multiple_of(size));
    let (part, packed) = (folder.path().join("part.etl"), folder.path().join("part.etl.zst"));
    fs::write(&part, &bytes[..4 * size]).unwrap();
    let whole = zst(&bytes);
    fs::write(&packed, &whole[..whole.len() / 2]).unwrap();
    for verb in [&["info"][..], &["info", "--full"], &["events"], &["stacks"], &FOLDED] {
        assert_eq!(codes(verb, &path), [Some(0); 2], "{verb:?}");
        for cut in [&part, &packed] {
            assert_eq!(codes(verb, cut), [Some(0), Some(3)], "{verb:?} {}", cut.display());
        }
    }
    for verb in [&["calls", "--strict"][..], &["calls"]] {
        let output = stackhound(&[verb, &["-q", text(&part), "NtCreateFile"]].concat());
        let expected = if verb.len() > 1 { 3 } else { 0 };
        assert_eq!(output.status.code(), Some(expected), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let info = stackhound(&["info", "--format", "json", text(&part)]);
    let info: serde_json::Value = serde_json::from_slice(&info.stdout).unwrap();
    assert_eq!((&info["buffers_in_file"], &info["closed"]), (&4.into(), &true.into()));
    let written = info["buffers_written"].as_u64().unwrap();
    let reason = format!(
        "the file is incomplete: {} of the {written} buffers that the session wrote are not in it",
        written - 4
    );
    assert_eq!(info["damage"][0]["reason"], reason);
}

#[test]
fn an_unclosed_session_is_reported() {
    let (_folder, path) = demo("8000");
    let mut bytes = fs::read(&path).unwrap();
    // BuffersWritten, in the header record's payload.
    let written = 72 + 32 + 0x24;
    let found = u32::from_le_bytes(*bytes[written..].first_chunk().unwrap());
    for stated in [0, found - 1] {
        bytes[written..written + 4].copy_from_slice(&stated.to_le_bytes());
        fs::write(&path, &bytes).unwrap();
        let output = stackhound(&["info", "--strict", text(&path)]);
        let printed = String::from_utf8(output.stdout).unwrap();
        assert!(printed.contains("(not closed properly)"), "{printed}");
        assert!(printed.contains(&format!("buffers           {found} of ")), "{printed}");
        assert_eq!(output.status.code(), Some(0));
    }
}

#[test]
fn an_invalid_file_in_a_folder_is_skipped_and_sets_the_exit_code() {
    let (folder, path) = demo("8000");
    fs::remove_dir_all(folder.path().join("symbols")).unwrap();
    let alone = stackhound(&["events", "-q", "--format", "ndjson", text(&path)]).stdout;
    fs::write(folder.path().join("b.etl"), b"").unwrap();
    fs::write(folder.path().join("c.etl.zst"), &zst(b"text")[..9]).unwrap();
    let output = stackhound(&["events", "-q", "--strict", "--format", "ndjson", text(folder.path())]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(output.stdout, alone);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("b.etl: the file is empty; skipped"), "{errors}");
    assert!(errors.contains("c.etl.zst: ") && errors.lines().count() == 2, "{errors}");
    for verb in [&["info"][..], &["stacks"], &["hunt"], &FOLDED] {
        let output = stackhound(&[verb, &["-q", text(folder.path())]].concat());
        assert_eq!(output.status.code(), Some(2), "{verb:?}");
        assert!(!output.stdout.is_empty(), "{verb:?}");
    }
}

#[test]
fn truncated_journals_are_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.calls");
    let mut writer = Writer::new(Vec::new()).unwrap();
    let (kind, thread) = (StackKind::User, Some(1));
    let stack = StackInfo { kind, process: thread, thread, cpu: None, name: None, region: None };
    let stack = writer.stack(&stack).unwrap();
    writer.change(Change::Enter { cpu: Cpu(0), stack, first: ContextId(0) }).unwrap();
    writer.flush().unwrap();
    let whole = writer.finish(10).unwrap();
    fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    let run = |strict: &[&str]| {
        stackhound(&[&["stack", "-q", text(&path), "--at", "#0"], strict].concat()).status.code()
    };
    assert_eq!([run(&[]), run(&["--strict"])], [Some(0), Some(3)]);
    fs::write(&path, &whole).unwrap();
    assert_eq!([run(&[]), run(&["--strict"])], [Some(0), Some(0)]);
}

#[cfg(unix)]
#[test]
fn endless_inputs_are_refused() {
    let (_folder, path) = demo("8000");
    let verbs = [
        &["info"][..],
        &["events"],
        &["stacks"],
        &FOLDED,
        &["providers", "--manifest"],
        &["tree", "--at", "#0"],
    ];
    for verb in verbs {
        refused(&[verb, &["/dev/zero"]].concat(), "/dev/zero: neither a file nor a folder");
    }
    let trace = text(&path);
    refused(
        &["events", trace, "--config", "/dev/zero"],
        "/dev/zero: expected a text file of at most 64 MiB, found a larger one",
    );
    refused(
        &["hunt", trace, "--lists", "/dev/zero"],
        "/dev/zero: expected a text file of at most 64 MiB, found a larger one",
    );
    refused(
        &["hunt", trace, "--known-images", "/dev/zero"],
        "/dev/zero: expected a text file of at most 64 MiB, found a larger one",
    );
    let pipe = path.with_extension("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for verb in verbs {
        let sentence = format!("{}: neither a file nor a folder", pipe.display());
        refused(&[verb, &[text(&pipe)]].concat(), &sentence);
    }
}

#[test]
fn a_config_file_is_read_by_every_verb() {
    let (_folder, path) = demo("8000");
    let missing = "nosuch.toml: No such file or directory (os error 2)";
    for verb in ["info", "events", "stacks", "hunt"] {
        refused(&[verb, text(&path), "--config", "nosuch.toml"], missing);
    }
}

#[test]
fn a_failed_demo_keeps_the_existing_trace() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stackhound-demo.etl");
    fs::write(&path, b"precious").unwrap();
    let output = stackhound(&["demo", "--events", "10", "--out", text(folder.path())]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(fs::read(&path).unwrap(), b"precious");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// A ProcessAccess event by code in no module, as each tool writes it.
fn rows() -> Vec<(&'static str, String)> {
    const TRACE: &str =
        r"C:\\Windows\\SYSTEM32\\ntdll.dll+9d934|UNKNOWN(0000024F64B7B7A1)|C:\\Temp\\a.exe+18be";
    let named = |write: &dyn Fn(&str, &str) -> String| {
        let fields = [
            ("UtcTime", "2020-10-20 11:50:56.473"),
            ("SourceProcessId", "6896"),
            ("SourceImage", r"C:\\Temp\\a.exe"),
            ("TargetImage", r"C:\\Windows\\system32\\lsass.exe"),
            ("GrantedAccess", "0x1fffff"),
            ("CallTrace", TRACE),
        ];
        fields.map(|(name, value)| write(name, value)).join(",")
    };
    let data = named(&|name, value| format!(r#""{name}":"{value}""#));
    let escaped = format!("{{{data}}}").replace('\\', r"\\").replace('"', r#"\""#);
    let small = named(&|name, value| format!(r#""{}{}":"{value}""#, name[..1].to_lowercase(), &name[1..]));
    let sysmon = "Microsoft-Windows-Sysmon";
    let event = format!(
        r##"{{"Event":{{"System":{{"Provider":{{"#attributes":{{"Name":"{sysmon}"}}}},"EventID":10,"Computer":"PC"}},"EventData":{{{data}}}}}}}"##
    );
    let beat = format!(
        r#"{{"@timestamp":"2020-10-20T11:50:57Z","winlog":{{"provider_name":"{sysmon}","event_id":"10","event_data":{{{data}}}}}}}"#
    );
    vec![
        ("winlogbeat.json", beat.clone()),
        ("elastic/source.ndjson", format!(r#"{{"_index":"i","_source":{beat}}}"#)),
        ("evtx_dump.jsonl", event.clone()),
        (
            "chainsaw/hits.json",
            format!(r#"{{"kind":"individual","document":{{"kind":"evtx","data":{event}}}}}"#),
        ),
        ("nxlog/flat.json", format!(r#"{{"EventID":10,"SourceName":"{sysmon}","Hostname":"PC",{data}}}"#)),
        (
            "azure/deep/sentinel.json",
            format!(
                r#"{{"TimeGenerated":"2020-10-20T11:51:03Z","Provider":"{sysmon}","EventID":10,"EventData":"{escaped}"}}"#
            ),
        ),
        (
            "velociraptor.json",
            format!(
                r#"{{"System":{{"Provider":{{"Name":"{sysmon}"}},"EventID":{{"Value":10}}}},"EventData":{{{data}}}}}"#
            ),
        ),
        (
            "wazuh/alerts.json",
            format!(
                r#"{{"agent":{{"name":"x"}},"data":{{"win":{{"system":{{"providerName":"{sysmon}","eventID":"10"}},"eventdata":{{{small}}}}}}}}}"#
            ),
        ),
        (
            "splunk/export.json",
            format!(
                r#"{{"preview":false,"result":{{"source":"XmlWinEventLog:{sysmon}/Operational","EventCode":"10",{data}}}}}"#
            ),
        ),
    ]
}

fn gz(bytes: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

/// Hunts in a folder. Returns the names of the files with findings, the exit code and standard
/// error.
fn hunted(folder: &Path) -> (BTreeSet<String>, Option<i32>, String) {
    let output = stackhound(&["hunt", "--only", "CS07", "--format", "ndjson", text(folder)]);
    let lines = String::from_utf8(output.stdout).unwrap();
    let file = |line: &str| {
        let finding: serde_json::Value = serde_json::from_str(line).unwrap();
        let path = PathBuf::from(finding["input"]["file"].as_str()?);
        Some(path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned())
    };
    let errors = String::from_utf8(output.stderr).unwrap();
    (lines.lines().filter_map(file).collect(), output.status.code(), errors)
}

#[test]
fn rows_of_each_tool_are_found_in_subfolders() {
    let folder = tempfile::tempdir().unwrap();
    let mut expected = BTreeSet::new();
    for (name, row) in rows() {
        for (name, bytes) in
            [(name.to_owned(), row.clone().into_bytes()), (format!("{name}.gz"), gz(row.as_bytes()))]
        {
            let path = folder.path().join(&name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
            expected.insert(name);
        }
    }
    let other = r#"{"EventID":4656,"SourceName":"Microsoft-Windows-Security-Auditing"}"#;
    fs::write(folder.path().join("nxlog/other.json"), format!("{other}\n{other}\n")).unwrap();
    fs::write(folder.path().join("azure/readme.txt"), "text").unwrap();
    // Neither a supported extension nor Sysmon events.
    fs::write(folder.path().join("azure/a.etl.gz"), "text").unwrap();
    fs::write(folder.path().join("list.json"), "[\n1]").unwrap();
    let (found, code, errors) = hunted(folder.path());
    assert_eq!((found, code), (expected, Some(1)), "{errors}");
    assert!(errors.contains(", 2 rows of other events, 3 other files"), "{errors}");
}

#[test]
fn filters_apply_to_sysmon_rows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.json");
    fs::write(&path, &rows()[0].1).unwrap();
    for (arguments, is_found) in [
        (&["--pid", "6896"][..], true),
        (&["--pid", "6897"], false),
        (&["--process", "A.EXE"], true),
        (&["--process", "b*"], false),
        (&["--event", "ProcessAccess"], true),
        (&["--event", "Sysmon/*"], true),
        (&["--event", "CreateRemoteThread"], false),
        (&["--from", "2020-10-20T11:50:56.473Z", "--to", "2020-10-20T11:50:57Z"], true),
        (&["--to", "2020-10-20T11:50:56.473Z"], false),
        (&["--where", "fields.TargetImage iendswith 'lsass.exe' and fields.GrantedAccess hasany 0x10"], true),
        (&["--where", "stack.module = 'ntdll.dll' and not stack.module = 'x.dll'"], true),
        (&["--where", "host = 'PC' or fields.StartModule = 'x'"], false),
        (&["--where", "stack.summary = 'ntdll.dll|unbacked|a.exe'"], true),
    ] {
        let output = stackhound(&[&["hunt", "-q", "--only", "CS07", text(&path)], arguments].concat());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(i32::from(is_found)), "{arguments:?}: {errors}");
    }
    let path = text(&path);
    let relative = "Sysmon events have no start time for a relative time; write an absolute time such as 2026-01-31T12:00:00Z";
    refused(&["hunt", path, "--from", "+5s"], relative);
    let unknown = stackhound(&["hunt", path, "--where", "stack.symbl = 'x'"]);
    assert_eq!(unknown.status.code(), Some(2));
}

/// The shells of Windows leave wildcards to programs. Other shells expand them unless they are in
/// quotes.
#[test]
fn wildcards_in_file_names_are_expanded() {
    let folder = tempfile::tempdir().unwrap();
    for (name, seed) in [("b[1].etl", "2"), ("a.etl", "1")] {
        let made =
            stackhound(&["demo", "-q", "--events", "8000", "--seed", seed, "--out", text(folder.path())]);
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        fs::rename(folder.path().join("stackhound-demo.etl"), folder.path().join(name)).unwrap();
    }
    let files = |pattern: &str| -> Vec<String> {
        let output = stackhound(&["info", "--format", "json", text(&folder.path().join(pattern))]);
        let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let one = [found.clone()];
        let all = found["files"].as_array().map_or(&one[..], Vec::as_slice);
        all.iter().map(|file| file["file"].as_str().unwrap().rsplit('/').next().unwrap().to_owned()).collect()
    };
    assert_eq!(files("*.etl"), ["a.etl", "b[1].etl"]);
    assert_eq!(files("?.etl"), ["a.etl"]);
    assert_eq!(files("*[1].e*"), ["b[1].etl"]);
    for verb in [&["info"][..], &["events"], &["hunt"], &["providers", "--manifest"]] {
        let output = stackhound(&[verb, &[text(&folder.path().join("*.evtx"))]].concat());
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains("*.evtx: no file name matches this pattern"), "{errors}");
    }
    // A file with exactly this name takes precedence.
    fs::rename(folder.path().join("a.etl"), folder.path().join("?.etl")).unwrap();
    assert_eq!(files("?.etl"), ["?.etl"]);
}

#[test]
fn unrecognized_inputs_set_the_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("below")).unwrap();
    fs::write(folder.path().join("below/notes.txt"), "text").unwrap();
    let (found, code, errors) = hunted(folder.path());
    assert_eq!((found.len(), code), (0, Some(2)));
    assert!(errors.contains("found only 1 other file"), "{errors}");
    fs::write(folder.path().join("below/rows.json"), r#"{"EventID":4656,"Hostname":"a"}"#).unwrap();
    let (found, code, errors) = hunted(folder.path());
    assert_eq!((found.len(), code), (0, Some(2)));
    assert!(
        errors.contains(
            "expected Sysmon's events 8 (CreateRemoteThread), 10 (ProcessAccess) or 25 (ProcessTampering), found \
             none in 1 row"
        ),
        "{errors}"
    );
}

#[test]
fn sysmon_files_and_missing_files_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.json");
    fs::write(&path, &rows()[0].1).unwrap();
    let path = text(&path);
    let sentence =
        format!("{path}: expected an .etl file; if it contains Sysmon events, use `stackhound hunt {path}`");
    for arguments in [&[path][..], &["info", path], &["events", path]] {
        refused(arguments, &sentence);
    }
    refused(&["nosuch.evtx"], "nosuch.evtx: No such file or directory (os error 2)");
}

#[cfg(unix)]
mod ended {
    use std::io::Read;
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    use super::*;

    /// Starts a run whose output is not read, so that it blocks. Returns when `is_there` is true.
    fn started(arguments: &[&str], is_there: impl Fn() -> bool) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stackhound"));
        let child = command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let since = Instant::now();
        while !is_there() {
            assert!(since.elapsed() < Duration::from_secs(60), "{arguments:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        child
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = entries.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_signal_removes_temporary_files() {
        let (folder, path) = demo("200000");
        let before = names(folder.path());
        let out = folder.path().join("out.ndjson");
        for signal in ["INT", "TERM", "HUP"] {
            let is_there = || names(folder.path()).len() > before.len();
            let arguments = ["events", "-q", "--stacks", "--format", "ndjson", text(&path), "-o", text(&out)];
            let mut child = started(&arguments, is_there);
            let kill = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status().unwrap();
            assert!(kill.success());
            assert_eq!(child.wait().unwrap().code(), Some(130), "{signal}");
            assert_eq!(names(folder.path()), before, "{signal}");
        }
    }

    #[test]
    fn a_file_that_becomes_shorter_is_reported() {
        let (folder, path) = demo("200000");
        let before = names(folder.path());
        let mut child = started(&["events", "-q", "--format", "ndjson", text(&path)], || true);
        // The program has read a part of the file, and waits for its output to be read.
        let mut first = [0; 100];
        child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_len(65_536).unwrap();
        let output = child.wait_with_output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert_eq!(errors.trim_end(), format!("error: {}: became shorter while it was read", path.display()));
        assert_eq!(names(folder.path()), before);
    }
}
