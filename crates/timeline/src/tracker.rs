//! Processes stack events in order, and tracks the running threads and their stacks.

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use stackhound_calltree::{
    Change, ContextId, Cpu, EndType, Evidence, LocationId, StackId, StackKind, StartType,
};
use stackhound_types::Tid;

use crate::counts::Counts;
use crate::reorder::{Item, Start};
use crate::side::{Interval, ThreadStack};
use crate::stack_event::{EventKind, Interruption, Part, Snapshot, StackEvent};
use crate::step::{NOT_KNOWN, Step};
use crate::thread::{Mode, Thread, UserMode};

/// A processor.
#[derive(Debug, Default)]
struct Processor {
    running: Option<usize>,
    idle: Option<usize>,
    /// The stack that was entered last, and its first certain context.
    active: Option<StackId>,
    since: u64,
    /// The next stack was not active before this context.
    floor: u64,
    /// The running thread's stack must be entered from this context on; the next event determines
    /// which one.
    pending: Option<u64>,
    /// The stacks of interruptions, by their kind.
    sides: [Option<ThreadStack>; 2],
    /// The interruptions of the running thread, innermost last, and the events that end them.
    interruptions: Vec<(Interruption, u64)>,
    is_lost: bool,
}

/// The state after the latest processed event.
#[derive(Debug)]
pub(crate) struct Tracker {
    pub steps: Vec<Step>,
    pub counts: Counts,
    snapshots_wanted: bool,
    processors: Vec<Processor>,
    threads: Vec<Thread>,
    /// Indexes of threads that have ended.
    free: Vec<usize>,
    by_tid: HashMap<Tid, usize, RandomState>,
    stacks: u32,
    time: i64,
    has_switches: bool,
    /// Whether switches are no longer recorded.
    is_after_switches: bool,
    has_calls: bool,
}

impl Tracker {
    pub fn new(snapshots_wanted: bool) -> Tracker {
        Tracker {
            steps: Vec::new(),
            counts: Counts::default(),
            snapshots_wanted,
            processors: Vec::new(),
            threads: Vec::new(),
            free: Vec::new(),
            by_tid: HashMap::default(),
            stacks: 0,
            time: 0,
            has_switches: false,
            is_after_switches: false,
            has_calls: false,
        }
    }

    pub fn item(&mut self, id: u64, item: Item) {
        match item {
            Item::Event(stack_event) => self.event(id, &stack_event),
            Item::Lost(cpu) => self.lose(id, Cpu(cpu)),
            Item::Regained(cpu) => {
                let cpu = self.processor(Cpu(cpu));
                self.processors[cpu].is_lost = false;
            }
            Item::Replaced(tid) => self.replaced(id, tid),
            Item::SwitchesEnd(last) => self.switches_end(last),
            Item::SwitchesGoOn => self.is_after_switches = false,
        }
    }

    fn event(&mut self, id: u64, stack_event: &StackEvent) {
        self.counts.events += 1;
        self.counts.snapshots += u64::from(stack_event.stack.is_some());
        self.time = stack_event.time;
        let cpu = stack_event.cpu.map(|cpu| self.processor(cpu));
        match stack_event.what {
            EventKind::Switch { old, new, old_waits } => {
                self.switch(id, cpu, (old, old_waits), new, stack_event)
            }
            EventKind::SystemCallEnter { routine } => self.system_call(id, cpu, routine, stack_event),
            EventKind::SystemCallExit => self.system_call_exit(id, cpu, stack_event),
            EventKind::Interrupted { .. } => self.interruption_ends(id, cpu),
            EventKind::ThreadStart(tid) => {
                self.other(id, cpu, stack_event);
                self.thread_starts(id, tid);
            }
            EventKind::ThreadEnd(tid) => {
                self.other(id, cpu, stack_event);
                if let Some(&thread) = self.by_tid.get(&tid) {
                    self.threads[thread].is_ending = true;
                }
            }
            EventKind::Other => self.other(id, cpu, stack_event),
        }
    }

