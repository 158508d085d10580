//! Start addresses of threads (CS19).

use stackhound_frames::lists::Functions;
use stackhound_frames::{Code, Role};

use super::Evidence;
use crate::case::Start;
use crate::verdict::{Input, Inputs, Outcome, Reason, Severity};

const USED: Inputs = Inputs::of(&[Input::ThreadStart, Input::Modules]);

/// CS19.
pub(crate) fn address(evidence: &mut Evidence<'_, '_>) -> Outcome {
    let Some(start) = evidence.view.case.event.start else {
        return Outcome::no(Reason::NoThreadStart, USED);
    };
    let origin = if start.is_remote { Reason::RemoteStart } else { Reason::LocalStart };
    evaluate(evidence, &start).because(origin)
}

fn evaluate(evidence: &mut Evidence<'_, '_>, start: &Start<'_>) -> Outcome {
    let severity = if start.is_remote { Severity::High } else { Severity::Medium };
    let unsure = |reason, input| Outcome::undetermined(severity, reason, USED, Inputs::of(&[input]));
    let found = |reason, used| Outcome::yes(severity, None, reason, used);
    if start.is_kernel {
        return Outcome::no(Reason::StartKernel, USED);
    }
    let (module, offset) = match start.code {
        Code::Unbacked => {
            let found = found(Reason::StartUnbacked, USED);
            let process = &evidence.view.case.process;
            // A runtime starts threads in its own process.
            return match (start.is_remote, process.has_runtime) {
                (false, Some(true)) => {
                    Outcome { severity: Severity::Low, ..found.because(Reason::RuntimeLoaded) }
                }
                _ => found,
            };
        }
        Code::Unknown => return unsure(Reason::FrameUnknown, Input::Modules),
        Code::Jit(_) => return Outcome::no(Reason::StartCompiled, USED),
        Code::Image(module, offset) => (module, offset),
    };
    let modules = evidence.view.modules;
    let name = modules.get(module).name();
    let in_layer = modules.get(module).roles.has(Role::NativeLayer);
    let lists = evidence.lists;
    let of_source = start.function.filter(|function| !function.is_empty());
    let named = |function: &str| {
        let is = |list| lists.has_function(list, name, function);
        // Libraries outside of the native layer can have a function of the same name.
        if is(Functions::LoadLibrary) && in_layer {
            found(Reason::StartLoadLibrary, USED)
        } else if is(Functions::RemoteStart) && in_layer {
            Outcome::no(Reason::StartRemoteFunction, USED)
        } else {
            Outcome::no(Reason::StartBacked, USED)
        }
    };
    if let Some(function) = of_source {
        return named(function);
    }
    let used = USED.with(Input::Symbols);
    let function = evidence.binaries.function_start(modules, (module, offset));
    match function {
        Some(function) => Outcome { used, ..named(function) },
        // Local threads can start in any function. Injected ones start in functions of the native
        // layer.
        None if !start.is_remote => Outcome::no(Reason::StartBacked, USED),
        None if in_layer => unsure(Reason::FunctionsUnknown, Input::Symbols),
        None => Outcome::no(Reason::StartBacked, USED),
    }
}
