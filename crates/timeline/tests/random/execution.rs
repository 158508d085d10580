//! Threads that call and return in user mode and in the kernel, on several processors, with
//! interruptions; and which of it a recorder would see.

use std::collections::HashMap;
use std::sync::Arc;

use stackhound_calltree::{Cpu, LocationId};
use stackhound_timeline::{EventKind, Interruption, Part, SampledFrame, Snapshot, StackEvent};
use stackhound_types::Tid;

/// How many functions there are.
pub const FUNCTIONS: u32 = 64;
const CPUS: usize = 2;
const THREADS: usize = 3;

const ROOT: Func = Func(0);
const CALLBACK: Func = Func(10);
const DISPATCHER: Func = Func(40);
const LOGGING: Func = Func(41);
const FAULT: Func = Func(42);
const INTERRUPT: Func = Func(43);
const SWAP: Func = Func(44);
const IDLE: Func = Func(45);
const KERNEL_CALLBACK: Func = Func(46);
const WOW64_ROOT: Func = Func(47);
const WOW64_CPU: Func = Func(48);
const WOW64_CALLBACK: Func = Func(49);
/// The first function of a thread's own, which never returns.
const START: Func = Func(50);
const WOW64_CALLS: u32 = 51;
/// The thread of a 32-bit program.
const NARROW: usize = 2;
const UNKNOWN: u32 = 63;

/// A function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Func(pub u32);

/// A reader's knowledge of a function: everything, only the module, or nothing.
pub fn function_of(func: Func) -> Option<u32> {
    match func.0 {
        3 | 4 | 14 | 15 => Some(UNKNOWN),
        5 => None,
        other => Some(other),
    }
}

/// Whose stack.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Owner {
    User(u32),
    Wow64(u32),
    Kernel(u32),
    Idle(u16),
    Service(u16),
    Deferred(u16),
}

/// The expected active stack.
#[derive(Clone, Copy, Debug)]
pub enum Active {
    Exactly(Owner),
    /// A user stack of the thread.
    User(u32),
    /// A user or the kernel stack of the thread.
    Thread(u32, u16),
}

impl Active {
    pub fn is(self, owner: Owner) -> bool {
        match self {
            Active::Exactly(is) => is == owner,
            Active::User(tid) => owner == Owner::User(tid) || owner == Owner::Wow64(tid),
            Active::Thread(0, cpu) => owner == Owner::Idle(cpu),
            Active::Thread(tid, _) => Active::User(tid).is(owner) || owner == Owner::Kernel(tid),
        }
    }
}

/// A frame and the contexts at which it is there.
#[derive(Clone, Copy, Debug)]
pub struct TrueFrame {
    pub number: usize,
    pub func: Func,
    pub first: u64,
    pub last: u64,
    /// Its instruction pointer, or the return address of its callee.
    site: u8,
}

/// A system call or an interruption, both ends of which were recorded.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub owner: Owner,
    pub first: u64,
    pub last: u64,
}

/// The information that is recorded.
#[derive(Clone, Debug)]
pub enum Recorded {
    Event(StackEvent),
    Lost(u16),
    Regained(u16),
}

/// Which events are recorded.
#[derive(Clone, Copy, Debug)]
pub struct RecordingOptions {
    pub calls: bool,
    pub switches: bool,
    pub losses: bool,
    /// Whether stacks are recorded during interruptions.
    pub interrupted_stacks: bool,
    /// Whether walks sometimes end early, without any indication.
    pub cut_walks: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Visit {
    /// By a system call; since the context after its event, if that was recorded and nothing was lost
    /// since.
    Call(Option<u64>),
    Fault,
}

#[derive(Default, Debug)]
struct Thread {
    user: Vec<usize>,
    /// Of a 32-bit program, the stack of 64-bit code.
    wow64: Vec<usize>,
    kernel: Vec<usize>,
    /// How it got into the kernel, with how many user and WOW64 frames; in user mode inside of
    /// another one, if the kernel has called back since.
    visits: Vec<(Visit, usize, usize)>,
    /// Whether it is in user mode though there are visits.
    is_called_back: bool,
    on: Option<usize>,
}

impl Thread {
    fn is_in_kernel(&self) -> bool {
        !self.visits.is_empty() && !self.is_called_back
    }

