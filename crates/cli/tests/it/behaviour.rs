//! The program as a user sees it: invalid input, exit codes and output formats.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::program::{refused, stackhound, text};

/// A folder with one file of these bytes, and the file's path.
fn file(bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("input.etl");
    std::fs::write(&path, bytes).unwrap();
    (folder, path)
}

#[test]
fn bad_input_gets_one_clear_sentence() {
    for verb in ["info", "events", "stacks"] {
        let check = |bytes: &[u8], error: &str| {
            let (_folder, path) = file(bytes);
            refused(&[verb, text(&path)], &format!("{}: {error}", path.display()));
        };
        check(b"", "the file is empty");
        check(&[0; 100_000], "the file starts with zeros; nothing was recorded");
        check(b"MZ", "not an event trace log (shorter than a buffer header)");
        check(&[b'a'; 10_000], "not an event trace log (the first buffer is not a header buffer)");
        // Exact traces have frequent stacks.
        let refused_traces: &[&[u8]] = if verb == "stacks" { &[] } else { &[b"shcalls\n", b"shstacks"] };
        for magic in refused_traces {
            let (_folder, path) = file(&[*magic, &[0; 10_000]].concat());
            let path = text(&path);
            let hint = format!("use `stackhound stack {path} --at '#0'`, or tree, backtrace or calls");
            refused(&[verb, path], &format!("{path}: expected an .etl file, found a trace of calls; {hint}"));
        }
        let folder = tempfile::tempdir().unwrap();
        let path = text(folder.path());
        refused(&[verb, path], &format!("{path}: no .etl, .etl.zst or .etl.zip file in this directory"));
        refused(&[verb, "no/such/file.etl"], "no/such/file.etl: No such file or directory (os error 2)");
    }
}

#[test]
fn a_truncated_first_buffer_is_reported() {
    let Some(bytes) = stackhound_corpus::etl_file("perfview-primitive-types.etl") else { return };
    let (_folder, path) = file(&bytes[..5_000]);
    let sentence = format!("{}: the first buffer is cut off: 5000 of 8192 bytes", path.display());
    refused(&["info", "--full", text(&path)], &sentence);
}

