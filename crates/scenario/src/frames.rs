//! A fixed-capacity buffer for the frames of a stack, without allocation.

use stackhound_types::Address;

/// Maximum number of frames of a stack in a scenario.
const CAPACITY: usize = 56;

/// A stack or a part of one, innermost first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frames {
    len: u8,
    frames: [Address; CAPACITY],
}

impl Frames {
    pub const EMPTY: Frames = Frames { len: 0, frames: [Address(0); CAPACITY] };

    /// Adds the next caller.
    pub fn push(&mut self, frame: Address) {
        self.frames[usize::from(self.len)] = frame;
        self.len += 1;
    }

    pub fn extend(&mut self, frames: &[Address]) {
        let end = usize::from(self.len) + frames.len();
        self.frames[usize::from(self.len)..end].copy_from_slice(frames);
        self.len = end as u8;
    }

    pub fn clear(&mut self) {
        self.len = 0;
    }

    pub fn as_slice(&self) -> &[Address] {
        &self.frames[..usize::from(self.len)]
    }
}

impl PartialEq for Frames {
    fn eq(&self, other: &Frames) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Frames {}
