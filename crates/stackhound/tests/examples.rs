//! The tutorial programs on traces: their output, and their length.
//!
//! `STACKHOUND_EXAMPLES_KEEP` names a folder in which the traces are kept, for a run under Wine.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use stackhound::etl::record::Descriptor;
use stackhound::etl::write::{EtlWriter, HeaderSpec, Issuer, Payload, RecordSpec, Session};
use stackhound::{Guid, Pid, PointerSize, RawTime, Tid};
use stackhound_scenario::{AttackKind, Scenario, State};

const LINES_MAX: usize = 40;

/// A folder for traces: a permanent or a temporary one.
struct Folder {
    path: PathBuf,
    _temporary: Option<tempfile::TempDir>,
}

impl Folder {
    fn new() -> Folder {
        match std::env::var_os("STACKHOUND_EXAMPLES_KEEP") {
            Some(kept) => Folder { path: kept.into(), _temporary: None },
            None => {
                let temporary = tempfile::tempdir().unwrap();
                Folder { path: temporary.path().to_owned(), _temporary: Some(temporary) }
            }
        }
    }
}

/// The program of an example. A run of all tests has built it; a run of this test alone builds it
/// if it is missing.
fn program(example: &str) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let programs = tests.parent().and_then(Path::parent).unwrap().join("examples");
    let program = programs.join(format!("{example}{}", std::env::consts::EXE_SUFFIX));
    if !program.exists() {
        let arguments = ["build", "--quiet", "--locked", "-p", "stackhound", "--example", example];
        assert!(Command::new(env!("CARGO")).args(arguments).status().unwrap().success());
    }
    program
}

/// Runs an example on a trace, and returns its output lines and the text that it writes to standard
/// error.
fn run(example: &str, etl_file: &Path, symbols: &str) -> (Vec<String>, String) {
    let output =
        Command::new(program(example)).arg(etl_file).env("_NT_SYMBOL_PATH", symbols).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{example}: {errors}");
    let printed = String::from_utf8(output.stdout).unwrap();
    (printed.lines().map(str::to_owned).collect(), errors)
}

/// The payload of `TcpIp/SendIPV4`, version 0, as Microsoft-Windows-Kernel-Network describes it.
fn sent(process: u32, size: u32, to: [u8; 4]) -> Vec<u8> {
    let mut payload = Vec::new();
    for part in [&process.to_le_bytes()[..], &size.to_le_bytes(), &to, &[192, 0, 2, 1]] {
        payload.extend(part);
    }
    payload.extend([0x01, 0xbb, 0xc0, 0x01]);
    payload.extend([0; 12]);
    payload.extend(7_u64.to_le_bytes());
    payload
}

/// A trace of network events, only some of which report data that was sent over IPv4.
fn network(path: &Path) {
    const NETWORK: &str = "7dd42a49-5329-4832-8dfd-43d979153a88";
    const OTHER: &str = "7dd42a49-5329-4832-8dfd-43d979153a89";
    let (a, b) = ([198, 51, 100, 7], [203, 0, 113, 9]);
    let rows = [
        (NETWORK, 10, 0x10, sent(500, 1_000, a)),
        (NETWORK, 11, 0x10, sent(500, 50_000, a)),
        (NETWORK, 10, 0x20, sent(600, 9_000, a)),
        (OTHER, 10, 0x10, sent(700, 9_000, a)),
        (NETWORK, 10, 0x10, sent(800, 300, b)),
        (NETWORK, 10, 0x10, sent(500, 24, a)),
        (NETWORK, 10, 0x8000_0000_0000_0010, sent(500, 1, b)),
    ];
    let session = Session { processors: 2, ..Session::default() };
    let start = session.start.0;
    let mut writer = EtlWriter::new(session, File::create(path).unwrap()).unwrap();
    for (number, (provider, id, keyword, payload)) in rows.iter().enumerate() {
        let descriptor =
            Descriptor { id: *id, version: 0, channel: 0, level: 4, opcode: 10, task: 10, keyword: *keyword };
        let header = HeaderSpec::Event {
            provider: provider.parse().unwrap(),
            descriptor,
            property: 0,
            // Data is often sent on behalf of another process, which the payload names.
            issuer: Issuer::new(Pid(4), Tid(8)),
            activity: Guid::ZERO,
            items: &[],
        };
        let time = RawTime(start + 1_000 * (number as i64 + 1));
        let payload = Payload::Bytes(payload);
        let record = RecordSpec { time, pointer_size: PointerSize::Eight, header, payload };
        writer.write((number % 2) as u16, &record).unwrap();
    }
    writer.finish().unwrap();
}