    fn switch(
        &mut self,
        id: u64,
        cpu: Option<usize>,
        (old, old_waits): (Tid, bool),
        new: Tid,
        stack_event: &StackEvent,
    ) {
        let Some(cpu) = cpu else {
            self.counts.without_processor += 1;
            return;
        };
        self.counts.switches += 1;
        self.has_switches = true;
        let old = self.running(cpu, Some(old), true, id);
        self.settle(cpu, id);
        if let Some(old) = old {
            if old_waits && self.threads[old].calls() == 0 && self.threads[old].idle_on.is_none() {
                self.evidence(cpu, old, Mode::Kernel, id);
            }
            self.settle(cpu, id + 1);
            let has_gap = self.processors.iter().any(|processor| processor.is_lost);
            let thread = &mut self.threads[old];
            (thread.on, thread.frozen) = (None, Some(id));
            if thread.mode == Some(Mode::Kernel) {
                thread.alive = id;
            }
            if thread.is_ending {
                self.remove(old, id, EndType::Unwound);
            } else if has_gap {
                // It may continue without recorded events.
                self.forget(old, id);
            }
        }
        self.processors[cpu].running = None;
        let new = self.thread(new, Some(cpu));
        self.adopt(cpu, new, id + 1);
        let since = self.threads[new].frozen.take().unwrap_or(id);
        let during = Interval { first: since, last: id };
        if self.threads[new].calls() > 0 {
            self.threads[new].mode = Some(Mode::Kernel);
        }
        let Some(stack) = self.wanted(stack_event) else { return };
        // A preempted thread was interrupted in user mode: its path through the kernel is not
        // modeled.
        let was_preempted = self.threads[new].mode.is_some_and(Mode::is_user);
        if self.threads[new].mode.is_none() {
            self.threads[new].mode = Some(Mode::Kernel);
        }
        self.calls_may_be_over(new, stack, during.first);
        let user = self.see_user(new, stack, during);
        let kernel = !was_preempted && self.see_kernel(new, stack, during);
        self.counts.of_the_logging += u64::from(was_preempted && stack.kernel.frames().is_some());
        self.counts.snapshots_used += u64::from(user || kernel);
    }

    fn system_call(
        &mut self,
        id: u64,
        cpu: Option<usize>,
        routine: Option<LocationId>,
        stack_event: &StackEvent,
    ) {
        self.has_calls = true;
        let Some((cpu, thread)) = self.caller(id, cpu, stack_event) else { return };
        self.counts.calls += 1;
        let during = Interval { first: id, last: id };
        if let Some(stack) = self.wanted(stack_event) {
            self.calls_may_be_over(thread, stack, id);
        }
        let seen = self.wanted(stack_event).and_then(Snapshot::innermost_user_mode);
        let user_mode = seen.unwrap_or(self.threads[thread].user_mode);
        self.evidence(cpu, thread, Mode::User(user_mode), id);
        self.threads[thread].entered = None;
        let mut is_seen = [false; 2];
        if let Some(stack) = self.wanted(stack_event) {
            let is_merged = self.see_user(thread, stack, during);
            is_seen = UserMode::ALL.map(|mode| is_merged && stack.in_user_mode(mode).is_some());
            self.counts.snapshots_used += u64::from(is_merged);
            self.counts.of_the_logging += u64::from(stack.kernel.frames().is_some());
        }
        self.enter_mode(cpu, thread, Mode::Kernel, (id + 1, id + 1));
        self.processors[cpu].floor = id + 2;
        let of = &mut self.threads[thread];
        (of.entered, of.user_is_seen) = (Some(id), is_seen);
        (of.mode, of.alive) = (Some(Mode::Kernel), id + 1);
        if let Some(kernel) = &mut of.kernel {
            let first = (id + 1, id + 1);
            kernel.open_exact(first, StartType::Call, routine, Evidence::Boundary, &mut self.steps);
        }
    }

