use crate::judge::Evidence;
use crate::verdict::{Input, Inputs, Outcome, Reason, Severity};

pub(crate) fn truncated(_: &mut Evidence<'_, '_>) -> Outcome {
    Outcome::undetermined(Severity::Low, Reason::StackMissing, Inputs::NONE, Inputs::of(&[Input::Stack]))
}

pub(crate) fn mismatch(_: &mut Evidence<'_, '_>) -> Outcome {
    Outcome::undetermined(Severity::Low, Reason::StackMissing, Inputs::NONE, Inputs::of(&[Input::Stack]))
}
