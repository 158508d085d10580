//! From what the program does to what the stack model is told.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use stackhound_calltree::journal::Writer;
use stackhound_calltree::tracker::{self, Point, Space, Step, Tracked, Tracker};
use stackhound_calltree::{Cpu, EndType, LocationId, StackInfo, StackKind};
use stackhound_types::Address;

use crate::control::{Registers, Tid};
use crate::error::Error;
use crate::event::{Ending, Event};
use crate::instruction::{Class, Instruction};
use crate::launch::launch;
use crate::machine::Machine;
use crate::names::Names;
use crate::stacks::{self, Notice};

/// After so many transitions, what is recorded so far is written, so that it is there if this program is killed.
const FLUSH: u64 = 100_000;

/// What was recorded, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Transitions: instructions, deliveries of signals, switches of threads.
    pub transitions: u64,
    /// Call instructions.
    pub calls: u64,
    /// Return instructions.
    pub returns: u64,
    /// Those that took the address that a call had left and went there.
    pub returns_matched: u64,
    /// Those from functions that were called before anything was known of their stack.
    pub returns_below: u64,
    /// Those that served as jumps: they took an address that was put there for them.
    pub returns_as_jumps: u64,
    /// Those that took the address that a call had left and went elsewhere.
    pub returns_elsewhere: u64,
    /// Frames.
    pub frames: u64,
    /// Stacks.
    pub stacks: u64,
    /// Threads, of all programs one after another.
    pub threads: u64,
    /// Deliveries of signals to handlers.
    pub signals: u64,
    /// Switches of threads.
    pub switches: u64,
    /// How often the program was replaced by another one.
    pub programs_replaced: u64,
    /// Jumps from the end of one function to another one.
    pub tail_calls: u64,
    /// Frames and stacks that were too many to be followed.
    pub refused: u64,
}

/// A program that is being recorded. If this is dropped, the program is killed.
#[derive(Debug)]
pub struct Recorder {
    machine: Machine,
    tracker: Tracker,
    names: Names,
    /// What the program is called.
    program: String,
    /// One for each program that was run, as memory means something else afterwards.
    space: Space,
    /// Where the thread that runs stands.
    at: Registers,
    /// What the tracker said about the transition at hand.
    tracked: Vec<Tracked>,
    totals: Totals,
}

/// What came of a recording.
#[derive(Debug)]
pub struct Recorded<W> {
    /// In numbers.
    pub totals: Totals,
    /// How the program ended. To wait for its end where it has not: [`wait_for_end`].
    pub ending: Ending,
    /// What the journal was written to.
    pub journal: W,
}

impl Recorder {
    /// Starts a program with its arguments, the first being its name, and stops it before its first instruction. It has
    /// this program's standard input and output. Its addresses are not randomized.
    ///
    /// All calls of a recorder must come from the thread that started it.
    ///
    /// # Errors
    /// If there is no such program, or it may not be run, or not be traced.
    pub fn start(arguments: &[impl AsRef<OsStr>]) -> Result<Recorder, Error> {
        let process = launch(arguments)?;
        let machine = Machine::new(process)?;
        let name = arguments.first().map(Path::new).and_then(|path| path.file_name());
        Ok(Recorder {
            machine,
            tracker: Tracker::new(thread_number(process)),
            names: Names::default(),
            program: name.unwrap_or_default().to_string_lossy().into_owned(),
            space: Space(0),
            at: Registers::default(),
            tracked: Vec::new(),
            totals: Totals::default(),
        })
    }

    /// The number of the process.
    pub fn process(&self) -> u32 {
        self.machine.process().0 as u32
    }

    /// Records until the program ends, there are so many transitions, or `stop` is set; then lets the program run on by
    /// itself. The journal is whole up to a hundred thousand transitions ago at any time.
    ///
    /// # Errors
    /// If the program cannot be controlled any more, or the journal cannot be written.
    pub fn record<W: Write>(
        mut self,
        limit: u64,
        stop: &AtomicBool,
        mut journal: Writer<W>,
    ) -> Result<Recorded<W>, Error> {
        let followed = self.follow(limit, stop, &mut journal);
        // Also where the recording cannot go on: the program can.
        let ending = self.machine.release();
        followed?;
        let journal = journal.finish(self.totals.transitions).map_err(Error::Keep)?;
        Ok(Recorded { totals: self.totals, journal, ending: ending? })
    }

    fn follow<W: Write>(
        &mut self,
        limit: u64,
        stop: &AtomicBool,
        journal: &mut Writer<W>,
    ) -> Result<(), Error> {
        let mut flushed = 0;
        while self.totals.transitions < limit {
            let Some(event) = self.machine.next(stop)? else { break };
            self.take(event);
            if !self.tracked.is_empty() {
                self.keep(journal).map_err(Error::Keep)?;
            }
            if self.totals.transitions - flushed >= FLUSH {
                flushed = self.totals.transitions;
                journal.flush().map_err(Error::Keep)?;
            }
        }
        let tracker = std::mem::replace(&mut self.tracker, Tracker::new(tracker::Thread(0)));
        let tracked = &mut self.tracked;
        let counts = tracker.finish(|item| tracked.push(item));
        self.totals.tail_calls = counts.tail_calls;
        self.totals.returns_as_jumps = counts.returns_as_jumps;
        self.totals.refused = counts.frames_refused + counts.stacks_refused;
        self.keep(journal).map_err(Error::Keep)
    }

