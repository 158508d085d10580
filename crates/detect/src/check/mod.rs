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
use crate::catalogue::DETECTIONS;
use crate::verdict::{Input, Inputs, Outcome, Reason, Severity};
use crate::view::View;

/// Evaluates one detection.
pub(crate) type Check = fn(&mut Evidence<'_, '_>) -> Outcome;

/// The functions of the detections, in the order of [`DETECTIONS`], whose names they repeat.
pub(crate) const CHECKS: [(&str, Check); DETECTIONS.len()] = [
    ("CS01", entry::unbacked),
    ("CS02", entry::image),
    ("CS03", stubs::mismatch),
    ("CS04", stubs::unknown_site),
    ("CS05", stubs::callee),
    ("CS06", entry::native_api),
    ("CS07", unbacked::caller),
    ("CS08", unbacked::elsewhere),
    ("CS09", unbacked::region),
    ("CS10", duplicate_image::second_ntdll),
    ("CS11", sites::no_call),
    ("CS12", sites::gadget),
    ("CS13", sites::outside),
    ("CS14", root::truncated),
    ("CS15", root::mismatch),
    ("CS16", sites::linkage),
    ("CS17", dispatch::proxy),
    ("CS18", memory::stomped),
    ("CS19", start::address),
    ("CS20", wow64::gate),
    ("CS21", dispatch::wait),
    ("CS22", dispatch::exception),
    ("CS23", kernel::outside),
    ("CS24", target::sensitive),
    ("CS25", target::dump),
    ("CS26", callback::outside),
    ("CS27", changes::made_executable),
    ("CS28", changes::fluctuates),
    ("CS29", changes::image),
    ("CS30", tampering::image),
];

/// The evidence that detections use.
pub(crate) struct Evidence<'a, 'j> {
    pub view: &'a View<'a>,
    pub lists: &'a Lists,
    pub binaries: &'j mut Binaries,
    /// The answers so far, for detections that depend on others. Later ones are undetermined.
    pub outcomes: [Outcome; DETECTIONS.len()],
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_in_the_order_of_their_detections() {
        for (detection, (name, _)) in DETECTIONS.iter().zip(CHECKS) {
            assert_eq!(detection.name, name);
        }
    }
}
