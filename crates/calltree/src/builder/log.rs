//! The changes of one stack during construction: frame starts and ends in order, about six bytes
//! for each frame, and two to eight more for a frame that is not exact.

use super::varints::Varints;
use crate::id::{ContextId, LocationId, StackId};
use crate::kind::{EndType, Evidence, StartType};
use crate::succinct::BitBuilder;
use crate::{Error, class::Class};

#[derive(Clone, Copy, Debug)]
struct Open {
    frame: FramePosition,
    /// The boundary of its start, or of its last tail call.
    from: u64,
}

/// Identifies a frame. Frames that were found below all others precede the rest, the last one found
/// first.
#[derive(Clone, Copy, Debug)]
enum FramePosition {
    Below(u32),
    Above(u32),
}

#[derive(Debug)]
pub(super) struct Log {
    stack: StackId,
    /// The earliest context at which anything is known of the stack.
    first: Option<u64>,
    /// One bit for each frame start (1) or end (0), without the starts of the frames below all others.
    parentheses: BitBuilder,
    /// The difference of each boundary from the previous one. The first one is relative to 0.
    steps: Varints,
    /// The last boundary: the first context at which the last start or end holds.
    last: u64,
    /// The first context of the most recently started frame, or of the last tail call if that is later.
    begun: u64,
    /// Location + 1 of every frame, in order of the starts.
    locations: Vec<u32>,
    below: Vec<u32>,
    starts: Marks,
    ends: Marks,
    /// The ends of frames below all others.
    below_ends: Vec<(u32, u64)>,
    /// For each tail call: the frame's number, and whether it is below all others, in the lowest bit; the
    /// first context; the location.
    tail_calls: Varints,
    open: Vec<Open>,
    /// The number of frames that are open at the end of the trace.
    left_open: u64,
}

/// Codes of those frames whose start or end is not the usual one.
#[derive(Debug, Default)]
struct Marks {
    /// The difference of the frame's number from the previous one, with the sign in the lowest bit, and
    /// the code.
    numbers: Varints,
    last: i64,
}

/// A frame that is not of the usual class, or whose bounds are inferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Marked {
    /// The number of the frame in its stack.
    pub(super) frame: u64,
    pub(super) class: Class,
    /// The uncertainty of its bounds in contexts, plus one; 0 for a bound without a stated uncertainty.
    /// The start can be this number of contexts earlier, and the end this number later.
    pub(super) slack: (u64, u64),
}

/// The bits of the types below an uncertainty in a code.
const START_BITS: u32 = 6;
const END_BITS: u32 = 3;

impl Marks {
    fn add(&mut self, frame: u32, code: u64) {
        let difference = i64::from(frame) - self.last;
        self.last = i64::from(frame);
        self.numbers.push((difference << 1 ^ difference >> 63) as u64);
        self.numbers.push(code);
    }

    fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let (mut numbers, mut last) = (self.numbers.iter(), 0_i64);
        std::iter::from_fn(move || {
            let (difference, code) = (numbers.next()?, numbers.next()?);
            last += (difference >> 1) as i64 ^ -((difference & 1) as i64);
            Some((last as u64, code))
        })
    }
}

impl Log {
    pub(super) fn new(stack: StackId) -> Self {
        Self {
            stack,
            first: None,
            parentheses: BitBuilder::default(),
            steps: Varints::default(),
            last: 0,
            begun: 0,
            locations: Vec::new(),
            below: Vec::new(),
            starts: Marks::default(),
            ends: Marks::default(),
            below_ends: Vec::new(),
            tail_calls: Varints::default(),
            open: Vec::new(),
            left_open: 0,
        }
    }

    /// Records that the stack is known from `first` on.
    pub(super) fn seen(&mut self, first: u64) {
        self.first = Some(self.first.map_or(first, |known| known.min(first)));
    }

    /// Returns the last context that a change refers to.
    pub(super) fn last_context(&self) -> u64 {
        self.last.saturating_sub(1).max(self.begun).max(self.first.unwrap_or(0))
    }

