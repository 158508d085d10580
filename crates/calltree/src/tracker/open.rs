//! The open frames of one stack.

use stackhound_types::Address;

use super::step::Space;
use crate::id::StackId;
use crate::kind::StartType;

/// The slot of a frame that the stack pointer cannot end.
pub(super) const NO_SLOT: u64 = u64::MAX;

/// An open frame, identified by its slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    /// The address of its return address. The frame ends when the stack pointer rises above it.
    /// [`NO_SLOT`] for an entry from user mode.
    pub slot: u64,
    /// The value of the slot when the frame started. `None` if the slot is only a bound.
    pub return_address: Option<Address>,
    pub start: StartType,
    /// The function that the frame started in, or that its last tail call reached, if it is known.
    pub function: Option<Address>,
}

impl Frame {
    /// Returns the value that its slot must contain while it is unchanged. Handlers may change the
    /// return address of an interrupt, which is therefore not checked.
    pub fn checked(&self) -> Option<Address> {
        self.return_address.filter(|_| self.start != StartType::Interrupt)
    }
}

/// A stack with its open frames.
#[derive(Debug)]
pub(super) struct OpenStack {
    pub id: StackId,
    /// Slots descend: the top of the stack is the last frame.
    pub frames: Vec<Frame>,
    /// The frame below all others, whose slot is unknown, if it exists: a lower bound of its slot,
    /// which is the highest stack pointer observed while it was the top frame.
    pub base: Option<u64>,
    /// The number of frames, from the bottom, that may have been changed while the stack was not
    /// active.
    pub doubtful: usize,
    /// The stack pointer when the stack was last left.
    pub left: u64,
    /// The entry from user mode whose frame is the first one, if it is.
    pub entry: Option<Entry>,
}

/// An entry from user mode.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub start: StartType,
    pub function: Address,
    /// The address space of the user stack, if it is known.
    pub space: Option<Space>,
}

impl OpenStack {
    pub fn new(id: StackId) -> OpenStack {
        OpenStack { id, frames: Vec::new(), base: None, doubtful: 0, left: 0, entry: None }
    }

    /// Returns the highest stack pointer at which no frame ends.
    pub fn limit(&self) -> u64 {
        match self.frames.last() {
            Some(frame) => frame.slot,
            None => self.base.unwrap_or(0),
        }
    }

    /// Removes the top frame and returns `true`. Returns `false` if only the base is left.
    pub fn pop(&mut self) -> bool {
        let popped = self.frames.pop().is_some();
        self.doubtful = self.doubtful.min(self.frames.len());
        if self.frames.is_empty() {
            self.entry = None;
        }
        popped
    }

    /// Removes all frames and returns their number.
    pub fn clear(&mut self) -> usize {
        let count = self.frames.len() + usize::from(self.base.is_some());
        self.frames.clear();
        (self.base, self.doubtful, self.entry) = (None, 0, None);
        count
    }

    pub fn is_empty(&self) -> bool {
        self.frames.is_empty() && self.base.is_none()
    }
}
