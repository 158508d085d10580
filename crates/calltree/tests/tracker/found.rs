//! Collects the output of a tracker and checks that it is well-formed.

use crate::execution::truth::{TrueFrame, TrueJump};
use crate::execution::{Event, Memory};
use stackhound_calltree::tracker::{Tracked, Tracker};
use stackhound_calltree::{
    Builder, ContextId, Cpu, EndType, LocationId, LocationInfo, StackId, StackInfo, StartType, Trace,
};
use stackhound_types::Address;

/// The frames of each stack and the periods of activity.
#[derive(Debug, Default)]
pub struct Found {
    pub stacks: Vec<Vec<TrueFrame>>,
    pub active: Vec<(ContextId, Option<StackId>)>,
    pub jumps: Vec<TrueJump>,
    /// For each stack: the positions of its open frames, the context of the last item, and the
    /// first context at which it was active.
    open: Vec<(Vec<usize>, ContextId, Option<ContextId>)>,
}

impl Found {
    /// Adds one item.
    ///
    /// # Panics
    ///
    /// The item is not a valid continuation.
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
                let (open, latest, _) = &mut self.open[stack.0 as usize];
                assert!(*latest <= first, "{item:?} after {latest}");
                *latest = first;
                let frames = &mut self.stacks[stack.0 as usize];
                open.push(frames.len());
                frames.push(frame(first, start, function, false));
            }
            Tracked::Close { stack, last, end } => {
                let (open, latest, _) = &mut self.open[stack.0 as usize];
                assert!(*latest <= last, "{item:?} after {latest}");
                *latest = last;
                let location = open.pop().expect("an open frame");
                let frame = &mut self.stacks[stack.0 as usize][location];
                assert!(frame.first <= last);
                assert_ne!(end, EndType::TraceEnd);
                (frame.last, frame.end) = (last, end);
            }
            Tracked::Jump { stack, first, from, function } => {
                let (open, latest, _) = &mut self.open[stack.0 as usize];
                assert!(*latest <= first, "{item:?} after {latest}");
                *latest = first;
                assert!(!open.is_empty(), "{item:?} without a frame");
                self.jumps.push(TrueJump { stack: stack.0 as usize, first, from, function });
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
            // Periods without a context are dropped.
            if before == first {
                self.active.pop();
            }
        }
        if self.active.last().map(|(_, last)| *last) != Some(stack) {
            self.active.push((first, stack));
        }
    }

    /// The number of open frames of a stack.
    pub fn depth(&self, stack: StackId) -> usize {
        self.open[stack.0 as usize].0.len()
    }

    /// Ends all open frames with the trace.
    pub fn end(&mut self, last: ContextId) {
        for (frames, (open, latest, _)) in self.stacks.iter_mut().zip(&self.open) {
            assert!(*latest <= last, "item at {latest}, trace ends at {last}");
            for &location in open {
                frames[location].last = last;
            }
        }
    }
}

fn frame(first: ContextId, start: StartType, function: Option<Address>, below: bool) -> TrueFrame {
    TrueFrame { first, last: first, start, end: EndType::TraceEnd, function, below }
}

/// Passes an event to a tracker.
pub fn feed(tracker: &mut Tracker, event: Event, memory: Memory, sink: impl FnMut(Tracked)) {
    match event {
        Event::Step(step) => tracker.step(&step, memory, sink),
        Event::Skip(transitions) => tracker.skip(transitions),
        Event::Declare { space, low, high, kind } => tracker.declare(space, low, high, kind, sink),
        Event::Release { space, low, high } => tracker.release(space, low, high, sink),
        Event::Exit(thread) => tracker.exit(thread, sink),
    }
}

/// Converts the output of a tracker to a trace, as a recorder does.
#[track_caller]
pub fn built(items: &[Tracked], transitions: u64) -> Trace {
    let mut builder = Builder::new();
    for &item in items {
        if let Tracked::Stack { stack, kind, thread, region, .. } = item {
            let thread = thread.map(|thread| thread.0);
            let defined =
                builder.stack(StackInfo { kind, process: None, thread, cpu: None, name: None, region });
            assert_eq!(defined, stack);
        }
        let location = |address| -> LocationId {
            let address = Some(address);
            builder.location(LocationInfo {
                address,
                module: None,
                rva: None,
                symbol: None,
                symbol_offset: 0,
            })
        };
        if let Some(change) = item.change(Cpu(0), location) {
            builder.apply(change).expect("a valid change");
        }
    }
    builder.finish(transitions).expect("a trace")
}

/// Creates a tracker for a generated execution.
pub fn tracker() -> Tracker {
    Tracker::new(crate::execution::Execution::FIRST_THREAD)
}
