//! Records one Linux program in QEMU, with all of its threads.
//!
//! The program runs in the emulator of programs, `qemu-x86_64`, at its own addresses. The plugin orders
//! the records of its threads and sends the map of its memory, so that the names of functions need no
//! access to the program. Processes that the program starts run in the emulator and are not recorded.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use rustc_hash::FxHashSet;
use stackhound_calltree::journal::Writer;
use stackhound_calltree::tracker::{Class, Point, Ring, Space, Step, Thread, Tracked, Tracker};
use stackhound_calltree::{Change, Cpu, EndType, LocationId, StackInfo, StackKind, StartType, TransitionId};
use stackhound_qemu_plugin::protocol::{Kind, Record};
use stackhound_record_names::{Entered, Entries, MemoryMap, Names, Process};
use stackhound_types::Address;

use crate::emulator::{Emulator, check_version};
use crate::error::Error;
use crate::inbox::Inbox;
use crate::recorder::{Ending, Recorded, Returns};

/// The name of the emulator.
const PROGRAM: &str = "qemu-x86_64";
/// The number of records after which the journal is flushed.
const FLUSH: u64 = 100_000;
/// Maximum length of a map of memory.
const MAPS_MAX: u64 = 64 << 20;
/// The only address space.
const SPACE: Space = Space(0);

/// The counters of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Transitions: instructions, deliveries of signals, switches of threads.
    pub transitions: u64,
    /// Records.
    pub records: u64,
    /// Call instructions.
    pub calls: u64,
    /// Returns.
    pub returns: Returns,
    /// Deliveries of signals to handlers.
    pub signals: u64,
    /// Threads.
    pub threads: u64,
    /// Switches of threads.
    pub switches: u64,
    /// Frames.
    pub frames: u64,
    /// Stacks.
    pub stacks: u64,
    /// Frames and stacks that exceeded the limits of the tracker.
    pub refused: u64,
    /// Why the recording ended, if the program continued.
    pub cut: Option<Cut>,
}

/// The reason why a recording ended before its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The program closed the pipe to the recorder.
    Closed,
    /// The program was killed, or replaced itself by another one.
    Vanished,
}

/// What [`Recorder::advance`] has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// A record.
    Record(Record),
    /// Nothing yet.
    Waiting,
    /// The end of the records.
    Ended,
}

/// A program that is being recorded. If this is dropped, the program is stopped.
#[derive(Debug)]
pub struct Recorder {
    emulator: Emulator,
    inbox: Inbox,
    tracker: Tracker,
    name: String,
    memory: Memory,
    names: Names,
    entries: Entries,
    /// The function that a frame entered through a stub by the current transition.
    entered: Option<Entered>,
    threads: FxHashSet<u32>,
    current: u32,
    is_started: bool,
    /// The address of the first instruction, until the first step.
    start: Option<Address>,
    is_complete: bool,
    /// The registers of the current thread when they were last known.
    at: Point,
    restorer: u64,
    tracked: Vec<Tracked>,
    totals: Totals,
}

/// The memory of the program at the current transition. The map is that of its emulator, which has the
/// same addresses. It is not read: by the time of a record, it has changed.
#[derive(Debug, Default)]
struct Memory {
    map: MemoryMap,
    generation: u64,
}

impl Process for Memory {
    fn map(&mut self) -> &MemoryMap {
        &self.map
    }

    fn generation(&mut self) -> u64 {
        self.generation
    }

    fn read(&self, _: u64, _: &mut [u8]) -> usize {
        0
    }
}

