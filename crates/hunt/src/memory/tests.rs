use std::sync::{Arc, Mutex};

use stackhound_detect::{Binaries, Detector, MemoryKind};
use stackhound_frames::{Lists, ModuleFacts, Region, RegionKind};
use stackhound_system::Runtime;
use stackhound_trace::TraceTime;
use stackhound_types::Address;

use super::*;

/// A log of the operations on a machine: processes that were opened and closed, and addresses that
/// were read.
#[derive(Clone, Default)]
struct Journal(Arc<Mutex<Vec<String>>>);

impl Journal {
    fn note(&self, text: String) {
        self.0.lock().unwrap().push(text);
    }

    /// The operations since the last call.
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

struct Closing(Journal, u32);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.note(format!("close {}", self.1));
    }
}

const WRITABLE: Memory =
    Memory { kind: Some(MemoryKind::Private), protection: Some(0x40), is_original: None };
const BYTES: SiteBytes = SiteBytes { before: [0xff; 16], after: [0x90; 16] };

/// A machine where all memory is private, writable and executable. Process 13 cannot be opened.
/// Reading address 0xdead shows that the process has ended.
fn machine(reach: Reach) -> (LiveMemory, Journal) {
    let journal = Journal::default();
    let log = journal.clone();
    let open = move |Pid(pid): Pid, _| -> Option<Look> {
        log.note(format!("open {pid}"));
        if pid == 13 {
            return None;
        }
        let closing = Closing(log.clone(), pid);
        Some(Box::new(move |address| {
            closing.0.note(format!("{pid}:{address:x}"));
            match address {
                0xdead => Answer::Gone,
                0xf4ee => Answer::Nothing,
                _ => Answer::Found { memory: WRITABLE, bytes: Some(BYTES) },
            }
        }))
    };
    (LiveMemory::new(Box::new(open), reach), journal)
}

fn frame(address: u64, code: Code) -> Frame {
    Frame { address: Some(Address(address)), ..Frame::user(code) }
}

fn process(pid: u32) -> ProcessEntity {
    ProcessEntity { pid: Pid(pid), start: None }
}

fn read(memory: &mut LiveMemory, process: ProcessEntity, at: FileTime, frames: &[Frame]) -> Vec<LiveFrame> {
    let mut live = Vec::new();
    memory.read(process, at, frames, &mut live);
    live
}

/// Reads frames in no module at a time in seconds.
fn look(memory: &mut LiveMemory, pid: u32, seconds: i64, addresses: &[u64]) -> Vec<bool> {
    let frames: Vec<Frame> = addresses.iter().map(|address| frame(*address, Code::Unbacked)).collect();
    let live = read(memory, process(pid), FileTime(seconds * TICKS_PER_SECOND), &frames);
    live.iter().map(|live| live.memory == WRITABLE && live.bytes == Some(BYTES)).collect()
}

#[test]
fn addresses_are_read_once_per_period() {
    let (mut memory, journal) = machine(Reach::Code);
    assert_eq!(look(&mut memory, 8, 100, &[0x10, 0x20, 0x10]), [true; 3]);
    assert_eq!(journal.take(), ["open 8", "8:10", "8:20"]);
    assert_eq!(look(&mut memory, 8, 109, &[0x20, 0x30]), [true; 2]);
    assert_eq!(journal.take(), ["8:30"]);
    // The same address of another process is a different one.
    look(&mut memory, 9, 109, &[0x10]);
    assert_eq!(journal.take(), ["open 9", "9:10"]);
    // In the next period, both are still open.
    look(&mut memory, 8, 110, &[0x10]);
    assert_eq!(journal.take(), ["8:10"]);
    // Late events use known answers.
    look(&mut memory, 8, 109, &[0x10]);
    assert_eq!(journal.take(), [""; 0]);
    // A process that was not used in a period is closed.
    look(&mut memory, 8, 120, &[0x10]);
    assert_eq!(journal.take(), ["close 9", "8:10"]);
    drop(memory);
    assert_eq!(journal.take(), ["close 8"]);
}

