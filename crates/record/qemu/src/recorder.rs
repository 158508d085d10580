//! The recorder: passes the records of the emulator to the tracker, and its results to the journal.

use std::io::Write;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};

use rustc_hash::{FxHashMap, FxHashSet};
use stackhound_calltree::journal::Writer;
use stackhound_calltree::tracker::{Class, Ring, Space, Step, Thread, Tracked, Tracker};
use stackhound_calltree::{
    Change, ContextId, Cpu, EndType, LocationId, StackId, StackInfo, StackKind, StartType, TransitionId,
};
use stackhound_qemu_plugin::protocol::{Kind, Record, Request};
use stackhound_record_guest::{Event, System as Guest};
use stackhound_types::Address;

use crate::emulator::{Emulator, System};
use crate::error::Error;
use crate::files::{self, Files};
use crate::inbox::{Inbox, SystemMemory};
use crate::names::Names;
use crate::steps::{KERNEL, Meaning, Steps};

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

impl Returns {
    /// Counts a return by its results.
    pub(crate) fn count(&mut self, tracked: &[Tracked]) {
        self.all += 1;
        // Earlier items of the same return are frames that the stack pointer ended.
        let end = tracked.iter().find_map(|item| match item {
            Tracked::Close { end: end @ (EndType::Return | EndType::ReturnElsewhere), .. } => Some(*end),
            _ => None,
        });
        let below = tracked.iter().any(|item| matches!(item, Tracked::Below { .. }));
        match end {
            Some(EndType::Return) if below => self.below += 1,
            Some(EndType::Return) => self.matched += 1,
            Some(_) => self.elsewhere += 1,
            None => self.as_jumps += 1,
        }
    }
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
    /// Switches between threads. 0 if the system is not known.
    pub switches: u64,
    /// Deliveries of signals to handlers.
    pub signals: u64,
    /// Threads of the system that were created.
    pub threads: u64,
    /// Symbols of the kernel. 0 if the system is not known.
    pub symbols: u64,
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
    inbox: Inbox,
    tracker: Tracker,
    steps: Steps,
    names: Names,
    without_programs: Option<String>,
    guest: Option<Box<dyn Guest>>,
    /// The functions of the kernel.
    functions: FxHashSet<Address>,
    /// The spaces of the stacks, by the numbers of the stacks.
    spaces: Vec<Space>,
    /// The threads with stacks, and the spaces of processes.
    threads: FxHashMap<u32, Vec<StackId>>,
    processes: FxHashMap<u32, Space>,
    /// The names of the stacks of the processor, by their lowest addresses.
    processor_stacks: FxHashMap<Address, &'static str>,
    /// The events of the current call of a hook.
    events: Vec<Event>,
    /// The threads whose next return to user mode leads to the handler of a signal, and the addresses to
    /// which the handlers return.
    signals: FxHashMap<u32, Option<Address>>,
    /// Threads that end with the next switch, and whether their processes do.
    ending: Vec<(u32, u32, bool)>,
    tracked: Vec<Tracked>,
    /// A frame that is not written yet: its function is not known.
    entering: Option<Entering>,
    totals: Totals,
}

/// A frame that was called at a thunk, which is about to jump to the frame's function.
#[derive(Clone, Copy, Debug)]
struct Entering {
    stack: StackId,
    first: ContextId,
    thunk: Address,
}

/// A [`Tracked::Jump`].
#[derive(Clone, Copy, Debug)]
struct Jump {
    stack: StackId,
    first: ContextId,
    from: Option<Address>,
    function: Address,
}

