//! What a tracker said, put together: and whether it can be said at all.

use crate::execution::truth::TrueFrame;
use crate::execution::{Event, Memory};
use stackhound_calltree::tracker::{Tracked, Tracker};
use stackhound_calltree::{ContextId, StackId};
use stackhound_calltree::{EndType, StartType};
use stackhound_types::Address;

/// The frames of each stack and the periods of activity.
#[derive(Debug, Default)]
pub struct Found {
    pub stacks: Vec<Vec<TrueFrame>>,
    pub active: Vec<(ContextId, Option<StackId>)>,
    /// Of each stack: the places of its open frames, the end of what is said, when it was active first.
    open: Vec<(Vec<usize>, ContextId, Option<ContextId>)>,
}

impl Found {
    /// Takes one item.
    ///
    /// # Panics
    ///
    /// If no well-formed sequence goes on like this.
    #[track_caller]
    pub fn take(&mut self, item: Tracked) {
        match item {
            Tracked::Stack { stack, .. } => {
                assert_eq!(stack.0 as usize, self.stacks.len(), "stacks are numbered in order");
                self.stacks.push(Vec::new());
                self.open.push((Vec::new(), ContextId(0), None));
            }
            Tracked::Enter { stack, first } => {
                let (_, _, entered) = &mut self.open[stack.0 as usize];
                entered.get_or_insert(first);
                self.activate(first, Some(stack));
            }
            Tracked::Leave { last } => {
                assert!(self.active.last().is_some_and(|(_, stack)| stack.is_some()), "nothing to leave");
                self.activate(ContextId(last.0 + 1), None);
            }
            Tracked::Open { stack, first, start, function } => {
                let (open, said, _) = &mut self.open[stack.0 as usize];
                assert!(*said <= first, "{item:?} after {said}");
                *said = first;
                let frames = &mut self.stacks[stack.0 as usize];
                open.push(frames.len());
                frames.push(frame(first, start, function, false));
            }
            Tracked::Close { stack, last, end } => {
                let (open, said, _) = &mut self.open[stack.0 as usize];
                assert!(*said <= last, "{item:?} after {said}");
                *said = last;
                let location = open.pop().expect("an open frame");
                let frame = &mut self.stacks[stack.0 as usize][location];
                assert!(frame.first <= last);
                assert_ne!(end, EndType::TraceEnd);
                (frame.last, frame.end) = (last, end);
            }
            Tracked::Below { stack, function } => {
                let (open, _, entered) = &mut self.open[stack.0 as usize];
                let frames = &mut self.stacks[stack.0 as usize];
                open.insert(0, frames.len());
                let entered = entered.expect("it was active");
                frames.push(frame(entered, StartType::Unknown, Some(function), true));
            }
        }
    }

    fn activate(&mut self, first: ContextId, stack: Option<StackId>) {
        if let Some(&(before, last)) = self.active.last() {
            assert!(before <= first);
            assert_ne!(last, stack, "nothing changes");
            // Periods without a context are none.
            if before == first {
                self.active.pop();
            }
        }
        if self.active.last().map(|(_, last)| *last) != Some(stack) {
            self.active.push((first, stack));
        }
    }

    /// Frames of a stack that are open.
    pub fn depth(&self, stack: StackId) -> usize {
        self.open[stack.0 as usize].0.len()
    }

    /// Ends what is open with the trace.
    pub fn end(&mut self, last: ContextId) {
        for (frames, (open, said, _)) in self.stacks.iter_mut().zip(&self.open) {
            assert!(*said <= last, "said of {said}, ends at {last}");
            for &location in open {
                frames[location].last = last;
            }
        }
    }
}

fn frame(first: ContextId, start: StartType, function: Option<Address>, below: bool) -> TrueFrame {
    TrueFrame { first, last: first, start, end: EndType::TraceEnd, function, below }
}

/// Gives a tracker an event.
pub fn tell(tracker: &mut Tracker, event: Event, memory: Memory, sink: impl FnMut(Tracked)) {
    match event {
        Event::Step(step) => tracker.step(&step, memory, sink),
        Event::Skip(transitions) => tracker.skip(transitions),
        Event::Declare { space, low, high, kind } => tracker.declare(space, low, high, kind, sink),
        Event::Release { space, low, high } => tracker.release(space, low, high, sink),
        Event::Exit(thread) => tracker.exit(thread, sink),
    }
}

/// A tracker for a generated execution.
pub fn tracker() -> Tracker {
    Tracker::new(crate::execution::Execution::FIRST_THREAD)
}
