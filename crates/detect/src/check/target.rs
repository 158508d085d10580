//! Handles to processes that hold credentials: suspicious requests (CS24) and memory dumps (CS25).

use stackhound_frames::{Code, Operation, Role};

use super::Evidence;
use crate::verdict::{Input, Inputs, Outcome, Reason, Severity, Verdict};
use crate::view::View;

const USED: Inputs = Inputs::of(&[Input::Stack, Input::Modules, Input::Target, Input::AccessMask]);

/// Number of the detections that make a handle suspicious: CS01 to CS08, which are evaluated
/// before.
const SUSPICIOUS: usize = 8;

fn unsure(reason: Reason, input: Input) -> Outcome {
    Outcome::undetermined(Severity::High, reason, USED, Inputs::of(&[input]))
}

/// The rights of a handle that allows the memory of a process with credentials to be read, or the
/// answer for other events.
fn reading_rights(evidence: &Evidence<'_, '_>) -> Result<u32, Outcome> {
    let event = &evidence.view.case.event;
    let Some(target) = event.target else {
        // A system call event does not report the target process or the access rights.
        return Err(match event.operation {
            Operation::ProcessOpen => {
                let missing = Inputs::of(&[Input::Target, Input::AccessMask]);
                Outcome::undetermined(Severity::High, Reason::TargetUnknown, USED, missing)
            }
            _ => Outcome::no(Reason::NoTarget, USED),
        });
    };
    if target.image.is_empty() {
        return Err(unsure(Reason::NoTarget, Input::Target));
    }
    if !target.is_other || !evidence.lists.is_sensitive_target(target.image) {
        return Err(Outcome::no(Reason::TargetOrdinary, USED));
    }
    match target.access {
        Some(access) if evidence.lists.is_sensitive_access(access) => Ok(access),
        Some(_) => Err(Outcome::no(Reason::AccessHarmless, USED)),
        None => Err(unsure(Reason::AccessUnknown, Input::AccessMask)),
    }
}

/// Whether a finding was lowered because a runtime may have compiled the code.
fn is_lowered_by_runtime(found: &Outcome) -> bool {
    [Reason::RuntimeInStack, Reason::RuntimeLoaded, Reason::AddressNearImages]
        .iter()
        .any(|reason| found.reasons.has(*reason))
}

/// CS24.
pub(crate) fn sensitive(evidence: &mut Evidence<'_, '_>) -> Outcome {
    let view = evidence.view;
    let access = match reading_rights(evidence) {
        Ok(access) => access,
        Err(outcome) => return outcome,
    };
    let has_all_rights = evidence.lists.is_all_access(access);
    let found = |severity, frame, reason| {
        Outcome::yes(severity, frame, reason, USED).because(Reason::SensitiveTarget)
    };
    let worst = evidence.outcomes[..SUSPICIOUS]
        .iter()
        .filter(|outcome| outcome.verdict == Verdict::Yes)
        .max_by_key(|outcome| outcome.severity);
    if let Some(worst) = worst {
        let found = |severity| {
            let outcome = found(severity, None, Reason::WithFinding);
            Outcome { frame: worst.frame, ..outcome }
        };
        return match worst.severity {
            severity if severity >= Severity::Medium => found(Severity::High),
            // Code of a runtime may open the process for its own purposes, but not with all rights.
            _ if has_all_rights && is_lowered_by_runtime(worst) => {
                found(Severity::High).because(Reason::AllRights)
            }
            // If the finding may be caused by a runtime, so may the handle.
            severity => found(severity),
        };
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
            found(Severity::High, Some(final_module_frame), Reason::CallerUnusual)
        }
        Code::Jit(_) if has_all_rights => found(Severity::High, Some(final_module_frame), Reason::AllRights),
        Code::Jit(_) | Code::Unbacked => Outcome::no(Reason::CallerUsual, USED),
        Code::Image(..) | Code::Unknown => {
            unsure(Reason::FrameUnknown, Input::Modules).at(final_module_frame)
        }
    }
}

/// CS25.
pub(crate) fn dump(evidence: &mut Evidence<'_, '_>) -> Outcome {
    let view = evidence.view;
    if let Err(outcome) = reading_rights(evidence) {
        return outcome;
    }
    let library = view.user_frames().find(|(_, frame)| view.roles(frame).has(Role::Dump));
    if let Some((library, _)) = library {
        let found = Outcome::yes(Severity::High, Some(library), Reason::DumpLibrary, USED)
            .because(Reason::SensitiveTarget);
        let is_reporter = evidence.lists.is_crash_reporter(view.case.process.image);
        return match is_reporter && is_called_by_windows(view, library) {
            true => Outcome { severity: Severity::Low, ..found.because(Reason::CrashReporter) },
            false => found,
        };
    }
    if !view.has_user_part() {
        return unsure(Reason::StackMissing, Input::Stack);
    }
    match (view.unknown, view.cut()) {
        (Some(unknown), _) => unsure(Reason::FrameUnknown, Input::Modules).at(unknown),
        (None, Some(reason)) => unsure(reason, Input::Stack),
        (None, None) => Outcome::no(Reason::NoDumpLibrary, USED),
    }
}

/// Whether a frame and all its callers are in modules of Windows.
fn is_called_by_windows(view: &View<'_>, index: usize) -> bool {
    let mut callers = view.user_frames().filter(|(caller, _)| *caller >= index);
    callers.all(|(_, frame)| view.roles(frame).has(Role::Windows))
}
