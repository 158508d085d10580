//! Recording programs in QEMU. The tests with `qemu-x86_64` in their names need that emulator with plugins
//! in `PATH`; without it, they print that they are skipped. The others use a fake of it.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::program::text;
use crate::recording::{plugin_record, plugin_script, with_fake};
use stackhound_calltree::journal::trace;
use stackhound_calltree::{EndType, Frame, FrameId, Pattern, StackKind, StartType, Trace};

fn read(path: &Path) -> Trace {
    let (trace, replayed) = trace(&std::fs::read(path).unwrap()).unwrap();
    assert!(replayed.finished && replayed.lost_bytes == 0);
    trace
}

fn frames(trace: &Trace) -> Vec<Frame<'_>> {
    (0..trace.frame_count()).map(|number| trace.frame(FrameId(number)).unwrap()).collect()
}

/// Records a program, in the emulator or under `ptrace`. Returns the output, and the trace.
fn record(folder: &Path, emulated: bool, program: &[&OsStr]) -> (Output, Trace) {
    let path = folder.join(if emulated { "emulated.calls" } else { "traced.calls" });
    let output = Command::new(env!("CARGO_BIN_EXE_stackhound"))
        .args(["record", "--exact", "-o", text(&path)])
        .args(if emulated { &["--with", "qemu"][..] } else { &[] })
        .arg("--")
        .args(program)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    (output, read(&path))
}

/// Whether the emulator is installed.
fn emulator() -> bool {
    let asked = Command::new("qemu-x86_64").args(["-plugin", "help"]).output();
    let found = asked.is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("skipped: there is no qemu-x86_64 with plugins");
    }
    found
}

/// Compiles a program of the tests of `record/ptrace`, as they do.
fn compile(source: &str, folder: &Path, options: &[&str]) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../record/ptrace/tests/programs").join(source);
    let program = folder.join(path.file_stem().unwrap());
    let fixed = ["-O1", "-fno-inline", "-fno-optimize-sibling-calls", "-pthread", "-o"];
    let status = Command::new("cc").args(fixed).arg(&program).arg(&path).args(options).status().unwrap();
    assert!(status.success(), "{source}");
    program
}

/// A frame: its function, the number of its parent from `main` on, its start and its end.
type Compared = (String, Option<u64>, StartType, EndType);

/// The frames from `main` on. Before it, the C library asks for the properties of the processor, by functions that are not
/// the same for all vendors.
fn compared(trace: &Trace) -> Vec<Compared> {
    let function = |frame: &Frame| {
        let location = frame.function_location().unwrap();
        format!("{}+{:#x}", location.symbol().unwrap_or("?"), location.symbol_offset())
    };
    let all = frames(trace);
    let main = all.iter().position(|frame| function(frame) == "main+0x0").expect("main") as u64;
    let parent = |frame: &Frame| frame.parent()?.id().0.checked_sub(main);
    all[main as usize..]
        .iter()
        .map(|frame| (function(frame), parent(frame), frame.start_type(), frame.end_type()))
        .collect()
}

/// Two recorders that share nothing but the tracker see the same frames.
#[test]
#[ignore = "slow: run by .ci/run"]
fn qemu_x86_64_and_ptrace_record_the_same_frames() {
    if !emulator() {
        return;
    }
    for source in ["shapes.c", "longjmp.c", "count.c", "contexts.c", "signals.c"] {
        let folder = tempfile::tempdir().unwrap();
        let program = compile(source, folder.path(), &["-static", "-fno-pie", "-no-pie"]);
        let (traced_output, traced) = record(folder.path(), false, &[program.as_os_str()]);
        let (output, emulated) = record(folder.path(), true, &[program.as_os_str()]);
        assert_eq!(traced_output.stdout, output.stdout, "{source}");
        let (traced, emulated) = (compared(&traced), compared(&emulated));
        let first = (0..traced.len().max(emulated.len())).find(|&at| traced.get(at) != emulated.get(at));
        if let Some(at) = first {
            let (traced, emulated) = (traced.get(at..at + 5), emulated.get(at..at + 5));
            panic!("{source}: frame {at}: {traced:#?}, in QEMU {emulated:#?}");
        }
        eprintln!("{source}: {} equal frames", traced.len());
    }
}

