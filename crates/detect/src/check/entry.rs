use crate::judge::Evidence;
use crate::verdict::{Input, Inputs, Outcome, Reason, Severity};

pub(crate) fn unbacked(_: &mut Evidence<'_, '_>) -> Outcome {
    Outcome::undetermined(Severity::Low, Reason::StackMissing, Inputs::NONE, Inputs::of(&[Input::Stack]))
}

pub(crate) fn image(_: &mut Evidence<'_, '_>) -> Outcome {
    Outcome::undetermined(Severity::Low, Reason::StackMissing, Inputs::NONE, Inputs::of(&[Input::Stack]))
}

pub(crate) fn native_api(_: &mut Evidence<'_, '_>) -> Outcome {
    Outcome::undetermined(Severity::Low, Reason::StackMissing, Inputs::NONE, Inputs::of(&[Input::Stack]))
}
