//! The memory of another process: a program that reports the addresses of its memory.
#![cfg(windows)]

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use stackhound_windows::memory::{Kind, Process, State, take_debug_privilege};

/// The program that `scripts/windows-check.sh` creates.
fn fixture() -> Option<PathBuf> {
    let Some(folder) = std::env::var_os("STACKHOUND_WINDOWS_FIXTURE") else {
        assert!(std::env::var_os("CI").is_none(), "STACKHOUND_WINDOWS_FIXTURE is not set");
        eprintln!("skipped: STACKHOUND_WINDOWS_FIXTURE is not set, see scripts/windows-check.sh");
        return None;
    };
    Some(std::path::absolute(Path::new(&folder).join("memory.exe")).expect("a path"))
}

/// The running program.
struct Program {
    child: Child,
    /// Addresses by the name of their memory.
    addresses: HashMap<String, u64>,
}

impl Program {
    fn start() -> Option<Program> {
        let mut command = Command::new(fixture()?);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program runs");
        let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let lines = lines.map(|line| line.expect("a line")).take_while(|line| !line.starts_with("ready"));
        let parse_line = |line: String| {
            let (name, address) = line.split_once(' ').expect("a name and an address");
            let digits = address.trim_end().trim_start_matches("0x");
            (name.to_owned(), u64::from_str_radix(digits, 16).expect("an address"))
        };
        let addresses = lines.map(parse_line).collect();
        Some(Program { child, addresses })
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
fn each_kind_of_memory_is_reported() {
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
        let region = process.region(program.addresses[name] + 5).expect(name);
        assert_eq!(region.state, expected, "{name}");
        assert_eq!(region.base, (program.addresses[name] + 5) & !0xfff, "{name}");
    }
}

#[test]
fn bytes_are_those_of_the_process() {
    let Some(program) = Program::start() else { return };
    let process = program.process();
    let expected: Vec<u8> = (0..64_u32).map(|at| ((100 + at) * 7 + 3) as u8).collect();
    for name in ["writable-code", "code", "data"] {
        let mut found = [0; 64];
        assert_eq!(process.read(program.addresses[name] + 100, &mut found), 64, "{name}");
        assert_eq!(found[..], expected, "{name}");
    }
    for name in ["guarded", "reserved", "freed"] {
        assert_eq!(process.read(program.addresses[name] + 100, &mut [0; 64]), 0, "{name}");
    }
}

/// Wine answers this query only for the calling process, and without the bit. It was never run on
/// Windows.
#[test]
fn copied_pages_are_reported_or_unknown() {
    let Some(program) = Program::start() else { return };
    let process = program.process();
    let of = |name: &str| {
        process.read(program.addresses[name], &mut [0; 1]);
        process.is_original(program.addresses[name])
    };
    let found = (of("image"), of("patched"), of("writable-code"));
    println!("{found:?}");
    let on_windows = (Some(true), Some(false), Some(false));
    assert!([on_windows, (None, None, None)].contains(&found), "{found:?}");
}

#[test]
fn an_ended_process_returns_nothing() {
    let Some(program) = Program::start() else { return };
    let (process, addresses) = (program.process(), program.addresses.clone());
    let created = process.created().expect("its start");
    // 100 ns units between 2020 and 2200.
    assert!((132_223_104_000_000_000..189_000_000_000_000_000).contains(&created), "{created}");
    assert!(created >= Process::open(std::process::id()).expect("this one").created().expect("its start"));
    drop(program);
    assert!(process.region(addresses["code"]).is_err());
    assert_eq!(process.read(addresses["code"], &mut [0; 8]), 0);
    assert_eq!(process.is_original(addresses["code"]), None);
}

#[test]
fn a_missing_process_is_not_opened() {
    let error = Process::open(0xffff_fff0).expect_err("there is none");
    assert_eq!(error.code().map(|(function, _)| function), Some("OpenProcess"));
}

/// Wine gives every process the privilege.
#[test]
fn the_privilege_is_enabled_if_it_is_held() {
    let taken = take_debug_privilege();
    println!("{taken:?}");
    assert!(taken.is_ok() || taken.is_err_and(|error| error.to_string().contains("SeDebugPrivilege")));
}
