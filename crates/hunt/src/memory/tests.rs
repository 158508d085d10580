use std::sync::{Arc, Mutex};

use stackhound_detect::{Binaries, Detector, MemoryKind};
use stackhound_frames::{Lists, ModuleFacts, Region, RegionKind};
use stackhound_system::Runtime;
use stackhound_trace::TraceTime;
use stackhound_types::Address;

use super::*;

/// What a machine was asked, as it writes it down: processes that were opened and closed, and places.
#[derive(Clone, Default)]
struct Journal(Arc<Mutex<Vec<String>>>);

impl Journal {
    fn note(&self, text: String) {
        self.0.lock().unwrap().push(text);
    }

    /// What was noted since this was called last.
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

/// A machine where everything is memory that can be written to and run. Process 13 cannot be opened, and at address 0xdead
/// of others they have gone.
fn machine(reach: Reach) -> (LiveMemory, Journal) {
    let book = Journal::default();
    let noted = book.clone();
    let open = move |Pid(pid): Pid, _| -> Option<Look> {
        noted.note(format!("open {pid}"));
        if pid == 13 {
            return None;
        }
        let closing = Closing(noted.clone(), pid);
        Some(Box::new(move |address| {
            closing.0.note(format!("{pid}:{address:x}"));
            match address {
                0xdead => Answer::Gone,
                0xf4ee => Answer::Nothing,
                _ => Answer::Found { memory: WRITABLE, bytes: Some(BYTES) },
            }
        }))
    };
    (LiveMemory::new(Box::new(open), reach), book)
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

/// Looks at frames in no module, at a number of seconds.
fn look(memory: &mut LiveMemory, pid: u32, seconds: i64, addresses: &[u64]) -> Vec<bool> {
    let frames: Vec<Frame> = addresses.iter().map(|address| frame(*address, Code::Unbacked)).collect();
    let live = read(memory, process(pid), FileTime(seconds * TICKS_PER_SECOND), &frames);
    live.iter().map(|live| live.memory == WRITABLE && live.bytes == Some(BYTES)).collect()
}

#[test]
fn a_place_is_asked_for_once_in_a_period() {
    let (mut memory, book) = machine(Reach::Code);
    assert_eq!(look(&mut memory, 8, 100, &[0x10, 0x20, 0x10]), [true; 3]);
    assert_eq!(book.take(), ["open 8", "8:10", "8:20"]);
    assert_eq!(look(&mut memory, 8, 109, &[0x20, 0x30]), [true; 2]);
    assert_eq!(book.take(), ["8:30"]);
    // The same address of another process is another place.
    look(&mut memory, 9, 109, &[0x10]);
    assert_eq!(book.take(), ["open 9", "9:10"]);
    // In the next period, both are still open.
    look(&mut memory, 8, 110, &[0x10]);
    assert_eq!(book.take(), ["8:10"]);
    // What is late finds what is known.
    look(&mut memory, 8, 109, &[0x10]);
    assert_eq!(book.take(), [""; 0]);
    // A process that was not asked for in a period is closed.
    look(&mut memory, 8, 120, &[0x10]);
    assert_eq!(book.take(), ["close 9", "8:10"]);
    drop(memory);
    assert_eq!(book.take(), ["close 8"]);
}

#[test]
fn a_process_that_has_gone_gives_nothing_until_the_next_period() {
    let (mut memory, book) = machine(Reach::Code);
    assert_eq!(look(&mut memory, 13, 100, &[0x10, 0x20]), [false; 2]);
    assert_eq!(book.take(), ["open 13"]);
    assert_eq!(look(&mut memory, 8, 101, &[0x10, 0xdead, 0x20]), [true, false, false]);
    assert_eq!(book.take(), ["open 8", "8:10", "8:dead", "close 8"]);
    // What was found before holds.
    assert_eq!(look(&mut memory, 8, 102, &[0x10, 0x30]), [true, false]);
    assert_eq!(book.take(), [""; 0]);
    assert_eq!(look(&mut memory, 8, 110, &[0x30]), [true]);
    assert_eq!(book.take(), ["open 8", "8:30"]);
    let expected = MemoryStats { asked: 3, found: 2, closed: 2, ..MemoryStats::default() };
    assert_eq!(memory.stats(), expected);
}

#[test]
fn where_nothing_is_told_the_process_is_asked_on() {
    let (mut memory, book) = machine(Reach::Code);
    assert_eq!(look(&mut memory, 8, 100, &[0xf4ee, 0x10, 0xf4ee]), [false, true, false]);
    assert_eq!(book.take(), ["open 8", "8:f4ee", "8:10"]);
}

#[test]
fn work_has_limits_by_process_and_in_all() {
    let (mut memory, book) = machine(Reach::Code);
    let addresses: Vec<u64> = (1..3000).collect();
    let view = look(&mut memory, 8, 100, &addresses);
    assert_eq!(view.iter().filter(|view| **view).count(), PLACES_PER_PROCESS_MAX as usize);
    assert_eq!(memory.stats().beyond_limits, 2999 - u64::from(PLACES_PER_PROCESS_MAX));
    // Another one is looked at all the same, and so is this one later.
    assert_eq!(look(&mut memory, 9, 100, &[0x10]), [true]);
    assert_eq!(look(&mut memory, 8, 110, &[2999]), [true]);
    book.take();

    let (mut memory, book) = machine(Reach::Code);
    let enough = PLACES_MAX as u32 / PLACES_PER_PROCESS_MAX;
    (0..enough + 2).for_each(|number| drop(look(&mut memory, 1000 + number, 100, &addresses)));
    assert_eq!(memory.stats().asked, PLACES_MAX as u64);
    let opened = book.take().into_iter().filter(|line| line.starts_with("open"));
    assert_eq!(opened.count(), enough as usize);
}

#[test]
fn few_processes_are_open_at_a_time() {
    let (mut memory, book) = machine(Reach::Code);
    for pid in 1000..1003 + OPEN_MAX as u32 {
        // The first one is used again and again.
        look(&mut memory, 1000, 100, &[u64::from(pid)]);
        look(&mut memory, pid, 100, &[0x10]);
    }
    let closed: Vec<String> = book.take().into_iter().filter(|line| line.starts_with("close")).collect();
    assert_eq!(closed, ["close 1001", "close 1002", "close 1003"]);
}

/// Process ids are given out again.
#[test]
fn processes_of_one_id_are_told_apart_by_their_start() {
    let (mut memory, book) = machine(Reach::Code);
    for start in [None, Some(TraceTime(5)), Some(TraceTime(5)), Some(TraceTime(7))] {
        let process = ProcessEntity { pid: Pid(8), start };
        read(&mut memory, process, FileTime(0), &[frame(0x10, Code::Unbacked)]);
    }
    assert_eq!(book.take(), ["open 8", "8:10", "open 8", "8:10", "open 8", "8:10"]);
}

#[test]
fn frames_are_looked_at_where_that_can_tell_something() {
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
    // The innermost user frame may be one that is never looked at.
    let (mut memory, _) = machine(Reach::Code);
    let frames = [frame(0x5, Code::Jit(Runtime::Clr)), frame(0x2, image)];
    assert_eq!(read(&mut memory, process(8), FileTime(0), &frames), [LiveFrame::default(); 2]);
}

#[test]
fn memory_that_has_become_something_else_tells_nothing() {
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

/// A program with memory of each kind; `scripts/windows-check.sh` makes it, and tells where it is.
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

        /// A frame in no module, 100 bytes behind a place of the program.
        fn frame(&self, name: &str) -> Frame {
            let location = self.1.iter().find(|(known, _)| known == name).expect("a place of this name");
            frame(location.1 + 100, Code::Unbacked)
        }
    }

    impl Drop for Program {
        fn drop(&mut self) {
            drop(self.0.stdin.take());
            self.0.wait().expect("it ends with its input");
        }
    }

    /// Later than any process of this test starts.
    const LATER: FileTime = FileTime(i64::MAX);

    /// What CS09 says of a stack of one frame.
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
    fn code_in_memory_of_its_own_is_found() {
        let Some(program) = Program::start() else { return };
        let mut memory = LiveMemory::of_this_machine(Reach::Code).expect("this is Windows");
        for (name, expected) in [
            ("writable-code", Some(Reason::WritableCode)),
            ("code", Some(Reason::PrivateCode)),
            ("mapped", Some(Reason::MappedCode)),
            // Memory that was given back tells nothing of what was there.
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
        assert_eq!(memory.stats(), MemoryStats { asked: 5, found: 3, ..MemoryStats::default() });
    }

    #[test]
    fn bytes_are_those_around_the_address() {
        let Some(program) = Program::start() else { return };
        let mut memory = LiveMemory::of_this_machine(Reach::Code).expect("this is Windows");
        let frames = [program.frame("code"), program.frame("guarded"), frame(u64::MAX >> 2, Code::Unbacked)];
        let live = read(&mut memory, program.process(), LATER, &frames);
        let written = |from: u32| std::array::from_fn(|at| ((from + at as u32) * 7 + 3) as u8);
        assert_eq!(live[0].bytes, Some(SiteBytes { before: written(84), after: written(100) }));
        // It would take the mark away that the program waits for.
        assert_eq!((live[1].memory.protection, live[1].bytes), (Some(0x120), None));
        // No process has such an address, which says nothing of the process.
        assert_eq!(live[2].memory, Memory::UNKNOWN);
        assert_eq!(memory.stats().closed, 0);
    }

    #[test]
    fn a_process_that_has_gone_or_came_later_gives_nothing() {
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