/// The programs print how often their functions return and are unwound.
#[test]
#[ignore = "slow: run by .ci/run"]
fn frames_in_qemu_x86_64_are_those_that_programs_count() {
    if !emulator() {
        return;
    }
    for (source, stacks) in [("threads.c", 6), ("changing.c", 1), ("signals.c", 2)] {
        let folder = tempfile::tempdir().unwrap();
        let program = compile(source, folder.path(), &[]);
        let (output, trace) = record(folder.path(), true, &[program.as_os_str()]);
        let mut ends: HashMap<(&str, EndType), u64> = HashMap::new();
        let all = frames(&trace);
        for frame in &all {
            let symbol = frame.function_location().and_then(|location| location.symbol()).unwrap_or("?");
            *ends.entry((symbol, frame.end_type())).or_default() += 1;
        }
        let text = String::from_utf8(output.stdout).unwrap();
        let mut checked = 0;
        for line in text.lines() {
            let fields: Vec<&str> = line.split(' ').collect();
            let end = match fields[0] {
                "returned" => EndType::Return,
                "unwound" => EndType::Unwound,
                _ => continue,
            };
            let found = ends.get(&(fields[1], end)).copied().unwrap_or(0);
            assert_eq!(found.to_string(), fields[2], "{source}: {line}");
            checked += 1;
        }
        assert!(checked >= 2, "{source}: {text}");
        assert_eq!(trace.stack_count(), stacks, "{source}");
        let closing = String::from_utf8(output.stderr).unwrap();
        let threads = if source == "threads.c" { "6 threads with" } else { "1 thread with 0 switches" };
        assert!(closing.contains(threads), "{closing}");
    }
}

/// Functions of a library that are called through a linkage table have their own names.
#[test]
#[ignore = "slow: run by .ci/run"]
fn functions_of_libraries_in_qemu_x86_64_have_their_names() {
    if !emulator() {
        return;
    }
    for bind in ["-Wl,-z,now", "-Wl,-z,lazy"] {
        let folder = tempfile::tempdir().unwrap();
        let program = compile("linked.c", folder.path(), &["-fno-builtin", "-fplt", bind]);
        let (output, trace) = record(folder.path(), true, &[program.as_os_str()]);
        assert_eq!(trace.calls(&Pattern::new("*@plt").unwrap()), []);
        let text = String::from_utf8(output.stdout).unwrap();
        let number = text.lines().find_map(|line| line.strip_prefix("toupper ")).unwrap();
        let calls = trace.calls(&Pattern::new("libc.so.6!toupper").unwrap());
        let of_program = calls.iter().filter(|frame| {
            let stub = frame.function_location().and_then(|location| location.stub());
            stub.is_some_and(|stub| stub.name().to_string() == "linked!toupper@plt")
        });
        assert_eq!(of_program.count().to_string(), number, "{bind}");
    }
}

/// Children of the program, and the program that replaces it, are not recorded.
#[test]
#[ignore = "slow: run by .ci/run"]
fn one_process_is_recorded_by_qemu_x86_64() {
    if !emulator() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let shell = |script: &str| {
        let words = ["/bin/sh", "-c", script].map(OsStr::new);
        let (output, trace) = record(folder.path(), true, &words);
        let closing = String::from_utf8(output.stderr).unwrap();
        (String::from_utf8(output.stdout).unwrap(), closing, trace)
    };
    let (printed, closing, trace) = shell("(exit 3); echo $?; /bin/echo two; exit 4");
    assert_eq!(printed, "3\ntwo\n");
    assert!(closing.contains("; the program ended with exit code 4: "), "{closing}");
    assert!(trace.frame_count() > 1_000);
    let (printed, closing, _) = shell("exec /bin/echo three");
    assert_eq!(printed, "three\n");
    let cut = "; the recording ended when the program was killed or replaced itself by another one, and the program \
               ended with exit code 0: ";
    assert!(closing.contains(cut), "{closing}");
    let (_, closing, _) = shell("kill -s SEGV $$");
    assert!(closing.contains("; the program was killed by signal 11: "), "{closing}");
}

