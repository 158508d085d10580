//! A stack and its open frames: frames with exact bounds, and frames from recorded stacks.

use stackhound_calltree::{Change, ContextId, EndType, Evidence, LocationId, StackId, StartType};

use crate::stack_event::SampledFrame;
use crate::step::{NOT_KNOWN, Step};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// The frame for all unknown calls: it exists as long as the stack.
    Base,
    /// Its start and end are events.
    Exact {
        /// The frame did not exist before this context.
        lo: u64,
        /// The frame certainly existed at this context.
        hi: u64,
    },
    /// A frame from recorded stacks.
    Sampled,
}

/// An open frame.
#[derive(Clone, Copy, Debug)]
struct Live {
    kind: Kind,
    function: Option<LocationId>,
    /// The latest recorded address in it.
    address: Option<u64>,
}

/// The contexts at which a recorded stack is valid.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interval {
    pub first: u64,
    pub last: u64,
}

/// A stack with its open frames.
#[derive(Debug)]
pub(crate) struct ThreadStack {
    pub id: StackId,
    /// Outermost first. Frames from recorded stacks are on top of the innermost other frame: the
    /// anchor.
    frames: Vec<Live>,
    /// The last context at which the frames from recorded stacks certainly existed.
    certain: Option<u64>,
    /// Frames from later recorded stacks did not exist before this context.
    floor: u64,
    /// The same if no frame with exact bounds is open.
    base_floor: u64,
    /// The state of contexts before this one is final.
    said: u64,
}

impl ThreadStack {
    pub fn new(id: StackId, floor: u64) -> ThreadStack {
        ThreadStack { id, frames: Vec::new(), certain: None, floor, base_floor: floor, said: 0 }
    }

    /// Ensures that there is a frame from context `hi` on. It did not exist before `lo`.
    pub fn ensure_base(&mut self, (lo, hi): (u64, u64), start: StartType, steps: &mut Vec<Step>) {
        if self.frames.is_empty() {
            self.frames.push(Live { kind: Kind::Base, function: None, address: None });
            self.said = hi;
            let (stack, lo, hi) = (self.id, ContextId(lo.min(hi)), ContextId(hi));
            let (location, evidence) = (None, Evidence::Exact);
            steps.push(Step::Open { stack, lo, hi, start, location, evidence });
        }
    }

    /// Frames from later recorded stacks did not exist before this context.
    pub fn floor(&self) -> u64 {
        self.certain.map_or(self.floor, |certain| certain + 1)
    }

    /// Whether the state at context `at` can still change. Contradictory events may have made it
    /// final.
    pub fn can_change_at(&self, at: u64) -> bool {
        self.said <= at
    }

    /// The number of frames with exact bounds.
    pub fn exact(&self) -> usize {
        self.frames.iter().filter(|frame| matches!(frame.kind, Kind::Exact { .. })).count()
    }

    /// Index of the anchor.
    fn anchor(&self) -> Option<usize> {
        self.frames.iter().rposition(|frame| frame.kind != Kind::Sampled)
    }

    /// Pushes a frame with exact bounds. It is not known whether earlier frames from recorded
    /// stacks still exist.
    pub fn open_exact(
        &mut self,
        (lo, hi): (u64, u64),
        start: StartType,
        location: Option<LocationId>,
        evidence: Evidence,
        steps: &mut Vec<Step>,
    ) {
        self.close_seen(NOT_KNOWN, steps);
        self.frames.push(Live { kind: Kind::Exact { lo, hi }, function: location, address: None });
        (self.floor, self.said) = (lo, hi);
        let (lo, hi) = (ContextId(lo), ContextId(hi));
        steps.push(Step::Open { stack: self.id, lo, hi, start, location, evidence });
    }

