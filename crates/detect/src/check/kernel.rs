//! Kernel code that is in no driver (CS23).

use stackhound_frames::{Code, Frame};
use stackhound_types::Mode;

use super::Evidence;
use crate::stack::Part;
use crate::verdict::{Input, Inputs, Outcome, Reason, Severity};

const USED: Inputs = Inputs::of(&[Input::KernelStack, Input::Modules]);

/// CS23.
pub(crate) fn outside(evidence: &mut Evidence<'_, '_>) -> Outcome {
    let view = evidence.view;
    let unsure = |reason, input| Outcome::undetermined(Severity::High, reason, USED, Inputs::of(&[input]));
    let kernel = view.frames().iter().enumerate().filter(|(_, frame)| frame.mode == Mode::Kernel);
    let count = kernel.clone().count();
    let mut outside = kernel.filter(|(_, frame)| frame.code.module().is_none());
    let unknown = match (outside.next(), outside.next()) {
        (Some((index, Frame { code: Code::Unbacked, .. })), None) => {
            return Outcome::yes(Severity::High, Some(index), Reason::KernelUnbacked, USED);
        }
        // A failed stack walk takes arbitrary values on the stack for return addresses.
        (Some((index, _)), Some(_)) => return unsure(Reason::WalkImplausible, Input::KernelStack).at(index),
        (found, _) => found.map(|(index, _)| index),
    };
    match (view.case.stack.kernel, unknown) {
        (Part::Missing(_), _) => unsure(Reason::StackMissing, Input::KernelStack),
        (_, Some(index)) => unsure(Reason::FrameUnknown, Input::Modules).at(index),
        _ if count == 0 => Outcome::no(Reason::NoKernelFrames, USED),
        _ if view.case.stack.is_at_limit() => unsure(Reason::AtLimit, Input::KernelStack),
        _ => Outcome::no(Reason::KernelBacked, USED),
    }
}