    fn system_call_exit(&mut self, id: u64, cpu: Option<usize>, stack_event: &StackEvent) {
        self.has_calls = true;
        let Some((cpu, thread)) = self.caller(id, cpu, stack_event) else { return };
        self.counts.returns += 1;
        self.settle(cpu, id);
        if let Some(stack) = self.wanted(stack_event) {
            let is_seen = self.see_user(thread, stack, Interval { first: id, last: id });
            self.counts.snapshots_used += u64::from(is_seen);
            self.counts.of_the_logging += u64::from(stack.kernel.frames().is_some());
        }
        self.evidence(cpu, thread, Mode::Kernel, id);
        let of = &mut self.threads[thread];
        of.alive = id;
        if let Some(kernel) = &mut of.kernel {
            if kernel.exact() == 0 {
                self.counts.returns_without_call += 1;
                if kernel.can_change_at(id) {
                    let first = (kernel.floor().min(id), id);
                    let evidence = Evidence::Boundary;
                    kernel.open_exact(first, StartType::Unknown, None, evidence, &mut self.steps);
                }
            }
            kernel.close_exact(id, EndType::Return, &mut self.steps);
        }
        let of = &mut self.threads[thread];
        if of.entered.is_some() {
            let sides = of.user.iter_mut().zip(of.user_is_seen).filter(|(_, is_seen)| *is_seen);
            sides.filter_map(|(side, _)| side.as_mut()).for_each(|side| side.hold_until(id));
        }
        of.is_out_of_call();
        if of.calls() == 0 {
            of.mode = Some(Mode::User(of.user_mode));
            self.processors[cpu].pending = Some(id + 1);
        }
    }

    /// The processor and thread of a system call.
    fn caller(&mut self, id: u64, cpu: Option<usize>, stack_event: &StackEvent) -> Option<(usize, usize)> {
        let Some(cpu) = cpu else {
            self.counts.without_processor += 1;
            return None;
        };
        // Without context switches, the latest known thread may have been switched out.
        let is_known = self.has_switches || stack_event.thread.is_some();
        let thread = self.running(cpu, stack_event.thread, stack_event.stack.is_some(), id);
        let thread = thread.filter(|_| is_known);
        self.counts.without_thread += u64::from(thread.is_none());
        Some((cpu, thread?))
    }

    fn other(&mut self, id: u64, cpu: Option<usize>, stack_event: &StackEvent) {
        if self.is_after_switches {
            self.after_switches(id, stack_event);
            return;
        }
        let Some(cpu) = cpu else {
            self.counts.without_processor += u64::from(stack_event.stack.is_some());
            return;
        };
        if let Some(&(by, _)) = self.processors[cpu].interruptions.last() {
            self.see_interruption(id, cpu, by, stack_event);
            return;
        }
        if stack_event.thread.is_none() && stack_event.stack.is_none() {
            return;
        }
        let Some(thread) = self.running(cpu, stack_event.thread, stack_event.stack.is_some(), id) else {
            self.counts.without_thread += u64::from(stack_event.stack.is_some());
            return;
        };
        let Some(stack) = self.wanted(stack_event) else { return };
        let during = Interval { first: id, last: id };
        self.calls_may_be_over(thread, stack, id);
        if stack.kernel.frames().is_some() {
            self.threads[thread].alive = id;
        }
        match (stack.kernel.frames(), stack.innermost_user_mode()) {
            (Some(_), _) => self.evidence(cpu, thread, Mode::Kernel, id),
            (None, Some(mode)) if stack.kernel == Part::Absent && self.left_kernel(thread, stack) => {
                self.evidence(cpu, thread, Mode::User(mode), id);
                self.threads[thread].is_out_of_call();
            }
            // The thread was at least in this mode before the system call that logs the event.
            (None, Some(mode)) if self.threads[thread].calls() == 0 => {
                self.threads[thread].mode = Some(Mode::User(mode));
                self.enters_mode(cpu, thread, Mode::User(mode), id);
            }
            _ => {}
        }
        self.see(thread, stack, during);
    }

