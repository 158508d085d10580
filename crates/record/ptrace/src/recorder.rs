//! The recorder: passes the events of the program to the tracker, and its results to the journal.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::AtomicBool;

use stackhound_calltree::journal::Writer;
use stackhound_calltree::tracker::{self, Point, Ring, Space, Step, Tracked, Tracker};
use stackhound_calltree::{Change, Cpu, EndType, LocationId, StackInfo, StackKind, StartType};
use stackhound_record_names::{Entered, Entries, Names};
use stackhound_types::Address;

use crate::control::{Registers, Tid};
use crate::error::Error;
use crate::event::{Ending, Event};
use crate::instruction::{Class, Instruction};
use crate::launch::launch;
use crate::machine::Machine;
use crate::stacks::{self, Notice};

/// The number of transitions after which the journal is flushed, so that it survives if the
/// recorder is killed.
const FLUSH: u64 = 100_000;

/// The counters of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Transitions: instructions, deliveries of signals, switches of threads.
    pub transitions: u64,
    /// Call instructions.
    pub calls: u64,
    /// Return instructions.
    pub returns: u64,
    /// Returns to the return address of the matching call.
    pub returns_matched: u64,
    /// Returns from functions that were called before their stack was known.
    pub returns_below: u64,
    /// Returns that served as jumps, to an address that was pushed for them.
    pub returns_as_jumps: u64,
    /// Returns that popped the return address of a call, but went elsewhere.
    pub returns_elsewhere: u64,
    /// Frames.
    pub frames: u64,
    /// Stacks.
    pub stacks: u64,
    /// Threads of all programs, one after another.
    pub threads: u64,
    /// Deliveries of signals to handlers.
    pub signals: u64,
    /// Switches of threads.
    pub switches: u64,
    /// Replacements of the program by another one.
    pub programs_replaced: u64,
    /// Jumps from the end of one function to another one.
    pub tail_calls: u64,
    /// Frames and stacks that exceeded the limits of the tracker.
    pub refused: u64,
}

/// A program that is being recorded. If this is dropped, the program is killed.
#[derive(Debug)]
pub struct Recorder {
    machine: Machine,
    tracker: Tracker,
    names: Names,
    entries: Entries,
    /// The name of the program.
    program: String,
    /// The address space, a new one for each program.
    space: Space,
    /// The registers of the current thread.
    at: Registers,
    /// The results of the tracker for the current transition.
    tracked: Vec<Tracked>,
    /// The function that a frame entered through a stub by the current transition.
    entered: Option<Entered>,
    totals: Totals,
}

/// The result of a recording.
#[derive(Debug)]
pub struct Recorded<W> {
    /// The counters.
    pub totals: Totals,
    /// The end of the program. If it is still running, [`wait_for_end`] waits for its end.
    pub ending: Ending,
    /// The writer of the journal.
    pub journal: W,
}

impl Recorder {
    /// Starts a program and stops it before its first instruction. The first argument is its name.
    /// It inherits standard input and output. Its addresses are not randomized.
    ///
    /// All calls of a recorder must come from the thread that started it.
    ///
    /// # Errors
    /// If the program does not exist, or must not be executed or traced.
    pub fn start(arguments: &[impl AsRef<OsStr>]) -> Result<Recorder, Error> {
        let process = launch(arguments)?;
        let machine = Machine::new(process)?;
        let name = arguments.first().map(Path::new).and_then(|path| path.file_name());
        Ok(Recorder {
            machine,
            tracker: Tracker::new(thread_number(process)),
            names: Names::default(),
            entries: Entries::default(),
            program: name.unwrap_or_default().to_string_lossy().into_owned(),
            space: Space(0),
            at: Registers::default(),
            tracked: Vec::new(),
            entered: None,
            totals: Totals::default(),
        })
    }

    /// The process id.
    pub fn process(&self) -> u32 {
        self.machine.process().0 as u32
    }