    pub(super) fn begin(
        &mut self,
        first: ContextId,
        earlier: Option<u64>,
        start: StartType,
        location: Option<LocationId>,
        evidence: Evidence,
    ) -> Result<(), Error> {
        self.step(first.0)?;
        let number = u32::try_from(self.locations.len())
            .map_err(|_| Error::TooMany { items: "frames of one stack", limit: u64::from(u32::MAX) })?;
        self.seen(first.0);
        self.begun = self.begun.max(first.0);
        self.parentheses.push(true);
        self.locations.push(location.map_or(0, |location| location.0 + 1));
        self.open.push(Open { frame: FramePosition::Above(number), from: first.0 });
        let slack = earlier.map_or(0, |earlier| earlier + 1);
        let is_usual = (start, evidence) == (Class::USUAL.start, Class::USUAL.evidence);
        if !is_usual || slack > 0 {
            self.starts.add(number, slack << START_BITS | (evidence as u64) << 3 | start as u64);
        }
        Ok(())
    }

    pub(super) fn end(&mut self, last: ContextId, later: Option<u64>, end: EndType) -> Result<(), Error> {
        let missing = Error::NothingOpen { stack: self.stack, at: last };
        let boundary = last.0 + 1;
        match self.open.last() {
            Some(open) if open.from < boundary => {}
            _ => return Err(missing),
        }
        self.step(boundary)?;
        let Some(open) = self.open.pop() else { return Err(missing) };
        self.close(open, later.map_or(0, |later| later + 1), end);
        Ok(())
    }

    /// Sets the location of the top frame.
    pub(super) fn target(&mut self, location: LocationId) -> Result<(), Error> {
        let Some(open) = self.open.last() else {
            return Err(Error::NothingOpen { stack: self.stack, at: ContextId(self.last) });
        };
        let stored = match open.frame {
            FramePosition::Below(number) => &mut self.below[number as usize],
            FramePosition::Above(number) => &mut self.locations[number as usize],
        };
        *stored = location.0 + 1;
        Ok(())
    }

    /// The top frame continues in another function.
    pub(super) fn tail_call(&mut self, first: ContextId, location: LocationId) -> Result<(), Error> {
        self.check_order(first.0)?;
        let Some(open) = self.open.last_mut() else {
            return Err(Error::NothingOpen { stack: self.stack, at: first });
        };
        // The frame cannot end before.
        open.from = first.0;
        let frame = match open.frame {
            FramePosition::Below(number) => u64::from(number) << 1 | 1,
            FramePosition::Above(number) => u64::from(number) << 1,
        };
        self.begun = first.0;
        for number in [frame, first.0, u64::from(location.0)] {
            self.tail_calls.push(number);
        }
        Ok(())
    }

    /// Adds a frame below all others.
    pub(super) fn below(&mut self, location: Option<LocationId>) -> Result<(), Error> {
        if !self.open.is_empty() {
            return Err(Error::Order { at: ContextId(self.last), last: ContextId(self.last) });
        }
        let frame = FramePosition::Below(self.below.len() as u32);
        self.below.push(location.map_or(0, |location| location.0 + 1));
        let from = self.first.unwrap_or(self.last);
        self.open.push(Open { frame, from });
        Ok(())
    }

    /// Closes the open frames at the end of a trace. The frames are then numbered from 0.
    pub(super) fn finish(&mut self) {
        self.left_open = self.open.len() as u64;
        while let Some(open) = self.open.pop() {
            self.close(open, 0, EndType::TraceEnd);
        }
    }

    fn close(&mut self, open: Open, slack: u64, end: EndType) {
        self.parentheses.push(false);
        let code = slack << END_BITS | end as u64;
        match open.frame {
            FramePosition::Below(number) => self.below_ends.push((number, code)),
            FramePosition::Above(number) if end != Class::USUAL.end || slack > 0 => {
                self.ends.add(number, code);
            }
            FramePosition::Above(_) => {}
        }
    }

