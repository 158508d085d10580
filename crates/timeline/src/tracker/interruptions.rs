//! Interrupt service routines and deferred procedure calls, on stacks of their processor.

use stackhound_calltree::{Cpu, EndType, Evidence, StackKind, StartType};

use super::Tracker;
use crate::happening::{Happening, Interruption};
use crate::hold::Start;
use crate::side::{Interval, Side};

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
            self.processors[cpu].sides[start.by as usize] = Some(Side::new(id, 0));
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

    pub(super) fn interruption_ends(&mut self, id: u64, cpu: Option<usize>) {
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

    /// A stack that was recorded during an interruption is the interruption's, as far as it lies inside the routine.
    pub(super) fn see_interruption(&mut self, id: u64, cpu: usize, by: Interruption, happening: &Happening) {
        let Some(frames) = self.wanted(happening).and_then(|stack| stack.kernel.frames()) else { return };
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
