//! What happens to the frames of the active stack.

use stackhound_types::Address;

use super::open::{Frame, OpenStack};
use super::{DAMAGED_MAX, Doubted, FRAMES_MAX, Now, Read, Sink, Tracked, Tracker};
use crate::id::ContextId;
use crate::kind::{EndType, StartType};

impl Tracker {
    /// Closes the frames whose slots are below a stack pointer that rose without a return.
    pub(super) fn unwind(&mut self, now: &Now, sp: u64, sink: Sink) {
        while self.top().is_some_and(|frame| frame.slot < sp) {
            if self.doubted.is_empty() {
                self.close(now, EndType::Unwound, sink);
            } else {
                self.counts.calls_without_frame += 1;
                self.forget();
            }
        }
        if let Some(stack) = self.stack()
            && stack.frames.is_empty()
            && let Some(base) = &mut stack.base
        {
            *base = (*base).max(sp);
        }
    }

    /// Closes the frames whose slots are at or below one that is about to be written.
    pub(super) fn overwrite(&mut self, now: &Now, slot: u64, sink: Sink) {
        if self.top().is_some_and(|frame| frame.slot <= slot) {
            self.announce(sink);
            while self.top().is_some_and(|frame| frame.slot <= slot) {
                self.close(now, EndType::Unwound, sink);
            }
        }
    }

    /// Looks whether the top frames are what they were when their stack was left.
    pub(super) fn check(&mut self, now: &Now, read: Read, sink: Sink) {
        let mut damaged = None;
        for _ in 0..DAMAGED_MAX {
            let Some(stack) = self.stack() else { return };
            let count = stack.frames.len();
            let Some(frame) = stack.frames.last().filter(|_| count <= stack.doubtful).copied() else { break };
            let found = frame.checked().and_then(|address| Some((address, read(Address(frame.slot))?)));
            match found {
                Some((expected, found)) if expected != found => {
                    self.close(now, EndType::Replaced, sink);
                    damaged = Some((frame.slot, found));
                }
                _ => {
                    stack.doubtful = count - 1;
                    break;
                }
            }
        }
        let Some((slot, found)) = damaged else { return };
        let frame = Frame { slot, return_address: Some(found), start: StartType::Damaged };
        self.open(now, frame, Some(now.after.pc), sink);
    }

    /// An active stack has an open frame.
    pub(super) fn ensure_frame(&mut self, first: ContextId, function: Address, sink: Sink) {
        let sp = self.sp;
        if let Some(stack) = self.stack()
            && stack.is_empty()
        {
            stack.base = Some(sp);
            let (stack, start) = (stack.id, StartType::Unknown);
            sink(Tracked::Open { stack, first, start, function: Some(function) });
        }
    }

    pub(super) fn open(&mut self, now: &Now, frame: Frame, function: Option<Address>, sink: Sink) {
        let start = frame.start;
        if self.push(frame)
            && let Some(stack) = self.stack()
        {
            sink(Tracked::Open { stack: stack.id, first: now.first(), start, function });
        }
    }

    pub(super) fn push(&mut self, frame: Frame) -> bool {
        if self.frames >= FRAMES_MAX {
            self.counts.frames_refused += 1;
            return false;
        }
        let Some(stack) = self.stack() else { return false };
        stack.frames.push(frame);
        self.frames += 1;
        true
    }

    /// Closes the top frame.
    pub(super) fn close(&mut self, now: &Now, end: EndType, sink: Sink) {
        self.announce(sink);
        let Some(stack) = self.stack() else { return };
        if stack.pop() {
            sink(Tracked::Close { stack: stack.id, last: now.last(), end });
            self.frames -= 1;
        }
    }

    /// Takes back the top frame, which was not announced.
    pub(super) fn forget(&mut self) {
        self.doubted.pop();
        if let Some(stack) = self.stack()
            && stack.pop()
        {
            self.frames -= 1;
        }
    }

    pub(super) fn announce(&mut self, sink: Sink) {
        if self.doubted.is_empty() {
            return;
        }
        let Some(stack) = self.stack().map(|stack| stack.id) else { return };
        for Doubted { first, function } in self.doubted.drain(..) {
            sink(Tracked::Open { stack, first, start: StartType::Call, function: Some(function) });
        }
    }

    pub(super) fn stack(&mut self) -> Option<&mut OpenStack> {
        self.regions.stack_mut(self.active?)
    }

    pub(super) fn top(&mut self) -> Option<Frame> {
        self.stack()?.frames.last().copied()
    }
}
