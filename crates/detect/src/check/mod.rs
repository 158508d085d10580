//! The detections, one function each. They use only the evidence of one event, which includes the
//! recorded history of its memory.

pub(crate) mod callback;
pub(crate) mod changes;
pub(crate) mod dispatch;
pub(crate) mod duplicate_image;
pub(crate) mod entry;
pub(crate) mod kernel;
pub(crate) mod memory;
pub(crate) mod root;
pub(crate) mod sites;
pub(crate) mod start;
pub(crate) mod stubs;
pub(crate) mod tampering;
pub(crate) mod target;
pub(crate) mod unbacked;
pub(crate) mod wow64;

use stackhound_frames::lists::Functions;
use stackhound_frames::{Code, Lists};

use crate::binaries::Binaries;
use crate::verdict::{Input, Inputs, Outcome, Reason, Severity};
use crate::view::View;

/// Evaluates one detection.
pub(crate) type Check = fn(&mut Evidence<'_, '_>) -> Outcome;

/// The evidence that detections use.
pub(crate) struct Evidence<'a, 'j> {
    pub view: &'a View<'a>,
    pub lists: &'a Lists,
    pub binaries: &'j mut Binaries,
    /// The answers so far, for detections that depend on others. Later ones are undetermined.
    pub outcomes: &'j mut [Outcome],
}

impl Evidence<'_, '_> {
    /// Whether the function of a frame is in a list; `None` if the function is not known.
    pub fn is_function(&mut self, index: usize, list: Functions) -> Option<bool> {
        let frame = self.view.frame(index);
        let Code::Image(module, offset) = frame.code else { return Some(false) };
        let name = self.view.modules.get(module).name();
        let function = self.binaries.function(self.view.modules, (module, offset), frame.kind)?;
        Some(self.lists.has_function(list, name, &function.text))
    }
}

/// The answer if no user frame can be evaluated: "no" if the stack has none, "undetermined" if they
/// are missing.
pub(crate) fn without_frames(view: &View<'_>, severity: Severity, used: Inputs) -> Outcome {
    match view.has_user_part() {
        true => Outcome::no(Reason::NoUserFrames, used),
        false => Outcome::undetermined(severity, Reason::StackMissing, used, Inputs::of(&[Input::Stack])),
    }
}
