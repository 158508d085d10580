//! The open frames of one stack.

use stackhound_types::Address;

use crate::id::StackId;
use crate::kind::StartType;

/// A frame that is known by its slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    /// Where its return address is. The frame is over once the stack pointer is above this.
    pub slot: u64,
    /// What the slot held when the frame started. `None` if the slot is a bound only.
    pub return_address: Option<Address>,
    pub start: StartType,
}

impl Frame {
    /// What its slot must hold for as long as nobody meddles. What interrupts left may be changed by their handlers.
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
    /// The frame below all others, whose slot is not known, if there is one: no lower than this, which is the highest
    /// stack pointer seen while the frame was the top one.
    pub base: Option<u64>,
    /// How many of the frames, from the bottom, may have been changed while the stack was not active.
    pub doubtful: usize,
    /// The stack pointer when the stack was last left.
    pub left: u64,
}

impl OpenStack {
    pub fn new(id: StackId) -> OpenStack {
        OpenStack { id, frames: Vec::new(), base: None, doubtful: 0, left: 0 }
    }

    /// As long as the stack pointer is no higher, nothing ends.
    pub fn limit(&self) -> u64 {
        match self.frames.last() {
            Some(frame) => frame.slot,
            None => self.base.unwrap_or(0),
        }
    }

    /// Takes the top frame away, if there is one besides the base.
    pub fn pop(&mut self) -> bool {
        let popped = self.frames.pop().is_some();
        self.doubtful = self.doubtful.min(self.frames.len());
        popped
    }

    pub fn is_empty(&self) -> bool {
        self.frames.is_empty() && self.base.is_none()
    }
}