#[test]
fn the_network_monitor_sums_sent_bytes_by_process() {
    let folder = Folder::new();
    let path = folder.path.join("network.etl");
    network(&path);
    let (lines, end) = run("network_monitor", &path, "");
    assert_eq!(
        lines,
        [
            "process 500: 1024 bytes to 198.51.100.7",
            "process 500: 1 bytes to 203.0.113.9",
            "process 800: 300 bytes to 203.0.113.9",
        ]
    );
    assert_eq!(end.lines().last(), Some("data was sent 4 times"));
}

#[test]
fn the_sensor_shows_callers_and_services() {
    let folder = Folder::new();
    let path = folder.path.join("calls.etl");
    // A lost user stack may be replaced by a later one of the same thread.
    let (mut complete, mut doubtful) = (0, 0);
    let truth = Scenario::default()
        .write_with(File::create(&path).unwrap(), &mut |stack| {
            if stack.event.name() == "PerfInfo/SysCallEnter" {
                complete += u64::from(stack.state == State::Complete);
                doubtful += u64::from(stack.state == State::Damaged);
            }
        })
        .unwrap();
    let total = truth.count("PerfInfo/SysCallEnter");
    assert!(complete > 1_000 && doubtful < 100, "{complete} and {doubtful} of {total}");
    let symbols = folder.path.join("symbols");
    for image in truth.image_files() {
        let path = symbols.join(image.store_path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, image.bytes).unwrap();
    }
    let (lines, end) = run("syscall_sensor", &path, &format!("srv*{}", symbols.display()));
    let calls: BTreeMap<(&str, &str), u64> = lines
        .iter()
        .map(|line| {
            let (call, count) = line.rsplit_once(": ").unwrap();
            (call.split_once(" calls ").unwrap(), count.parse().unwrap())
        })
        .collect();
    assert_eq!(calls.len(), lines.len(), "each pair is shown once");
    let counted = calls.values().sum::<u64>();
    assert!((complete..=complete + doubtful).contains(&counted), "{counted}, {complete}, {doubtful}");
    assert_eq!(end.lines().last(), Some(&*format!("{total} system calls")));
    // The stub of one service is called from unbacked memory to make a call of another service.
    let indirect = |attack: &&stackhound_scenario::Attack| attack.kind == AttackKind::IndirectSyscall;
    assert!(truth.attacks.iter().any(|attack| indirect(&attack)));
    // The trace lost a buffer, so that not all modules are known, but the allocation of the memory
    // was observed.
    let odd: Vec<_> = calls.keys().filter(|(module, _)| *module == "unbacked").collect();
    assert!(odd.contains(&&("unbacked", "ntdll.dll!NtQueryInformationFile")), "{odd:?}");
    assert!(calls.keys().any(|(module, service)| module.ends_with(".exe") && service.contains("!Nt")));
}

/// The events are of the system process, which has this name without being described.
#[test]
fn shares_of_facts_are_printed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("network.etl");
    network(&path);
    let (lines, _) = run("fields", &path, "");
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let [head, _, row] = &lines[..] else { panic!("{lines:#?}") };
    let (head, row) = (cells(head), cells(row));
    assert_eq!(head.len(), row.len());
    let of = |name: &str| &*row[head.iter().position(|column| column == name).expect(name)];
    assert_eq!((of("trace"), of("process.name")), ("network.etl", "100 %"));
    // No event is about a file.
    assert_eq!((of("process.command_line"), of("file.path")), ("0 %", "–"));
}

#[test]
fn tutorials_are_short() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    for name in ["network_monitor.rs", "syscall_sensor.rs"] {
        let text = fs::read_to_string(folder.join(name)).unwrap();
        let lines = text.lines().count();
        assert!(lines <= LINES_MAX, "{name} has {lines} lines");
    }
}