/// The result of a recording.
#[derive(Debug)]
pub struct Recorded<W, T = Totals> {
    /// The counters.
    pub totals: T,
    /// The end of the system or the program.
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
        let (emulator, inbox) = Emulator::start(system)?;
        let files = match &system.initrd {
            Some(path) => {
                let bytes =
                    std::fs::read(path).map_err(|cause| Error::Unreadable { path: path.clone(), cause })?;
                files::programs(&bytes)
            }
            None => Ok(Files::default()),
        };
        let (files, without_programs) = match files {
            Ok(files) => (files, None),
            Err(reason) => (Files::default(), Some(reason)),
        };
        Ok(Recorder {
            emulator,
            inbox,
            tracker: Tracker::new(Thread(0)),
            steps: Steps::new(),
            names: Names::new(files),
            without_programs,
            guest: None,
            functions: FxHashSet::default(),
            spaces: Vec::new(),
            threads: FxHashMap::default(),
            processes: FxHashMap::default(),
            processor_stacks: FxHashMap::default(),
            events: Vec::new(),
            signals: FxHashMap::default(),
            ending: Vec::new(),
            tracked: Vec::new(),
            entering: None,
            totals: Totals::default(),
        })
    }

    /// Why the programs of the initial file system have no names, if it cannot be read.
    pub fn without_programs(&self) -> Option<&str> {
        self.without_programs.as_deref()
    }

    /// Records until the system ends, `limit` transitions are reached, or `stop` is set. Calls `report`
    /// from time to time. At any time, the journal lacks at most the last hundred thousand records, and
    /// those that have not arrived.
    ///
    /// # Errors
    /// If the emulator does not execute the kernel, its records cannot be read, or the journal cannot be
    /// written.
    pub fn record<W: Write>(
        self,
        limit: u64,
        stop: &AtomicBool,
        journal: Writer<W>,
        report: impl FnMut(&Totals),
    ) -> Result<Recorded<W>, Error> {
        self.record_observed(limit, stop, journal, report, |_| {})
    }

    /// Records as [`record`](Recorder::record), and passes each record of the plugin to `observe`: for tools
    /// that check journals.
    ///
    /// # Errors
    /// As [`record`](Recorder::record).
    pub fn record_observed<W: Write>(
        mut self,
        limit: u64,
        stop: &AtomicBool,
        mut journal: Writer<W>,
        mut report: impl FnMut(&Totals),
        mut observe: impl FnMut(&Record),
    ) -> Result<Recorded<W>, Error> {
        let ended = self.follow(limit, stop, &mut journal, &mut report, &mut observe)?;
        let tracker = std::mem::replace(&mut self.tracker, Tracker::new(Thread(0)));
        let tracked = &mut self.tracked;
        let counts = tracker.finish(|item| tracked.push(item));
        self.totals.refused = counts.frames_refused + counts.stacks_refused;
        self.keep(&mut journal)?;
        self.enter_thunk(&mut journal)?;
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
        observe: &mut impl FnMut(&Record),
    ) -> Result<bool, Error> {
        let mut flushed = 0;
        let mut reported = 0;
        loop {
            if stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            match self.inbox.wait(&mut self.emulator).map_err(Error::Records)? {
                None => continue,
                Some(false) => return Ok(true),
                Some(true) => {}
            }
            while let Some(words) = self.inbox.next() {
                match Record::from_words(words) {
                    Some(record) if record.kind != Kind::Memory => {
                        observe(&record);
                        self.take(&record);
                    }
                    _ => return Err(Error::Damaged { number: self.totals.records }),
                }
                if !self.tracked.is_empty() || !self.events.is_empty() {
                    self.keep(journal)?;
                }
                if self.totals.transitions >= limit {
                    return Ok(false);
                }
            }
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
        // The plugin does not record the transitions before.
        self.tracker.skip_to(TransitionId(record.transition));
        self.totals.transitions = self.tracker.transition().0;
        match record.kind {
            Kind::End => {
                self.totals.instructions = record.sp_before;
                return;
            }
            Kind::Begun => return self.begun(Address(record.pc_before)),
            Kind::Hooked => {
                return self.hooked(usize::from(record.extra), [record.sp_before, record.sp_after]);
            }
            // A jump within a function.
            Kind::Jump if !self.functions.contains(&Address(record.pc_after)) => return,
            _ => {}
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

    /// The kernel begins. It waits meanwhile.
    fn begun(&mut self, at: Address) {
        let mut memory = SystemMemory { emulator: &mut self.emulator, inbox: &mut self.inbox };
        let guest = stackhound_record_guest::find(at, &mut memory);
        for (number, hook) in (0..).zip(guest.iter().flat_map(|guest| guest.hooks())) {
            let (address, waits) = (hook.address.0, hook.reads_memory);
            self.request(Request::Hook { address, number, waits });
        }
        let functions = guest.as_ref().map_or_else(Vec::new, |guest| guest.functions());
        // If the emulator has ended, the records end too, which is noticed.
        let _ = self.inbox.send_functions(&functions, &mut self.emulator);
        self.functions.extend(functions);
        self.request(Request::Continue);
        self.totals.symbols = guest.as_ref().map_or(0, |guest| guest.symbols() as u64);
        self.names.set_thunks(guest.as_ref().map_or_else(Vec::new, |guest| guest.thunks()));
        self.guest = guest;
    }

    /// A function of the kernel with a hook begins. If the hook reads memory, it waits meanwhile.
    fn hooked(&mut self, hook: usize, arguments: [u64; 2]) {
        let mut memory = SystemMemory { emulator: &mut self.emulator, inbox: &mut self.inbox };
        let Some(guest) = &mut self.guest else { return };
        guest.called(hook, arguments, &mut memory, &mut |event| self.events.push(event));
        let waits = guest.hooks().get(hook).is_some_and(|hook| hook.reads_memory);
        let current = guest.current().map(|task| task.thread);
        if waits {
            self.request(Request::Continue);
        }
        let tracked = &mut self.tracked;
        for event in &self.events {
            match *event {
                Event::Switched { to } => {
                    self.totals.switches += 1;
                    self.steps.switch(Thread(to));
                }
                Event::Created { stack, .. } => {
                    self.totals.threads += 1;
                    if let Some((low, high)) = stack {
                        let kind = StackKind::Kernel;
                        self.tracker.declare(Space::KERNEL, low, high, kind, |item| tracked.push(item));
                    }
                }
                Event::Signal { restorer } => {
                    self.totals.signals += 1;
                    if let Some(thread) = current {
                        self.signals.insert(thread, restorer);
                    }
                }
                Event::Stack { memory: (low, high), name } => {
                    self.processor_stacks.insert(low, name);
                    let kind = StackKind::Interrupt;
                    self.tracker.declare(Space::KERNEL, low, high, kind, |item| tracked.push(item));
                }
                Event::Ended { thread, process, is_last } => self.ending.push((thread, process, is_last)),
                Event::Executed { process } => {
                    // The program has left its earlier address space.
                    if let Some(stacks) = current.and_then(|thread| self.threads.get_mut(&thread)) {
                        let space = |stack: &StackId| self.spaces.get(stack.0 as usize);
                        stacks.retain(|stack| space(stack) == Some(&Space::KERNEL));
                    }
                    if let Some(space) = self.processes.remove(&process) {
                        let everything = (Address(0), Address(u64::MAX));
                        self.tracker.release(space, everything.0, everything.1, |item| tracked.push(item));
                    }
                }
                Event::Named { .. } => {}
            }
        }
    }

    fn request(&mut self, request: Request) {
        // If the emulator has ended, the records end too, which is noticed.
        let _ = self.inbox.request(request, &mut self.emulator);
    }

    fn step(&mut self, step: &Step) {
        let mut step = *step;
        let mut restorer = None;
        if !self.signals.is_empty()
            && (step.before.ring, step.after.ring) == (Ring::Kernel, Ring::User)
            && let Some(task) = self.guest.as_ref().and_then(|guest| guest.current())
            && let Some(address) = self.signals.remove(&task.thread)
        {
            // When the handler returns, its return address has been popped.
            step.class = Class::Signal { slot: Address(step.after.sp.0.wrapping_add(8)) };
            restorer = address;
        }
        let tracked = &mut self.tracked;
        // The recorder cannot read the memory of the system at this transition. But the system has pushed the
        // return address of the handler of a signal.
        let read = |address| restorer.filter(|_| address == step.after.sp);
        self.tracker.step(&step, read, |item| tracked.push(item));
        self.totals.transitions = self.tracker.transition().0;
        if matches!(step.class, Class::Switch { .. }) {
            self.end_threads();
        }
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
        returns.count(&self.tracked);
    }

    /// Ends the stacks of threads that do not run any more.
    fn end_threads(&mut self) {
        let tracked = &mut self.tracked;
        for (thread, process, is_last) in self.ending.drain(..) {
            self.threads.remove(&thread);
            self.signals.remove(&thread);
            self.tracker.exit(Thread(thread), |item| tracked.push(item));
            if is_last && let Some(space) = self.processes.remove(&process) {
                self.tracker.release(space, Address(0), Address(u64::MAX), |item| tracked.push(item));
            }
        }
    }

    /// Writes the results of the tracker to the journal.
    fn keep<W: Write>(&mut self, journal: &mut Writer<W>) -> Result<(), Error> {
        let mut tracked = std::mem::take(&mut self.tracked);
        for item in tracked.drain(..) {
            if let Tracked::Jump { stack, first, from, function } = item {
                self.jumped(Jump { stack, first, from, function }, journal)?;
                continue;
            }
            self.enter_thunk(journal)?;
            let (stack, function) = match item {
                Tracked::Stack { stack, kind, thread, space, region } => {
                    let info = self.describe(stack, kind, thread, space, region);
                    journal.stack(&info).map_err(Error::Keep)?;
                    continue;
                }
                Tracked::Open { stack, first, start, function } => {
                    self.totals.frames += 1;
                    if start == StartType::Call
                        && let Some(thunk) = function.filter(|&function| self.names.is_thunk(function))
                    {
                        self.entering = Some(Entering { stack, first, thunk });
                        continue;
                    }
                    (stack, function)
                }
                Tracked::Below { stack, function } => {
                    self.totals.frames += 1;
                    (stack, Some(function))
                }
                Tracked::Enter { stack, .. } | Tracked::Close { stack, .. } | Tracked::Jump { stack, .. } => {
                    (stack, None)
                }
                Tracked::Leave { .. } => (StackId(0), None),
            };
            let location = match function {
                Some(address) => {
                    let space = self.spaces.get(stack.0 as usize).copied().unwrap_or_default();
                    let names = self.names.location(address, space, self.guest.as_deref(), journal);
                    names.map_err(Error::Keep)?
                }
                // Not used.
                None => LocationId(0),
            };
            if let Some(change) = item.change(Cpu(0), |_| location) {
                journal.change(change).map_err(Error::Keep)?;
            }
        }
        self.tracked = tracked;
        for event in self.events.drain(..) {
            if let Event::Named { thread } = event
                && let Some(task) = self.guest.as_ref().and_then(|guest| guest.thread(thread))
            {
                for &stack in self.threads.get(&thread).into_iter().flatten() {
                    journal.name(stack, &task.name).map_err(Error::Keep)?;
                }
            }
        }
        Ok(())
    }

    /// The top frame of a stack has jumped to a function. If it was called at a thunk, it is a frame of this
    /// function, otherwise this is a tail call.
    fn jumped<W: Write>(&mut self, jump: Jump, journal: &mut Writer<W>) -> Result<(), Error> {
        let Jump { stack, first, from, function } = jump;
        // Those of programs are not all known.
        if function.0 < KERNEL || from == Some(function) {
            return Ok(());
        }
        let Some(thunk) = from.filter(|&from| self.names.is_thunk(from)) else {
            self.enter_thunk(journal)?;
            let names = self.names.location(function, Space::KERNEL, self.guest.as_deref(), journal);
            let location = names.map_err(Error::Keep)?;
            return journal.change(Change::TailCall { stack, first, location }).map_err(Error::Keep);
        };
        let names = self.names.entry(function, thunk, self.guest.as_deref(), journal);
        let location = names.map_err(Error::Keep)?;
        let entered = self.entering.take_if(|entering| entering.stack == stack);
        // An interrupt may have come first.
        let change = match entered {
            Some(Entering { first, .. }) => {
                Change::Open { stack, first, start: StartType::Call, location: Some(location) }
            }
            None => Change::Target { stack, location },
        };
        journal.change(change).map_err(Error::Keep)
    }

    /// Writes the frame of a thunk that has not jumped to a function yet.
    fn enter_thunk<W: Write>(&mut self, journal: &mut Writer<W>) -> Result<(), Error> {
        let Some(Entering { stack, first, thunk }) = self.entering.take() else { return Ok(()) };
        let names = self.names.location(thunk, Space::KERNEL, self.guest.as_deref(), journal);
        let location = Some(names.map_err(Error::Keep)?);
        journal.change(Change::Open { stack, first, start: StartType::Call, location }).map_err(Error::Keep)
    }

    /// A new stack. Its thread is the current one.
    fn describe(
        &mut self,
        stack: StackId,
        kind: StackKind,
        thread: Option<Thread>,
        space: Space,
        region: Option<(Address, Address)>,
    ) -> StackInfo {
        self.totals.stacks += 1;
        self.spaces.push(space);
        let of_program = space != Space::KERNEL;
        let guest = self.guest.as_ref();
        let task = thread.and_then(|thread| guest?.thread(thread.0)).cloned();
        if let Some(task) = &task {
            self.threads.entry(task.thread).or_default().push(stack);
            if of_program {
                self.processes.insert(task.process, space);
            }
        }
        let of_processor = region.and_then(|(low, _)| self.processor_stacks.get(&low));
        let name = match (&task, of_processor) {
            (Some(task), _) => Some(task.name.clone()),
            (None, Some(&name)) => Some(name.to_owned()),
            (None, None) => of_program.then(|| format!("page table {:#x}", space.0)),
        };
        let (process, thread) = task.map(|task| (task.process, task.thread)).unzip();
        StackInfo { kind, process, thread, cpu: None, name, region }
    }
}
