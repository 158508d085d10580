//! Dispatchers of callbacks: sensitive calls without a final user module (CS17), waits inside
//! callbacks (CS21), and exception handlers (CS22).

use stackhound_frames::lists::Functions;
use stackhound_frames::{Frame, Operation, Role};

use super::{Evidence, without_frames};
use crate::verdict::{Input, Inputs, Outcome, Reason, Severity};
use crate::view::View;

const USED: Inputs = Inputs::of(&[Input::Stack, Input::Modules]);
const SYMBOLS: Inputs = Inputs::of(&[Input::Symbols]);

fn unsure(reason: Reason, missing: Inputs) -> Outcome {
    Outcome::undetermined(Severity::Medium, reason, USED, missing)
}

/// The answer if the stack has no user frames.
fn no_frames(view: &View<'_>) -> Option<Outcome> {
    let has_frames = view.has_user_part() && view.return_frame.is_some();
    (!has_frames).then(|| without_frames(view, Severity::Medium, USED))
}

/// The answer if the stack is not completely in the native layer.
fn not_of_layer(view: &View<'_>, has_user: Reason) -> Option<Outcome> {
    if let Some(outcome) = no_frames(view) {
        return Some(outcome);
    }
    if let Some(reason) = view.cut() {
        return Some(unsure(reason, Inputs::of(&[Input::Stack])));
    }
    let is_layer = |frame: &Frame| view.roles(frame).has(Role::NativeLayer);
    let (final_module_frame, _) = view.user_frames().find(|(_, frame)| !is_layer(frame))?;
    Some(Outcome::no(has_user, USED).at(final_module_frame))
}

/// The result of a search for a function of a list.
struct Search {
    /// The first frame in such a function.
    found: Option<usize>,
    /// Whether a frame of `ntdll.dll` has no function name and could be one.
    has_unnamed: bool,
}

/// Searches the frames of `ntdll.dll`, which contains all these functions, from one frame on.
fn search(evidence: &mut Evidence<'_, '_>, start: usize, list: Functions) -> Search {
    let mut search = Search { found: None, has_unnamed: false };
    for index in start..evidence.view.frames().len() {
        if !evidence.view.is(index, Role::Ntdll) {
            continue;
        }
        match evidence.is_function(index, list) {
            Some(true) => drop(search.found.get_or_insert(index)),
            Some(false) => {}
            None => search.has_unnamed = true,
        }
    }
    search
}

/// CS17.
pub(crate) fn proxy(evidence: &mut Evidence<'_, '_>) -> Outcome {
    let view = evidence.view;
    let operation = view.case.event.operation;
    if !evidence.lists.is_sensitive(operation) && operation != Operation::ImageLoad {
        return Outcome::no(Reason::NotSensitive, USED);
    }
    if let Some(outcome) = not_of_layer(view, Reason::ProxyHasUser) {
        return outcome;
    }
    // The loader's own threads in the pool do not go through the Win32 base.
    let Some(callback) = callback(view) else {
        return Outcome::no(Reason::NoDispatcher, USED);
    };
    let dispatcher = search(evidence, callback, Functions::PoolDispatchers);
    if let Some(found) = dispatcher.found {
        return Outcome::yes(Severity::Medium, Some(found), Reason::ProxyPool, USED.with(Input::Symbols));
    }
    if is_proxy_summary(view) {
        return Outcome::yes(Severity::Medium, Some(callback), Reason::ProxySummary, USED);
    }
    match dispatcher.has_unnamed {
        true => unsure(Reason::FunctionsUnknown, SYMBOLS),
        false => Outcome::no(Reason::NoDispatcher, USED.with(Input::Symbols)),
    }
}

/// The first frame of `ntdll.dll` that called another library.
fn callback(view: &View<'_>) -> Option<usize> {
    let mut user = view.user_frames().skip_while(|(_, frame)| view.roles(frame).has(Role::Ntdll));
    user.find(|(_, frame)| view.roles(frame).has(Role::Ntdll))
        .map(|(index, _)| index)
        .filter(|index| view.last.is_some_and(|last| *index < last))
}

/// Whether the modules of the user frames are exactly `ntdll|kernelbase|ntdll|kernel32|ntdll`.
fn is_proxy_summary(view: &View<'_>) -> bool {
    let expected = ["ntdll.dll", "kernelbase.dll", "ntdll.dll", "kernel32.dll", "ntdll.dll"];
    let (mut at, mut last) = (0, "");
    for (_, frame) in view.user_frames() {
        let Some(module) = view.module(frame) else { return false };
        if module.name().eq_ignore_ascii_case(last) {
            continue;
        }
        last = module.name();
        if !expected.get(at).is_some_and(|name| name.eq_ignore_ascii_case(last)) {
            return false;
        }
        at += 1;
    }
    at == expected.len()
}

/// CS21.
pub(crate) fn wait(evidence: &mut Evidence<'_, '_>) -> Outcome {
    let view = evidence.view;
    if view.case.event.operation != Operation::Wait {
        return Outcome::no(Reason::NoWait, USED);
    }
    if let Some(outcome) = not_of_layer(view, Reason::WaitHasUser) {
        return outcome;
    }
    let dispatcher = search(evidence, 0, Functions::WaitDispatchers);
    match (dispatcher.found, dispatcher.has_unnamed) {
        (Some(found), _) => {
            Outcome::yes(Severity::Medium, Some(found), Reason::WaitInDispatcher, USED.with(Input::Symbols))
        }
        (None, true) => unsure(Reason::FunctionsUnknown, SYMBOLS),
        (None, false) => Outcome::no(Reason::NoDispatcher, USED.with(Input::Symbols)),
    }
}

/// CS22.
pub(crate) fn exception(evidence: &mut Evidence<'_, '_>) -> Outcome {
    let view = evidence.view;
    if !evidence.lists.is_sensitive(view.case.event.operation) {
        return Outcome::no(Reason::NotSensitive, USED);
    }
    if let Some(outcome) = no_frames(view) {
        return outcome;
    }
    let dispatcher = search(evidence, 0, Functions::ExceptionDispatchers);
    // Hardware breakpoints leave no frames, so a stack alone never leads to the answer no.
    let context = Inputs::of(&[Input::ThreadContext]);
    match (dispatcher.found, dispatcher.has_unnamed) {
        (Some(found), _) => {
            Outcome::yes(Severity::Medium, Some(found), Reason::ExceptionHandler, USED.with(Input::Symbols))
        }
        (None, true) => unsure(Reason::FunctionsUnknown, SYMBOLS.and(context)),
        (None, false) => unsure(Reason::NoDispatcher, context),
    }
}
