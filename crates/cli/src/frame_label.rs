//! What to call a frame: the one place where exports learn it.

use stackhound::Frame;
use stackhound_export::{Origin, SourceLine};

/// A frame's name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FrameLabel {
    /// What people read.
    pub text: String,
    /// Where it comes from.
    pub origin: Origin,
    /// Bytes from the start of the named function to the frame's address; `None` if the name is of the address alone.
    pub offset: Option<u32>,
    /// Its source code, if known.
    pub source: Option<SourceLine>,
}

/// Names a frame.
pub fn frame_label(frame: &Frame<'_>) -> FrameLabel {
    let origin = if frame.module.is_some() { Origin::Module } else { Origin::Address };
    FrameLabel { text: frame.to_string(), origin, offset: None, source: None }
}
