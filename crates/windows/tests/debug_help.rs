//! Results of Debug Help, compared with facts from other sources.
#![cfg(windows)]

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use stackhound_windows::Error;
use stackhound_windows::debug_help::{Session, SymbolSource};
use stackhound_windows::threads;

/// A file that `scripts/windows-check.sh` creates.
fn fixture(file: &str) -> Option<PathBuf> {
    let Some(folder) = std::env::var_os("STACKHOUND_WINDOWS_FIXTURE") else {
        assert!(std::env::var_os("CI").is_none(), "STACKHOUND_WINDOWS_FIXTURE is not set");
        eprintln!("skipped: STACKHOUND_WINDOWS_FIXTURE is not set, see scripts/windows-check.sh");
        return None;
    };
    Some(std::path::absolute(Path::new(&folder).join(file)).expect("a path"))
}

#[inline(never)]
fn somewhere() -> u64 {
    somewhere as fn() -> u64 as usize as u64
}

#[test]
fn a_live_process_has_its_modules() {
    let session = Session::of_process(std::process::id(), OsStr::new("")).expect("this process");
    assert!(session.is_live());
    let module = session.module_at(somewhere()).expect("this program");
    assert!(module.contains(somewhere()) && !module.contains(module.base + u64::from(module.size)));
    let program = std::env::current_exe().expect("a path");
    let name = program.file_stem().expect("a name").to_string_lossy();
    assert!(name.starts_with(&module.name), "{name} {module:?}");

    let bases = session.bases().expect("modules");
    assert!(bases.contains(&module.base));
    // This function calls others, so the function table contains it.
    let this = a_live_process_has_its_modules as fn() as usize as u64;
    assert_eq!(session.function_at(this + 1), Some(this));
    assert_eq!(session.function_at(module.base), None);
    let names: Vec<String> = bases
        .iter()
        .filter_map(|base| session.module_at(*base))
        .map(|module| module.name.to_lowercase())
        .collect();
    for expected in ["ntdll", "kernel32", "dbghelp"] {
        assert!(names.iter().any(|name| name == expected), "{expected} in {names:?}");
    }
    session.refresh().expect("modules again");
}

/// Writes its own address, and waits for a line. The other program of the next test waits in this
/// function.
#[inline(never)]
fn wait_for_a_line() {
    println!("{PREFIX}{}", wait_for_a_line as fn() as usize);
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("a line");
    assert_eq!(line.trim(), "go on");
}

const PREFIX: &str = "waiting: ";

#[test]
#[ignore = "is the other program of the next test"]
fn another_program() {
    wait_for_a_line();
}