    /// Its activity may continue unobserved: open calls may end at any time.
    fn is_doubted(&mut self) {
        for (visit, ..) in &mut self.visits {
            if let Visit::Call(since) = visit {
                *since = None;
            }
        }
    }
}

#[derive(Default, Debug)]
struct Processor {
    running: Option<usize>,
    /// Current interruptions: the kind, the start time, the frames, and the first context.
    interruptions: Vec<(Interruption, i64, Vec<usize>, u64)>,
    is_lost: bool,
    /// Whether a context switch showed the running thread.
    is_known: bool,
}

/// An execution.
#[derive(Default, Debug)]
pub struct Execution {
    pub recorded: Vec<Recorded>,
    pub events: u64,
    pub calls: Vec<Call>,
    /// The expected active stacks, with context and processor.
    pub active: Vec<(u64, u16, Active)>,
    /// When a processor was interrupted: the first and the last context.
    interrupted: Vec<(u16, u64, u64)>,
    frames: Vec<TrueFrame>,
    stacks: HashMap<(Owner, u64), Vec<usize>>,
    threads: Vec<Thread>,
    processors: Vec<Processor>,
    time: i64,
    recording: Option<RecordingOptions>,
    sites: u8,
}

impl Execution {
    pub fn frame(&self, number: usize) -> &TrueFrame {
        &self.frames[number]
    }

    /// The frames of a stack at a context, outermost first.
    pub fn stack_at(&self, owner: Owner, context: u64) -> Option<&Vec<usize>> {
        self.stacks.get(&(owner, context))
    }

    pub fn run(script: &[(u8, u8, u8)], recording: RecordingOptions) -> Execution {
        let mut execution = Execution { recording: Some(recording), ..Execution::default() };
        execution.processors.resize_with(CPUS, Processor::default);
        execution.threads.resize_with(THREADS, Thread::default);
        (1..THREADS).for_each(|thread| execution.begin(thread));
        // The start of the first thread is recorded.
        execution.log(0, EventKind::ThreadStart(Tid(1)), None, None);
        execution.begin(0);
        for &(what, on, how) in script {
            execution.time += 1;
            execution.act(what, usize::from(on) % CPUS, how);
        }
        for cpu in 0..CPUS {
            // Stacks during an interruption without an end event cannot be distinguished from the
            // thread's.
            let processor = &mut execution.processors[cpu];
            if processor.is_lost && !processor.interruptions.is_empty() {
                processor.is_lost = false;
                execution.recorded.push(Recorded::Regained(cpu as u16));
            }
            while !execution.processors[cpu].interruptions.is_empty() {
                execution.end_interruption(cpu);
            }
        }
        execution.note();
        let Execution { active, interrupted, .. } = &mut execution;
        active.retain(|&(at, cpu, active)| {
            let is_interruption = matches!(active, Active::Exactly(Owner::Service(_) | Owner::Deferred(_)));
            is_interruption
                || !interrupted.iter().any(|&(on, first, last)| on == cpu && (first..=last).contains(&at))
        });
        for frame in &mut execution.frames {
            // Frames that exist at no context are not expected.
            frame.last = frame.last.min(execution.events);
        }
        execution
    }

    /// A thread comes to be. It has not run yet.
    fn begin(&mut self, thread: usize) {
        let user = [ROOT, START].map(|func| self.push(func));
        self.threads[thread].user.extend(user);
        if thread == NARROW {
            let wow64 = [WOW64_ROOT, WOW64_CPU].map(|func| self.push(func));
            self.threads[thread].wow64.extend(wow64);
        }
        self.preempt(thread);
    }

    fn push(&mut self, func: Func) -> usize {
        self.sites = self.sites.wrapping_add(1);
        let number = self.frames.len();
        self.frames.push(TrueFrame { number, func, first: u64::MAX, last: 0, site: self.sites % 3 });
        number
    }

