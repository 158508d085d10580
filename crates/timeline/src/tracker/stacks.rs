//! Threads and the stacks that they have.

use stackhound_calltree::{Cpu, EndType, StackId, StackKind, StartType};
use stackhound_types::Tid;

use super::{Processor, Tracker};
use crate::side::Side;
use crate::step::Step;
use crate::thread::{Mode, Thread};

impl Tracker {
    pub(super) fn processor(&mut self, cpu: Cpu) -> usize {
        let index = usize::from(cpu.0);
        if self.processors.len() <= index {
            self.processors.resize_with(index + 1, Processor::default);
        }
        index
    }

    /// The thread of a number; on a processor, 0 is that one's idle thread.
    pub(super) fn thread(&mut self, tid: Tid, cpu: Option<usize>) -> usize {
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

    pub(super) fn add(&mut self, thread: Thread) -> usize {
        match self.free.pop() {
            Some(place) => {
                self.threads[place] = thread;
                place
            }
            None => {
                self.threads.push(thread);
                self.threads.len() - 1
            }
        }
    }

    pub(super) fn stack(&mut self, kind: StackKind, thread: Option<Tid>, cpu: Option<Cpu>) -> StackId {
        let id = StackId(self.stacks);
        self.stacks += 1;
        self.steps.push(Step::Stack { id, kind, thread, cpu, time: self.time });
        id
    }

    /// Makes sure that a thread has a stack, and that something is on it from context `first` on.
    pub(super) fn ensure(&mut self, thread: usize, mode: Mode, first: u64) -> StackId {
        let Thread { tid, idle_on, born, is_started, .. } = self.threads[thread];
        if self.threads[thread].side(mode).is_none() {
            let side = Side::new(self.stack(mode.stack(), Some(tid), idle_on), born);
            *self.threads[thread].side(mode) = Some(side);
        }
        let start = if is_started { StartType::Manual } else { StartType::Unknown };
        let side = self.threads[thread].side(mode).as_mut();
        side.map_or(StackId(u32::MAX), |side| {
            side.ensure_base(first, start, &mut self.steps);
            side.id
        })
    }

    pub(super) fn thread_starts(&mut self, id: u64, tid: Tid) {
        if tid == Tid(0) {
            return;
        }
        if let Some(&old) = self.by_tid.get(&tid) {
            // Its end was not seen.
            self.remove(old, id, EndType::Abandoned);
        }
        let thread = self.add(Thread::new(tid, Some(id + 1)));
        self.by_tid.insert(tid, thread);
    }

    /// A thread is no more behind context `last`.
    pub(super) fn remove(&mut self, thread: usize, last: u64, end: EndType) {
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

    /// Gives up all that was known of a thread, which was there at context `last`.
    pub(super) fn forget(&mut self, thread: usize, last: u64) {
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