#[test]
fn a_thread_of_another_program_is_walked_from_outside() {
    let mut child = Command::new(std::env::current_exe().expect("a path"))
        .args(["--exact", "another_program", "--ignored", "--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
    let text =
        lines.find_map(|line| line.split_once(PREFIX).map(|(_, text)| text.to_owned())).expect("a line");
    let function: u64 = text.parse().expect("an address");
    let session = Session::of_process(child.id(), OsStr::new("")).expect("the other program");
    let walk = |thread: u32, most| session.user_stack(child.id(), thread, most).expect("its stack");
    let waits =
        |stack: &[u64]| stack.iter().any(|address| session.function_at(address - 1) == Some(function));
    let threads = threads::of_process(child.id()).expect("its threads");
    let waiting: Vec<u32> =
        threads.iter().map(|thread| thread.id).filter(|thread| waits(&walk(*thread, 64))).collect();
    let [thread] = waiting[..] else { panic!("one thread waits there: {waiting:?} of {threads:?}") };
    // The thread continues after the first walk, so a second one works.
    let stack = walk(thread, 64);
    assert!(waits(&stack));
    let names: Vec<String> = stack
        .iter()
        .filter_map(|address| session.module_at(*address))
        .map(|module| module.name.to_lowercase())
        .collect();
    assert_eq!(names.first().map(String::as_str), Some("ntdll"), "it waits in the system: {names:?}");
    assert!(names.iter().any(|name| name == "kernel32"), "where threads begin: {names:?}");
    assert_eq!(walk(thread, 2), stack[..2]);
    let own = session.user_stack(std::process::id(), thread, 64);
    assert!(matches!(own, Err(Error::NotFromOutside)), "{own:?}");
    let thread_of_ours = threads::of_process(std::process::id()).expect("threads")[0].id;
    let other = session.user_stack(child.id(), thread_of_ours, 64);
    assert!(matches!(other, Err(Error::NotFromOutside)), "{other:?}");
    child.stdin.take().expect("piped").write_all(b"go on\n").expect("written");
    assert!(child.wait().expect("ended").success());
}

#[test]
fn two_sessions_of_one_process_do_not_disturb_each_other() {
    let one = Session::of_process(std::process::id(), OsStr::new("")).expect("this process");
    let two = Session::of_process(std::process::id(), OsStr::new("")).expect("this process");
    drop(one);
    assert!(two.module_at(somewhere()).is_some());
}

#[test]
fn a_missing_process_has_no_session() {
    // Process ids are multiples of four.
    let error = Session::of_process(3, OsStr::new("")).expect_err("no process");
    assert!(matches!(error, Error::Call { function: "OpenProcess", .. }), "{error}");
    let error = Session::of_files(OsStr::new("a\0b")).expect_err("no path");
    assert!(matches!(error, Error::ZeroInText), "{error}");
}

#[test]
fn a_file_is_a_module_at_the_given_base() {
    let Some(program) = fixture("program.exe") else { return };
    let session = Session::of_files(OsStr::new("")).expect("a session");
    assert!(!session.is_live());
    for base in [0x7ff6_0000_0000, 0x10_0000] {
        let module = session.load(&program, base, 0).expect("a module");
        assert_eq!((module.base, module.source, module.name.as_str()), (base, SymbolSource::Pdb, "program"));
        assert_eq!(session.module_at(base + 0x1000), Some(module.clone()));
        assert_eq!(session.module_at(base + u64::from(module.size)), None);
        assert!(matches!(session.load(&program, base, 0), Err(Error::AlreadyLoaded(_))));
    }
    session.unload(0x10_0000).expect("unloaded");
    assert_eq!(session.module_at(0x10_1000), None);
    assert_eq!(session.symbol_at(0x10_1000), None);
    assert!(session.load(&program.with_file_name("missing.exe"), 0x20_0000, 0).is_err());
}

#[test]
fn exports_are_the_names_of_a_module_without_a_pdb() {
    let Some(library) = fixture("exports.dll") else { return };
    let session = Session::of_files(OsStr::new("")).expect("a session");
    let module = session.load(&library, 0x7ff6_0000_0000, 0).expect("a module");
    assert_eq!(module.source, SymbolSource::Exports);
    assert_eq!(session.line_at(module.base + 0x1000), None);
    assert_eq!(session.inlines_at(module.base + 0x1000), []);
}

#[test]
fn lines_and_inlined_functions() {
    let Some(program) = fixture("program.exe") else { return };
    let session = Session::of_files(OsStr::new("")).expect("a session");
    let module = session.load(&program, 0x7ff6_0000_0000, 0).expect("a module");
    // In `step`, `rotate` is inlined into `mix`, which is inlined into `step`.
    let deepest = (module.base..module.base + u64::from(module.size))
        .map(|address| (address, session.inlines_at(address)))
        .find(|(address, inlines)| {
            inlines.len() == 2 && session.symbol_at(*address).is_some_and(|symbol| symbol.name == "step")
        });
    let (address, inlines) = deepest.expect("two functions in one another");
    let functions: Vec<&str> = inlines.iter().map(|inline| inline.function.as_str()).collect();
    assert_eq!(functions, ["rotate", "mix"]);
    for inline in &inlines {
        let line = inline.line.as_ref().expect("a line");
        assert!(line.file.ends_with("inlined.h") && (4..=14).contains(&line.line), "{line:?}");
    }
    let line = session.line_at(address).expect("a line");
    assert!(line.file.ends_with("main.c"), "{line:?}");
}

#[test]
fn sessions_can_be_used_from_all_threads() {
    let Some(program) = fixture("program.exe") else { return };
    let session = Session::of_files(OsStr::new("")).expect("a session");
    let module = session.load(&program, 0x7ff6_0000_0000, 0).expect("a module");
    let names = || -> Vec<_> {
        (0x1000..0x1400).map(|rva| session.symbol_at(module.base + rva).map(|symbol| symbol.name)).collect()
    };
    let expected = names();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(names)).collect();
        for thread in threads {
            assert_eq!(thread.join().expect("a thread"), expected);
        }
    });
}
