//! Understands happenings in order: which thread runs where, and what is on its stacks.

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use stackhound_calltree::{Cpu, EndType, Evidence, LocationId, StackId, StartType};
use stackhound_types::Tid;

use crate::counts::Counts;
use crate::happening::{Happening, Interruption, Part, Snapshot, What};
use crate::hold::Item;
use crate::side::{Interval, Side};
use crate::step::{NOT_KNOWN, Step};
use crate::thread::{Mode, Thread, UserMode};

mod activity;
mod interruptions;
mod snapshots;
mod stacks;

/// A processor.
#[derive(Debug, Default)]
struct Processor {
    running: Option<usize>,
    idle: Option<usize>,
    /// What was entered last.
    active: Option<StackId>,
    /// What is entered next was not active before this context.
    floor: u64,
    /// The running thread's stack is to be entered from this context on; which one, the next event there tells.
    pending: Option<u64>,
    /// The stacks of interruptions, by their kind.
    sides: [Option<Side>; 2],
    /// What interrupts the running thread, innermost last, and the event that ends it.
    interruptions: Vec<(Interruption, u64)>,
    is_lost: bool,
}

/// The state behind the latest event that was understood.
#[derive(Debug)]
pub(crate) struct Tracker {
    pub steps: Vec<Step>,
    pub counts: Counts,
    snapshots_wanted: bool,
    processors: Vec<Processor>,
    threads: Vec<Thread>,
    /// Places of threads that have ended.
    free: Vec<usize>,
    by_tid: HashMap<Tid, usize, RandomState>,
    stacks: u32,
    time: i64,
    has_switches: bool,
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
            has_calls: false,
        }
    }

    pub fn item(&mut self, id: u64, item: Item) {
        match item {
            Item::Event(happening) => self.event(id, &happening),
            Item::Lost(cpu) => self.lose(id, Cpu(cpu)),
            Item::Regained(cpu) => {
                let cpu = self.processor(Cpu(cpu));
                self.processors[cpu].is_lost = false;
            }
        }
    }

    fn event(&mut self, id: u64, happening: &Happening) {
        self.counts.events += 1;
        self.counts.snapshots += u64::from(happening.stack.is_some());
        self.time = happening.time;
        let cpu = happening.cpu.map(|cpu| self.processor(cpu));
        match happening.what {
            What::Switch { old, new, old_waits } => self.switch(id, cpu, (old, old_waits), new, happening),
            What::SystemCallEnter { routine } => self.system_call(id, cpu, routine, happening),
            What::SystemCallExit => self.system_call_exit(id, cpu, happening),
            What::Interrupted { .. } => self.interruption_ends(id, cpu),
            What::ThreadStart(tid) => {
                self.other(id, cpu, happening);
                self.thread_starts(id, tid);
            }
            What::ThreadEnd(tid) => {
                self.other(id, cpu, happening);
                if let Some(&thread) = self.by_tid.get(&tid) {
                    self.threads[thread].is_ending = true;
                }
            }
            What::Other => self.other(id, cpu, happening),
        }
    }

    fn switch(
        &mut self,
        id: u64,
        cpu: Option<usize>,
        (old, old_waits): (Tid, bool),
        new: Tid,
        happening: &Happening,
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
                // It may go on where nothing is seen.
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
        let Some(stack) = self.wanted(happening) else { return };
        // A thread whose time was up was interrupted in user mode: its way through the kernel is of no interest.
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
        happening: &Happening,
    ) {
        self.has_calls = true;
        let Some((cpu, thread)) = self.caller(id, cpu, happening) else { return };
        self.counts.calls += 1;
        let during = Interval { first: id, last: id };
        if let Some(stack) = self.wanted(happening) {
            self.calls_may_be_over(thread, stack, id);
        }
        let seen = self.wanted(happening).and_then(Snapshot::innermost_user_mode);
        let user_mode = seen.unwrap_or(self.threads[thread].user_mode);
        self.evidence(cpu, thread, Mode::User(user_mode), id);
        self.threads[thread].entered = None;
        let mut is_seen = [false; 2];
        if let Some(stack) = self.wanted(happening) {
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

    fn system_call_exit(&mut self, id: u64, cpu: Option<usize>, happening: &Happening) {
        self.has_calls = true;
        let Some((cpu, thread)) = self.caller(id, cpu, happening) else { return };
        self.counts.returns += 1;
        self.settle(cpu, id);
        if let Some(stack) = self.wanted(happening) {
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
    fn caller(&mut self, id: u64, cpu: Option<usize>, happening: &Happening) -> Option<(usize, usize)> {
        let Some(cpu) = cpu else {
            self.counts.without_processor += 1;
            return None;
        };
        // Without switches, the thread that was seen last may long have gone.
        let is_known = self.has_switches || happening.thread.is_some();
        let thread = self.running(cpu, happening.thread, happening.stack.is_some(), id);
        let thread = thread.filter(|_| is_known);
        self.counts.without_thread += u64::from(thread.is_none());
        Some((cpu, thread?))
    }

    fn other(&mut self, id: u64, cpu: Option<usize>, happening: &Happening) {
        let Some(cpu) = cpu else {
            self.counts.without_processor += u64::from(happening.stack.is_some());
            return;
        };
        if let Some(&(by, _)) = self.processors[cpu].interruptions.last() {
            self.see_interruption(id, cpu, by, happening);
            return;
        }
        if happening.thread.is_none() && happening.stack.is_none() {
            return;
        }
        let Some(thread) = self.running(cpu, happening.thread, happening.stack.is_some(), id) else {
            self.counts.without_thread += u64::from(happening.stack.is_some());
            return;
        };
        let Some(stack) = self.wanted(happening) else { return };
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
            // It came from there at least, by a system call that logs the event.
            (None, Some(mode)) if self.threads[thread].calls() == 0 => {
                self.threads[thread].mode = Some(Mode::User(mode));
                self.enters_mode(cpu, thread, Mode::User(mode), id);
            }
            _ => {}
        }
        let user = self.see_user(thread, stack, during);
        let kernel = self.see_kernel(thread, stack, during);
        self.counts.snapshots_used += u64::from(user || kernel);
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
            // Whoever surely runs elsewhere does not run here.
            if on.is_none() || on == Some(cpu) {
                self.threads[thread].on = None;
                self.forget(thread, last);
            }
        }
    }

    /// Behind the last event, whose context is `last`.
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
