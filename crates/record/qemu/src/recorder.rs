//! The recorder: passes the records of the emulator to the tracker, and its results to the journal.

use std::io::Write;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};

use rustc_hash::FxHashMap;
use stackhound_calltree::journal::Writer;
use stackhound_calltree::tracker::{Class, Ring, Space, Step, Thread, Tracked, Tracker};
use stackhound_calltree::{Cpu, EndType, LocationId, LocationInfo, StackId, StackInfo, StackKind};
use stackhound_qemu_plugin::protocol::{Kind, LENGTH, Record};
use stackhound_types::Address;

use crate::emulator::{Emulator, System};
use crate::error::Error;
use crate::steps::{Meaning, Steps};

/// The number of records that are read together.
const BATCH: usize = 4096;
/// The number of records after which the journal is flushed, so that it survives if the recorder is
/// killed.
const FLUSH: u64 = 100_000;
/// The number of records between two reports of progress.
const REPORT: u64 = 1 << 16;

/// What became of return instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Returns {
    /// All of them.
    pub all: u64,
    /// Returns to the return address of the matching call.
    pub matched: u64,
    /// Returns from functions that were called before their stack was known.
    pub below: u64,
    /// Returns that served as jumps, to an address that was pushed for them.
    pub as_jumps: u64,
    /// Returns that popped the return address of a call, but went elsewhere.
    pub elsewhere: u64,
}

/// The counters of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Transitions: instructions and interrupts. All iterations of a repeated instruction are one.
    pub transitions: u64,
    /// Instructions that the emulator executed, including iterations and instructions that faulted.
    /// 0 if the recording was stopped.
    pub instructions: u64,
    /// Records.
    pub records: u64,
    /// Call instructions.
    pub calls: u64,
    /// Returns in kernel mode.
    pub kernel_returns: Returns,
    /// Returns in user mode.
    pub user_returns: Returns,
    /// Interrupts, exceptions and faults.
    pub interrupts: u64,
    /// System calls.
    pub system_calls: u64,
    /// Frames.
    pub frames: u64,
    /// Stacks.
    pub stacks: u64,
    /// Interrupts in another ring than the last known one. A transition between rings was not
    /// recognized.
    pub lost: u64,
    /// Frames and stacks that exceeded the limits of the tracker.
    pub refused: u64,
}

/// How the recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The emulator ended: the system was switched off, or the emulator was stopped.
    Ended(ExitStatus),
    /// The limit was reached, or a stop was requested. The system was stopped.
    Stopped,
}

/// A system that is being recorded. If this is dropped, the system is stopped.
#[derive(Debug)]
pub struct Recorder {
    emulator: Emulator,
    tracker: Tracker,
    steps: Steps,
    locations: FxHashMap<(Option<Space>, Address), LocationId>,
    /// The spaces of the stacks of programs, by the numbers of the stacks.
    spaces: Vec<Option<Space>>,
    tracked: Vec<Tracked>,
    totals: Totals,
}

/// The result of a recording.
#[derive(Debug)]
pub struct Recorded<W> {
    /// The counters.
    pub totals: Totals,
    /// The end of the system.
    pub ending: Ending,
    /// The writer of the journal.
    pub journal: W,
}

impl Recorder {
    /// Starts a system. Its console is standard input and output. It ends with the calling thread.
    ///
    /// # Errors
    /// If the emulator is missing, too old or cannot be started, or a file cannot be read.
    pub fn start(system: &System) -> Result<Recorder, Error> {
        Ok(Recorder {
            emulator: Emulator::start(system)?,
            tracker: Tracker::new(Thread(0)),
            steps: Steps::new(),
            locations: FxHashMap::default(),
            spaces: Vec::new(),
            tracked: Vec::new(),
            totals: Totals::default(),
        })
    }

    /// Records until the system ends, `limit` transitions are reached, or `stop` is set. Calls `report`
    /// from time to time. At any time, the journal lacks at most the last hundred thousand records, and
    /// those in the pipe.
    ///
    /// # Errors
    /// If the emulator does not execute the kernel, its records cannot be read, or the journal cannot be
    /// written.
    pub fn record<W: Write>(
        mut self,
        limit: u64,
        stop: &AtomicBool,
        mut journal: Writer<W>,
        mut report: impl FnMut(&Totals),
    ) -> Result<Recorded<W>, Error> {
        let ended = self.follow(limit, stop, &mut journal, &mut report)?;
        let tracker = std::mem::replace(&mut self.tracker, Tracker::new(Thread(0)));
        let tracked = &mut self.tracked;
        let counts = tracker.finish(|item| tracked.push(item));
        self.totals.refused = counts.frames_refused + counts.stacks_refused;
        self.keep(&mut journal)?;
        let ending = if ended {
            let status = self.emulator.wait().map_err(Error::Records)?;
            if self.totals.records == 0 {
                return Err(Error::NotBooted(status));
            }
            Ending::Ended(status)
        } else {
            self.emulator.stop().map_err(Error::Records)?;
            Ending::Stopped
        };
        let journal = journal.finish(self.totals.transitions).map_err(Error::Keep)?;
        Ok(Recorded { totals: self.totals, ending, journal })
    }