    /// Takes note of all stacks at the context before the next event.
    fn note(&mut self) {
        let at = self.events;
        // A thread may have been called back at once.
        let threads = &self.threads;
        let is_called_back = |owner| match owner {
            Active::Exactly(Owner::Kernel(tid)) => !threads[tid as usize - 1].is_in_kernel(),
            _ => false,
        };
        self.active.retain(|&(context, _, owner)| context != at || !is_called_back(owner));
        let mut stacks: Vec<(Owner, Vec<usize>)> = Vec::new();
        for (tid, thread) in (1..).zip(&self.threads) {
            stacks.push((Owner::User(tid), thread.user.clone()));
            stacks.push((Owner::Wow64(tid), thread.wow64.clone()));
            stacks.push((Owner::Kernel(tid), thread.kernel.clone()));
        }
        for (cpu, processor) in (0..).zip(&self.processors) {
            stacks.push((Owner::Idle(cpu), Vec::new()));
            for by in [Interruption::Service, Interruption::Deferred] {
                let of = processor.interruptions.iter().filter(|interruption| interruption.0 == by);
                let frames = of.flat_map(|interruption| interruption.2.clone()).collect();
                let owner =
                    if by == Interruption::Service { Owner::Service(cpu) } else { Owner::Deferred(cpu) };
                stacks.push((owner, frames));
            }
        }
        for (owner, frames) in stacks {
            for &frame in &frames {
                let frame = &mut self.frames[frame];
                frame.first = frame.first.min(at);
                frame.last = frame.last.max(at);
            }
            self.stacks.insert((owner, at), frames);
        }
    }

    fn act(&mut self, what: u8, cpu: usize, how: u8) {
        let recording = self.recording.unwrap();
        let is_interrupted = !self.processors[cpu].interruptions.is_empty();
        let running = self.processors[cpu].running;
        match what % 18 {
            0..=2 => self.call(cpu, how),
            3 | 4 => self.give_back(cpu),
            5 => self.go_on(cpu, how),
            6..=8 => self.sample(cpu, how),
            9 | 10 if !is_interrupted => match running {
                Some(thread) if !self.threads[thread].is_in_kernel() => self.enter(cpu, thread, how),
                Some(thread) => self.leave(cpu, thread, how),
                None => {}
            },
            11 | 12 if !is_interrupted => self.switch(cpu, how),
            13 if self.processors[cpu].interruptions.len() < 3 => self.interrupt(cpu, how),
            14 => self.end_interruption(cpu),
            15 if !is_interrupted => self.call_back(cpu, how),
            16 => {
                let thread = running.filter(|_| !is_interrupted && how.is_multiple_of(2));
                self.log(cpu, EventKind::Other, thread.map(|thread| thread as u32 + 1), None);
            }
            17 if recording.losses => self.lose_or_regain(cpu, how),
            _ => {}
        }
    }

    /// The innermost frames of what a processor does.
    fn current(&mut self, cpu: usize) -> Option<&mut Vec<usize>> {
        let processor = &mut self.processors[cpu];
        if let Some((_, _, frames, _)) = processor.interruptions.last_mut() {
            return Some(frames);
        }
        let thread = &mut self.threads[processor.running?];
        Some(if thread.is_in_kernel() { &mut thread.kernel } else { &mut thread.user })
    }

    fn is_kernel(&self, cpu: usize) -> bool {
        let processor = &self.processors[cpu];
        !processor.interruptions.is_empty()
            || processor.running.is_some_and(|thread| self.threads[thread].is_in_kernel())
    }

    fn call(&mut self, cpu: usize, how: u8) {
        let func = Func(u32::from(how) % 5 + if self.is_kernel(cpu) { 11 } else { 1 });
        let Some(top) = self.current(cpu).and_then(|frames| frames.last().copied()) else { return };
        self.frames[top].site = how / 5 % 3;
        let frame = self.push(func);
        self.current(cpu).unwrap().push(frame);
    }

