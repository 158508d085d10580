//! Recording programs: the output, and the files that remain after an early end.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::program::{refused, stackhound, text};
use stackhound_calltree::journal::{Replayed, trace};
use stackhound_calltree::{Axis, ContextId, Trace};

fn read(path: &Path) -> (Trace, Replayed) {
    trace(&std::fs::read(path).unwrap()).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn a_program_is_recorded_and_its_output_is_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("echo.calls");
    let output = stackhound(&[
        "record",
        "--exact",
        "-o",
        text(&path),
        "--",
        "sh",
        "-c",
        "echo out; echo err >&2; exit 7",
    ]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(output.stdout, b"out\n");
    let errors = String::from_utf8(output.stderr).unwrap();
    let (error, closing) = errors.split_once('\n').unwrap();
    assert_eq!(error, "err");
    assert!(closing.contains(" returns matched, "), "{closing}");
    let end = format!("; the program ended with exit code 7: {}\n", path.display());
    assert!(closing.ends_with(&end), "{closing}");
    let (trace, replayed) = read(&path);
    assert!(replayed.finished && replayed.lost_bytes == 0);
    assert!(trace.transition_count() > 10_000);
    let first = trace.first_context().stack().unwrap().info();
    assert_eq!((first.name.as_deref(), first.process), (Some("sh"), first.thread));
    // A frame is executing at every context.
    for context in (0..trace.transition_count() - 1).step_by(997) {
        let context = trace.context(ContextId(context)).unwrap();
        assert!(context.stack().unwrap().frame().is_some(), "{:?}", context.id());
    }
}

#[test]
fn part_of_a_program_can_be_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("part.calls");
    let arguments = ["record", "-q", "--exact", "--limit", "5000", "-o", text(&path), "--", "echo", "said"];
    let output = stackhound(&arguments);
    assert_eq!(
        (output.status.code(), &output.stdout[..], &output.stderr[..]),
        (Some(0), &b"said\n"[..], &b""[..])
    );
    assert_eq!(read(&path).0.transition_count(), 5_000);
}

#[test]
fn programs_that_cannot_be_recorded_are_refused() {
    refused(&["record", "--exact", "--", "no-such-program"], "no-such-program: there is no such program");
    refused(&["record", "--exact", "--", "/"], "/: not an executable file");
    let nowhere = "no/such/folder/a.calls";
    let sentence =
        "--output: expected a file in an existing directory, found the missing directory `no/such/folder`";
    refused(&["record", "--exact", "-o", nowhere, "--", "true"], sentence);
    let full = ["record", "--exact", "-o", "/dev/full", "--", "true"];
    refused(&full, "cannot write /dev/full: No space left on device (os error 28)");
    for usage in [
        &["record", "--", "true"][..],
        &["record", "--exact"],
        &["record", "--exact", "--limit", "0", "--", "true"],
    ] {
        assert_eq!(stackhound(usage).status.code(), Some(2), "{usage:?}");
    }
}

/// A record of the plugin of QEMU: type, rings before and after, transition, and the registers before and
/// after.
pub fn plugin_record(kind: u8, rings: [u8; 2], transition: u64, registers: [u64; 4]) -> Vec<u8> {
    let mut bytes = vec![kind, rings[0], rings[1], 0, 5, 0, 0, 0];
    bytes.extend(transition.to_ne_bytes());
    bytes.extend(registers.into_iter().flat_map(u64::to_ne_bytes));
    bytes
}