    /// A thread logged an event while switches are not recorded. It shows the stack of the thread, and not
    /// how long it runs.
    fn after_switches(&mut self, id: u64, stack_event: &StackEvent) {
        let (Some(tid), Some(stack)) = (stack_event.thread, self.wanted(stack_event)) else { return };
        if tid == Tid(0) {
            return;
        }
        let thread = self.thread(tid, None);
        let during = Interval { first: id, last: id };
        self.calls_may_be_over(thread, stack, id);
        self.see(thread, stack, during);
    }

    /// After context `last`, switches are not recorded.
    fn switches_end(&mut self, ContextId(last): ContextId) {
        if !self.has_switches {
            return;
        }
        self.is_after_switches = true;
        for cpu in 0..self.processors.len() {
            self.processors[cpu].interruptions.clear();
            self.vacate(cpu, last);
        }
        for thread in &mut self.threads {
            thread.on = None;
        }
    }

    /// From context `first` on, the events of a processor are missing.
    fn lose(&mut self, first: u64, cpu: Cpu) {
        let cpu = self.processor(cpu);
        let last = first.saturating_sub(1);
        self.counts.gaps += 1;
        self.settle(cpu, first);
        self.leave(cpu, last);
        let processor = &mut self.processors[cpu];
        (processor.is_lost, processor.running) = (true, None);
        processor.interruptions.clear();
        for side in processor.sides.iter_mut().flatten() {
            side.forget(last, &mut self.steps);
        }
        for thread in 0..self.threads.len() {
            let on = self.threads[thread].on;
            // A thread that certainly runs on another processor does not run here.
            if on.is_none() || on == Some(cpu) {
                self.threads[thread].on = None;
                self.forget(thread, last);
            }
        }
    }

    /// Ends the model after the last event, whose context is `last`.
    pub fn end(&mut self, last: u64) {
        for cpu in 0..self.processors.len() {
            self.settle(cpu, last + 1);
        }
        for thread in &mut self.threads {
            for side in thread.sides() {
                side.close_seen(NOT_KNOWN, &mut self.steps);
            }
        }
    }
}

/// Threads and their stacks.
impl Tracker {
    fn processor(&mut self, cpu: Cpu) -> usize {
        let index = usize::from(cpu.0);
        if self.processors.len() <= index {
            self.processors.resize_with(index + 1, Processor::default);
        }
        index
    }

    /// The thread with this id; 0 is the idle thread of the processor.
    fn thread(&mut self, tid: Tid, cpu: Option<usize>) -> usize {
        if let (Tid(0), Some(cpu)) = (tid, cpu) {
            if let Some(idle) = self.processors[cpu].idle {
                return idle;
            }
            let thread = self.add(Thread { idle_on: Some(Cpu(cpu as u16)), ..Thread::new(tid, None) });
            self.threads[thread].mode = Some(Mode::Kernel);
            self.processors[cpu].idle = Some(thread);
            return thread;
        }
        if let Some(&thread) = self.by_tid.get(&tid) {
            return thread;
        }
        let thread = self.add(Thread::new(tid, None));
        self.by_tid.insert(tid, thread);
        thread
    }

    fn add(&mut self, thread: Thread) -> usize {
        match self.free.pop() {
            Some(location) => {
                self.threads[location] = thread;
                location
            }
            None => {
                self.threads.push(thread);
                self.threads.len() - 1
            }
        }
    }

    fn stack(&mut self, kind: StackKind, thread: Option<Tid>, cpu: Option<Cpu>) -> StackId {
        let id = StackId(self.stacks);
        self.stacks += 1;
        self.steps.push(Step::Stack { id, kind, thread, cpu, time: self.time });
        id
    }