    /// Records until the program ends, `limit` transitions are reached, or `stop` is set. Then the
    /// program continues untraced. At any time, the journal lacks at most the last hundred thousand
    /// transitions.
    ///
    /// # Errors
    /// If the program can no longer be controlled, or the journal cannot be written.
    pub fn record<W: Write>(
        mut self,
        limit: u64,
        stop: &AtomicBool,
        mut journal: Writer<W>,
    ) -> Result<Recorded<W>, Error> {
        let followed = self.follow(limit, stop, &mut journal);
        // The program is released also after an error of the recording.
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
            if !self.tracked.is_empty() || self.entered.is_some() {
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
                // When the handler returns, its return address has been popped.
                let slot = Address(after.sp.wrapping_add(8));
                self.step(tracker::Class::Signal { slot }, before, after);
            }
            Event::Executed { instruction, before, after } => self.executed(instruction, before, after),
            Event::Replaced { after } => {
                self.totals.programs_replaced += 1;
                let everything = (Address(0), Address(u64::MAX));
                self.tracker.release(self.space, everything.0, everything.1, |item| tracked.push(item));
                self.space = Space(self.space.0 + 1);
                self.names.reset();
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
            // Not all functions that are called at a stub have names.
            Class::Jump if !self.entries.is_empty() || self.names.is_start(self.machine.code(), after.pc) => {
                tracker::Class::Jump
            }
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
        let earlier = self.tracked.len();
        self.step(class, before, after);
        match instruction.class {
            Class::Call => {
                let called = self.tracked[earlier..].iter().find_map(|item| match *item {
                    Tracked::Open { stack, start: StartType::Call, function, .. }
                        if function == Some(Address(after.pc)) =>
                    {
                        Some(stack)
                    }
                    _ => None,
                });
                if let Some(stack) = called {
                    let is_stub = self.names.is_linkage(self.machine.code(), after.pc);
                    self.entries.called(stack, after.sp, is_stub.then_some(after.pc));
                }
            }
            Class::Jump if !self.entries.is_empty() => {
                if let Some(&Tracked::Jump { stack, .. }) = self.tracked[earlier..].last()
                    && !self.names.is_linkage(self.machine.code(), after.pc)
                {
                    self.entered = self.entries.jumped(stack, after.sp, after.pc);
                }
            }
            _ => {}
        }
        if class == tracker::Class::Return {
            let outcome = self.tracked[earlier..].iter().find_map(|item| match item {
                Tracked::Close { end, .. } => Some(*end),
                _ => None,
            });
            let below = self.tracked[earlier..].iter().any(|item| matches!(item, Tracked::Below { .. }));
            match outcome {
                Some(EndType::Return) if below => self.totals.returns_below += 1,
                Some(EndType::Return) => self.totals.returns_matched += 1,
                Some(EndType::ReturnElsewhere) => self.totals.returns_elsewhere += 1,
                _ => {}
            }
        }
    }

    fn step(&mut self, class: tracker::Class, before: Registers, after: Registers) {
        let point = |at: Registers| Point { pc: Address(at.pc), sp: Address(at.sp), ring: Ring::User };
        let step = Step { class, before: point(before), after: point(after), space: self.space };
        let code = self.machine.code();
        let tracked = &mut self.tracked;
        let read = |address: Address| code.read_word(address.0).map(Address);
        self.tracker.step(&step, read, |item| tracked.push(item));
        self.at = after;
        self.totals.transitions += 1;
    }

    /// Writes the results of the tracker to the journal.
    fn keep<W: Write>(&mut self, journal: &mut Writer<W>) -> io::Result<()> {
        for item in self.tracked.drain(..) {
            if let Tracked::Close { stack, end: EndType::Abandoned, .. } = item {
                self.entries.ended(stack);
            }
            let function = match item {
                Tracked::Stack { kind, thread, region, .. } => {
                    self.totals.stacks += 1;
                    journal.stack(&StackInfo {
                        kind,
                        process: Some(self.machine.process().0 as u32),
                        thread: thread.map(|thread| thread.0),
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
                // Jumps from and to stubs are not distinguished from tail calls.
                Tracked::Jump { .. } => continue,
                _ => None,
            };
            let location = match function {
                Some(address) => self.names.location(self.machine.code(), address.0, journal)?,
                // Not used.
                None => LocationId(0),
            };
            if let Some(change) = item.change(Cpu(0), |_| location) {
                journal.change(change)?;
            }
        }
        if let Some(Entered { stack, stub, function }) = self.entered.take() {
            let location = self.names.entry(self.machine.code(), (function, stub), journal)?;
            journal.change(Change::Target { stack, location })?;
        }
        Ok(())
    }
}

/// Waits until a recorded program that continues untraced ends.
///
/// # Errors
/// If the process is not a child of this one.
pub fn wait_for_end(process: u32) -> io::Result<Ending> {
    crate::machine::wait_for_end(Tid(process as i32))
}

fn thread_number(thread: Tid) -> tracker::Thread {
    tracker::Thread(thread.0 as u32)
}
