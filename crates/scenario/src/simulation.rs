//! Simulates a small system: threads on processors, waits, interrupts and samples.
//!
//! Time advances to the next occurrence on any processor. A thread executes step by step, and can
//! continue on another processor after a wait. Its events are therefore in several buffers, as in
//! real traces.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::Write;

use stackhound_etl::write::stack::StackMode;
use stackhound_etl::write::{Issuer, WriteError};
use stackhound_types::{Address, Pid, RawTime, Tid};

use crate::attack::AttackProgress;
use crate::event::{self, EventKind};
use crate::frames::Frames;
use crate::image::SystemImage;
use crate::machine::{Machine, ProcessIndex};
use crate::output::{Logged, Output, PROCESSORS, TICKS_PER_MS};
use crate::payload::{self, Switch};
use crate::problem::ProblemState;
use crate::provider::Providers;
use crate::random::Random;
use crate::resources::Resources;
use crate::site::{self, Site};
use crate::stacks::{Owner, Pending, Stacks};
use crate::thread::{Caller, LiveThread, Mode, Running, Start, ThreadIndex, Wake};
use crate::truth::{About, GroundTruth, SwitchTruth};

/// Time that a thread runs while others wait for its processor, in ticks.
const QUANTUM: i64 = 10 * TICKS_PER_MS;
const SAMPLE_INTERVAL: i64 = TICKS_PER_MS;
/// One in this many samples has the same time as a sample of another processor.
const COINCIDENCE_IN: u64 = 16;
/// Minimum and maximum number of ticks between the steps of a thread.
const STEP: (u64, u64) = (20, 250);
const NEVER: i64 = i64::MAX;

// Thread states of Windows (`KTHREAD_STATE`) and wait reasons (`KWAIT_REASON`).
const STATE_READY: u8 = 1;
const STATE_RUNNING: u8 = 2;
const STATE_ENDED: u8 = 4;
const STATE_WAITING: u8 = 5;
const QUANTUM_END: u8 = 30;
const TERMINATED: u8 = 22;

/// A processor. `running` is `None` while it is idle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Processor {
    pub running: Option<ThreadIndex>,
    pub next_step: i64,
    next_sample: i64,
    quantum_end: i64,
}

/// The end of a wait: time, thread, cause, and number of the wait.
type Alarm = (i64, ThreadIndex, Wake, u32);

/// The next occurrence.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Next {
    Alarm,
    Sample(u16),
    Step(u16),
}

/// A version of the programs, for comparisons.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Version {
    Before,
    /// One function is slower and one more program attacks.
    After,
}

/// The simulated system and its trace.
pub(crate) struct Simulation<'e, W> {
    pub out: Output<W>,
    pub stacks: Stacks<'e>,
    pub machine: Machine,
    pub threads: Vec<LiveThread>,
    pub processors: [Processor; PROCESSORS as usize],
    pub random: Random,
    pub providers: Providers,
    pub resources: Resources,
    pub progress: AttackProgress,
    pub problem: Option<ProblemState>,
    pub match_ids: u64,
    /// The version of the programs, in scenarios for comparisons. These lose no buffer.
    pub version: Option<Version>,
    ready: VecDeque<ThreadIndex>,
    alarms: BinaryHeap<Reverse<Alarm>>,
    /// Threads that wait for a signal, with the numbers of their waits.
    signallable: VecDeque<(ThreadIndex, u32)>,
    waits: u32,
}