    /// Ensures that a thread has a stack, with a frame from context `first` on.
    fn ensure(&mut self, thread: usize, mode: Mode, first: u64) -> StackId {
        let Thread { tid, idle_on, born, is_started, .. } = self.threads[thread];
        if self.threads[thread].side(mode).is_none() {
            let side = ThreadStack::new(self.stack(mode.stack(), Some(tid), idle_on), born);
            *self.threads[thread].side(mode) = Some(side);
        }
        // The stacks of a thread exist from its start on, but are first observed later.
        let (start, lo) = if is_started { (StartType::Manual, born) } else { (StartType::Unknown, first) };
        let side = self.threads[thread].side(mode).as_mut();
        side.map_or(StackId(u32::MAX), |side| {
            side.ensure_base((lo, first), start, &mut self.steps);
            side.id
        })
    }

    fn thread_starts(&mut self, id: u64, tid: Tid) {
        if tid == Tid(0) {
            return;
        }
        if let Some(&old) = self.by_tid.get(&tid) {
            // Its end was not recorded.
            self.remove(old, id, EndType::Abandoned);
        }
        let thread = self.add(Thread::new(tid, Some(id + 1)));
        self.by_tid.insert(tid, thread);
    }

    /// Another thread has the id of one from event `first` on. Nothing reports when the earlier one
    /// ended.
    fn replaced(&mut self, first: u64, tid: Tid) {
        let Some(thread) = self.by_tid.remove(&tid) else { return };
        let last = first.saturating_sub(1);
        if let Some(cpu) = self.threads[thread].on {
            self.vacate(cpu, last);
        }
        self.forget(thread, last);
        self.threads[thread] = Thread::new(Tid(0), None);
        self.free.push(thread);
    }

    /// Removes a thread that ends after context `last`.
    fn remove(&mut self, thread: usize, last: u64, end: EndType) {
        let Thread { tid, on, .. } = self.threads[thread];
        if let Some(cpu) = on {
            self.vacate(cpu, last);
        }
        let mut gone = std::mem::replace(&mut self.threads[thread], Thread::new(Tid(0), None));
        for side in gone.sides() {
            side.finish(last, end, &mut self.steps);
        }
        self.by_tid.remove(&tid);
        self.free.push(thread);
    }

    /// Discards the state of a thread, which existed at context `last`.
    fn forget(&mut self, thread: usize, last: u64) {
        let thread = &mut self.threads[thread];
        for side in thread.sides() {
            side.forget(last, &mut self.steps);
        }
        thread.mode = thread.idle_on.map(|_| Mode::Kernel);
        thread.frozen = None;
        thread.is_out_of_call();
        thread.is_clean = false;
    }
}

/// Running threads and active stacks.
impl Tracker {
    /// A stack became active at some context from `lo` to `hi`.
    fn enter(&mut self, cpu: usize, stack: StackId, (lo, hi): (u64, u64)) {
        let processor = &mut self.processors[cpu];
        if processor.active == Some(stack) {
            return;
        }
        (processor.active, processor.since) = (Some(stack), hi);
        let (lo, hi) = (ContextId(lo.min(hi)), ContextId(hi));
        self.steps.push(Step::Enter { cpu: Cpu(cpu as u16), stack, lo, hi });
    }

    fn leave(&mut self, cpu: usize, last: u64) {
        self.processors[cpu].pending = None;
        if self.processors[cpu].active.take().is_some() {
            let (cpu, last) = (Cpu(cpu as u16), ContextId(last));
            self.steps.push(Step::Change(Change::Leave { cpu, last }));
        }
    }

    /// Declares that after context `last`, the running thread of a processor is not known.
    fn vacate(&mut self, cpu: usize, last: u64) {
        if self.processors[cpu].interruptions.is_empty() {
            self.settle(cpu, last + 1);
            self.leave(cpu, last);
        }
        self.processors[cpu].running = None;
    }

