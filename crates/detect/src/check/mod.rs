//! The detections' questions, one function each. They look at the evidence and at nothing else, so the order of events
//! plays no part.

pub(crate) mod dispatch;
pub(crate) mod entry;
pub(crate) mod kernel;
pub(crate) mod memory;
pub(crate) mod root;
pub(crate) mod sites;
pub(crate) mod start;
pub(crate) mod stubs;
pub(crate) mod target;
pub(crate) mod twin;
pub(crate) mod unbacked;
pub(crate) mod wow64;

use crate::judge::Evidence;
use crate::verdict::{Input, Inputs, Outcome, Reason, Severity};
use crate::view::View;

/// Answers one question.
pub(crate) type Check = fn(&mut Evidence<'_, '_>) -> Outcome;

/// What can be said where there is no user frame to look at: that there is none, or that they are missing.
pub(crate) fn without_frames(view: &View<'_>, severity: Severity, used: Inputs) -> Outcome {
    match view.has_user_part() {
        true => Outcome::no(Reason::NoUserFrames, used),
        false => Outcome::undetermined(severity, Reason::StackMissing, used, Inputs::of(&[Input::Stack])),
    }
}