    /// Closes the innermost frame with exact bounds and all frames above it.
    pub fn close_exact(&mut self, last: u64, end: EndType, steps: &mut Vec<Step>) {
        self.close_seen(ContextId(last), steps);
        if self.exact() == 0 {
            return;
        }
        self.frames.pop();
        self.said = last + 1;
        steps.push(Step::Change(Change::Close { stack: self.id, last: ContextId(last), end }));
        self.floor = match self.frames.last() {
            Some(Live { kind: Kind::Exact { lo, .. }, .. }) => *lo,
            _ => self.base_floor,
        };
    }

    /// Closes the innermost frame with exact bounds, of which it is only known that it existed at
    /// `lo`. `false` if there is none.
    pub fn give_up_exact(&mut self, lo: u64, hi: ContextId, steps: &mut Vec<Step>) -> bool {
        self.close_seen(hi, steps);
        let Some(&Live { kind: Kind::Exact { hi: first, .. }, .. }) = self.frames.last() else {
            return false;
        };
        self.frames.pop();
        // It exists after the event that began it, even if that is the last known event.
        let lo = ContextId(lo.max(first).max(self.said.saturating_sub(1)));
        self.said = lo.0 + 1;
        steps.push(Step::Close { stack: self.id, lo, hi: hi.max(lo), end: EndType::Gone });
        self.floor = 0;
        true
    }

    /// Closes the frames from recorded stacks; they can have existed up to context `hi`.
    pub fn close_seen(&mut self, hi: ContextId, steps: &mut Vec<Step>) {
        self.close_above(self.anchor().map_or(0, |anchor| anchor + 1), hi, steps);
        self.certain = None;
    }

    fn close_above(&mut self, keep: usize, hi: ContextId, steps: &mut Vec<Step>) {
        let lo = ContextId(self.certain.unwrap_or(self.floor));
        if keep < self.frames.len() {
            self.said = lo.0 + 1;
        }
        for _ in self.frames.drain(keep..) {
            steps.push(Step::Close { stack: self.id, lo, hi: hi.max(lo), end: EndType::Gone });
        }
    }

    /// Declares the stack empty at context `first`: later frames start after it.
    pub fn is_empty_at(&mut self, first: u64, steps: &mut Vec<Step>) {
        self.close_seen(ContextId(first.saturating_sub(1)), steps);
        self.base_floor = self.base_floor.max(first + 1);
        self.floor = self.base_floor;
    }

    /// Closes the frames from recorded stacks, which have probably ended.
    pub fn set_aside(&mut self, steps: &mut Vec<Step>) {
        self.close_seen(NOT_KNOWN, steps);
    }

    /// Declares that nothing is known from here on.
    pub fn forget(&mut self, last: u64, steps: &mut Vec<Step>) {
        self.close_seen(NOT_KNOWN, steps);
        while self.give_up_exact(last, NOT_KNOWN, steps) {}
        (self.floor, self.base_floor) = (0, 0);
    }

    /// Closes all frames, because the stack ends.
    pub fn finish(&mut self, last: u64, end: EndType, steps: &mut Vec<Step>) {
        self.close_seen(ContextId(last), steps);
        for _ in self.frames.drain(..) {
            steps.push(Step::Change(Change::Close { stack: self.id, last: ContextId(last), end }));
        }
    }

    /// Declares that the frames from recorded stacks do not change up to context `last`.
    pub fn hold_until(&mut self, last: u64) {
        self.certain = self.certain.map(|certain| certain.max(last));
    }

    /// Whether there are frames from recorded stacks, and this stack contains exactly them.
    pub fn shows(&self, view: &[SampledFrame]) -> bool {
        let frames = self.view();
        frames.len() == view.len() && extends(frames, view)
    }

    /// Whether a recorded stack contains the frames from earlier ones, unchanged, and possibly
    /// more.
    pub fn is_extended_by(&self, view: &[SampledFrame]) -> bool {
        extends(self.view(), view)
    }

    /// Whether frames from recorded stacks are open.
    pub fn has_seen(&self) -> bool {
        !self.view().is_empty()
    }

    /// Whether a recorded stack has another root than the frames from earlier ones. The outermost
    /// function of a thread makes a single call, so one of the two is incomplete.
    pub fn has_other_root(&self, view: &[SampledFrame]) -> bool {
        let outermost = self.view().first().zip(view.first());
        outermost.is_some_and(|(live, view)| live.address != Some(view.address))
    }