    /// Enters one of the running thread's stacks.
    fn enter_mode(&mut self, cpu: usize, thread: usize, mode: Mode, (lo, hi): (u64, u64)) {
        match self.threads[thread].side(mode).as_ref().map(|side| side.id) {
            Some(stack) => {
                self.enter(cpu, stack, (lo, hi));
                self.ensure(thread, mode, hi);
            }
            None => {
                // The stack's definition must come first, and frames on it last.
                let at = self.steps.len();
                let stack = self.ensure(thread, mode, hi);
                let base = self.steps.pop().filter(|_| self.steps.len() > at);
                self.enter(cpu, stack, (lo, hi));
                self.steps.extend(base);
            }
        }
    }

    /// Enters the pending stack before context `until`, based on the state before that context.
    fn settle(&mut self, cpu: usize, until: u64) {
        let Processor { running, pending, .. } = self.processors[cpu];
        let (Some(thread), Some(first)) = (running, pending) else { return };
        if first < until {
            self.processors[cpu].pending = None;
            self.processors[cpu].floor = first;
            let mode = self.threads[thread].mode.unwrap_or(Mode::Kernel);
            self.enter_mode(cpu, thread, mode, (first, first));
        }
    }

    /// At context `at`, the running thread of a processor is in this mode.
    fn evidence(&mut self, cpu: usize, thread: usize, mode: Mode, at: u64) {
        self.settle(cpu, at);
        self.mode_is(thread, mode, at);
        self.enters_mode(cpu, thread, mode, at);
    }

    fn enters_mode(&mut self, cpu: usize, thread: usize, mode: Mode, at: u64) {
        self.settle(cpu, at);
        let lo = match self.processors[cpu].pending.take() {
            Some(_) => at,
            None => self.processors[cpu].floor,
        };
        self.processors[cpu].floor = at + 1;
        self.enter_mode(cpu, thread, mode, (lo, at));
    }

    /// At context `at`, a thread is in this mode.
    fn mode_is(&mut self, thread: usize, mode: Mode, at: u64) {
        let thread = &mut self.threads[thread];
        thread.mode = Some(mode);
        if let Mode::User(mode) = mode {
            thread.user_mode = mode;
        }
        if let (true, 0, Some(kernel)) = (mode.is_user(), thread.calls(), &mut thread.kernel) {
            // Without context switches, the threads of system calls are not known.
            if thread.is_clean && self.has_calls && self.has_switches {
                kernel.is_empty_at(at, &mut self.steps);
            } else {
                kernel.set_aside(&mut self.steps);
            }
        }
    }

    /// The thread that runs on a processor just before event `id`.
    fn running(&mut self, cpu: usize, stated: Option<Tid>, has_stack: bool, id: u64) -> Option<usize> {
        let running = self.processors[cpu].running;
        let Some(tid) = stated else { return running };
        if let Some(thread) = running {
            if self.threads[thread].tid == tid {
                return running;
            }
            if self.has_switches {
                self.counts.conflicting_threads += 1;
                if !has_stack {
                    return None;
                }
                // A context switch is missing, and possibly other events.
                self.settle(cpu, id);
                self.forget(thread, self.threads[thread].alive);
                let stated = self.thread(tid, Some(cpu));
                self.forget(stated, self.threads[stated].alive);
            }
            self.threads[thread].on = None;
        }
        let thread = self.thread(tid, Some(cpu));
        self.settle(cpu, id);
        self.adopt(cpu, thread, id);
        self.threads[thread].frozen = None;
        Some(thread)
    }

    /// A thread runs on a processor from context `first` on.
    fn adopt(&mut self, cpu: usize, thread: usize, first: u64) {
        if let Some(before) = self.threads[thread].on.filter(|&before| before != cpu) {
            let last = first.saturating_sub(1);
            if self.has_switches {
                self.counts.conflicting_threads += 1;
                self.forget(thread, self.threads[thread].alive);
            }
            self.vacate(before, last);
        }
        self.threads[thread].on = Some(cpu);
        self.processors[cpu].running = Some(thread);
        self.processors[cpu].pending = Some(first);
    }
}