#[test]
fn damage_is_reported_and_strict_makes_it_an_error() {
    let Some(mut bytes) = stackhound_corpus::etl_file("airbus-ShutdownPerfDiagLogger.etl") else { return };
    // The size of the third buffer.
    bytes[2 * 65_536] ^= 0x40;
    let (_folder, path) = file(&bytes);
    let output = stackhound(&["info", "--full", "--format", "json", text(&path)]);
    assert!(output.status.success());
    let info: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(info["damage"][0]["offset"], 131_072);
    // The damaged buffer is skipped, and therefore counts as missing.
    assert!(info["damage"][1]["reason"].as_str().unwrap().starts_with("the file is incomplete: 1 of "));
    assert_eq!(info["damage"].as_array().unwrap().len(), 2);
    assert_eq!(info["buffers"], 48);
    let output = stackhound(&["events", "--strict", "-q", text(&path)]);
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn a_repeated_buffer_is_damage() {
    let Some(bytes) = stackhound_corpus::etl_file("airbus-ShutdownPerfDiagLogger.etl") else { return };
    let (_folder, whole) = file(&bytes);
    let repeated = [&bytes[..], &bytes[3 * 65_536..4 * 65_536]].concat();
    let (_folder, path) = file(&repeated);
    let info = |path: &Path| -> serde_json::Value {
        let output = stackhound(&["info", "--full", "--format", "json", text(path)]);
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let (expected, found) = (info(&whole), info(&path));
    assert_eq!((&found["events"], &found["stacks"]), (&expected["events"], &expected["stacks"]));
    assert_eq!(found["damage"][0]["offset"], bytes.len());
    assert_eq!(found["damage"].as_array().unwrap().len(), 1);
    let reason = found["damage"][0]["reason"].as_str().unwrap();
    assert_eq!(reason, "a copy of the buffer at 0x30000, which is read instead");
    let output = stackhound(&["events", "--strict", "-q", text(&path)]);
    assert_eq!(output.status.code(), Some(3));
}

/// All file creations of the demo have a result that Windows gives for their request.
#[test]
fn creates_of_the_demo_are_shown_as_windows_ends_them() {
    for (seed, mix) in [("1", "default"), ("2", "default"), ("3", "default"), ("1", "profile")] {
        let folder = tempfile::tempdir().unwrap();
        let made = stackhound(&[
            "demo",
            "-q",
            "--events",
            "20000",
            "--seed",
            seed,
            "--mix",
            mix,
            "--out",
            text(folder.path()),
        ]);
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let etl_file = folder.path().join("stackhound-demo.etl");
        let output = stackhound(&["events", "-q", "--format", "ndjson", text(&etl_file)]);
        let mut found = std::collections::BTreeMap::new();
        for line in String::from_utf8(output.stdout).unwrap().lines() {
            let event: serde_json::Value = serde_json::from_str(line).unwrap();
            let create = &event["create"];
            if create.is_object() && create["completion"] == "completed" {
                let pair = (create["requested"].to_string(), create["result"].to_string());
                *found.entry(pair).or_insert(0) += 1;
            }
        }
        let pairs: Vec<_> = found.keys().map(|(requested, result)| (&requested[..], &result[..])).collect();
        let expected = [("\"create\"", "\"created\""), ("\"open\"", "\"opened\"")];
        assert!(pairs.iter().all(|pair| expected.contains(pair)), "seed {seed}, {mix}: {found:?}");
        assert!(mix == "profile" || pairs == expected, "seed {seed}: {found:?}");
    }
}

#[test]
fn a_wrong_expression_is_marked() {
    let Some(path) = stackhound_corpus::path("perfview-primitive-types.etl") else { return };
    let output = stackhound(&["events", "--where", "pid = and tid = 3", text(&path)]);
    assert_eq!(output.status.code(), Some(2));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.starts_with("error: expected a value after `=`\n"), "{errors}");
    assert!(errors.contains("\n  pid = and tid = 3\n        ^"), "{errors}");
    let output = stackhound(&["events", "--where", "pud = 3", text(&path)]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_file_alone_means_summary() {
    let Some(path) = stackhound_corpus::path("perfview-primitive-types.etl") else { return };
    let bare = stackhound(&[text(&path)]);
    assert!(bare.status.success());
    assert_eq!(bare.stdout, stackhound(&["summary", text(&path)]).stdout);
    let after_options = stackhound(&["-q", "--threads", "1", text(&path)]);
    assert_eq!(bare.stdout, after_options.stdout);
    let shown = String::from_utf8_lossy(&bare.stdout);
    assert!(shown.contains("perfview-primitive-types.etl (16.0 KiB)"), "{shown}");
}

#[test]
fn filters_choose_events() {
    let Some(path) = stackhound_corpus::path("perfview-primitive-types.etl") else { return };
    let count = |arguments: &[&str]| {
        let mut all = vec!["events", "-q", "--format", "ndjson"];
        all.extend(arguments);
        all.push(text(&path));
        let output = stackhound(&all);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout.iter().filter(|&&byte| byte == b'\n').count()
    };
    // Five events of one process, a logfile header and a build string.
    assert_eq!(count(&[]), 7);
    assert_eq!(count(&["--pid", "33984"]), 5);
    assert_eq!(count(&["--event", "*PrimitiveTypes*"]), 5);
    assert_eq!(count(&["--provider", "SOLAR_system"]), 5);
    assert_eq!(count(&["--where", "fields.int32_type < -100"]), 4);
    assert_eq!(count(&["--where", "fields.string_type in ('Venus', 'Earth')"]), 2);
    assert_eq!(count(&["--where", "fields.boolean_type = true"]), 2);
    assert_eq!(count(&["--from", "+3s", "--to", "+4s"]), 2);
    assert_eq!(count(&["--where", "not (tid = 21768)"]), 2);
}

#[test]
fn csv_has_one_line_per_event_and_quotes_commas() {
    let Some(path) = stackhound_corpus::path("perfview-primitive-types.etl") else { return };
    let output = stackhound(&["events", "-q", "--format", "csv", text(&path)]);
    let lines: Vec<_> = std::str::from_utf8(&output.stdout).unwrap().split("\r\n").collect();
    let page =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/facts.md")).unwrap();
    let documented = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let is_of_actor = |name: &&str| name.starts_with("process.") || name.starts_with("thread.");
    let (of_actors, of_events): (Vec<&str>, Vec<&str>) = documented.partition(is_of_actor);
    let of_targets: Vec<String> = of_actors.iter().map(|name| format!("target.{name}")).collect();
    let facts = [of_actors.join(","), of_events.join(","), of_targets.join(",")].join(",");
    let columns = format!("time,ts,cpu,pid,tid,process,provider,event,id,opcode,version,fields,{facts}");
    assert_eq!(lines[0], columns);
    assert_eq!(lines.len(), 1 + 7 + 1);
}

#[test]
fn output_files_appear_when_complete() {
    let Some(path) = stackhound_corpus::path("perfview-primitive-types.etl") else { return };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("events.ndjson");
    let arguments = ["events", "-q", "--format", "ndjson", "-o", text(&out), text(&path)];
    let output = stackhound(&arguments);
    assert!(output.status.success() && output.stdout.is_empty());
    assert_eq!(std::fs::read_to_string(&out).unwrap().lines().count(), 7);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let Some(path) = stackhound_corpus::path("tx-Process.etl") else { return };
    let mut child = Command::new(env!("CARGO_BIN_EXE_stackhound"))
        .args(["events", "-q", text(&path)])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn several_files_are_merged_by_time() {
    let names = [
        "perfview-diaghub.kernel.1.etl",
        "perfview-diaghub.etl",
        "perfview-diaghub.user_paged.1.etl",
        "perfview-diaghub.user_injected.1.etl",
    ];
    let Some(paths) = names.iter().map(|name| stackhound_corpus::path(name)).collect::<Option<Vec<_>>>()
    else {
        return;
    };
    let mut arguments = vec!["events", "-q", "--format", "ndjson"];
    arguments.extend(paths.iter().map(|path| text(path)));
    let output = stackhound(&arguments);
    let mut last = i64::MIN;
    let mut count = 0;
    for line in output.stdout.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
        let event: serde_json::Value = serde_json::from_slice(line).unwrap();
        let time = event["ts"].as_i64().unwrap();
        assert!(time >= last);
        last = time;
        count += 1;
    }
    // 16,335 + 62,379 + 22,035 + 4, as `facts.json` counts them; there are no stack records in
    // them.
    assert_eq!(count, 100_753);
    let info = stackhound(&["info", "--format", "json", text(&paths[0]), text(&paths[1])]);
    let info: serde_json::Value = serde_json::from_slice(&info.stdout).unwrap();
    assert_eq!(info["files"].as_array().unwrap().len(), 2);
}

/// Kernel logger files are packed in archives together with other files.
#[test]
fn archives_and_packed_files_are_opened() {
    let Some(bytes) = stackhound_corpus::etl_file("perfview-primitive-types.etl") else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.etl.zip");
    let mut archive = zip::ZipWriter::new(std::fs::File::create(&path).unwrap());
    let options = zip::write::SimpleFileOptions::default();
    archive.start_file("readme.txt", options).unwrap();
    archive.write_all(b"nothing").unwrap();
    archive.start_file("inner/trace.etl", options).unwrap();
    archive.write_all(&bytes).unwrap();
    archive.finish().unwrap();
    let info = stackhound(&["info", "--full", "--format", "json", text(&path)]);
    let info: serde_json::Value = serde_json::from_slice(&info.stdout).unwrap();
    assert_eq!(info["events"], 7);
    assert!(info["file"].as_str().unwrap().ends_with("trace.etl.zip:inner/trace.etl"));
    // A directory stands for all traces in it.
    let info = stackhound(&["info", "--format", "json", text(folder.path())]);
    assert!(info.status.success());
}

/// Renaming a temporary file to the output would replace a device such as `/dev/null`.
#[cfg(unix)]
#[test]
fn output_can_be_a_pipe_or_a_link() {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};

    let folder = tempfile::tempdir().unwrap();
    let location = |name: &str| folder.path().join(name);
    let write_to = |name: &str| {
        let output = stackhound(&["config", "show", "-o", text(&location(name))]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let made = Command::new("mkfifo").arg(location("pipe")).status().unwrap();
    assert!(made.success());
    let pipe = location("pipe");
    let reader = std::thread::spawn(move || std::fs::read_to_string(pipe).unwrap());
    write_to("pipe");
    let read = reader.join().unwrap();
    assert!(read.contains("kernel_symbols"));
    assert!(std::fs::metadata(location("pipe")).unwrap().file_type().is_fifo());

    std::fs::write(location("file"), "old").unwrap();
    std::os::unix::fs::symlink(location("file"), location("link")).unwrap();
    write_to("link");
    assert!(location("link").is_symlink());
    assert_eq!(std::fs::read_to_string(location("file")).unwrap(), read);

    write_to("new");
    std::fs::write(location("usual"), "").unwrap();
    let mode = |name: &str| std::fs::metadata(location(name)).unwrap().permissions().mode();
    assert_eq!(mode("new"), mode("usual"), "file permissions");
}

/// Only with `--verbose`, and without characters that a terminal would interpret.
#[cfg(unix)]
#[test]
fn opened_files_are_logged_on_request() {
    let folder = tempfile::tempdir().unwrap();
    assert!(stackhound(&["demo", "-q", "--out", text(folder.path())]).status.success());
    let path = folder.path().join("named \u{1b}[31m.etl");
    std::fs::rename(folder.path().join("stackhound-demo.etl"), &path).unwrap();
    for (option, logged) in [("--verbose", true), ("--no-progress", false)] {
        let output = stackhound(&["info", option, text(&path)]);
        assert!(output.status.success());
        let log = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            log.lines().filter(|line| line.contains("trace opened")).count(),
            usize::from(logged),
            "{log}"
        );
        assert!(!log.contains('\u{1b}'), "{log:?}");
    }
}