    /// Returns from a function, if it is none that an entry into the kernel began with.
    fn give_back(&mut self, cpu: usize) {
        let Some(frames) = self.current(cpu) else { return };
        let Some(&top) = frames.last() else { return };
        if (1..=5).contains(&self.frames[top].func.0) || (11..=15).contains(&self.frames[top].func.0) {
            self.current(cpu).unwrap().pop();
        }
    }

    fn go_on(&mut self, cpu: usize, how: u8) {
        let Some(&top) = self.current(cpu).and_then(|frames| frames.last()) else { return };
        self.frames[top].site = how % 3;
    }

    fn enter(&mut self, cpu: usize, thread: usize, how: u8) {
        let top = *self.threads[thread].user.last().unwrap();
        self.frames[top].site = how % 3;
        let depth = self.threads[thread].user.len();
        let is_fault = how % 4 == 3 && self.threads[thread].visits.is_empty();
        let mut since = None;
        if thread == NARROW && !is_fault {
            let through = self.push(Func(WOW64_CALLS + u32::from(how / 16) % 3));
            self.threads[thread].wow64.push(through);
        }
        let routine = Func(21 + u32::from(how / 4) % 3);
        if !is_fault && self.recording.unwrap().calls {
            let snapshot = (how & 0x40 != 0).then(|| {
                let kernel = Part::Frames([DISPATCHER, LOGGING].map(|func| self.seen_at(func, 0)).into());
                self.of_thread(thread, kernel, true, how)
            });
            let routine = Some(LocationId(routine.0));
            let at = self.log(cpu, EventKind::SystemCallEnter { routine }, None, snapshot);
            since = at.filter(|_| self.processors[cpu].is_known);
            if let Some(at) = since {
                let tid = thread as u32 + 1;
                self.active.push((at, cpu as u16, Active::User(tid)));
                self.active.push((at + 1, cpu as u16, Active::Exactly(Owner::Kernel(tid))));
            }
        }
        let frames = if is_fault { vec![FAULT] } else { vec![DISPATCHER, routine] };
        for func in frames {
            let frame = self.push(func);
            self.threads[thread].kernel.push(frame);
        }
        let thread = &mut self.threads[thread];
        thread.visits.push((
            if is_fault { Visit::Fault } else { Visit::Call(since.map(|at| at + 1)) },
            depth,
            thread.wow64.len(),
        ));
        thread.is_called_back = false;
    }

    /// Pops kernel frames down to the entry that is the innermost.
    fn unwind(&mut self, thread: usize) {
        while let Some(&top) = self.threads[thread].kernel.last()
            && (11..=15).contains(&self.frames[top].func.0)
        {
            self.threads[thread].kernel.pop();
        }
    }

    fn leave(&mut self, cpu: usize, thread: usize, how: u8) {
        self.unwind(thread);
        let Some(&(visit, _, wow64)) = self.threads[thread].visits.last() else { return };
        if let Visit::Call(since) = visit
            && self.recording.unwrap().calls
        {
            let snapshot = (how.is_multiple_of(8)).then(|| self.snapshot(cpu, how)).flatten();
            let at = self.log(cpu, EventKind::SystemCallExit, None, snapshot);
            let owner = Owner::Kernel(thread as u32 + 1);
            if let Some(last) = at.filter(|_| self.processors[cpu].is_known) {
                self.active.push((last, cpu as u16, Active::Exactly(owner)));
                self.calls.extend(since.map(|first| Call { owner, first, last }));
            }
        }
        let entry = if visit == Visit::Fault { 1 } else { 2 };
        let thread = &mut self.threads[thread];
        thread.kernel.truncate(thread.kernel.len() - entry);
        if visit != Visit::Fault {
            thread.wow64.truncate(wow64.saturating_sub(1));
        }
        thread.visits.pop();
        // The remaining frames are those that called back.
        thread.is_called_back = !thread.visits.is_empty();
    }

