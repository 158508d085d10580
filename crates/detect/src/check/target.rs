//! Handles to processes that hold credentials (CS24).

use stackhound_frames::{Code, Operation, Role};

use super::Evidence;
use crate::verdict::{Input, Inputs, Outcome, Reason, Severity, Verdict};

const USED: Inputs = Inputs::of(&[Input::Stack, Input::Modules, Input::Target, Input::AccessMask]);

/// Number of the detections that make a handle suspicious: CS01 to CS08, which are evaluated
/// before.
const SUSPICIOUS: usize = 8;

/// CS24.
pub(crate) fn sensitive(evidence: &mut Evidence<'_, '_>) -> Outcome {
    let view = evidence.view;
    let unsure = |reason, input| Outcome::undetermined(Severity::High, reason, USED, Inputs::of(&[input]));
    let Some(target) = view.case.event.target else {
        // A system call event does not report the target process or the access rights.
        return match view.case.event.operation {
            Operation::ProcessOpen => {
                let missing = Inputs::of(&[Input::Target, Input::AccessMask]);
                Outcome::undetermined(Severity::High, Reason::TargetUnknown, USED, missing)
            }
            _ => Outcome::no(Reason::NoTarget, USED),
        };
    };
    if target.image.is_empty() {
        return unsure(Reason::NoTarget, Input::Target);
    }
    if !target.is_other || !evidence.lists.is_sensitive_target(target.image) {
        return Outcome::no(Reason::TargetOrdinary, USED);
    }
    match target.access {
        Some(access) if !evidence.lists.is_sensitive_access(access) => {
            return Outcome::no(Reason::AccessHarmless, USED);
        }
        None => return unsure(Reason::AccessUnknown, Input::AccessMask),
        Some(_) => {}
    }
    let worst = evidence.outcomes[..SUSPICIOUS]
        .iter()
        .filter(|outcome| outcome.verdict == Verdict::Yes)
        .max_by_key(|outcome| outcome.severity);
    if let Some(found) = worst {
        // If the finding may be caused by a runtime, so may the handle.
        let severity = if found.severity >= Severity::Medium { Severity::High } else { found.severity };
        let outcome =
            Outcome::yes(severity, None, Reason::WithFinding, USED).because(Reason::SensitiveTarget);
        return Outcome { frame: found.frame, ..outcome };
    }
    if !view.has_user_part() {
        return unsure(Reason::StackMissing, Input::Stack);
    }
    let Some(final_module_frame) = view.final_module_frame else {
        return match view.cut() {
            None => Outcome::no(Reason::CallerUsual, USED),
            Some(reason) => unsure(reason, Input::Stack),
        };
    };
    let roles = view.roles(view.frame(final_module_frame));
    match view.frame(final_module_frame).code {
        Code::Image(..) if roles.has_any(Role::Windows | Role::Installed) => {
            Outcome::no(Reason::CallerUsual, USED)
        }
        Code::Image(module, _) if view.modules.get(module).path.contains('\\') => {
            Outcome::yes(Severity::High, Some(final_module_frame), Reason::CallerUnusual, USED)
                .because(Reason::SensitiveTarget)
        }
        Code::Jit(_) | Code::Unbacked => Outcome::no(Reason::CallerUsual, USED),
        Code::Image(..) | Code::Unknown => {
            unsure(Reason::FrameUnknown, Input::Modules).at(final_module_frame)
        }
    }
}