    fn take(&mut self, event: Event) {
        let tracked = &mut self.tracked;
        match event {
            Event::Started { at, stack } => {
                let first = self.totals.threads == 0;
                self.totals.threads += 1;
                let code = self.machine.code();
                let region = if first {
                    self.at = at;
                    stacks::first_stack(code, at.sp)
                } else {
                    stacks::thread_stack(code, at.sp, stack)
                };
                if let Some(region) = region {
                    let (low, high) = (Address(region.start), Address(region.end));
                    self.tracker.declare(self.space, low, high, StackKind::User, |item| tracked.push(item));
                }
            }
            Event::Switched { to, at } => {
                self.totals.switches += 1;
                self.step(tracker::Class::Switch { to: thread_number(to) }, self.at, at);
            }
            Event::Delivered { before, after } => {
                self.totals.signals += 1;
                // When the handler returns, the address it returns to is gone from the stack.
                let slot = Address(after.sp.wrapping_add(8));
                self.step(tracker::Class::Signal { slot }, before, after);
            }
            Event::Executed { instruction, before, after } => self.executed(instruction, before, after),
            Event::Replaced { after } => {
                self.totals.programs_replaced += 1;
                let everything = (Address(0), Address(u64::MAX));
                self.tracker.release(self.space, everything.0, everything.1, |item| tracked.push(item));
                self.space = Space(self.space.0 + 1);
                self.names.start_anew();
                if let Some(region) = stacks::first_stack(self.machine.code(), after.sp) {
                    let (low, high) = (Address(region.start), Address(region.end));
                    self.tracker.declare(self.space, low, high, StackKind::User, |item| tracked.push(item));
                }
                self.program = self.machine.program_name().unwrap_or_default();
                self.step(tracker::Class::System, self.at, after);
            }
            Event::Ended { thread, executing } => {
                self.tracker.exit(thread_number(thread), |item| tracked.push(item));
                if executing {
                    self.tracker.skip(1);
                    self.totals.transitions += 1;
                }
            }
        }
    }

    fn executed(&mut self, instruction: Instruction, before: Registers, after: Registers) {
        let class = match instruction.class {
            Class::Call => {
                self.totals.calls += 1;
                let return_address = Address(before.pc.wrapping_add(u64::from(instruction.length)));
                tracker::Class::Call { return_address }
            }
            Class::Return => {
                self.totals.returns += 1;
                tracker::Class::Return
            }
            Class::Jump if self.names.is_start(self.machine.code(), after.pc) => tracker::Class::Jump,
            Class::LoadsStackPointer => tracker::Class::Dynamic,
            Class::SystemCall => {
                let tracked = &mut self.tracked;
                match stacks::notice(self.machine.code(), before, after) {
                    Some(Notice::Alternate(region)) => {
                        let (low, high) = (Address(region.start), Address(region.end));
                        self.tracker.declare(self.space, low, high, StackKind::Alternate, |item| {
                            tracked.push(item);
                        });
                    }
                    Some(Notice::Released(region)) => {
                        let (low, high) = (Address(region.start), Address(region.end));
                        self.tracker.release(self.space, low, high, |item| tracked.push(item));
                    }
                    None => {}
                }
                if before.rax as i64 == libc::SYS_rt_sigreturn {
                    tracker::Class::InterruptReturn
                } else {
                    tracker::Class::System
                }
            }
            Class::Jump | Class::Breakpoint | Class::Other => tracker::Class::Other,
        };
        let kept = self.tracked.len();
        self.step(class, before, after);
        if class == tracker::Class::Return {
            let outcome = self.tracked[kept..].iter().find_map(|item| match item {
                Tracked::Close { end, .. } => Some(*end),
                _ => None,
            });
            let below = self.tracked[kept..].iter().any(|item| matches!(item, Tracked::Below { .. }));
            match outcome {
                Some(EndType::Return) if below => self.totals.returns_below += 1,
                Some(EndType::Return) => self.totals.returns_matched += 1,
                Some(EndType::ReturnElsewhere) => self.totals.returns_elsewhere += 1,
                _ => {}
            }
        }
    }

    fn step(&mut self, class: tracker::Class, before: Registers, after: Registers) {
        let point = |at: Registers| Point { pc: Address(at.pc), sp: Address(at.sp) };
        let step = Step { class, before: point(before), after: point(after), space: self.space };
        let code = self.machine.code();
        let tracked = &mut self.tracked;
        let read = |address: Address| code.read_word(address.0).map(Address);
        self.tracker.step(&step, read, |item| tracked.push(item));
        self.at = after;
        self.totals.transitions += 1;
    }

    /// Writes down what the tracker said.
    fn keep<W: Write>(&mut self, journal: &mut Writer<W>) -> io::Result<()> {
        for item in self.tracked.drain(..) {
            let function = match item {
                Tracked::Stack { kind, thread, region, .. } => {
                    self.totals.stacks += 1;
                    journal.stack(&StackInfo {
                        kind,
                        process: Some(self.machine.process().0 as u32),
                        thread: Some(thread.0),
                        cpu: None,
                        name: Some(self.program.clone()),
                        region,
                    })?;
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
                _ => None,
            };
            let location = match function {
                Some(address) => self.names.location(self.machine.code(), address.0, journal)?,
                // Not asked for.
                None => LocationId(0),
            };
            if let Some(change) = item.change(Cpu(0), |_| location) {
                journal.change(change)?;
            }
        }
        Ok(())
    }
}

/// Waits until a program that was recorded and let go ends by itself.
///
/// # Errors
/// If there is no such child.
pub fn wait_for_end(process: u32) -> io::Result<Ending> {
    crate::machine::wait_for_end(Tid(process as i32))
}

fn thread_number(thread: Tid) -> tracker::Thread {
    tracker::Thread(thread.0 as u32)
}
