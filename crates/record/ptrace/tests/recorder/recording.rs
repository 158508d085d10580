//! Programs that cannot be recorded, the end of recordings, and their repeatability.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::support::{compile, record, tool, words};
use stackhound_calltree::journal::{Record, Writer};
use stackhound_calltree::{EndType, StackInfo};
use stackhound_record_ptrace::{Ending, Recorder};

fn refused(program: &Path, expected: &str) {
    let error =
        Recorder::start(&[program]).map(|recorder| recorder.process()).expect_err("nothing to record");
    assert_eq!(error.to_string(), format!("{}: {expected}", program.display()));
}

#[test]
fn programs_that_cannot_be_recorded_have_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("program");
    refused(&path, "there is no such program");
    refused(Path::new("no-such-program-anywhere"), "there is no such program");
    refused(folder.path(), "not an executable file");
    std::fs::write(&path, b"#!/bin/sh\n").unwrap();
    refused(&path, "not an executable file");
    // The beginning of a program for 32-bit x86.
    std::fs::write(&path, b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x03\0\x01\0\0\0").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    refused(&path, "not a 64-bit x86 program; only those can be recorded");
    std::fs::write(&path, b"#!/no/such/interpreter\n").unwrap();
    refused(&path, "cannot be started: No such file or directory (os error 2)");
    let other_user =
        "cannot record a program that runs as another user or group (set-user-ID or set-group-ID)";
    // With the right to change owners, the test creates such a program; otherwise it uses an
    // existing one.
    if chown(&path, Some(65_534), None).is_ok() {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o4755)).unwrap();
        refused(&path, other_user);
    } else if let Some(su) = tool("su") {
        refused(&su, other_user);
    }
}

/// The records without the process and thread ids.
fn comparable(records: Vec<Record>) -> Vec<Record> {
    records
        .into_iter()
        .map(|record| match record {
            Record::Stack(stack) => Record::Stack(StackInfo { process: None, thread: None, ..stack }),
            record => record,
        })
        .collect()
}

#[test]
fn a_program_has_the_same_recording_each_time() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile("steady.c", folder.path(), &["-static"]) else { return };
    let command = words(&program, &[folder.path().join("printed").to_str().unwrap()]);
    let first = record(&command, u64::MAX);
    let second = record(&command, u64::MAX);
    assert_eq!((first.ending, first.totals), (Ending::Exited(3), second.totals));
    assert!(first.records.len() > 1_000, "{}", first.records.len());
    let (first, second) = (comparable(first.records), comparable(second.records));
    let different = first.iter().zip(&second).position(|(first, second)| first != second);
    assert_eq!((different, first.len()), (None, second.len()));
}

#[test]
fn a_limit_ends_the_recording_but_not_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile("steady.c", folder.path(), &["-static"]) else { return };
    let printed = folder.path().join("printed");
    let command = words(&program, &[printed.to_str().unwrap()]);
    let whole = record(&command, u64::MAX);
    for limit in [1, 1_000, whole.totals.transitions - 1] {
        std::fs::write(&printed, "").unwrap();
        let limited = record(&command, limit);
        assert_eq!(limited.totals.transitions, limit);
        assert_eq!(limited.ending, Ending::Exited(3));
        assert!(!std::fs::read_to_string(&printed).unwrap().is_empty());
        // Frames that are open at the end stay open.
        assert!(limited.frames().any(|frame| frame.end_type() == EndType::TraceEnd));
    }
}

