//! One stack and the frames that are open on it: those with exact ends, and those that recorded stacks show.

use stackhound_calltree::{Change, ContextId, EndType, Evidence, LocationId, StackId, StartType};

use crate::stack_event::SampledFrame;
use crate::step::{NOT_KNOWN, Step};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Stands for all that is not known: as long as the stack exists, something is on it.
    Base,
    /// Both its ends are events.
    Exact {
        /// It was not there before this context.
        lo: u64,
        /// It surely was at this one.
        hi: u64,
    },
    /// Recorded stacks show it.
    Seen,
}

/// An open frame.
#[derive(Clone, Copy, Debug)]
struct Live {
    kind: Kind,
    function: Option<LocationId>,
    /// The place in it that was seen last.
    address: Option<u64>,
}

/// The contexts for which a recorded stack holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interval {
    pub first: u64,
    pub last: u64,
}

/// A stack with its open frames.
#[derive(Debug)]
pub(crate) struct ThreadStack {
    pub id: StackId,
    /// Outermost first. Those that were seen stand on top of the innermost other one: the anchor.
    frames: Vec<Live>,
    /// The last context at which the frames that were seen were surely there.
    certain: Option<u64>,
    /// Frames that are seen next were not there before this context.
    floor: u64,
    /// The same where no frame with exact ends is open.
    base_floor: u64,
    /// Nothing can be said any more of contexts before this one.
    said: u64,
}

impl ThreadStack {
    pub fn new(id: StackId, floor: u64) -> ThreadStack {
        ThreadStack { id, frames: Vec::new(), certain: None, floor, base_floor: floor, said: 0 }
    }

    /// Makes sure that there is a frame from context `first` on.
    pub fn ensure_base(&mut self, first: u64, start: StartType, steps: &mut Vec<Step>) {
        if self.frames.is_empty() {
            self.frames.push(Live { kind: Kind::Base, function: None, address: None });
            self.said = first;
            let first = ContextId(first);
            steps.push(Step::Change(Change::Open { stack: self.id, first, start, location: None }));
        }
    }

    /// What is seen next was not there before this context.
    pub fn floor(&self) -> u64 {
        self.certain.map_or(self.floor, |certain| certain + 1)
    }

    /// Whether something can still be said of context `at`. Contradictory events may have made an end of it.
    pub fn can_change_at(&self, at: u64) -> bool {
        self.said <= at
    }

    /// How many frames have exact ends.
    pub fn exact(&self) -> usize {
        self.frames.iter().filter(|frame| matches!(frame.kind, Kind::Exact { .. })).count()
    }

    /// Index of the anchor.
    fn anchor(&self) -> Option<usize> {
        self.frames.iter().rposition(|frame| frame.kind != Kind::Seen)
    }

    /// Puts a frame with exact ends on top. Whether the frames seen before are still there is not known.
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

    /// Closes the innermost frame with exact ends and all above it.
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

    /// Closes the innermost frame with exact ends, of which it is only known that it was there at `lo`. `false` if there
    /// is none.
    pub fn give_up_exact(&mut self, lo: u64, hi: ContextId, steps: &mut Vec<Step>) -> bool {
        self.close_seen(hi, steps);
        let Some(&Live { kind: Kind::Exact { hi: first, .. }, .. }) = self.frames.last() else {
            return false;
        };
        self.frames.pop();
        // It is there behind the event that began it, even if that is the last one that is known.
        let lo = ContextId(lo.max(first).max(self.said.saturating_sub(1)));
        self.said = lo.0 + 1;
        steps.push(Step::Close { stack: self.id, lo, hi: hi.max(lo), end: EndType::Gone });
        self.floor = 0;
        true
    }

    /// Closes the frames that were seen; the latest context that they can have had is `hi`.
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

    /// The stack is empty at context `first`: what is seen later starts behind it.
    pub fn is_empty_at(&mut self, first: u64, steps: &mut Vec<Step>) {
        self.close_seen(ContextId(first.saturating_sub(1)), steps);
        self.base_floor = self.base_floor.max(first + 1);
        self.floor = self.base_floor;
    }

    /// What was seen is probably gone.
    pub fn set_aside(&mut self, steps: &mut Vec<Step>) {
        self.close_seen(NOT_KNOWN, steps);
    }

    /// From here on nothing is known any more.
    pub fn forget(&mut self, last: u64, steps: &mut Vec<Step>) {
        self.close_seen(NOT_KNOWN, steps);
        while self.give_up_exact(last, NOT_KNOWN, steps) {}
        (self.floor, self.base_floor) = (0, 0);
    }

    /// Closes all frames, since the stack is no more.
    pub fn finish(&mut self, last: u64, end: EndType, steps: &mut Vec<Step>) {
        self.close_seen(ContextId(last), steps);
        for _ in self.frames.drain(..) {
            steps.push(Step::Change(Change::Close { stack: self.id, last: ContextId(last), end }));
        }
    }

    /// The frames that were seen do not change up to context `last`.
    pub fn hold_until(&mut self, last: u64) {
        self.certain = self.certain.map(|certain| certain.max(last));
    }

    /// Whether frames were seen, and a recorded stack shows exactly them.
    pub fn shows(&self, view: &[SampledFrame]) -> bool {
        let frames = self.view();
        frames.len() == view.len() && extends(frames, view)
    }

    /// Whether a recorded stack shows the frames that were seen, unchanged, and maybe more.
    pub fn is_extended_by(&self, view: &[SampledFrame]) -> bool {
        extends(self.view(), view)
    }

    /// Whether frames were seen and are open.
    pub fn has_seen(&self) -> bool {
        !self.view().is_empty()
    }

    /// Whether a recorded stack ends at another place than the frames that were seen. The outermost function of a thread
    /// makes a single call, so one of the two is not whole.
    pub fn has_other_root(&self, view: &[SampledFrame]) -> bool {
        let outermost = self.view().first().zip(view.first());
        outermost.is_some_and(|(live, view)| live.address != Some(view.address))
    }

    /// Gives up what was seen, without saying until when it was there.
    pub fn forget_seen(&mut self, steps: &mut Vec<Step>) {
        self.close_seen(NOT_KNOWN, steps);
        (self.floor, self.base_floor) = (0, 0);
    }

    fn view(&self) -> &[Live] {
        &self.frames[self.anchor().map_or(0, |anchor| anchor + 1)..]
    }

    /// What of a recorded stack stands above the anchor, and where the stack is in the anchor. `None` if the stack
    /// does not show the functions of the frames with exact ends.
    pub fn above_anchor<'s>(&self, view: &'s [SampledFrame]) -> Option<(Option<u64>, &'s [SampledFrame])> {
        let mut above = (None, view);
        let exact = self.frames.iter().filter(|frame| matches!(frame.kind, Kind::Exact { .. }));
        let innermost = exact.clone().count();
        if let Some(anchor) = exact.clone().next_back() {
            // Which of several is the anchor cannot be told.
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

    /// Merges what stands above the anchor: a frame goes on if its function is the same and so are all return
    /// addresses further out. `false` if that contradicts another recorded stack of the same contexts.
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
            // What is known of the place has changed, so that nothing can be said of what has not.
            self.forget_seen(steps);
            going_on = 0;
        }
        self.close_above(anchor + 1 + going_on, ContextId(during.first.saturating_sub(1)), steps);
        let lo = self.floor().min(during.first);
        for frame in &view[going_on..] {
            let (address, function) = (Some(frame.address), frame.function);
            self.frames.push(Live { kind: Kind::Seen, function, address });
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