/// Recorded stacks of threads, and the contexts at which they are valid.
impl Tracker {
    fn wanted<'h>(&self, stack_event: &'h StackEvent) -> Option<&'h Snapshot> {
        stack_event.stack.as_deref().filter(|_| self.snapshots_wanted)
    }

    /// User stacks that do not continue those at a thread's entry into the kernel show that the
    /// system call ended before context `at`.
    fn calls_may_be_over(&mut self, thread: usize, stack: &Snapshot, at: u64) {
        let thread = &mut self.threads[thread];
        // If two walks end at different functions, one of them ended early.
        let goes_on = thread
            .shown_in_call(stack)
            .all(|(side, frames)| side.is_extended_by(frames) || side.has_other_root(frames));
        if goes_on || thread.calls() == 0 {
            return;
        }
        let last = ContextId(at.saturating_sub(1));
        if let Some(kernel) = &mut thread.kernel {
            self.counts.calls_without_return += 1;
            kernel.give_up_exact(thread.alive.min(last.0), last, &mut self.steps);
            thread.is_out_of_call();
        }
    }

    /// Whether a thread with a user part but no kernel part is in user mode: not if a system call
    /// is open, in which it logs an event of its own, unless the kernel has called it back.
    fn left_kernel(&self, thread: usize, stack: &Snapshot) -> bool {
        let thread = &self.threads[thread];
        let is_callback = || {
            thread.shown_in_call(stack).all(|(side, frames)| side.is_extended_by(frames))
                && thread.shown_in_call(stack).any(|(side, frames)| !side.shows(frames))
        };
        thread.calls() == 0 || is_callback()
    }

    /// Merges a recorded stack.
    fn see(&mut self, thread: usize, stack: &Snapshot, during: Interval) {
        let user = self.see_user(thread, stack, during);
        let kernel = self.see_kernel(thread, stack, during);
        self.counts.snapshots_used += u64::from(user || kernel);
    }

    /// Merges the user parts of a stack that is valid at some contexts.
    fn see_user(&mut self, thread: usize, stack: &Snapshot, during: Interval) -> bool {
        if stack.innermost_user_mode().is_none() {
            return false;
        }
        let entered = self.threads[thread].entered.filter(|_| self.is_as_entered(thread, stack));
        if entered.is_none() {
            // After a callback, the user stacks have more frames than at the entry.
            self.threads[thread].is_out_of_call();
        }
        let during = Interval { first: entered.map_or(during.first, |at| at.min(during.first)), ..during };
        let evidence = if stack.kernel != Part::Absent { Evidence::Stitched } else { Evidence::Snapshot };
        if stack.wow64 == Part::Absent
            && let Some(side) = self.threads[thread].side(Mode::User(UserMode::Wow64))
        {
            // 32-bit code runs: some functions of the 64-bit code have returned, but not its
            // outermost ones.
            side.forget_seen(&mut self.steps);
        }
        let mut is_merged = true;
        for mode in UserMode::ALL {
            let Some(frames) = stack.in_user_mode(mode) else { continue };
            self.ensure(thread, Mode::User(mode), during.first);
            let of = &mut self.threads[thread];
            of.user_is_seen[mode as usize] |= entered.is_some();
            let Some(side) = of.side(Mode::User(mode)) else { continue };
            if side.has_other_root(frames) {
                self.counts.unaligned += 1;
                side.forget_seen(&mut self.steps);
            }
            let is_this = side.merge((None, frames), during, evidence, &mut self.steps);
            self.counts.contradicting += u64::from(!is_this);
            is_merged &= is_this;
        }
        is_merged
    }

    /// Whether the user parts of a stack equal those at the entry into the kernel; otherwise they
    /// belong to a callback.
    fn is_as_entered(&self, thread: usize, stack: &Snapshot) -> bool {
        let thread = &self.threads[thread];
        let above = match (stack.kernel.frames(), &thread.kernel) {
            (Some(frames), Some(kernel)) => kernel.above_anchor(frames),
            _ => None,
        };
        let mut shown = thread.shown_in_call(stack).peekable();
        match above {
            Some((_, above)) => !above.iter().any(|frame| frame.calls_back),
            None => shown.peek().is_some() && shown.all(|(side, frames)| side.shows(frames)),
        }
    }

    /// Merges the kernel part of a stack that is valid at some contexts.
    fn see_kernel(&mut self, thread: usize, stack: &Snapshot, during: Interval) -> bool {
        let Some(frames) = stack.kernel.frames() else { return false };
        self.ensure(thread, Mode::Kernel, during.first);
        let Some(kernel) = &mut self.threads[thread].kernel else { return false };
        let Some(above) = kernel.above_anchor(frames) else {
            self.counts.without_routine += 1;
            return false;
        };
        let is_merged = kernel.merge(above, during, Evidence::Snapshot, &mut self.steps);
        self.counts.contradicting += u64::from(!is_merged);
        is_merged
    }
}