/// A record of the plugin: type, length of the instruction, transition, and the registers.
fn bytes(kind: u8, transition: u64, registers: [u64; 4]) -> Vec<u8> {
    plugin_record(kind, [0, 0], transition, registers)
}

/// Runs `record --exact --with qemu` with a fake of the emulator: see [`with_fake`].
fn with_emulator(settings: &str, script: &str, arguments: &[&str]) -> Output {
    with_fake("qemu-x86_64", settings, script, &[&["--with", "qemu"], arguments].concat())
}

#[test]
fn a_program_is_recorded_in_an_emulator() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("true.calls");
    // Two mapped stacks. The second thread starts on the second one.
    let mut map =
        b"7ffe0000-7ffe8000 rw-p 00000000 00:00 0\n7fff0000-7fff8000 rw-p 00000000 00:00 0\n".to_vec();
    let length = map.len() as u64;
    map.resize(map.len().next_multiple_of(48), 0);
    let (code, stack, other) = (0x40_1000_u64, 0x7fff_7000_u64, 0x7ffe_7000_u64);
    let parts = [
        bytes(21, 0, [0, length, 0, 0]),
        map,
        bytes(14, 0, [0, 70, code, stack]),
        // A call, in which a signal arrives.
        bytes(1, 3, [code + 8, stack, code + 0x100, stack - 8]),
        bytes(16, 10, [0, code + 0x300, 0, 0]),
        bytes(17, 10, [code + 0x108, stack - 8, code + 0x200, stack - 0x400]),
        bytes(2, 12, [code + 0x210, stack - 0x400, code + 0x300, stack - 0x3f8]),
        bytes(8, 14, [code + 0x307, stack - 0x3f8, code + 0x108, stack - 8]),
        // Another thread calls a function, and ends.
        bytes(14, 20, [0, 71, code + 0x400, other]),
        bytes(1, 21, [code + 0x400, other, code + 0x100, other - 8]),
        bytes(15, 25, [0; 4]),
        bytes(14, 26, [0, 70, code + 0x110, stack - 8]),
        bytes(2, 28, [code + 0x111, stack - 8, code + 13, stack]),
        bytes(15, 29, [0; 4]),
        bytes(10, 30, [0, 27, 0, 3]),
    ];
    let script = format!(
        "{}
        for word; do last=$word; done; echo \"$last\"; exit 7",
        plugin_script(&parts, folder.path())
    );
    let output = with_emulator("", &script, &["-o", text(&path), "--", "/bin/true", "argument"]);
    let closing = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(0), &b"argument\n"[..]), "{closing}");
    let expected = "30 transitions, 2 calls, returns: 2 of 2 matched, 1 signal, 2 threads with 2 switches, \
                    6 frames on 2 stacks in ";
    assert!(closing.starts_with(expected), "{closing}");
    let end = format!("; the program ended with exit code 7: {}\n", path.display());
    assert!(closing.ends_with(&end), "{closing}");
    let trace = read(&path);
    let found: Vec<_> = frames(&trace)
        .iter()
        .map(|frame| {
            let address = frame.function_location().and_then(|location| location.address()).unwrap();
            let parent = frame.parent().map(|parent| parent.id().0);
            (address.0 - code, parent, frame.start_type(), frame.end_type())
        })
        .collect();
    use EndType::{Abandoned, InterruptReturn, Return};
    use StartType::{Call, Interrupt, Manual, Unknown};
    assert_eq!(
        found,
        [
            (0, None, Unknown, Abandoned),
            (0x100, Some(0), Call, Return),
            (0x300, Some(1), Interrupt, InterruptReturn),
            (0x200, Some(2), Manual, Return),
            (0x400, None, Unknown, Abandoned),
            (0x100, Some(4), Call, Abandoned),
        ]
    );
    let info = frames(&trace)[4].stack().info();
    assert_eq!((info.kind, info.thread, info.name.as_deref()), (StackKind::User, Some(71), Some("true")));
    assert_eq!(info.region.map(|(low, high)| (low.0, high.0)), Some((0x7ffe_0000, 0x7ffe_8000)));
}