#[test]
fn ended_processes_are_not_read_until_the_next_period() {
    let (mut memory, journal) = machine(Reach::Code);
    assert_eq!(look(&mut memory, 13, 100, &[0x10, 0x20]), [false; 2]);
    assert_eq!(journal.take(), ["open 13"]);
    assert_eq!(look(&mut memory, 8, 101, &[0x10, 0xdead, 0x20]), [true, false, false]);
    assert_eq!(journal.take(), ["open 8", "8:10", "8:dead", "close 8"]);
    // Earlier answers remain valid.
    assert_eq!(look(&mut memory, 8, 102, &[0x10, 0x30]), [true, false]);
    assert_eq!(journal.take(), [""; 0]);
    assert_eq!(look(&mut memory, 8, 110, &[0x30]), [true]);
    assert_eq!(journal.take(), ["open 8", "8:30"]);
    let expected = MemoryStats { lookups: 3, found: 2, closed: 2, ..MemoryStats::default() };
    assert_eq!(memory.stats(), expected);
}

#[test]
fn missing_memory_does_not_end_look_ups() {
    let (mut memory, journal) = machine(Reach::Code);
    assert_eq!(look(&mut memory, 8, 100, &[0xf4ee, 0x10, 0xf4ee]), [false, true, false]);
    assert_eq!(journal.take(), ["open 8", "8:f4ee", "8:10"]);
}

#[test]
fn look_ups_have_limits_per_process_and_in_total() {
    let (mut memory, journal) = machine(Reach::Code);
    let addresses: Vec<u64> = (1..3000).collect();
    let view = look(&mut memory, 8, 100, &addresses);
    assert_eq!(view.iter().filter(|view| **view).count(), ADDRESSES_PER_PROCESS_MAX as usize);
    assert_eq!(memory.stats().beyond_limits, 2999 - u64::from(ADDRESSES_PER_PROCESS_MAX));
    // Another process is still read, and so is this one in the next period.
    assert_eq!(look(&mut memory, 9, 100, &[0x10]), [true]);
    assert_eq!(look(&mut memory, 8, 110, &[2999]), [true]);
    journal.take();

    let (mut memory, journal) = machine(Reach::Code);
    let enough = ADDRESSES_MAX as u32 / ADDRESSES_PER_PROCESS_MAX;
    (0..enough + 2).for_each(|number| drop(look(&mut memory, 1000 + number, 100, &addresses)));
    assert_eq!(memory.stats().lookups, ADDRESSES_MAX as u64);
    let opened = journal.take().into_iter().filter(|line| line.starts_with("open"));
    assert_eq!(opened.count(), enough as usize);
}

#[test]
fn the_number_of_open_processes_is_limited() {
    let (mut memory, journal) = machine(Reach::Code);
    for pid in 1000..1003 + OPEN_MAX as u32 {
        // The first one is used repeatedly.
        look(&mut memory, 1000, 100, &[u64::from(pid)]);
        look(&mut memory, pid, 100, &[0x10]);
    }
    let closed: Vec<String> = journal.take().into_iter().filter(|line| line.starts_with("close")).collect();
    assert_eq!(closed, ["close 1001", "close 1002", "close 1003"]);
}

/// Process ids are reused.
#[test]
fn processes_with_the_same_id_are_distinguished_by_their_start() {
    let (mut memory, journal) = machine(Reach::Code);
    for start in [None, Some(TraceTime(5)), Some(TraceTime(5)), Some(TraceTime(7))] {
        let process = ProcessEntity { pid: Pid(8), start };
        read(&mut memory, process, FileTime(0), &[frame(0x10, Code::Unbacked)]);
    }
    assert_eq!(journal.take(), ["open 8", "8:10", "open 8", "8:10", "open 8", "8:10"]);
}