impl Recorder {
    /// Starts a program. The first argument is its name. It inherits standard input and output, and ends
    /// with the calling thread.
    ///
    /// # Errors
    /// If there is no suitable emulator, or no such program.
    pub fn start(arguments: &[OsString]) -> Result<Recorder, Error> {
        let name = arguments.first().cloned().unwrap_or_default();
        let file = find(Path::new(&name))?;
        check_version(PROGRAM).map_err(|error| match error {
            Error::Missing { program } => unsuitable(format!("{program} is not installed")),
            Error::Old { program, found } => unsuitable(format!("{program} has version {found}")),
            Error::WithoutPlugins { program } => unsuitable(format!("{program} was built without plugins")),
            other => other,
        })?;
        let mut command = Command::new(PROGRAM);
        // The addresses of the program are its own.
        command.args(["-B", "0"]).arg("-0").arg(&name);
        let (emulator, inbox) = Emulator::spawn(command, |command| {
            command.arg(&file).args(&arguments[1..]);
        })?;
        Ok(Recorder {
            emulator,
            inbox,
            tracker: Tracker::new(Thread(0)),
            name: file.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            memory: Memory::default(),
            names: Names::default(),
            entries: Entries::default(),
            entered: None,
            threads: FxHashSet::default(),
            current: 0,
            is_started: false,
            start: None,
            is_complete: false,
            at: Point { pc: Address(0), sp: Address(0), ring: Ring::User },
            restorer: 0,
            tracked: Vec::new(),
            totals: Totals::default(),
        })
    }

    /// Records until the program ends, `limit` transitions are reached, or `stop` is set. In the last two
    /// cases, the program is stopped. At any time, the journal lacks at most the last hundred thousand
    /// records, and those that have not arrived.
    ///
    /// # Errors
    /// If the emulator does not execute the program, its records cannot be read, or the journal cannot be
    /// written.
    pub fn record<W: Write>(
        mut self,
        limit: u64,
        stop: &AtomicBool,
        mut journal: Writer<W>,
    ) -> Result<Recorded<W, Totals>, Error> {
        let ended = self.follow(limit, stop, &mut journal)?;
        let tracker = std::mem::replace(&mut self.tracker, Tracker::new(Thread(0)));
        let tracked = &mut self.tracked;
        let counts = tracker.finish(|item| tracked.push(item));
        self.totals.refused = counts.frames_refused + counts.stacks_refused;
        self.keep(&mut journal)?;
        let ending = if ended {
            let status = self.emulator.wait().map_err(Error::Records)?;
            if !self.is_started {
                return Err(Error::NotStarted(status));
            }
            if !self.is_complete {
                self.totals.cut = Some(Cut::Vanished);
            }
            Ending::Ended(status)
        } else {
            self.emulator.stop().map_err(Error::Records)?;
            Ending::Stopped
        };
        let journal = journal.finish(self.totals.transitions).map_err(Error::Keep)?;
        Ok(Recorded { totals: self.totals, ending, journal })
    }

    /// Returns whether the records have ended.
    fn follow<W: Write>(
        &mut self,
        limit: u64,
        stop: &AtomicBool,
        journal: &mut Writer<W>,
    ) -> Result<bool, Error> {
        let mut flushed = 0;
        while !stop.load(Ordering::Relaxed) {
            match self.advance()? {
                Progress::Ended => return Ok(true),
                Progress::Waiting => {}
                Progress::Record(_) => {
                    self.keep(journal)?;
                    if self.totals.transitions >= limit {
                        return Ok(false);
                    }
                }
            }
            if self.totals.records - flushed >= FLUSH {
                flushed = self.totals.records;
                journal.flush().map_err(Error::Keep)?;
            }
        }
        Ok(false)
    }

    /// Takes the next record, for tools that need more than journals contain.
    ///
    /// # Errors
    /// If the record cannot be read.
    pub fn advance(&mut self) -> Result<Progress, Error> {
        self.tracked.clear();
        // Processes that the program has started may still have the pipe.
        if self.is_complete {
            return Ok(Progress::Ended);
        }
        let Some(words) = self.inbox.next() else {
            let waited = self.inbox.wait(&mut self.emulator).map_err(Error::Records)?;
            return Ok(if waited == Some(false) { Progress::Ended } else { Progress::Waiting });
        };
        let Some(record) = Record::from_words(words) else {
            return Err(Error::Damaged { number: self.totals.records });
        };
        if record.kind == Kind::Maps {
            let mut text = vec![0; record.sp_before.min(MAPS_MAX) as usize];
            match self.inbox.copy(&mut text, &mut self.emulator) {
                // The program was killed.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(Progress::Ended),
                copied => copied.map_err(Error::Records)?,
            }
            self.memory = Memory { map: MemoryMap::parse(&text), generation: self.memory.generation + 1 };
        }
        self.take(&record);
        Ok(Progress::Record(record))
    }

