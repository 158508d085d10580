//! Which thread runs on a processor, and which of its stacks is active.

use stackhound_calltree::{Change, ContextId, Cpu, StackId};
use stackhound_types::Tid;

use super::{Processor, Tracker};
use crate::step::Step;
use crate::thread::Mode;

impl Tracker {
    /// A stack became active at some context from `lo` to `hi`.
    pub(super) fn enter(&mut self, cpu: usize, stack: StackId, (lo, hi): (u64, u64)) {
        let processor = &mut self.processors[cpu];
        if processor.active == Some(stack) {
            return;
        }
        processor.active = Some(stack);
        let (lo, hi) = (ContextId(lo.min(hi)), ContextId(hi));
        self.steps.push(Step::Enter { cpu: Cpu(cpu as u16), stack, lo, hi });
    }

    pub(super) fn leave(&mut self, cpu: usize, last: u64) {
        self.processors[cpu].pending = None;
        if self.processors[cpu].active.take().is_some() {
            let (cpu, last) = (Cpu(cpu as u16), ContextId(last));
            self.steps.push(Step::Change(Change::Leave { cpu, last }));
        }
    }

    /// Behind context `last`, it is not known which thread runs on a processor.
    pub(super) fn vacate(&mut self, cpu: usize, last: u64) {
        if self.processors[cpu].interruptions.is_empty() {
            self.settle(cpu, last + 1);
            self.leave(cpu, last);
        }
        self.processors[cpu].running = None;
    }

    /// Enters one of the running thread's stacks.
    pub(super) fn enter_mode(&mut self, cpu: usize, thread: usize, mode: Mode, (lo, hi): (u64, u64)) {
        match self.threads[thread].side(mode).as_ref().map(|side| side.id) {
            Some(stack) => {
                self.enter(cpu, stack, (lo, hi));
                self.ensure(thread, mode, hi);
            }
            None => {
                // The stack's definition comes first, what is opened on it last.
                let at = self.steps.len();
                let stack = self.ensure(thread, mode, hi);
                let base = self.steps.pop().filter(|_| self.steps.len() > at);
                self.enter(cpu, stack, (lo, hi));
                self.steps.extend(base);
            }
        }
    }

    /// Enters what is to be entered before context `until`. Which stack that is rests on what was known before.
    pub(super) fn settle(&mut self, cpu: usize, until: u64) {
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
    pub(super) fn evidence(&mut self, cpu: usize, thread: usize, mode: Mode, at: u64) {
        self.settle(cpu, at);
        self.mode_is(thread, mode, at);
        self.enters_mode(cpu, thread, mode, at);
    }

    pub(super) fn enters_mode(&mut self, cpu: usize, thread: usize, mode: Mode, at: u64) {
        self.settle(cpu, at);
        let lo = match self.processors[cpu].pending.take() {
            Some(_) => at,
            None => self.processors[cpu].floor,
        };
        self.processors[cpu].floor = at + 1;
        self.enter_mode(cpu, thread, mode, (lo, at));
    }

    /// At context `at`, a thread is in this mode.
    pub(super) fn mode_is(&mut self, thread: usize, mode: Mode, at: u64) {
        let thread = &mut self.threads[thread];
        thread.mode = Some(mode);
        if let Mode::User(mode) = mode {
            thread.user_mode = mode;
        }
        if let (true, 0, Some(kernel)) = (mode.is_user(), thread.calls(), &mut thread.kernel) {
            // Without switches it is not known whose system calls those are that events tell of.
            if thread.is_clean && self.has_calls && self.has_switches {
                kernel.is_empty_at(at, &mut self.steps);
            } else {
                kernel.set_aside(&mut self.steps);
            }
        }
    }

    /// The thread that runs on a processor just before event `id`.
    pub(super) fn running(
        &mut self,
        cpu: usize,
        stated: Option<Tid>,
        has_stack: bool,
        id: u64,
    ) -> Option<usize> {
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
                // A switch is missing, and who knows what else.
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
    pub(super) fn adopt(&mut self, cpu: usize, thread: usize, first: u64) {
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