#[test]
fn only_useful_frames_are_read() {
    let mut detector = Detector::new(Lists::default(), Binaries::none());
    let image = Code::Image(detector.module(&ModuleFacts::default(), None), 0x10);
    let frames = [
        Frame { mode: Mode::Kernel, ..frame(0x1, image) },
        frame(0x2, image),
        frame(0x3, image),
        frame(0x4, Code::Unbacked),
        frame(0x5, Code::Jit(Runtime::Clr)),
        frame(0x6, Code::Unknown),
        Frame::user(Code::Unbacked),
    ];
    for (reach, expected) in [(Reach::Code, &[2, 4][..]), (Reach::Images, &[2, 3, 4, 6])] {
        let (mut memory, _) = machine(reach);
        let live = read(&mut memory, process(8), FileTime(0), &frames);
        let view = frames.iter().zip(live).filter(|(_, live)| live.memory != Memory::UNKNOWN);
        let view: Vec<u64> = view.map(|(frame, _)| frame.address.unwrap().0).collect();
        assert_eq!(view, expected, "{reach:?}");
    }
    // The innermost user frame may be one that is never read.
    let (mut memory, _) = machine(Reach::Code);
    let frames = [frame(0x5, Code::Jit(Runtime::Clr)), frame(0x2, image)];
    assert_eq!(read(&mut memory, process(8), FileTime(0), &frames), [LiveFrame::default(); 2]);
}

#[test]
fn changed_memory_is_not_evidence() {
    for (then, expected) in [
        (RegionKind::Unknown, WRITABLE),
        (RegionKind::Private, WRITABLE),
        (RegionKind::Image, Memory::UNKNOWN),
        (RegionKind::Mapped, Memory::UNKNOWN),
    ] {
        let (mut memory, _) = machine(Reach::Code);
        let region = Region { kind: then, ..Region::UNKNOWN };
        let frames = [Frame { region, ..frame(0x10, Code::Unbacked) }];
        let live = read(&mut memory, process(8), FileTime(0), &frames);
        assert_eq!(live[0].memory, expected);
        assert_eq!(live[0].bytes.is_some(), expected == WRITABLE);
        assert_eq!(memory.stats().changed, u64::from(expected != WRITABLE));
    }
}

/// A program with memory of each kind. `scripts/windows-check.sh` builds it and passes its folder.
#[cfg(all(windows, feature = "windows"))]
mod with_a_program {
    use std::io::{BufRead, BufReader};
    use std::path::Path;
    use std::process::{Child, Command, Stdio};

    use stackhound_detect::{
        Case, DetectionId, Event, Input, Outcome, Part, Process, Reason, Stack, Verdict,
    };

    use super::*;

    struct Program(Child, Vec<(String, u64)>);

    impl Program {
        fn start() -> Option<Program> {
            let Some(folder) = std::env::var_os("STACKHOUND_WINDOWS_FIXTURE") else {
                assert!(std::env::var_os("CI").is_none(), "STACKHOUND_WINDOWS_FIXTURE is not set");
                eprintln!("skipped: STACKHOUND_WINDOWS_FIXTURE is not set, see scripts/windows-check.sh");
                return None;
            };
            let program = std::path::absolute(Path::new(&folder).join("memory.exe")).expect("a path");
            let mut command = Command::new(program);
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
            Some(Program(child, locations))
        }

        fn process(&self) -> ProcessEntity {
            process(self.0.id())
        }

        /// A frame in no module, 100 bytes after a named address of the program.
        fn frame(&self, name: &str) -> Frame {
            let location = self.1.iter().find(|(known, _)| known == name).expect("an address of this name");
            frame(location.1 + 100, Code::Unbacked)
        }
    }

    impl Drop for Program {
        fn drop(&mut self) {
            drop(self.0.stdin.take());
            self.0.wait().expect("it ends with its input");
        }
    }