/// Waits until a program sleeps, for at most five minutes. Between two steps it is stopped, which
/// is another state. In short system calls it may sleep for a moment.
fn until_it_sleeps(process: u32) {
    let mut in_a_row = 0;
    for _ in 0..6_000 {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        in_a_row = if status.contains("State:\tS") { in_a_row + 1 } else { 0 };
        if in_a_row == 20 {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
#[ignore = "slow: run by .ci/run"]
fn a_waiting_program_can_be_released() {
    let Some(sleep) = tool("sleep") else { return };
    let stop = AtomicBool::new(false);
    // Longer than the test: if it still sleeps, its end was not waited for.
    let recorder = Recorder::start(&words(&sleep, &["1800"])).unwrap();
    let process = recorder.process();
    let recorded = std::thread::scope(|scope| {
        scope.spawn(|| {
            until_it_sleeps(process);
            stop.store(true, Ordering::Relaxed);
        });
        recorder.record(u64::MAX, &stop, Writer::new(Vec::new()).unwrap()).unwrap()
    });
    assert!(recorded.totals.transitions > 10_000, "{:?}", recorded.totals);
    assert_eq!(recorded.ending, Ending::Running);
    // It still sleeps, and is not traced.
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    assert!(status.contains("TracerPid:\t0\n"), "{status}");
    let killed = Command::new("kill").arg(process.to_string()).status().unwrap();
    assert!(killed.success());
    assert_eq!(stackhound_record_ptrace::wait_for_end(process).unwrap(), Ending::Killed(15));
}

#[test]
fn dropping_a_recorder_kills_its_program() {
    let Some(sleep) = tool("sleep") else { return };
    let recorder = Recorder::start(&words(&sleep, &["60"])).unwrap();
    let process = recorder.process();
    assert!(Path::new(&format!("/proc/{process}")).exists());
    drop(recorder);
    assert!(!Path::new(&format!("/proc/{process}")).exists());
}

#[test]
fn a_write_error_ends_the_recording_but_not_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compile("steady.c", folder.path(), &["-static"]) else { return };
    let printed = folder.path().join("printed");
    let recorder = Recorder::start(&words(&program, &[printed.to_str().unwrap()])).unwrap();
    let process = recorder.process();
    // A device that is always full. The buffer holds the few bytes of the header.
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let journal = Writer::new(std::io::BufWriter::new(full)).unwrap();
    let error = recorder.record(u64::MAX, &AtomicBool::new(false), journal).unwrap_err();
    assert_eq!(error.to_string(), "cannot write the journal: No space left on device (os error 28)");
    // If writing the last page failed, the program has already ended and was waited for.
    let _ = stackhound_record_ptrace::wait_for_end(process);
    assert!(!std::fs::read_to_string(printed).unwrap().is_empty());
}

#[test]
#[ignore = "slow: run by .ci/run"]
fn killing_the_program_ends_the_recording() {
    let Some(shell) = tool("sh") else { return };
    let recording = record(&words(&shell, &["-c", "kill -KILL $$; sleep 60"]), u64::MAX);
    assert_eq!(recording.ending, Ending::Killed(9));
    assert_eq!(recording.totals.returns_matched, recording.totals.returns);
}

#[test]
#[ignore = "slow: run by .ci/run"]
fn a_replaced_program_has_new_stacks() {
    let (Some(shell), Some(_)) = (tool("sh"), tool("true")) else { return };
    let recording = record(&words(&shell, &["-c", "exec true"]), u64::MAX);
    assert_eq!(recording.ending, Ending::Exited(0));
    assert_eq!((recording.totals.programs_replaced, recording.totals.stacks), (1, 2));
    let stacks: Vec<StackInfo> = recording
        .records
        .iter()
        .filter_map(|record| match record {
            Record::Stack(stack) => Some(stack.clone()),
            _ => None,
        })
        .collect();
    let names: Vec<_> = stacks.iter().map(|stack| stack.name.as_deref().unwrap()).collect();
    assert_eq!(names[0], "sh");
    assert!(names[1] == "true" || names[1] == "coreutils" || names[1] == "busybox", "{names:?}");
    assert_eq!(stacks[0].process, stacks[1].process);
    // The frames of the first program are abandoned at the same time; none of them ends later.
    let last_of_first = recording
        .frames()
        .filter(|frame| frame.stack().id().0 == 0)
        .inspect(|frame| assert!(frame.has_ended()))
        .map(|frame| frame.last_context().id())
        .max()
        .unwrap();
    let first_of_second = recording
        .frames()
        .filter(|frame| frame.stack().id().0 == 1)
        .map(|frame| frame.first_context().id())
        .min()
        .unwrap();
    assert_eq!(last_of_first.0 + 1, first_of_second.0);
}

#[test]
#[ignore = "slow: run by .ci/run"]
fn children_run_untraced() {
    let Some(shell) = tool("sh") else { return };
    let script = "x=$(sleep 0.1; echo 3); [ \"$x\" = 3 ] || exit 9; (exit 5); exit $?";
    let recording = record(&words(&shell, &["-c", script]), u64::MAX);
    assert_eq!(recording.ending, Ending::Exited(5));
    assert_eq!((recording.totals.threads, recording.totals.stacks), (1, 1));
}