    /// Closes the frames from recorded stacks, with an unknown end.
    pub fn forget_seen(&mut self, steps: &mut Vec<Step>) {
        self.close_seen(NOT_KNOWN, steps);
        (self.floor, self.base_floor) = (0, 0);
    }

    fn view(&self) -> &[Live] {
        &self.frames[self.anchor().map_or(0, |anchor| anchor + 1)..]
    }

    /// The part of a recorded stack above the anchor, and the address in the anchor. `None` if the
    /// stack does not contain the functions of the frames with exact bounds.
    pub fn above_anchor<'s>(&self, view: &'s [SampledFrame]) -> Option<(Option<u64>, &'s [SampledFrame])> {
        let mut above = (None, view);
        let exact = self.frames.iter().filter(|frame| matches!(frame.kind, Kind::Exact { .. }));
        let innermost = exact.clone().count();
        if let Some(anchor) = exact.clone().next_back() {
            // If there are several, the anchor is not known.
            let shown = view.iter().filter(|view| view.function == anchor.function).count();
            if shown != exact.clone().filter(|frame| frame.function == anchor.function).count() {
                return None;
            }
        }
        for (number, frame) in exact.enumerate() {
            let function = frame.function;
            let at = above.1.iter().position(|view| function.is_some() && view.function == function);
            match at {
                Some(at) => above = (Some(above.1[at].address), &above.1[at + 1..]),
                // Outer calls may have been left out.
                None if number + 1 < innermost => {}
                None => return None,
            }
        }
        Some(above)
    }

    /// Merges the part above the anchor: a frame continues if its function and all return addresses
    /// further out are the same. `false` if that contradicts another recorded stack of the same
    /// contexts.
    pub fn merge(
        &mut self,
        (location, view): (Option<u64>, &[SampledFrame]),
        during: Interval,
        evidence: Evidence,
        steps: &mut Vec<Step>,
    ) -> bool {
        let Some(anchor) = self.anchor() else { return false };
        if let Some(certain) = self.certain
            && during.first <= certain
        {
            let is_same = self.shows(view);
            if is_same {
                self.certain = Some(certain.max(during.last));
            }
            return is_same;
        }
        if during.first < self.said {
            return false;
        }
        let mut is_same_location = self.frames[anchor].address == location;
        self.frames[anchor].address = location;
        let mut going_on = 0;
        for (live, view) in self.frames[anchor + 1..].iter_mut().zip(view) {
            if !is_same_location || live.function != view.function {
                break;
            }
            going_on += 1;
            is_same_location = live.address == Some(view.address);
            live.address = Some(view.address);
        }
        let differs = self.frames[anchor + 1..].get(going_on).zip(view.get(going_on));
        if differs.is_some_and(|(live, view)| {
            is_same_location && live.function.is_none() != view.function.is_none()
        }) {
            // The identity of the function has changed, so the continuity of the frames is not
            // known.
            self.forget_seen(steps);
            going_on = 0;
        }
        self.close_above(anchor + 1 + going_on, ContextId(during.first.saturating_sub(1)), steps);
        let lo = self.floor().min(during.first);
        for frame in &view[going_on..] {
            let (address, function) = (Some(frame.address), frame.function);
            self.frames.push(Live { kind: Kind::Sampled, function, address });
            let (stack, lo, hi) = (self.id, ContextId(lo), ContextId(during.first));
            let (start, location) = (StartType::Unknown, frame.location);
            steps.push(Step::Open { stack, lo, hi, start, location, evidence });
            self.said = during.first;
        }
        self.certain = Some(during.last);
        true
    }
}

fn extends(frames: &[Live], view: &[SampledFrame]) -> bool {
    frames.len() <= view.len()
        && frames
            .iter()
            .zip(view)
            .all(|(live, view)| live.function == view.function && live.address == Some(view.address))
}
