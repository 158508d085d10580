//! The changes of one stack during construction: frame starts and ends in order, about six bytes
//! for each frame.

use crate::id::{ContextId, LocationId, StackId};
use crate::kind::{EndType, Evidence, StartType};
use crate::succinct::BitBuilder;
use crate::{Error, class::Class};

#[derive(Clone, Copy, Debug)]
struct Open {
    frame: FramePosition,
    start: StartType,
    evidence: Evidence,
    /// The boundary of its start.
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
    /// One bit for each frame start (1) or end (0).
    parentheses: BitBuilder,
    /// The difference of each boundary from the previous one, as variable-length numbers. The first
    /// one is relative to 0.
    steps: Vec<u8>,
    /// The last boundary: the first context at which the last start or end holds.
    last: u64,
    /// The first context of the most recently started frame.
    begun: u64,
    /// Location + 1 of every frame, in order of the starts.
    locations: Vec<u32>,
    below: Vec<u32>,
    classes: Vec<(FramePosition, Class)>,
    slack: Vec<(FramePosition, Slack)>,
    open: Vec<Open>,
}

/// The uncertainty of a frame's bounds in contexts, plus one; 0 for a bound without a stated
/// uncertainty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Slack {
    /// The start can be this number of contexts earlier.
    pub(super) start: u64,
    /// The end can be this number of contexts later.
    pub(super) end: u64,
}

/// A stack whose frames are all closed. Its frames are numbered from 0.
#[derive(Debug)]
pub(super) struct Finished {
    /// The lowest boundary.
    pub(super) first: u64,
    /// The number of frames that were found below all others.
    pub(super) below: u64,
    pub(super) parentheses: BitBuilder,
    pub(super) locations: Vec<u32>,
    /// The frames with another class than the usual one, in order, with their classes.
    pub(super) classes: Vec<(u64, Class)>,
    pub(super) slack: Vec<(u64, Slack)>,
    steps: Vec<u8>,
    /// The number of frames that are open at the end of the trace.
    left_open: u64,
    end: u64,
}

impl Log {
    pub(super) fn new(stack: StackId) -> Self {
        Self {
            stack,
            first: None,
            parentheses: BitBuilder::default(),
            steps: Vec::new(),
            last: 0,
            begun: 0,
            locations: Vec::new(),
            below: Vec::new(),
            classes: Vec::new(),
            slack: Vec::new(),
            open: Vec::new(),
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
        let frame = FramePosition::Above(number);
        self.seen(first.0);
        self.begun = first.0;
        self.parentheses.push(true);
        self.locations.push(location.map_or(0, |location| location.0 + 1));
        self.open.push(Open { frame, start, evidence, from: first.0 });
        if let Some(earlier) = earlier {
            self.slack.push((frame, Slack { start: earlier + 1, end: 0 }));
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
        self.parentheses.push(false);
        self.classify(open, end);
        if let Some(later) = later {
            self.slack.push((open.frame, Slack { start: 0, end: later + 1 }));
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
        self.open.push(Open { frame, start: StartType::Unknown, evidence: Evidence::Exact, from });
        Ok(())
    }

    /// Closes the open frames at the end of a trace with this number of transitions.
    pub(super) fn finish(mut self, transitions: u64) -> Finished {
        let left_open = self.open.len() as u64;
        while let Some(open) = self.open.pop() {
            self.parentheses.push(false);
            self.classify(open, EndType::TraceEnd);
        }
        let below = self.below.len() as u64;
        let number = |position| match position {
            FramePosition::Below(number) => below - 1 - u64::from(number),
            FramePosition::Above(number) => below + u64::from(number),
        };
        let mut parentheses = BitBuilder::default();
        (0..below).for_each(|_| parentheses.push(true));
        parentheses.append(&self.parentheses);
        let mut classes: Vec<(u64, Class)> =
            self.classes.into_iter().map(|(position, class)| (number(position), class)).collect();
        classes.sort_unstable_by_key(|(frame, _)| *frame);
        let mut slack: Vec<(u64, Slack)> =
            self.slack.into_iter().map(|(position, slack)| (number(position), slack)).collect();
        // An end that may be at any later context is limited to the length of the trace.
        slack.iter_mut().for_each(|(_, slack)| slack.end = slack.end.min(transitions + 1));
        slack.sort_by_key(|(frame, _)| *frame);
        slack.dedup_by(|(frame, this), (kept, into)| {
            let same = frame == kept;
            if same {
                *into = Slack { start: into.start.max(this.start), end: into.end.max(this.end) };
            }
            same
        });
        Finished {
            first: self.first.unwrap_or(0),
            below,
            parentheses,
            locations: self.below.into_iter().rev().chain(self.locations).collect(),
            classes,
            slack,
            steps: self.steps,
            left_open,
            end: transitions + 1,
        }
    }

    fn classify(&mut self, open: Open, end: EndType) {
        let class = Class { start: open.start, end, evidence: open.evidence };
        if class != Class::USUAL {
            self.classes.push((open.frame, class));
        }
    }

    fn step(&mut self, boundary: u64) -> Result<(), Error> {
        let Some(mut step) = boundary.checked_sub(self.last) else {
            return Err(Error::Order { at: ContextId(boundary), last: ContextId(self.last) });
        };
        self.last = boundary;
        while step >= 0x80 {
            self.steps.push(step as u8 | 0x80);
            step >>= 7;
        }
        self.steps.push(step as u8);
        Ok(())
    }
}

impl Finished {
    /// Returns the boundaries of all frame starts and ends.
    pub(super) fn bounds(&self) -> impl Iterator<Item = u64> + Clone + '_ {
        let below = std::iter::repeat_n(self.first, self.below as usize);
        let mut at = 0;
        let mut boundary = 0;
        let seen = std::iter::from_fn(move || {
            let (mut step, mut shift) = (0_u64, 0);
            loop {
                let byte = *self.steps.get(at)?;
                at += 1;
                step |= u64::from(byte & 0x7F) << shift;
                shift += 7;
                if byte < 0x80 {
                    break;
                }
            }
            boundary += step;
            Some(boundary)
        });
        below.chain(seen).chain(std::iter::repeat_n(self.end, self.left_open as usize))
    }
}