/// A process that the program has started keeps the pipe to the recorder.
#[test]
fn a_recording_ends_with_a_killed_program_whose_child_continues() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.calls");
    let parts = [bytes(21, 0, [0, 0, 0, 0]), bytes(14, 0, [0, 7, 0x40_1000, 0x7ffe_0000])];
    let script = format!(
        "{}
        sleep 60 >/dev/null 2>&1 & child=$!
        echo $child; kill -9 $$",
        plugin_script(&parts, folder.path())
    );
    let started = std::time::Instant::now();
    let output = with_emulator("", &script, &["-o", text(&path), "--", "/bin/true"]);
    let closing = String::from_utf8(output.stderr).unwrap();
    let child = String::from_utf8(output.stdout).unwrap();
    Command::new("kill").arg(child.trim()).status().unwrap();
    assert!(started.elapsed().as_secs() < 30, "{closing}");
    let cut = "; the recording ended when the program was killed or replaced itself by another one, and the program \
               was killed by signal 9: ";
    assert!(closing.contains(cut), "{closing}");
}

#[test]
fn programs_that_cannot_be_emulated_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let text_file = folder.path().join("script");
    std::fs::write(&text_file, "#!/bin/sh\n").unwrap();
    std::fs::set_permissions(&text_file, std::fs::Permissions::from_mode(0o755)).unwrap();
    let build = "; recording a program in QEMU needs qemu-x86_64 10 or later with plugins, which packages of \
                 distributions lack: build QEMU with ./configure --target-list=x86_64-linux-user \
                 --enable-plugins, and put the folder of the program qemu-x86_64 first in PATH";
    // The words of a static emulator.
    let is_static = "[ \"$1\" = -version ] || { echo \"qemu: unknown option 'plugin'\" >&2; exit 1; }";
    for (settings, script, program, sentence) in [
        (is_static, "", "/bin/true", format!("qemu-x86_64 was built without plugins{build}")),
        ("VERSION=7.2.22", "", "/bin/true", format!("qemu-x86_64 has version 7.2.22{build}")),
        ("", "", "no-such-program", "no-such-program: there is no such program".to_owned()),
        (
            "",
            "",
            text(&text_file),
            format!("{}: not a 64-bit x86 program; only those can be recorded", text_file.display()),
        ),
        (
            "",
            "exit 5",
            "/bin/true",
            "QEMU ended before the program was executed (exit status: 5); its messages say why".to_owned(),
        ),
    ] {
        let path = folder.path().join("out.calls");
        let output = with_emulator(settings, script, &["-o", text(&path), "--", program]);
        assert_eq!(output.status.code(), Some(2), "{sentence}");
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains(&sentence) && error.lines().count() == 1, "{error}");
    }
    let without = Command::new(env!("CARGO_BIN_EXE_stackhound"))
        .args(["record", "--exact", "--with", "qemu", "--", "/bin/true"])
        .env("PATH", folder.path())
        .output()
        .unwrap();
    let error = String::from_utf8(without.stderr).unwrap();
    assert_eq!(error, format!("error: qemu-x86_64 is not installed{build}\n"));
    for usage in [
        &["record", "--exact", "--with", "qemu"][..],
        &["record", "--with", "qemu", "--", "true"],
        &["record", "--exact", "--with", "qemu", "--system", "x"],
        &["record", "--exact", "--with", "other", "--", "true"],
    ] {
        assert_eq!(crate::program::stackhound(usage).status.code(), Some(2), "{usage:?}");
    }
}