    /// Returns whether the emulator has ended.
    fn follow<W: Write>(
        &mut self,
        limit: u64,
        stop: &AtomicBool,
        journal: &mut Writer<W>,
        report: &mut impl FnMut(&Totals),
    ) -> Result<bool, Error> {
        let mut buffer = vec![0; LENGTH * BATCH];
        let mut filled = 0;
        let mut flushed = 0;
        let mut reported = 0;
        loop {
            if stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            match self.emulator.read(&mut buffer[filled..]).map_err(Error::Records)? {
                None => continue,
                Some(0) => return Ok(true),
                Some(length) => filled += length,
            }
            let complete = filled - filled % LENGTH;
            for bytes in buffer[..complete].as_chunks::<LENGTH>().0 {
                let number = self.totals.records;
                self.take(&Record::from_bytes(bytes).ok_or(Error::Damaged { number })?);
                if !self.tracked.is_empty() {
                    self.keep(journal)?;
                }
                if self.totals.transitions >= limit {
                    return Ok(false);
                }
            }
            buffer.copy_within(complete..filled, 0);
            filled -= complete;
            if self.totals.records - flushed >= FLUSH {
                flushed = self.totals.records;
                journal.flush().map_err(Error::Keep)?;
            }
            if self.totals.records - reported >= REPORT {
                reported = self.totals.records;
                report(&self.totals);
            }
        }
    }

    fn take(&mut self, record: &Record) {
        self.totals.records += 1;
        self.skip_to(record.transition);
        if record.kind == Kind::End {
            self.totals.instructions = record.sp_before;
            return;
        }
        match self.steps.meaning(record) {
            Meaning::State => {}
            Meaning::Step(step) => self.step(&step),
            Meaning::Lost(step) => {
                self.totals.lost += 1;
                self.step(&step);
            }
        }
    }

    /// Skips transitions that the plugin does not record.
    fn skip_to(&mut self, transition: u64) {
        let mut skipped = transition.saturating_sub(self.tracker.transition().0);
        while skipped > 0 {
            let part = u32::try_from(skipped).unwrap_or(u32::MAX);
            self.tracker.skip(part);
            skipped -= u64::from(part);
        }
        self.totals.transitions = self.tracker.transition().0;
    }

    fn step(&mut self, step: &Step) {
        let tracked = &mut self.tracked;
        // The recorder cannot read the memory of the system at this transition.
        self.tracker.step(step, |_| None, |item| tracked.push(item));
        self.totals.transitions = self.tracker.transition().0;
        match step.class {
            Class::Call { .. } => self.totals.calls += 1,
            Class::Interrupt { .. } => self.totals.interrupts += 1,
            Class::System if step.after.ring == Ring::Kernel => self.totals.system_calls += 1,
            Class::Return => self.returned(step.before.ring),
            _ => {}
        }
    }

    fn returned(&mut self, ring: Ring) {
        let returns = match ring {
            Ring::Kernel => &mut self.totals.kernel_returns,
            Ring::User => &mut self.totals.user_returns,
        };
        returns.all += 1;
        // Earlier items of the same return are frames that the stack pointer ended.
        let end = self.tracked.iter().find_map(|item| match item {
            Tracked::Close { end: end @ (EndType::Return | EndType::ReturnElsewhere), .. } => Some(*end),
            _ => None,
        });
        let below = self.tracked.iter().any(|item| matches!(item, Tracked::Below { .. }));
        match end {
            Some(EndType::Return) if below => returns.below += 1,
            Some(EndType::Return) => returns.matched += 1,
            Some(_) => returns.elsewhere += 1,
            None => returns.as_jumps += 1,
        }
    }

    /// Writes the results of the tracker to the journal.
    fn keep<W: Write>(&mut self, journal: &mut Writer<W>) -> Result<(), Error> {
        for item in self.tracked.drain(..) {
            let (stack, function) = match item {
                Tracked::Stack { kind, space, region, .. } => {
                    self.totals.stacks += 1;
                    let of_program = kind != StackKind::Kernel;
                    self.spaces.push(of_program.then_some(space));
                    let name = of_program.then(|| format!("page table {:#x}", space.0));
                    let info = StackInfo { kind, process: None, thread: None, cpu: None, name, region };
                    journal.stack(&info).map_err(Error::Keep)?;
                    continue;
                }
                Tracked::Open { stack, function, .. } => {
                    self.totals.frames += 1;
                    (stack, function)
                }
                Tracked::Below { stack, function } => {
                    self.totals.frames += 1;
                    (stack, Some(function))
                }
                Tracked::Enter { stack, .. } | Tracked::Close { stack, .. } => (stack, None),
                Tracked::Leave { .. } => (StackId(0), None),
            };
            let location = match function {
                Some(address) => {
                    let space = self.spaces.get(stack.0 as usize).copied().flatten();
                    match self.locations.get(&(space, address)) {
                        Some(&location) => location,
                        None => {
                            let location = journal
                                .location(&LocationInfo {
                                    address: Some(address),
                                    module: None,
                                    rva: None,
                                    symbol: None,
                                    symbol_offset: 0,
                                })
                                .map_err(Error::Keep)?;
                            self.locations.insert((space, address), location);
                            location
                        }
                    }
                }
                // Not used.
                None => LocationId(0),
            };
            if let Some(change) = item.change(Cpu(0), |_| location) {
                journal.change(change).map_err(Error::Keep)?;
            }
        }
        Ok(())
    }
}