    /// After the start of any process in this test.
    const LATER: FileTime = FileTime(i64::MAX);

    /// The answer of CS09 for a stack of one frame.
    fn evaluated(frame: Frame, live: &[LiveFrame]) -> Outcome {
        let case = Case {
            event: Event::OTHER,
            process: Process { has_runtime: Some(false), ..Process::UNKNOWN },
            stack: Stack {
                frames: &[frame],
                live,
                kernel: Part::Whole,
                user: Part::Whole,
                limit: None,
                map_is_complete: true,
                has_losses: false,
                is_certain: true,
                is_truncated: false,
            },
        };
        let mut detector = Detector::new(Lists::default(), Binaries::none());
        *detector.evaluate(&case).outcome(DetectionId::new(9).expect("a detection"))
    }

    #[test]
    fn code_in_memory_of_each_kind_is_found() {
        let Some(program) = Program::start() else { return };
        let mut memory = LiveMemory::of_this_machine(Reach::Code).expect("this is Windows");
        for (name, expected) in [
            ("writable-code", Some(Reason::WritableCode)),
            ("code", Some(Reason::PrivateCode)),
            ("mapped", Some(Reason::MappedCode)),
            // Freed memory is not evidence.
            ("reserved", None),
            ("freed", None),
        ] {
            let frame = program.frame(name);
            assert_eq!(evaluated(frame, &[]).verdict, Verdict::Undetermined, "{name}");
            let live = read(&mut memory, program.process(), LATER, &[frame]);
            let outcome = evaluated(frame, &live);
            match expected {
                Some(reason) => {
                    assert_eq!(outcome.verdict, Verdict::Yes, "{name}");
                    assert!(outcome.reasons.has(reason), "{name} {outcome:?}");
                    assert!(outcome.used.has(Input::Regions), "{name} {outcome:?}");
                }
                None => {
                    assert_eq!(outcome.verdict, Verdict::Undetermined, "{name}");
                    assert!(outcome.missing.has(Input::Regions), "{name} {outcome:?}");
                }
            }
        }
        assert_eq!(memory.stats(), MemoryStats { lookups: 5, found: 3, ..MemoryStats::default() });
    }

    #[test]
    fn bytes_around_addresses_are_read() {
        let Some(program) = Program::start() else { return };
        let mut memory = LiveMemory::of_this_machine(Reach::Code).expect("this is Windows");
        let frames = [program.frame("code"), program.frame("guarded"), frame(u64::MAX >> 2, Code::Unbacked)];
        let live = read(&mut memory, program.process(), LATER, &frames);
        let written = |from: u32| std::array::from_fn(|at| ((from + at as u32) * 7 + 3) as u8);
        assert_eq!(live[0].bytes, Some(SiteBytes { before: written(84), after: written(100) }));
        // Reading would clear the guard flag, which the program needs.
        assert_eq!((live[1].memory.protection, live[1].bytes), (Some(0x120), None));
        // No process has such an address, so it does not show whether the process has ended.
        assert_eq!(live[2].memory, Memory::UNKNOWN);
        assert_eq!(memory.stats().closed, 0);
    }

    #[test]
    fn ended_and_later_processes_are_not_read() {
        let Some(program) = Program::start() else { return };
        let (process, code) = (program.process(), program.frame("code"));
        let mut memory = LiveMemory::of_this_machine(Reach::Code).expect("this is Windows");
        // The event is older than the process.
        let live = read(&mut memory, process, FileTime(0), &[code]);
        assert_eq!((live, memory.stats().closed), (vec![LiveFrame::default()], 1));

        assert_ne!(read(&mut memory, process, LATER, &[code]), [LiveFrame::default()]);
        drop(program);
        let next = Frame { address: code.address.map(|address| Address(address.0 + 1)), ..code };
        let live = read(&mut memory, process, LATER, &[next]);
        assert_eq!((live, memory.stats().closed), (vec![LiveFrame::default()], 2));
    }
}