    /// The kernel calls a thread back, or the callback returns.
    fn call_back(&mut self, cpu: usize, how: u8) {
        let Some(thread) = self.processors[cpu].running else { return };
        if self.threads[thread].is_called_back {
            let &(_, depth, wow64) = self.threads[thread].visits.last().unwrap();
            self.threads[thread].user.truncate(depth);
            self.threads[thread].wow64.truncate(wow64);
            self.threads[thread].kernel.pop();
            self.threads[thread].is_called_back = false;
        } else if let Some(&(Visit::Call(_), ..)) = self.threads[thread].visits.last()
            && how.is_multiple_of(2)
            && self.threads[thread].visits.len() < 3
        {
            let (user, kernel) = (self.push(CALLBACK), self.push(KERNEL_CALLBACK));
            self.threads[thread].user.push(user);
            if thread == NARROW {
                let wow64 = self.push(WOW64_CALLBACK);
                self.threads[thread].wow64.push(wow64);
            }
            self.threads[thread].kernel.push(kernel);
            self.threads[thread].is_called_back = true;
        }
    }

    fn switch(&mut self, cpu: usize, how: u8) {
        let new = Some(usize::from(how) % (THREADS + 1)).filter(|&thread| thread < THREADS);
        let new = new.filter(|&thread| self.threads[thread].on.is_none());
        let old = self.processors[cpu].running;
        if new == old {
            return;
        }
        let tid = |thread: Option<usize>| Tid(thread.map_or(0, |thread| thread as u32 + 1));
        let old_waits = old.is_some_and(|old| self.threads[old].is_in_kernel());
        if let Some(old) = old.filter(|_| !old_waits) {
            self.preempt(old);
        }
        if self.recording.unwrap().switches {
            let snapshot = new.filter(|_| how & 0x40 != 0).map(|new| {
                let kernel = self.part(&self.threads[new].kernel);
                self.of_thread(new, kernel, self.is_in_call(new), how)
            });
            let what = EventKind::Switch { old: tid(old), new: tid(new), old_waits };
            let at = self.log(cpu, what, None, snapshot);
            self.processors[cpu].is_known |= at.is_some();
            if let Some(at) = at {
                self.active.push((at + 1, cpu as u16, Active::Thread(tid(new).0, cpu as u16)));
            }
        }
        if let Some(old) = old {
            self.threads[old].on = None;
        }
        if let Some(new) = new {
            self.threads[new].on = Some(cpu);
        }
        self.processors[cpu].running = new;
    }

    /// A thread in user mode has to let another one run.
    fn preempt(&mut self, thread: usize) {
        let frame = self.push(SWAP);
        let thread = &mut self.threads[thread];
        thread.kernel.push(frame);
        thread.visits.push((Visit::Fault, thread.user.len(), thread.wow64.len()));
        thread.is_called_back = false;
    }

    fn interrupt(&mut self, cpu: usize, how: u8) {
        let has_service = self.processors[cpu]
            .interruptions
            .iter()
            .any(|interruption| interruption.0 == Interruption::Service);
        let by =
            if how.is_multiple_of(2) || has_service { Interruption::Service } else { Interruption::Deferred };
        let routine = self.push(Func(31 + u32::from(how / 2) % 2));
        let first = self.events;
        self.processors[cpu].interruptions.push((by, self.time, vec![routine], first));
    }

    fn end_interruption(&mut self, cpu: usize) {
        let Some((by, since, frames, first)) = self.processors[cpu].interruptions.last().cloned() else {
            return;
        };
        self.processors[cpu].interruptions.last_mut().unwrap().2.truncate(1);
        let routine = Some(LocationId(self.frames[frames[0]].func.0));
        let was_lost = self.lost_since(cpu, first);
        let at = self.log(cpu, EventKind::Interrupted { by, since, routine }, None, None);
        if let Some(last) = at.filter(|_| !was_lost) {
            let cpu = cpu as u16;
            let owner = if by == Interruption::Service { Owner::Service(cpu) } else { Owner::Deferred(cpu) };
            self.calls.push(Call { owner, first, last });
            self.active.push((last, cpu, Active::Exactly(owner)));
            self.active.push((first, cpu, Active::Exactly(owner)));
            // Where another one began at the same context, that one is active.
            let inner = self.calls.iter().any(|call| {
                matches!(call.owner, Owner::Service(of) | Owner::Deferred(of) if of == cpu)
                    && call.first == first
                    && call.last < last
            });
            if inner {
                self.active.pop();
            }
        }
        self.interrupted.push((cpu as u16, first, self.events.saturating_sub(1)));
        self.processors[cpu].interruptions.pop();
    }