    /// The map of the program's memory at the last record.
    pub fn memory_map(&self) -> &MemoryMap {
        &self.memory.map
    }

    fn take(&mut self, record: &Record) {
        self.totals.records += 1;
        // The plugin does not record the transitions before.
        self.tracker.skip_to(TransitionId(record.transition));
        self.totals.transitions = self.tracker.transition().0;
        let return_address = Address(record.pc_before.wrapping_add(u64::from(record.length)));
        let (low, high) = (Address(record.sp_before), Address(record.sp_after));
        let tracked = &mut self.tracked;
        let class = match record.kind {
            Kind::Thread => return self.switch(record),
            Kind::ThreadEnd => {
                self.threads.remove(&self.current);
                return self.tracker.exit(Thread(self.current), |item| tracked.push(item));
            }
            Kind::Restorer => {
                self.restorer = record.sp_before;
                return;
            }
            Kind::Alternate => {
                return self
                    .tracker
                    .declare(SPACE, low, high, StackKind::Alternate, |item| tracked.push(item));
            }
            Kind::Released => return self.tracker.release(SPACE, low, high, |item| tracked.push(item)),
            Kind::End => {
                self.is_complete = true;
                self.totals.cut = (record.detail != 0).then_some(Cut::Closed);
                if record.detail == 0 {
                    let mut threads: Vec<u32> = self.threads.drain().collect();
                    threads.sort_unstable();
                    for thread in threads {
                        self.tracker.exit(Thread(thread), |item| tracked.push(item));
                    }
                }
                return;
            }
            Kind::Call => {
                self.totals.calls += 1;
                Class::Call { return_address }
            }
            Kind::Return | Kind::FarReturn => Class::Return,
            Kind::Load => Class::Dynamic,
            Kind::Signal => {
                self.totals.signals += 1;
                // When the handler returns, its return address has been popped.
                Class::Signal { slot: Address(record.sp_after.wrapping_add(8)) }
            }
            Kind::InterruptReturn => Class::InterruptReturn,
            Kind::Jump => Class::Jump,
            _ => return,
        };
        let mut before = point(record.pc_before, record.sp_before);
        // The function of the first frame begins with the first instruction, which has no record.
        before.pc = self.start.take().unwrap_or(before.pc);
        self.step(class, before, point(record.pc_after, record.sp_after));
        match class {
            Class::Call { .. } => self.called(record.pc_after, record.sp_after),
            Class::Jump => self.jumped(record.sp_after),
            _ => {}
        }
        if class == Class::Return {
            self.totals.returns.count(&self.tracked);
        }
    }

    /// Remembers the call of a stub of a linkage table.
    fn called(&mut self, function: u64, slot: u64) {
        let called = self.tracked.iter().find_map(|item| match *item {
            Tracked::Open { stack, start: StartType::Call, function: Some(found), .. } => {
                (found.0 == function).then_some(stack)
            }
            _ => None,
        });
        if let Some(stack) = called {
            let is_stub = self.names.is_linkage(&mut self.memory, function);
            self.entries.called(stack, slot, is_stub.then_some(function));
        }
    }

    /// Finds the function that a stub has jumped to.
    fn jumped(&mut self, slot: u64) {
        if !self.entries.is_empty()
            && let Some(&Tracked::Jump { stack, function, .. }) = self.tracked.last()
            && !self.names.is_linkage(&mut self.memory, function.0)
        {
            self.entered = self.entries.jumped(stack, slot, function.0);
        }
    }

