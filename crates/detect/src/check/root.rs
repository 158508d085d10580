//! The outermost frame: truncated stacks (CS14), and roots that do not match the thread's start
//! address (CS15).

use stackhound_frames::lists::Functions;
use stackhound_frames::{Code, Frame, Role};

use super::{Evidence, without_frames};
use crate::case::Entry;
use crate::verdict::{Input, Inputs, Outcome, Reason, Severity};
use crate::view::View;

const USED: Inputs = Inputs::of(&[Input::Stack, Input::Modules]);
const STACK: Inputs = Inputs::of(&[Input::Stack]);

/// The outermost frame, or the answer if it cannot be evaluated.
fn outermost(view: &View<'_>, severity: Severity) -> Result<(usize, Frame), Outcome> {
    let unsure = |reason| Err(Outcome::undetermined(severity, reason, USED, STACK));
    match (view.has_user_part(), view.return_frame, view.last) {
        (false, ..) | (true, None, _) => Err(without_frames(view, severity, USED)),
        _ if view.case.stack.is_at_limit() => unsure(Reason::AtLimit),
        // The user frames before a callback from the kernel are missing.
        (_, _, None) => unsure(Reason::StackMissing),
        (_, _, Some(last)) => Ok((last, *view.frame(last))),
    }
}

/// CS14.
pub(crate) fn truncated(evidence: &mut Evidence<'_, '_>) -> Outcome {
    let (last, frame) = match outermost(evidence.view, Severity::Medium) {
        Ok(found) => found,
        Err(outcome) => return outcome,
    };
    let unsure = |reason, missing| Outcome::undetermined(Severity::Medium, reason, USED, missing).at(last);
    match frame.code {
        Code::Unbacked | Code::Jit(_) => return unsure(Reason::EndsUnbacked, STACK),
        Code::Unknown => return unsure(Reason::FrameUnknown, Inputs::of(&[Input::Modules])),
        Code::Image(..) => {}
    }
    let is_named = evidence.is_function(last, Functions::ThreadRoots);
    let used = if is_named.is_some() { USED.with(Input::Symbols) } else { USED };
    if is_named == Some(true) {
        return Outcome::no(Reason::RootFound, used);
    }
    let view = evidence.view;
    // A stack walk in an interrupt cannot wait for a page that is not in memory.
    let is_interrupt = view.case.event.entry == Entry::Interrupt;
    let severity = if frame.is_wow64 || is_interrupt { Severity::Low } else { Severity::Medium };
    let found = |used| {
        let found = Outcome::yes(severity, Some(last), Reason::RootIsNone, used);
        let found = if frame.is_wow64 { found.because(Reason::Stack32) } else { found };
        if is_interrupt { found.because(Reason::InterruptedWalk) } else { found }
    };
    let roles = view.roles(&frame);
    if roles.has(Role::Hook) {
        return unsure(Reason::EndsUnbacked, STACK);
    }
    if !roles.has_any(Role::Ntdll | Role::Kernel32) {
        return found(used);
    }
    if is_named == Some(false) {
        return found(used);
    }
    let symbols = Inputs::of(&[Input::Symbols]);
    if !roles.has(Role::Ntdll) {
        return unsure(Reason::RootUnnamed, symbols);
    }
    // 32-bit threads end in two frames of ntdll.dll.
    let above =
        view.frames()[..last].iter().rev().enumerate().find(|(_, frame)| !view.roles(frame).has(Role::Ntdll));
    let above = above.filter(|(distance, _)| *distance < 2).and_then(|(_, frame)| view.module(frame));
    let is_root = above.is_some_and(|module| {
        (module.roles.has(Role::NativeLayer) && evidence.lists.is_above_root(module.name()))
            || (module.roles.has(Role::Windows) && evidence.lists.has_own_roots(view.case.process.image))
    });
    match is_root {
        true => Outcome::no(Reason::RootByModules, USED),
        false => unsure(Reason::RootUnnamed, symbols),
    }
}

/// CS15.
pub(crate) fn mismatch(evidence: &mut Evidence<'_, '_>) -> Outcome {
    const USED: Inputs = Inputs::of(&[Input::Stack, Input::Modules, Input::ThreadStart]);
    let view = evidence.view;
    let unsure = |reason, input| Outcome::undetermined(Severity::Medium, reason, USED, Inputs::of(&[input]));
    if let Err(outcome) = outermost(view, Severity::Medium) {
        return outcome;
    }
    if view.case.stack.is_truncated {
        return unsure(Reason::StackTruncated, Input::Stack);
    }
    let start = match view.case.process.thread_start {
        None | Some(Code::Unknown) => return unsure(Reason::StartUnknown, Input::ThreadStart),
        Some(start) => start,
    };
    let is_own = |frame: &Frame| {
        let roles = view.roles(frame);
        !roles.has(Role::NativeLayer) && !roles.has(Role::Hook)
    };
    let own = view.user_frames().filter(|(_, frame)| is_own(frame)).last();
    if let Code::Image(module, _) = start
        && view.modules.get(module).roles.has(Role::Windows)
    {
        return Outcome::no(Reason::StartInNative, USED);
    }
    let Some((index, frame)) = own else {
        // The thread has not reached its own code yet, or has left it.
        return Outcome::no(Reason::StartMatches, USED);
    };
    match (frame.code, start) {
        (Code::Unknown, _) => unsure(Reason::FrameUnknown, Input::Modules).at(index),
        (Code::Image(one, _), Code::Image(other, _)) if one == other => {
            Outcome::no(Reason::StartMatches, USED)
        }
        (Code::Unbacked, Code::Unbacked) | (Code::Jit(_), Code::Jit(_)) => {
            Outcome::no(Reason::StartMatches, USED)
        }
        // Runtimes start programs on behalf of the programs' entry points.
        (Code::Image(..), Code::Image(..)) if view.roles(frame).has(Role::Runtime) => {
            Outcome::no(Reason::RuntimeInStack, USED).at(index)
        }
        // Stack walks cannot continue beyond such code, so this is not the start of the thread.
        (Code::Unbacked | Code::Jit(_), _) if view.last == Some(index) => {
            unsure(Reason::EndsUnbacked, Input::Stack).at(index)
        }
        _ => {
            let severity = if frame.is_wow64 { Severity::Low } else { Severity::Medium };
            Outcome::yes(severity, Some(index), Reason::StartDiffers, USED)
        }
    }
}