    /// Whether events of a processor were lost after some context.
    fn lost_since(&self, cpu: usize, first: u64) -> bool {
        let mut events = 0;
        let mut lost = None;
        for recorded in &self.recorded {
            match recorded {
                Recorded::Event(_) => events += 1,
                Recorded::Lost(of) if usize::from(*of) == cpu => lost = Some(u64::MAX),
                Recorded::Regained(of) if usize::from(*of) == cpu => lost = Some(events),
                _ => {}
            }
        }
        lost.is_some_and(|until| until >= first)
    }

    fn lose_or_regain(&mut self, cpu: usize, how: u8) {
        if self.processors[cpu].is_lost {
            self.processors[cpu].is_lost = false;
            self.recorded.push(Recorded::Regained(cpu as u16));
        } else if how.is_multiple_of(4) && self.processors[cpu].interruptions.is_empty() {
            // A gap begins after an event of the processor.
            self.log(cpu, EventKind::Other, None, None);
            self.recorded.push(Recorded::Lost(cpu as u16));
            self.processors[cpu].is_lost = true;
            self.processors[cpu].is_known = false;
            // The timeline makes no statement about calls in the gap, so none are expected.
            for thread in &mut self.threads {
                let is_elsewhere = thread.on.is_some_and(|on| on != cpu && self.processors[on].is_known);
                if !is_elsewhere {
                    thread.is_doubted();
                }
            }
        }
        if self.processors.iter().any(|processor| processor.is_lost) {
            // Threads that do not run may run there.
            self.give_up_waiting();
        }
    }

    fn give_up_waiting(&mut self) {
        self.threads.iter_mut().filter(|thread| thread.on.is_none()).for_each(Thread::is_doubted);
    }

    fn sample(&mut self, cpu: usize, how: u8) {
        let is_recorded =
            self.recording.unwrap().interrupted_stacks || self.processors[cpu].interruptions.is_empty();
        let snapshot = self.snapshot(cpu, how).filter(|_| is_recorded);
        let running = self.processors[cpu].running;
        let tid = running.map_or(0, |thread| thread as u32 + 1);
        self.log(cpu, EventKind::Other, Some(tid), snapshot);
    }

    /// The stack of a processor's current work; some stacks lose one part.
    fn snapshot(&mut self, cpu: usize, how: u8) -> Option<Snapshot> {
        let processor = &self.processors[cpu];
        let interruptions: Vec<usize> =
            processor.interruptions.iter().flat_map(|interruption| interruption.2.clone()).collect();
        let Some(thread) = processor.running.map(|thread| &self.threads[thread]) else {
            let mut frames = vec![self.seen_at(IDLE, 0)];
            if !interruptions.is_empty() {
                frames.push(self.seen_at(INTERRUPT, 0));
            }
            frames.extend(self.seen(&interruptions));
            if interruptions.is_empty() {
                return None;
            }
            let kernel = Part::Frames(frames.into());
            return Some(Snapshot { kernel, wow64: Part::Absent, user: Part::Absent });
        };
        let mut frames = if thread.is_in_kernel() { self.seen(&thread.kernel) } else { Vec::new() };
        if !interruptions.is_empty() {
            frames.push(self.seen_at(INTERRUPT, 0));
        }
        frames.extend(self.seen(&interruptions));
        let kernel = match frames.is_empty() {
            true => Part::Absent,
            false => Part::Frames(frames.into()),
        };
        let number = processor.running?;
        let whole = self.of_thread(number, kernel, self.is_in_call(number), how);
        Some(match how % 8 {
            0 if whole.kernel != Part::Absent => {
                Snapshot { wow64: Part::Unknown, user: Part::Unknown, ..whole }
            }
            1 => Snapshot { kernel: Part::Unknown, ..whole },
            _ => whole,
        })
    }

