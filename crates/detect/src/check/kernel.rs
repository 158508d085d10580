//! Kernel code that belongs to no driver (CS23).

use crate::judge::Evidence;
use crate::stack::{Code, Mode, Part};
use crate::verdict::{Input, Inputs, Outcome, Reason, Severity};

const USED: Inputs = Inputs::of(&[Input::KernelStack, Input::Modules]);

/// CS23.
pub(crate) fn outside(evidence: &mut Evidence<'_, '_>) -> Outcome {
    let view = evidence.view;
    let unsure = |reason, input| Outcome::undetermined(Severity::High, reason, USED, Inputs::of(&[input]));
    let mut unknown = None;
    let kernel = view.frames().iter().enumerate().filter(|(_, frame)| frame.mode == Mode::Kernel);
    let mut count = 0;
    for (index, frame) in kernel {
        count += 1;
        match frame.code {
            Code::Unbacked => return Outcome::yes(Severity::High, Some(index), Reason::KernelUnbacked, USED),
            Code::Unknown => drop(unknown.get_or_insert(index)),
            Code::Image(..) | Code::Compiled(_) => {}
        }
    }
    match (view.case.stack.kernel, unknown) {
        (Part::Missing(_), _) => unsure(Reason::StackMissing, Input::KernelStack),
        (_, Some(index)) => unsure(Reason::FrameUnknown, Input::Modules).at(index),
        _ if count == 0 => Outcome::no(Reason::NoKernelFrames, USED),
        _ if view.case.stack.is_at_limit() => unsure(Reason::AtLimit, Input::KernelStack),
        _ => Outcome::no(Reason::KernelBacked, USED),
    }
}