impl<'e, W: Write> Simulation<'e, W> {
    pub fn new(out: Output<W>, stacks: Stacks<'e>, mut random: Random) -> Simulation<'e, W> {
        let machine = Machine::new(&mut random);
        let start = out.now();
        let processor = |at: u16| Processor {
            running: None,
            next_step: NEVER,
            next_sample: start + SAMPLE_INTERVAL + i64::from(at) * SAMPLE_INTERVAL / i64::from(PROCESSORS),
            quantum_end: NEVER,
        };
        Simulation {
            out,
            stacks,
            machine,
            threads: Vec::new(),
            processors: [0, 1, 2, 3].map(processor),
            random,
            providers: Providers::new(),
            resources: Resources::new(),
            progress: AttackProgress::default(),
            problem: None,
            match_ids: 0,
            version: None,
            ready: VecDeque::new(),
            alarms: BinaryHeap::new(),
            signallable: VecDeque::new(),
            waits: 0,
        }
    }

    /// Runs until the file, with the final rundown, has `records` records, and the attack or the
    /// problem is over.
    pub fn run(&mut self, records: u64) -> Result<(), WriteError> {
        while self.out.kept() + self.rundown_records() < records || !self.is_over() {
            self.advance_attack(records)?;
            let (time, next) = self.next();
            self.out.wait_until(time);
            match next {
                Next::Alarm => self.wake()?,
                Next::Sample(on) => self.sample(on)?,
                Next::Step(on) => self.step(on)?,
            }
        }
        Ok(())
    }

    fn next(&self) -> (i64, Next) {
        let alarm = self.alarms.peek().map_or(NEVER, |Reverse(alarm)| alarm.0);
        let mut next = (alarm, Next::Alarm);
        for (on, processor) in (0..).zip(&self.processors) {
            next = next.min((processor.next_sample, Next::Sample(on)));
            next = next.min((processor.next_step, Next::Step(on)));
        }
        next
    }

    /// Adds a thread. It runs after [`make_ready`](Simulation::make_ready).
    pub fn add_thread(
        &mut self,
        process: ProcessIndex,
        start: Start,
        started: Option<RawTime>,
    ) -> ThreadIndex {
        let role = self.machine.processes[process].role;
        let start_address = LiveThread::start_address(&self.machine, role, start);
        let (tid, index_in_process) = self.machine.new_thread(process, start_address, started);
        let mut thread = LiveThread {
            tid,
            process,
            index_in_process,
            start,
            priority: 8 + self.random.below(3) as u8,
            ideal_processor: self.random.below(PROCESSORS.into()) as u16,
            running: Running::Ready,
            mode: Mode::Startup,
            script: VecDeque::new(),
            route: self.random.next(),
            functions: None,
            kernel: Frames::EMPTY,
            outer: None,
            user: Frames::EMPTY,
            pending: Vec::new(),
            match_id: None,
            caller: Caller::Stub,
            lays_out: false,
            attack: None,
            was_preempted: false,
        };
        if let Start::System(routine) = start {
            thread.mode = Mode::Kernel;
            thread.kernel.push(self.machine.address(site::SYSTEM_ROUTINES[routine]));
            thread.kernel.extend(&self.addresses(&site::SYSTEM_THREAD_START));
        } else {
            thread.kernel.extend(&self.addresses(&site::USER_THREAD_START));
            thread.user.extend(&self.addresses(&site::LOADER));
        }
        self.threads.push(thread);
        self.threads.len() - 1
    }

    pub fn addresses<const N: usize>(&self, sites: &[Site; N]) -> [Address; N] {
        sites.map(|site| self.machine.address(site))
    }

    pub fn owner(&self, thread: ThreadIndex) -> Owner {
        let thread = &self.threads[thread];
        Owner { pid: self.machine.processes[thread.process].pid(), tid: thread.tid }
    }

    pub fn issuer(&self, thread: ThreadIndex) -> Issuer {
        let Owner { pid, tid } = self.owner(thread);
        Issuer::new(pid, tid)
    }

    /// Executes the next step of the thread on a processor.
    fn step(&mut self, on: u16) -> Result<(), WriteError> {
        let processor = self.processors[usize::from(on)];
        let Some(thread) = processor.running else { return Ok(()) };
        let is_over = self.out.now() >= processor.quantum_end && !self.ready.is_empty();
        if is_over && self.threads[thread].mode == Mode::User {
            self.threads[thread].was_preempted = true;
            self.threads[thread].running = Running::Ready;
            self.ready.push_back(thread);
            return self.dispatch(on, QUANTUM_END, STATE_READY);
        }
        if self.threads[thread].script.is_empty() {
            self.plan(thread);
        }
        let Some(action) = self.threads[thread].script.pop_front() else { return Ok(()) };
        self.processors[usize::from(on)].next_step =
            self.out.now() + self.random.between(STEP.0, STEP.1) as i64;
        self.perform(on, thread, action)
    }

    /// Lets the thread on a processor wait. Switches the processor to another thread.
    pub fn wait(
        &mut self,
        on: u16,
        thread: ThreadIndex,
        mut wake: Wake,
        ticks: u32,
    ) -> Result<(), WriteError> {
        self.waits += 1;
        if let Wake::Disk(transfer) = &mut wake {
            transfer.started = self.out.now();
        }
        if wake != Wake::Lock {
            self.alarms.push(Reverse((self.out.now() + i64::from(ticks), thread, wake, self.waits)));
        }
        if wake == Wake::Signal {
            self.signallable.push_back((thread, self.waits));
        }
        self.threads[thread].running = Running::Waiting(self.out.now());
        self.dispatch(on, wake.wait_reason(), STATE_WAITING)
    }

    /// Lets a thread that is not running wait, starting now.
    pub fn wait_from_the_start(&mut self, thread: ThreadIndex, ticks: u32) {
        self.waits += 1;
        self.alarms.push(Reverse((self.out.now() + i64::from(ticks), thread, Wake::Timer, self.waits)));
        self.threads[thread].running = Running::Waiting(self.out.now());
    }

    /// Ends the thread on a processor. Switches the processor to another thread.
    pub fn retire(&mut self, on: u16, thread: ThreadIndex) -> Result<(), WriteError> {
        self.threads[thread].running = Running::Ended;
        self.dispatch(on, TERMINATED, STATE_ENDED)
    }

    /// Switches a processor to the thread that has been ready for the longest time.
    fn dispatch(&mut self, on: u16, reason: u8, old_state: u8) -> Result<(), WriteError> {
        let next = self.ready.pop_front();
        self.switch(on, next, reason, old_state)
    }

    fn switch(
        &mut self,
        on: u16,
        next: Option<ThreadIndex>,
        wait_reason: u8,
        old_state: u8,
    ) -> Result<(), WriteError> {
        let old = self.processors[usize::from(on)].running;
        let identity = |threads: &[LiveThread], thread: Option<ThreadIndex>| {
            thread.map_or((Tid(0), 0), |thread| (threads[thread].tid, threads[thread].priority))
        };
        let (new_tid, new_priority) = identity(&self.threads, next);
        let (old_tid, old_priority) = identity(&self.threads, old);
        let waited = match next.map(|next| self.threads[next].running) {
            Some(Running::Waiting(since)) => (self.out.now() - since) / 156_250,
            _ => 0,
        };
        let switch = Switch {
            new: new_tid,
            old: old_tid,
            priorities: (new_priority, old_priority),
            wait_reason,
            user_wait: old_state == STATE_WAITING,
            old_state,
            ideal_processor: old.map_or(on, |old| self.threads[old].ideal_processor),
            waited_ticks: waited as u32,
        };
        payload::context_switch(&mut self.out.payload, &switch);
        let logged = self.out.kernel(on, event::CONTEXT_SWITCH, Issuer::UNKNOWN)?;
        let old_ends = old_state == STATE_ENDED;
        self.out.add_ground_truth(logged, GroundTruth::Switch { old: old_tid, old_ends, new: new_tid });
        let truth = self.out.notes.switches.is_some().then(|| SwitchTruth {
            time: logged.time,
            processor: on,
            kept: logged.kept,
            old: old_tid,
            old_waits: (old_state == STATE_WAITING && old.is_some()).then_some(wait_reason),
            old_kernel: self.switched_out_frames(old),
            new: new_tid,
            new_kernel: self.switched_out_frames(next),
            recorded: Vec::new(),
        });
        let now = self.out.now();
        let processor = &mut self.processors[usize::from(on)];
        processor.running = next;
        processor.quantum_end = now + QUANTUM;
        processor.next_step = if next.is_some() { now + STEP.1 as i64 } else { NEVER };
        let Some(thread) = next else {
            self.note_switch(truth, &Frames::EMPTY);
            return Ok(());
        };
        self.threads[thread].running = Running::On(on);
        let kind = event::CONTEXT_SWITCH.kind();
        if !std::mem::take(&mut self.threads[thread].was_preempted) {
            let recorded = self.kernel_part(on, thread, kind, logged, &site::RESUMED)?;
            self.note_switch(truth, &recorded);
            return Ok(());
        }
        self.threads[thread].kernel.clear();
        let position = self.random.below(4);
        self.threads[thread].user = self.threads[thread].running_frames(&self.machine, position);
        let recorded = self.kernel_part(on, thread, kind, logged, &site::PREEMPTED)?;
        self.note_switch(truth, &recorded);
        self.user_part(on, thread)
    }

    fn note_switch(&mut self, truth: Option<SwitchTruth>, recorded: &Frames) {
        if let (Some(switches), Some(truth)) = (&mut self.out.notes.switches, truth) {
            switches.push(SwitchTruth { recorded: recorded.as_slice().to_vec(), ..truth });
        }
    }

    /// The kernel stack of a thread while it is switched out.
    fn switched_out_frames(&self, thread: Option<ThreadIndex>) -> Vec<Address> {
        let Some(thread) = thread else { return Vec::new() };
        let live = &self.threads[thread];
        let inner = match live.was_preempted {
            true => self.addresses(&site::PREEMPTED).to_vec(),
            false => self.kernel_frames(thread, &site::RESUMED).as_slice().to_vec(),
        };
        let outer = live.outer.iter().flat_map(|(outer, _)| outer.as_slice());
        inner.iter().chain(outer).copied().collect()
    }

    /// Handles the alarm that is due: logs its interrupt, and wakes its thread.
    fn wake(&mut self) -> Result<(), WriteError> {
        let Some(Reverse((at, thread, wake, wait))) = self.alarms.pop() else { return Ok(()) };
        if wake == Wake::Signal {
            let before = self.signallable.len();
            self.signallable.retain(|&(_, signallable)| signallable != wait);
            if self.signallable.len() == before {
                // Another thread has already signaled it.
                return Ok(());
            }
        }
        let on = self.random.below(PROCESSORS.into()) as u16;
        let address = |site| self.machine.address(site);
        let interrupt = |known, at| address(Site(known, at));
        match wake {
            // These waits have no alarm.
            Wake::Lock => return Ok(()),
            Wake::Timer | Wake::Signal => {
                let (started, routine) =
                    (self.out.started(on, at), interrupt(SystemImage::Ntoskrnl, 0x22_a450));
                payload::deferred_call(&mut self.out.payload, started, routine);
                let logged = self.out.kernel(on, event::TIMER_DEFERRED_CALL, Issuer::UNKNOWN)?;
                let since = RawTime(started);
                self.out
                    .add_ground_truth(logged, GroundTruth::Interrupt { since, routine, is_deferred: true });
            }
            Wake::Disk(transfer) => {
                let (isr, dpc) =
                    (interrupt(SystemImage::Storport, 0x1f80), interrupt(SystemImage::Storport, 0x2b70));
                self.interrupt(on, at, isr, dpc, 0x91)?;
                let tid = self.threads[thread].tid;
                let event = if transfer.is_write { event::DISK_WRITE } else { event::DISK_READ };
                let now = self.out.now();
                payload::disk_transfer(&mut self.out.payload, &transfer, now, tid);
                let path = self.resources.path(transfer.file);
                self.out.about(|| About::File(path.to_owned()));
                let logged = self.out.kernel(on, event, Issuer::UNKNOWN)?;
                // The payload states the time until its record was prepared.
                let since = RawTime(logged.time.0 - (now - transfer.started));
                let (bytes, is_write) = (transfer.size, transfer.is_write);
                self.out.add_ground_truth(logged, GroundTruth::Disk { since, tid, bytes, is_write });
            }
            Wake::Network(size) => {
                let (isr, dpc) = (interrupt(SystemImage::Ndis, 0x3a10), interrupt(SystemImage::Ndis, 0x4de0));
                self.interrupt(on, at, isr, dpc, 0xa2)?;
                let pid = self.owner(thread).pid;
                let now = self.out.now();
                payload::tcp(&mut self.out.payload, pid, size, pid.0.into(), false, now);
                let logged = self.out.kernel(on, event::TCP_RECEIVE, Issuer::UNKNOWN)?;
                self.out.add_ground_truth(logged, GroundTruth::Network { pid, bytes: size, is_send: false });
            }
        }
        payload::ready_thread(&mut self.out.payload, self.threads[thread].tid, true);
        let logged = self.out.kernel(on, event::READY_THREAD, Issuer::UNKNOWN)?;
        let tid = self.threads[thread].tid;
        self.out.add_ground_truth(logged, GroundTruth::Ready { tid, by: None });
        self.make_ready(thread)
    }

    fn interrupt(
        &mut self,
        on: u16,
        at: i64,
        isr: Address,
        dpc: Address,
        vector: u16,
    ) -> Result<(), WriteError> {
        let started = self.out.started(on, at);
        payload::interrupt(&mut self.out.payload, started, isr, vector);
        let logged = self.out.kernel(on, event::INTERRUPT, Issuer::UNKNOWN)?;
        let since = RawTime(started);
        self.out.add_ground_truth(logged, GroundTruth::Interrupt { since, routine: isr, is_deferred: false });
        let started = self.out.now();
        payload::deferred_call(&mut self.out.payload, started, dpc);
        let logged = self.out.kernel(on, event::DEFERRED_CALL, Issuer::UNKNOWN)?;
        let since = RawTime(started);
        self.out.add_ground_truth(logged, GroundTruth::Interrupt { since, routine: dpc, is_deferred: true });
        Ok(())
    }

    /// The thread that has been waiting for a signal for the longest time.
    pub fn take_signallable(&mut self) -> Option<ThreadIndex> {
        self.signallable.pop_front().map(|(thread, _)| thread)
    }

    /// Makes a thread ready: it runs on an idle processor if there is one.
    pub fn make_ready(&mut self, thread: ThreadIndex) -> Result<(), WriteError> {
        let ideal = self.threads[thread].ideal_processor;
        let order = (0..PROCESSORS).map(|at| (ideal + at) % PROCESSORS);
        let mut idle = order.filter(|&on| self.processors[usize::from(on)].running.is_none());
        match idle.next() {
            Some(on) => self.switch(on, Some(thread), 0, STATE_RUNNING),
            None => {
                self.ready.push_back(thread);
                Ok(())
            }
        }
    }

    /// Samples a processor, and occasionally another one at the same time.
    fn sample(&mut self, on: u16) -> Result<(), WriteError> {
        let mut sampled = [Some(on), None];
        if self.random.one_in(COINCIDENCE_IN) {
            sampled[1] = Some((on + 1) % PROCESSORS);
        }
        let mut logged = Vec::with_capacity(2);
        for on in sampled.into_iter().flatten() {
            let processor = &mut self.processors[usize::from(on)];
            processor.next_sample = processor.next_sample.max(self.out.now()) + SAMPLE_INTERVAL;
            let thread = processor.running;
            let frames = self.sampled_frames(thread);
            let tid = thread.map_or(Tid(0), |thread| self.threads[thread].tid);
            payload::sample(&mut self.out.payload, frames.as_slice()[0], tid);
            let event = event::SAMPLED_PROFILE;
            let record = if logged.is_empty() {
                self.out.kernel(on, event, Issuer::UNKNOWN)?
            } else {
                self.out.kernel_now(on, event, Issuer::UNKNOWN)?
            };
            logged.push((thread, record, frames));
        }
        for (thread, record, frames) in logged {
            self.sampled_stack(thread, record, frames)?;
        }
        Ok(())
    }

    fn sampled_frames(&mut self, thread: Option<ThreadIndex>) -> Frames {
        let mut frames = Frames::EMPTY;
        let position = self.random.below(6);
        let Some(thread) = thread else {
            frames.extend(&self.addresses(&site::IDLE));
            return frames;
        };
        let thread = &self.threads[thread];
        if thread.mode == Mode::User {
            return thread.running_frames(&self.machine, position);
        }
        frames
            .push(self.machine.address(Site(SystemImage::Ntoskrnl, 0x20_31c0 + 0x1_1a37 * position as u32)));
        frames.extend(thread.kernel.as_slice());
        if let Some((outer, _)) = &thread.outer {
            frames.extend(outer.as_slice());
        }
        frames
    }

    fn sampled_stack(
        &mut self,
        thread: Option<ThreadIndex>,
        logged: Logged,
        frames: Frames,
    ) -> Result<(), WriteError> {
        let kind = event::SAMPLED_PROFILE.kind();
        let Some(thread) = thread else {
            let owner = Owner { pid: Pid::IDLE, tid: Tid(0) };
            let pending = self.kernel_record(logged.processor, owner, kind, logged, &frames)?;
            self.stacks.settle(&pending, owner, None, false);
            return Ok(());
        };
        let owner = self.owner(thread);
        if self.threads[thread].mode == Mode::User {
            let attack = self.threads[thread].shown_attack();
            return self.stacks.user_event(&mut self.out, kind, logged, owner, &frames, attack);
        }
        let pending = self.kernel_record(logged.processor, owner, kind, logged, &frames)?;
        self.await_user_part(thread, pending);
        Ok(())
    }

    /// Logs one stack record with kernel frames.
    pub fn kernel_record(
        &mut self,
        on: u16,
        owner: Owner,
        event: EventKind,
        logged: Logged,
        frames: &Frames,
    ) -> Result<Pending, WriteError> {
        let kept = self.stacks.part(&mut self.out, on, logged, owner, StackMode::Kernel, frames)?;
        Ok(Pending {
            event,
            logged,
            kernel: if kept { *frames } else { Frames::EMPTY },
            kernel_kept: kept,
            is_damaged: !kept,
            is_extended: false,
            attack: None,
        })
    }

    /// Logs the kernel stack of a thread's event, in two records if the kernel called a window
    /// procedure. Returns the frames that are in the file.
    pub fn kernel_part(
        &mut self,
        on: u16,
        thread: ThreadIndex,
        event: EventKind,
        logged: Logged,
        below: &[Site],
    ) -> Result<Frames, WriteError> {
        let frames = self.kernel_frames(thread, below);
        let owner = self.owner(thread);
        let mut pending = self.kernel_record(on, owner, event, logged, &frames)?;
        if let Some((outer, _)) = self.threads[thread].outer {
            let second = self.kernel_record(on, owner, event, logged, &outer)?;
            pending.kernel.extend(second.kernel.as_slice());
            pending.kernel_kept |= second.kernel_kept;
            pending.is_damaged |= second.is_damaged;
        }
        pending.attack = self.threads[thread].shown_attack();
        let recorded = pending.kernel;
        self.await_user_part(thread, pending);
        Ok(recorded)
    }

    /// The kernel stack of a thread with the innermost frames `below`.
    pub fn kernel_frames(&self, thread: ThreadIndex, below: &[Site]) -> Frames {
        let mut frames = Frames::EMPTY;
        for &site in below {
            frames.push(self.machine.address(site));
        }
        frames.extend(self.threads[thread].kernel.as_slice());
        frames
    }

    pub fn await_user_part(&mut self, thread: ThreadIndex, pending: Pending) {
        let owner = self.owner(thread);
        if owner.pid.is_kernel_only() {
            self.stacks.settle(&pending, owner, None, false);
        } else {
            self.threads[thread].pending.push(pending);
        }
    }
}