    fn step(&mut self, boundary: u64) -> Result<(), Error> {
        self.check_order(boundary)?;
        self.steps.push(boundary - self.last);
        self.last = boundary;
        Ok(())
    }

    fn check_order(&self, boundary: u64) -> Result<(), Error> {
        match self.last.max(self.begun) {
            earliest if boundary < earliest => {
                Err(Error::Order { at: ContextId(boundary), last: ContextId(earliest) })
            }
            _ => Ok(()),
        }
    }
}

/// A finished log.
impl Log {
    /// The lowest boundary.
    pub(super) fn first(&self) -> u64 {
        self.first.unwrap_or(0)
    }

    /// The number of frame starts and ends.
    pub(super) fn bound_count(&self) -> u64 {
        self.below.len() as u64 + self.parentheses.len()
    }

    /// Appends the bits of all frame starts and ends.
    pub(super) fn append_parentheses(&self, to: &mut BitBuilder) {
        (0..self.below.len()).for_each(|_| to.push(true));
        to.append(&self.parentheses);
    }

    /// Location + 1 of every frame.
    pub(super) fn locations(&self) -> impl Iterator<Item = u32> + '_ {
        self.below.iter().rev().chain(&self.locations).copied()
    }

    /// The boundaries of all frame starts and ends in a trace with this number of transitions.
    pub(super) fn bounds(&self, transitions: u64) -> impl Iterator<Item = u64> + Clone + '_ {
        let below = std::iter::repeat_n(self.first(), self.below.len());
        let seen = self.steps.iter().scan(0, |boundary, step| {
            *boundary += step;
            Some(*boundary)
        });
        below.chain(seen).chain(std::iter::repeat_n(transitions + 1, self.left_open as usize))
    }

    /// The tail calls: the number of the frame in its stack, the first context, the location. Those of one
    /// frame are in order.
    pub(super) fn tail_calls(&self) -> impl Iterator<Item = (u64, u64, u32)> + '_ {
        let below = self.below.len() as u64;
        let mut numbers = self.tail_calls.iter();
        std::iter::from_fn(move || {
            let (frame, first, location) = (numbers.next()?, numbers.next()?, numbers.next()?);
            let frame = if frame & 1 == 1 { below - 1 - (frame >> 1) } else { below + (frame >> 1) };
            Some((frame, first, location as u32))
        })
    }

    /// The frames that are not of the usual class, or whose bounds are inferred, in order.
    pub(super) fn marked(&self, transitions: u64) -> Vec<Marked> {
        let below = self.below.len() as u64;
        let start = |code: u64| Class {
            start: StartType::ALL[(code & 7) as usize],
            evidence: Evidence::ALL[(code >> 3 & 7) as usize],
            ..Class::USUAL
        };
        let mut marked: Vec<Marked> = Vec::new();
        for frame in 0..below {
            let class = Class { start: StartType::Unknown, ..Class::USUAL };
            marked.push(Marked { frame, class, slack: (0, 0) });
        }
        marked.extend(self.starts.iter().map(|(number, code)| Marked {
            frame: below + number,
            class: start(code),
            slack: (code >> START_BITS, 0),
        }));
        let below_ends = self.below_ends.iter().map(|(number, code)| (below - 1 - u64::from(*number), *code));
        let ends = self.ends.iter().map(|(number, code)| (below + number, code));
        let starts = marked.len();
        for (frame, code) in below_ends.chain(ends) {
            let end = EndType::ALL[(code & 7) as usize];
            // An end that may be at any later context is limited to the length of the trace.
            let slack = (code >> END_BITS).min(transitions + 1);
            match marked[..starts].binary_search_by_key(&frame, |marked| marked.frame) {
                Ok(at) => {
                    marked[at].class.end = end;
                    marked[at].slack.1 = slack;
                }
                Err(_) => {
                    marked.push(Marked { frame, class: Class { end, ..Class::USUAL }, slack: (0, slack) });
                }
            }
        }
        marked.sort_by_key(|marked| marked.frame);
        marked
    }
}