/// Interrupt service routines and deferred procedure calls, on stacks of their processor.
impl Tracker {
    pub(crate) fn start(&mut self, start: Start) {
        let cpu = self.processor(Cpu(start.cpu));
        self.counts.interruptions += 1;
        self.settle(cpu, start.hi);
        self.processors[cpu].pending = None;
        let kind = match start.by {
            Interruption::Service => StackKind::Interrupt,
            Interruption::Deferred => StackKind::Deferred,
        };
        let known = self.processors[cpu].sides[start.by as usize].as_ref().map(|side| side.id);
        let stack = known.unwrap_or_else(|| {
            let id = self.stack(kind, None, Some(Cpu(start.cpu)));
            self.processors[cpu].sides[start.by as usize] = Some(ThreadStack::new(id, 0));
            id
        });
        self.enter(cpu, stack, (start.lo, start.hi));
        self.processors[cpu].interruptions.push((start.by, start.end));
        let kind = match start.by {
            _ if start.is_older => StartType::Unknown,
            Interruption::Service => StartType::Interrupt,
            Interruption::Deferred => StartType::Call,
        };
        if let Some(side) = &mut self.processors[cpu].sides[start.by as usize] {
            side.open_exact((start.lo, start.hi), kind, start.routine, Evidence::Boundary, &mut self.steps);
        }
    }

    fn interruption_ends(&mut self, id: u64, cpu: Option<usize>) {
        let Some(cpu) = cpu else {
            self.counts.without_processor += 1;
            return;
        };
        if !self.processors[cpu].interruptions.iter().any(|&(_, end)| end == id) {
            return;
        }
        while let Some((by, end)) = self.processors[cpu].interruptions.pop() {
            let how = match by {
                Interruption::Service => EndType::InterruptReturn,
                Interruption::Deferred => EndType::Return,
            };
            if let Some(side) = &mut self.processors[cpu].sides[by as usize] {
                side.close_exact(id, how, &mut self.steps);
            }
            if end == id {
                break;
            }
        }
        let outer = self.processors[cpu].interruptions.last().copied();
        match outer.and_then(|(by, _)| self.processors[cpu].sides[by as usize].as_ref()).map(|side| side.id) {
            Some(stack) => self.enter(cpu, stack, (id + 1, id + 1)),
            None if self.processors[cpu].running.is_some() => self.processors[cpu].pending = Some(id + 1),
            None => self.leave(cpu, id),
        }
    }

    /// A stack that was recorded during an interruption belongs to it from the frame of its routine
    /// inward.
    fn see_interruption(&mut self, id: u64, cpu: usize, by: Interruption, stack_event: &StackEvent) {
        let Some(frames) = self.wanted(stack_event).and_then(|stack| stack.kernel.frames()) else { return };
        let Some(side) = &mut self.processors[cpu].sides[by as usize] else { return };
        match side.above_anchor(frames) {
            Some(above) => {
                let during = Interval { first: id, last: id };
                side.merge(above, during, Evidence::Snapshot, &mut self.steps);
                self.counts.snapshots_used += 1;
            }
            None => self.counts.without_routine += 1,
        }
    }
}