/// Returns the part of a shell script that writes records as the plugin does: to the memory that is shared with
/// the recorder, after a header of 16 words, which begins with their number. A byte in the pipe announces them.
pub fn plugin_script(records: &[Vec<u8>], folder: &Path) -> String {
    let path = folder.join("records");
    let mut bytes = vec![0; 128];
    bytes[..8].copy_from_slice(&(records.concat().len() as u64 / 48).to_ne_bytes());
    bytes.extend(records.concat());
    std::fs::write(&path, bytes).unwrap();
    format!(
        "for word; do case $word in *,memory=*)
            memory=${{word##*,memory=}} output=${{word##*,output=}}
            dd if={} of=/proc/self/fd/${{memory%%,*}} conv=notrunc status=none
            printf x >/proc/self/fd/${{output%%,*}};;
        esac; done",
        text(&path)
    )
}

/// Runs `record --exact` with a fake of an emulator of QEMU: a shell script, with settings of its version and
/// its plugins.
pub fn with_fake(emulator: &str, settings: &str, script: &str, arguments: &[&str]) -> std::process::Output {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join(emulator);
    let answers = "case $1 in
        -version) echo \"QEMU emulator version ${VERSION:-10.0.2}\"; exit;;
        -plugin) exit ${PLUGINS:-0};;
    esac";
    std::fs::write(&program, format!("#!/bin/sh\n{settings}\n{answers}\n{script}\n")).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    Command::new(env!("CARGO_BIN_EXE_stackhound"))
        .args(["record", "--exact"])
        .args(arguments)
        .env("PATH", path)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

#[test]
fn a_system_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("boot.calls");
    let kernel = folder.path().join("vmlinuz");
    std::fs::write(&kernel, "a kernel").unwrap();
    let (text_of_kernel, stack) = (0xffff_ffff_8100_0000_u64, 0xffff_c900_0000_4000_u64);
    let bytes = [
        // The kernel calls a function, which returns, and starts a program.
        plugin_record(4, [0, 0], 100, [text_of_kernel, 0x1000, text_of_kernel + 5, stack]),
        plugin_record(1, [0, 0], 101, [text_of_kernel + 5, stack, text_of_kernel + 0x100, stack - 8]),
        plugin_record(2, [0, 0], 110, [text_of_kernel + 0x105, stack - 8, text_of_kernel + 10, stack]),
        plugin_record(9, [0, 0], 111, [text_of_kernel + 10, stack, 0, 0x1234_5001]),
        plugin_record(8, [0, 3], 112, [text_of_kernel + 15, stack - 40, 0x40_1000, 0x7fff_0000]),
        // The program calls a function, which calls the system.
        plugin_record(1, [0, 0], 113, [0x40_1000, 0x7fff_0000, 0x40_2000, 0x7ffe_fff8]),
        plugin_record(5, [0, 0], 114, [0x40_2000, 0x7ffe_fff8, text_of_kernel + 0x800, 0x7ffe_fff8]),
        plugin_record(4, [0, 0], 116, [text_of_kernel + 0x803, 0x7ffe_fff8, text_of_kernel + 0x808, stack]),
        plugin_record(4, [0, 0], 118, [text_of_kernel + 0x820, stack, text_of_kernel + 0x825, 0x7ffe_fff8]),
        plugin_record(6, [0, 0], 119, [text_of_kernel + 0x825, 0x7ffe_fff8, 0x40_2002, 0x7ffe_fff8]),
        plugin_record(2, [0, 0], 120, [0x40_2005, 0x7ffe_fff8, 0x40_1005, 0x7fff_0000]),
        plugin_record(10, [0, 0], 130, [0, 130, 0, 0]),
    ];
    let script = format!("{}\necho console", plugin_script(&bytes, folder.path()));
    let output = with_fake(
        "qemu-system-x86_64",
        "",
        &script,
        &["--system", text(&kernel), "-o", text(&path), "--", "-m", "64"],
    );
    let closing = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(0), &b"console\n"[..]), "{closing}");
    let expected = "130 transitions with 130 instructions, 2 calls, returns in kernel mode: 1 of 1 matched, \
                    in user mode: 1 of 1 matched, 0 interrupts, 1 system call, 6 frames on 3 stacks, \
                    no symbols of the kernel found in ";
    assert!(closing.starts_with(expected), "{closing}");
    assert!(closing.ends_with(&format!("; the system ended: {}\n", path.display())), "{closing}");
    let (trace, replayed) = read(&path);
    assert!(replayed.finished && replayed.lost_bytes == 0);
    // In the system call: the frame of the entry, and before it the stack of the program.
    let stack = trace.context(ContextId(117)).unwrap().stack().unwrap();
    let entry = stack.frame().unwrap();
    let address = entry.function_location().and_then(|location| location.address());
    assert_eq!(address.map(|address| address.0), Some(text_of_kernel + 0x800));
    let program = stack.prev_stack(Axis::Cpu).unwrap();
    let function = program.frame().unwrap().function_location().and_then(|location| location.address());
    assert_eq!(function.map(|address| address.0), Some(0x40_2000));
}

