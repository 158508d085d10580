//! What happens below a frame, in order: frames that begin and end, and its stack being left and entered again.

use std::fmt;

use crate::Trace;
use crate::context::Transition;
use crate::frame::Frame;
use crate::id::TransitionId;
use crate::index::StackRow;
use crate::stack::partition;
use crate::succinct::Node;

/// One thing that happens below a frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StackEvent<'t> {
    /// A frame begins.
    FrameStart(Frame<'t>),
    /// A frame ends. Its last context is that before the transition that ends it. A frame that is open at the end of the
    /// trace has no such event.
    FrameEnd(Frame<'t>),
    /// Another stack becomes the active one. The frame still has the context before this transition.
    StackLeave(Transition<'t>),
    /// The stack becomes active again. The frame has the context behind this transition.
    StackEnter(Transition<'t>),
}

/// As in `Start #199886 - ntoskrnl!KeWaitForSingleObject`, `Leave #209497`.
impl fmt::Display for StackEvent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FrameStart(frame) => write!(f, "Start {frame}"),
            Self::FrameEnd(frame) => write!(f, "End {frame}"),
            Self::StackLeave(transition) => write!(f, "Leave {}", transition.id()),
            Self::StackEnter(transition) => write!(f, "Enter {}", transition.id()),
        }
    }
}

/// The events below a frame. Its own beginning and end are not among them.
#[derive(Clone, Debug)]
pub struct StackEvents<'t> {
    trace: &'t Trace,
    frame: Frame<'t>,
    row: StackRow,
    /// The next beginning or end, and the place behind the last one.
    place: u64,
    end: u64,
    /// The next change of stacks, and its number among the stack's starts and ends of periods.
    change: u64,
    /// The end of those before the frame's end.
    changes_end: u64,
    open: Vec<Node>,
    just_started: bool,
}

/// Where something stands among others: the first context at which it holds; of what holds from the same context on,
/// entering comes before frames and these before leaving.
type Key = (u64, u8);
const ENTER: u8 = 0;
const FRAME: u8 = 1;
const LEAVE: u8 = 2;

impl<'t> StackEvents<'t> {
    pub(crate) fn new(frame: Frame<'t>) -> Self {
        let trace = frame.trace();
        let row = trace.row(frame.stack_id()).0;
        let own_end = frame.end_place();
        let end = match frame.has_ended() {
            true => own_end,
            // Behind what holds at the last context stands only what is left open.
            false => trace
                .place(frame.stack_id(), trace.transition_count())
                .map_or(own_end, |last| own_end.min(last + 1)),
        };
        let mut events = Self {
            trace,
            frame,
            row,
            place: frame.node().place + 1,
            end,
            change: 0,
            changes_end: 0,
            open: Vec::new(),
            just_started: false,
        };
        events.change = events.changes_before((trace.boundary(&row, frame.node().place), FRAME));
        events.changes_end = events.changes_before((trace.boundary(&row, own_end), FRAME)).max(events.change);
        events
    }

    /// Leaves out everything below the frame that has just begun: the next event is its end. Only works right behind a
    /// [`StackEvent::FrameStart`]; otherwise it does nothing. Costs the same however much is left out.
    pub fn skip_children(&mut self) {
        let Some(node) = self.open.last().filter(|_| self.just_started) else { return };
        let Some(end) = self.trace.index.frames.end(node.place) else { return };
        self.place = end;
        let behind = self.changes_before((self.trace.boundary(&self.row, end), FRAME));
        self.change = behind.clamp(self.change, self.changes_end);
        self.just_started = false;
    }

    /// Whether the stack is active just behind what came last.
    pub(crate) fn is_active(&self) -> bool {
        // The next change is to leave it, or it was never left again.
        self.change % 2 == 1
    }

    /// How many changes of stacks stand before a key. Changes 2n and 2n+1 are the start and the end of period n of all
    /// stacks' periods.
    fn changes_before(&self, key: Key) -> u64 {
        let (from, to) = self.row.periods;
        partition((from * 2, to * 2), |change| self.change_key(change).is_some_and(|found| found < key))
    }

    fn change_key(&self, change: u64) -> Option<Key> {
        let period = self.frame.own(change / 2)?;
        Some(if change.is_multiple_of(2) { (period.first, ENTER) } else { (period.last + 1, LEAVE) })
    }
}

impl<'t> Iterator for StackEvents<'t> {
    type Item = StackEvent<'t>;

    fn next(&mut self) -> Option<StackEvent<'t>> {
        self.just_started = false;
        if self.change < self.changes_end {
            let key = (self.trace.boundary(&self.row, self.place), FRAME);
            if let Some((context, kind)) = self.change_key(self.change)
                && (self.place >= self.end || (context, kind) < key)
            {
                self.change += 1;
                let transition = Transition::new(self.trace, TransitionId(context.saturating_sub(1)));
                return Some(if kind == ENTER {
                    StackEvent::StackEnter(transition)
                } else {
                    StackEvent::StackLeave(transition)
                });
            }
        }
        if self.place >= self.end {
            return None;
        }
        let frames = &self.trace.index.frames;
        let place = self.place;
        self.place += 1;
        if frames.begins(place) {
            let number = match self.open.last() {
                // Nothing lies between a frame and its first child.
                Some(parent) if parent.place + 1 == place => parent.number + 1,
                _ => frames.rank(place),
            };
            let node = Node { number, place };
            self.open.push(node);
            self.just_started = true;
            return Some(StackEvent::FrameStart(Frame::at(self.trace, node, self.frame.stack_id())));
        }
        let node = self.open.pop()?;
        Some(StackEvent::FrameEnd(Frame::at(self.trace, node, self.frame.stack_id())))
    }
}
