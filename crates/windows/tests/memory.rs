//! The memory of another process: of a program that says what it has where.
#![cfg(windows)]

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use stackhound_windows::memory::{Kind, Process, State, take_debug_privilege};

/// The program that `scripts/windows-check.sh` makes.
fn fixture() -> Option<PathBuf> {
    let Some(folder) = std::env::var_os("STACKHOUND_WINDOWS_FIXTURE") else {
        assert!(std::env::var_os("CI").is_none(), "STACKHOUND_WINDOWS_FIXTURE is not set");
        eprintln!("skipped: STACKHOUND_WINDOWS_FIXTURE is not set, see scripts/windows-check.sh");
        return None;
    };
    Some(std::path::absolute(Path::new(&folder).join("memory.exe")).expect("a path"))
}

/// The program while it runs.
struct Program {
    child: Child,
    /// Addresses by what they are.
    locations: HashMap<String, u64>,
}

impl Program {
    fn start() -> Option<Program> {
        let mut command = Command::new(fixture()?);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program runs");
        let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let lines = lines.map(|line| line.expect("a line")).take_while(|line| !line.starts_with("ready"));
        let location = |line: String| {
            let (name, address) = line.split_once(' ').expect("a name and an address");
            let digits = address.trim_end().trim_start_matches("0x");
            (name.to_owned(), u64::from_str_radix(digits, 16).expect("an address"))
        };
        let locations = lines.map(location).collect();
        Some(Program { child, locations })
    }

    fn process(&self) -> Process {
        Process::open(self.child.id()).expect("a process of ours")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        self.child.wait().expect("it ends with its input");
    }
}

#[test]
fn each_kind_of_memory_is_told() {
    let Some(program) = Program::start() else { return };
    let process = program.process();
    let committed = |kind, protection| State::Committed { kind, protection };
    for (name, expected) in [
        ("writable-code", committed(Kind::Private, 0x40)),
        ("code", committed(Kind::Private, 0x20)),
        ("data", committed(Kind::Private, 0x04)),
        ("guarded", committed(Kind::Private, 0x120)),
        ("reserved", State::Reserved),
        ("freed", State::Free),
        ("mapped", committed(Kind::Mapped, 0x20)),
        ("image", committed(Kind::Image, 0x20)),
        ("patched", committed(Kind::Image, 0x20)),
    ] {
        let region = process.region(program.locations[name] + 5).expect(name);
        assert_eq!(region.state, expected, "{name}");
        assert_eq!(region.base, (program.locations[name] + 5) & !0xfff, "{name}");
    }
}

#[test]
fn bytes_are_those_that_the_process_has() {
    let Some(program) = Program::start() else { return };
    let process = program.process();
    let expected: Vec<u8> = (0..64_u32).map(|at| ((100 + at) * 7 + 3) as u8).collect();
    for name in ["writable-code", "code", "data"] {
        let mut found = [0; 64];
        assert_eq!(process.read(program.locations[name] + 100, &mut found), 64, "{name}");
        assert_eq!(found[..], expected, "{name}");
    }
    for name in ["guarded", "reserved", "freed"] {
        assert_eq!(process.read(program.locations[name] + 100, &mut [0; 64]), 0, "{name}");
    }
}

/// Wine answers this question of the process that asks only, and then without the bit; Windows was never asked.
#[test]
fn whether_pages_are_copies_is_told_or_left_open() {
    let Some(program) = Program::start() else { return };
    let process = program.process();
    let of = |name: &str| {
        process.read(program.locations[name], &mut [0; 1]);
        process.is_original(program.locations[name])
    };
    let found = (of("image"), of("patched"), of("writable-code"));
    println!("{found:?}");
    let on_windows = (Some(true), Some(false), Some(false));
    assert!([on_windows, (None, None, None)].contains(&found), "{found:?}");
}

#[test]
fn a_process_that_has_ended_gives_nothing() {
    let Some(program) = Program::start() else { return };
    let (process, locations) = (program.process(), program.locations.clone());
    let created = process.created().expect("its start");
    // 100 ns units between 2020 and 2200.
    assert!((132_223_104_000_000_000..189_000_000_000_000_000).contains(&created), "{created}");
    assert!(created >= Process::open(std::process::id()).expect("this one").created().expect("its start"));
    drop(program);
    assert!(process.region(locations["code"]).is_err());
    assert_eq!(process.read(locations["code"], &mut [0; 8]), 0);
    assert_eq!(process.is_original(locations["code"]), None);
}

#[test]
fn what_is_no_process_is_not_opened() {
    let error = Process::open(0xffff_fff0).expect_err("there is none");
    assert_eq!(error.code().map(|(function, _)| function), Some("OpenProcess"));
}

/// Wine gives it to everybody.
#[test]
fn the_privilege_is_taken_where_it_is_held() {
    let taken = take_debug_privilege();
    println!("{taken:?}");
    assert!(taken.is_ok() || taken.is_err_and(|error| error.to_string().contains("SeDebugPrivilege")));
}