    fn is_in_call(&self, thread: usize) -> bool {
        let thread = &self.threads[thread];
        thread.is_in_kernel() && thread.visits.last().is_some_and(|(visit, ..)| *visit != Visit::Fault)
    }

    /// The recorded stack of a thread. The path through 64-bit code is recorded only if the kernel was
    /// called.
    fn of_thread(&self, thread: usize, kernel: Part, is_call: bool, how: u8) -> Snapshot {
        let is_32_bit = thread == NARROW;
        let thread = &self.threads[thread];
        // A walk of 64-bit code alone, and any other that is known not to have reached the end,
        // is not evidence.
        if how % 16 == 10 {
            return Snapshot { kernel, wow64: Part::Unknown, user: Part::Unknown };
        }
        let is_cut = self.recording.unwrap().cut_walks && how % 4 == 2;
        let part = |frames: &[usize]| match is_cut {
            true => self.cut(frames, how),
            false => self.part(frames),
        };
        let wow64 = match (is_32_bit, is_call) {
            (true, true) => part(&thread.wow64),
            (true, false) => Part::Unknown,
            (false, _) => Part::Absent,
        };
        Snapshot { kernel, wow64, user: part(&thread.user) }
    }

    /// The inner part of a walk that ended early. Not where it ended at a place that is on the
    /// stack twice: the two cannot be distinguished.
    fn cut(&self, frames: &[usize], how: u8) -> Part {
        let seen = self.seen(frames);
        let from = usize::from(how / 4) % seen.len();
        let is_twice = seen.iter().filter(|frame| frame.address == seen[from].address).count() > 1;
        match is_twice {
            true => Part::Unknown,
            false => Part::Frames(seen[from..].into()),
        }
    }

    /// How often a function ran.
    pub fn activations(&self, function: u32) -> u64 {
        let ran = self.frames.iter().filter(|frame| frame.first != u64::MAX);
        ran.filter(|frame| function_of(frame.func) == Some(function)).count() as u64
    }

    fn part(&self, frames: &[usize]) -> Part {
        Part::Frames(self.seen(frames).into())
    }

    fn seen(&self, frames: &[usize]) -> Vec<SampledFrame> {
        frames.iter().map(|&frame| self.seen_at(self.frames[frame].func, self.frames[frame].site)).collect()
    }

    fn seen_at(&self, func: Func, site: u8) -> SampledFrame {
        let function = function_of(func).map(LocationId);
        let calls_back = func == KERNEL_CALLBACK;
        SampledFrame {
            address: u64::from(func.0) * 16 + u64::from(site),
            function,
            calls_back,
            location: function,
        }
    }

    /// Records an event, unless it is lost. Returns its number.
    fn log(
        &mut self,
        cpu: usize,
        what: EventKind,
        tid: Option<u32>,
        snapshot: Option<Snapshot>,
    ) -> Option<u64> {
        if self.processors[cpu].is_lost {
            if let EventKind::Switch { .. } = what {
                self.give_up_waiting();
            }
            return None;
        }
        self.note();
        self.time += 1;
        let number = self.events;
        self.events += 1;
        let stack_event = StackEvent {
            time: self.time,
            cpu: Some(Cpu(cpu as u16)),
            thread: tid.map(Tid),
            what,
            stack: snapshot.map(Arc::new),
        };
        self.recorded.push(Recorded::Event(stack_event));
        if self.processors.iter().any(|processor| processor.is_lost)
            && let EventKind::Switch { old, .. } = what
            && let Some(old) = (old.0 as usize).checked_sub(1)
        {
            self.threads[old].is_doubted();
        }
        self.time += 1;
        Some(number)
    }
}
