//! Folds the frames of a trace: for each path of functions, the contexts at which its innermost one
//! executed.
//!
//! A fold visits each start and end of a frame and each period of activity once. It needs memory for
//! the open frames of one stack. The caller decides which paths are the same, and keeps them.

use crate::id::{ContextId, Cpu, StackId};
use crate::location::Location;
use crate::trace::{ContextRange, Trace};

impl Trace {
    /// Visits the frames of all stacks. `enter` receives a frame that starts: its stack, what `enter`
    /// returned for its parent, and its function. `execute` receives the ranges in which the top frame
    /// of a stack, if one is known, did not change and the stack was active on a processor: the
    /// stack, what `enter` returned for the frame, the contexts, and the processor. The ranges of
    /// one stack are in order.
    ///
    /// # Errors
    /// The error of `enter`.
    pub fn fold<N: Copy, E>(
        &self,
        mut enter: impl FnMut(StackId, Option<N>, Option<Location<'_>>) -> Result<N, E>,
        mut execute: impl FnMut(StackId, Option<N>, ContextRange, Cpu),
    ) -> Result<(), E> {
        let frames = &self.index.frames;
        let mut path: Vec<N> = Vec::new();
        for stack in (0..self.stack_count()).map(StackId) {
            let (row, end) = self.row(stack);
            let mut position = row.bounds;
            let mut number = frames.rank(position);
            path.clear();
            for nth in row.periods.0..row.periods.1 {
                let period = self.period_of_stack(nth).filter(|period| period.stack == Some(stack));
                let Some(period) = period else { continue };
                let mut at = period.first;
                while at <= period.last {
                    while position < end && self.boundary(&row, position) <= at {
                        if frames.begins(position) {
                            let location = self.location_of(number);
                            path.push(enter(stack, path.last().copied(), location)?);
                            number += 1;
                        } else {
                            path.pop();
                        }
                        position += 1;
                    }
                    let next = if position < end { self.boundary(&row, position) } else { u64::MAX };
                    let last = period.last.min(next - 1);
                    if let Ok(range) = ContextRange::new(ContextId(at), ContextId(last)) {
                        execute(stack, path.last().copied(), range, period.cpu);
                    }
                    at = last + 1;
                }
            }
        }
        Ok(())
    }

    /// The number of transitions of a processor from the contexts of a range on. Takes constant time in
    /// traces of one processor, and otherwise visits the range.
    pub fn transitions_of(&self, cpu: Cpu, range: ContextRange) -> u64 {
        let (begin, end) = (range.begin().0, self.transition_count().min(range.last().0 + 1));
        match &self.index.cpus {
            // All transitions are of the first processor.
            None => {
                if cpu == Cpu(0) {
                    end.saturating_sub(begin)
                } else {
                    0
                }
            }
            Some(cpus) => {
                (begin..end).filter(|context| cpus.get(*context) == u64::from(cpu.0)).count() as u64
            }
        }
    }

    /// The time in a range of contexts, in 100 ns: from the transition before it to its last one.
    /// `None` if the trace has no times.
    pub fn time_in(&self, range: ContextRange) -> Option<u64> {
        let times = self.index.times.as_ref()?;
        let last = self.transition_count().checked_sub(1)?;
        let (begin, end) = (range.begin().0.saturating_sub(1).min(last), range.last().0.min(last));
        Some(times.get(end).saturating_sub(times.get(begin)))
    }

    fn location_of(&self, frame: u64) -> Option<Location<'_>> {
        let number = self.index.locations.get(frame).checked_sub(1)?;
        (u64::from(number) < self.index.tables.location_count).then(|| Location::new(self, number))
    }
}