#[test]
fn systems_that_cannot_be_recorded_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("boot.calls");
    let kernel = folder.path().join("vmlinuz");
    let sentence = |settings: &str, script: &str| {
        let output = with_fake(
            "qemu-system-x86_64",
            settings,
            script,
            &["--system", text(&kernel), "-o", text(&path)],
        );
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(sentence("", "").contains("vmlinuz: No such file or directory"));
    std::fs::write(&kernel, "not a kernel").unwrap();
    for (settings, script, expected) in [
        ("VERSION=7.2.22", "", "qemu-system-x86_64 has version 7.2.22; expected 10 or later"),
        ("PLUGINS=1", "", "qemu-system-x86_64 was built without plugins"),
        ("", "exit 3", "QEMU ended before the kernel was executed (exit status: 3)"),
    ] {
        let error = sentence(settings, script);
        assert!(error.contains(expected), "{error}");
    }
    for usage in [&["record", "--exact", "--initrd", "x", "--", "true"][..], &["record", "--system", "x"]] {
        assert_eq!(stackhound(usage).status.code(), Some(2), "{usage:?}");
    }
}

/// Starts to record a program that never ends, and waits until a part is written. If a test fails,
/// the program ends after ten minutes of processor time.
fn endless(folder: &Path) -> (Child, PathBuf) {
    let path = folder.join("endless.calls");
    let child = Command::new(env!("CARGO_BIN_EXE_stackhound"))
        .args(["record", "--exact", "-o", text(&path), "--", "sh", "-c"])
        .arg("ulimit -t 600; f() { :; }; while :; do f; done")
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let started = Instant::now();
    while std::fs::metadata(&path).map_or(0, |file| file.len()) < 10_000 {
        assert!(started.elapsed() < Duration::from_secs(120), "nothing is written");
        std::thread::sleep(Duration::from_millis(50));
    }
    (child, path)
}

fn signal(name: &str, process: u32) {
    let sent = Command::new("kill").args(["-s", name, &process.to_string()]).status().unwrap();
    assert!(sent.success());
}

/// The id of the recorded process, from the trace.
fn recorded_process(trace: &Trace) -> u32 {
    trace.first_context().stack().unwrap().info().process.unwrap()
}

fn is_running(process: u32) -> bool {
    // A process that has ended remains as a zombie until it is waited for.
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:") && !line.contains('Z'))
}

fn becomes_true(state: &str, condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(120), "{state}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn an_interrupt_ends_the_recording_cleanly() {
    let folder = tempfile::tempdir().unwrap();
    let (mut child, path) = endless(folder.path());
    signal("INT", child.id());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    // The recorded program inherits standard error and does not close it.
    let mut closing = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut closing).unwrap();
    assert!(closing.contains("; the program continues to run: "), "{closing}");
    let (trace, replayed) = read(&path);
    assert!(replayed.finished && replayed.lost_bytes == 0);
    let process = recorded_process(&trace);
    assert!(is_running(process), "it continues without being traced");
    signal("KILL", process);
}

#[test]
#[ignore = "slow: run by .ci/run"]
fn a_killed_recorder_leaves_a_readable_trace() {
    let folder = tempfile::tempdir().unwrap();
    let (mut child, path) = endless(folder.path());
    child.kill().unwrap();
    child.wait().unwrap();
    let (trace, replayed) = read(&path);
    assert!(!replayed.finished, "the recorder could not write the end");
    assert!(trace.frame_count() > 100 && trace.transition_count() >= 50_000, "{replayed:?}");
    let process = recorded_process(&trace);
    becomes_true("the program ends with its recorder", || !is_running(process));
    // Only an incomplete page is lost.
    let bytes = std::fs::read(&path).unwrap();
    let cut = bytes.len() - 100;
    let (part, replayed) = stackhound_calltree::journal::trace(&bytes[..cut]).unwrap();
    assert!(!replayed.finished && replayed.lost_bytes > 0);
    assert!(part.frame_count() <= trace.frame_count());
}

#[test]
#[ignore = "slow: run by .ci/run"]
fn a_killed_program_leaves_a_complete_trace() {
    let folder = tempfile::tempdir().unwrap();
    let (child, path) = endless(folder.path());
    let process = recorded_process(&read(&path).0);
    signal("KILL", process);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let closing = String::from_utf8(output.stderr).unwrap();
    assert!(closing.contains("; the program was killed by signal 9: "), "{closing}");
    let (_, replayed) = read(&path);
    assert!(replayed.finished && replayed.lost_bytes == 0);
}