    /// Another thread executes.
    fn switch(&mut self, record: &Record) {
        let (number, to) = (record.sp_before as u32, point(record.pc_after, record.sp_after));
        let is_first = !std::mem::replace(&mut self.is_started, true);
        if is_first {
            self.tracker = Tracker::new(Thread(number));
        }
        if self.threads.insert(number) {
            self.totals.threads += 1;
            let stack = self.memory.map.at(record.sp_after.wrapping_sub(1));
            if let Some(stack) = stack.filter(|mapping| mapping.file == (0, 0)) {
                let tracked = &mut self.tracked;
                let (low, high) = (Address(stack.addresses.start), Address(stack.addresses.end));
                self.tracker.declare(SPACE, low, high, StackKind::User, |item| tracked.push(item));
            }
        }
        self.current = number;
        if is_first {
            self.start = Some(to.pc);
        } else {
            self.totals.switches += 1;
            self.step(Class::Switch { to: Thread(number) }, self.at, to);
        }
    }

    fn step(&mut self, class: Class, before: Point, after: Point) {
        let step = Step { class, before, after, space: SPACE };
        let (slot, restorer) = (after.sp, Address(self.restorer));
        let is_signal = matches!(class, Class::Signal { .. });
        let tracked = &mut self.tracked;
        // The plugin sends no other word of memory.
        let read = |address: Address| (is_signal && address == slot).then_some(restorer);
        self.tracker.step(&step, read, |item| tracked.push(item));
        self.at = after;
        self.totals.transitions = self.tracker.transition().0;
    }

    /// Writes the results of the tracker to the journal.
    fn keep<W: Write>(&mut self, journal: &mut Writer<W>) -> Result<(), Error> {
        for item in self.tracked.drain(..) {
            if let Tracked::Close { stack, end: EndType::Abandoned, .. } = item {
                self.entries.ended(stack);
            }
            let function = match item {
                Tracked::Stack { kind, thread, region, .. } => {
                    self.totals.stacks += 1;
                    let info = StackInfo {
                        kind,
                        process: Some(self.emulator.process()),
                        thread: thread.map(|thread| thread.0),
                        cpu: None,
                        name: Some(self.name.clone()),
                        region,
                    };
                    journal.stack(&info).map_err(Error::Keep)?;
                    continue;
                }
                Tracked::Open { function, .. } => {
                    self.totals.frames += 1;
                    function
                }
                Tracked::Below { function, .. } => {
                    self.totals.frames += 1;
                    Some(function)
                }
                // Direct jumps are not known.
                Tracked::Jump { .. } => continue,
                _ => None,
            };
            let location = match function {
                Some(address) => {
                    self.names.location(&mut self.memory, address.0, journal).map_err(Error::Keep)?
                }
                // Not used.
                None => LocationId(0),
            };
            if let Some(change) = item.change(Cpu(0), |_| location) {
                journal.change(change).map_err(Error::Keep)?;
            }
        }
        if let Some(Entered { stack, stub, function }) = self.entered.take() {
            let location =
                self.names.entry(&mut self.memory, (function, stub), journal).map_err(Error::Keep)?;
            journal.change(Change::Target { stack, location }).map_err(Error::Keep)?;
        }
        Ok(())
    }
}

fn point(pc: u64, sp: u64) -> Point {
    Point { pc: Address(pc), sp: Address(sp), ring: Ring::User }
}

fn unsuitable(found: String) -> Error {
    Error::NoUserEmulator { found }
}

/// Finds the file of a program as a shell does.
fn find(name: &Path) -> Result<PathBuf, Error> {
    let is_path = name.as_os_str().as_encoded_bytes().contains(&b'/');
    let is_executable = |path: &PathBuf| {
        path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    let found = if is_path {
        Some(name.to_owned()).filter(is_executable)
    } else {
        let folders = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&folders).map(|folder| folder.join(name)).find(is_executable)
    };
    let path = found.ok_or_else(|| Error::NoProgram(name.to_owned()))?;
    // The class and the machine of 64-bit x86. The emulator does not execute scripts.
    let mut start = [0; 20];
    let read = File::open(&path).and_then(|mut file| file.read_exact(&mut start));
    if read.is_ok() && start.starts_with(b"\x7fELF\x02") && start[18..] == [62, 0] {
        Ok(path)
    } else {
        Err(Error::OtherMachine(path))
    }
}
