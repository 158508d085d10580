//! When a frame was really executed, and by which of the frames below it.

use std::fmt;

use crate::context::ContextRange;
use crate::event::{StackEvent, StackEvents};
use crate::frame::Frame;
use crate::id::ContextId;

/// A range in which one frame was the top of the active stack.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CallRange<'t> {
    /// The frame.
    pub frame: Frame<'t>,
    /// How far below the frame that was asked it is: 0 for that one itself.
    pub depth: u64,
    /// The contexts.
    pub range: ContextRange,
}

impl<'t> CallRange<'t> {
    /// The frames from the one that was asked to this one.
    pub fn path(&self) -> Vec<Frame<'t>> {
        let mut path: Vec<Frame<'t>> =
            std::iter::once(self.frame).chain(self.frame.ancestors()).take(self.depth as usize + 1).collect();
        path.reverse();
        path
    }
}

/// As in `[1]#199886 - ntoskrnl!KeWaitForSingleObject [Context before #199887, Context before #199992]`.
impl fmt::Display for CallRange<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}]{} {}", self.depth, self.frame, self.range)
    }
}

/// The ranges of a frame and the frames below it, in order, none empty and no two with a common context. Together they
/// are the frame's execution ranges.
#[derive(Debug)]
pub struct CallRanges<'t> {
    events: StackEvents<'t>,
    path: Vec<Frame<'t>>,
    /// Since when the top of the path is executed; `None` while another stack is active.
    since: Option<ContextId>,
    done: bool,
}

impl<'t> CallRanges<'t> {
    pub(crate) fn new(frame: Frame<'t>) -> Self {
        let events = frame.descendant_events();
        let since = events.is_active().then(|| frame.first_context().id());
        Self { events, path: vec![frame], since, done: false }
    }

    /// Leaves out the frames for which `excluded` says so, with everything below them.
    pub fn without(self, excluded: impl Fn(&Frame<'t>) -> bool) -> impl Iterator<Item = CallRange<'t>> {
        let mut ranges = self;
        std::iter::from_fn(move || ranges.advance(&excluded))
    }

    fn advance(&mut self, excluded: &impl Fn(&Frame<'t>) -> bool) -> Option<CallRange<'t>> {
        while !self.done {
            let found = match self.events.next() {
                Some(StackEvent::FrameStart(frame)) => {
                    let found = self.until(frame.first_context().id().0.checked_sub(1));
                    if excluded(&frame) {
                        self.events.skip_children();
                        self.since = None;
                    } else {
                        self.since = self.since.map(|since| since.max(frame.first_context().id()));
                    }
                    self.path.push(frame);
                    found
                }
                Some(StackEvent::FrameEnd(frame)) => {
                    let last = frame.last_context().id();
                    let found = self.until(Some(last.0));
                    self.path.pop();
                    self.since = self.events.is_active().then_some(ContextId(last.0 + 1));
                    found
                }
                Some(StackEvent::StackLeave(transition)) => {
                    let found = self.until(Some(transition.id().context_before().0));
                    self.since = None;
                    found
                }
                Some(StackEvent::StackEnter(transition)) => {
                    self.since = Some(transition.id().context_after());
                    None
                }
                None => {
                    self.done = true;
                    self.until(self.path.first().map(|frame| frame.last_context().id().0))
                }
            };
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// The range of the top of the path up to a context.
    fn until(&self, last: Option<u64>) -> Option<CallRange<'t>> {
        let range = ContextRange::new(self.since?, ContextId(last?)).ok()?;
        Some(CallRange { frame: *self.path.last()?, depth: self.path.len() as u64 - 1, range })
    }
}

impl<'t> Iterator for CallRanges<'t> {
    type Item = CallRange<'t>;

    fn next(&mut self) -> Option<CallRange<'t>> {
        self.advance(&|_| false)
    }
}
