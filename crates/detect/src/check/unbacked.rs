//! Code in no module: as the caller of the native layer (CS07), elsewhere in the stack (CS08), and
//! by the kind of its memory (CS09).
//!
//! Runtimes put code into such memory too. If a runtime may have done so, findings are lowered, not
//! dropped, because an attacker can be in the same process.

use stackhound_frames::{Code, Role, Roles};
use stackhound_types::Mode;

use super::{Evidence, changes, without_frames};
use crate::case::Entry;
use crate::history::{Author, is_writable};
use crate::stack::MemoryKind;
use crate::verdict::{Input, Inputs, Outcome, Reason, Severity};
use crate::view::View;

const USED: Inputs = Inputs::of(&[Input::Stack, Input::Modules]);

/// The addresses where 64-bit Windows maps libraries and runtimes put JIT-compiled code: the end of
/// the user address space, which was at 8 TB before Windows 8.1.
const NEAR_IMAGES: [std::ops::Range<u64>; 2] =
    [0x7ff0_0000_0000..0x8000_0000_0000, 0x7f0_0000_0000..0x800_0000_0000];

/// The innermost user frame outside of the native layer.
fn outside_layer(view: &View<'_>) -> Option<usize> {
    let is_layer = |roles: Roles| roles.has(Role::NativeLayer);
    view.user_frames().find(|(_, frame)| !is_layer(view.roles(frame))).map(|(index, _)| index)
}

/// The caller of the native layer, if it is in no module and a frame of the layer is above it.
fn unbacked_caller(view: &View<'_>) -> Option<usize> {
    let caller = outside_layer(view)?;
    (view.frame(caller).code == Code::Unbacked && view.return_frame != Some(caller)).then_some(caller)
}

/// The end of the run of frames in no module that starts at a frame. Kernel frames in between do
/// not end it.
fn run_end(view: &View<'_>, start: usize) -> usize {
    let rest = view.user_frames().skip_while(|(index, _)| *index < start);
    let run = rest.take_while(|(_, frame)| frame.code == Code::Unbacked);
    run.last().map_or(start, |(index, _)| index + 1)
}

/// Lowers a finding about a frame in no module if a benign cause is likely.
pub(super) fn with_guards(view: &View<'_>, index: usize, found: Outcome) -> Outcome {
    let frame = view.frame(index);
    let found = changes::because_of(view.history(index), found);
    // Runtimes and hooks write to their own process.
    if view.history(index).is_some_and(changes::is_by_other) {
        return found;
    }
    let process = &view.case.process;
    let may_compile = process.has_runtime != Some(false);
    let is_above_medium = found.severity > Severity::Medium;
    let mut found = found;
    let mut lower = |to: Severity, reason| {
        found = Outcome { severity: found.severity.min(to), ..found.because(reason) };
    };
    let beside = view.roles_beside(index);
    let is_like_runtime = beside.has(Role::LikeRuntime) && !beside.has(Role::Runtime);
    let is_runtime_beside =
        beside.has(Role::Runtime) || (is_like_runtime && process.has_runtime == Some(true));
    if may_compile && is_runtime_beside {
        lower(Severity::Low, Reason::RuntimeInStack);
    } else if process.has_runtime == Some(true) {
        // Runtimes have code that they do not report, and interrupts occur in it too.
        let is_interrupt = view.case.event.entry == Entry::Interrupt;
        lower(
            if is_above_medium && !is_interrupt { Severity::Medium } else { Severity::Low },
            Reason::RuntimeLoaded,
        );
    }
    let is_near =
        frame.address.is_some_and(|address| NEAR_IMAGES.iter().any(|near| near.contains(&address.0)));
    if may_compile && is_near {
        lower(Severity::Low, Reason::AddressNearImages);
    }
    match view.history(index).map(|history| history.author) {
        Some(Author::Runtime) => lower(Severity::Low, Reason::ByRuntime),
        Some(Author::Hook) => lower(Severity::Low, Reason::ByHook),
        _ => {}
    }
    if is_trampoline(view, index) {
        lower(Severity::Low, Reason::BetweenHooks);
    }
    if is_like_runtime && !is_runtime_beside {
        let missing = found.missing.with(Input::ImageIdentity);
        found = Outcome { missing, ..found.because(Reason::LikeRuntime) };
    }
    if may_compile { Outcome { missing: found.missing.with(Input::CompiledCode), ..found } } else { found }
}

/// Whether a frame is alone between a stub and `kernelbase.dll`, or above a known hook.
/// `kernel32.dll` may be the root of the thread, so that the frame is the thread's only code.
fn is_trampoline(view: &View<'_>, index: usize) -> bool {
    let Some(above) = index.checked_sub(1).map(|above| view.frame(above)) else { return false };
    let Some(below) = view.frames().get(index + 1).filter(|below| below.mode == Mode::User) else {
        return false;
    };
    let (above, below) = (view.roles(above), view.roles(below));
    let is_base = below.has(Role::NativeLayer) && !below.has_any(Role::Ntdll | Role::Kernel32);
    above.has(Role::SystemCall) && is_base || above.has(Role::NativeLayer) && below.has(Role::Hook)
}

/// The answer if no frame is known to be in no module.
pub(super) fn none_found(view: &View<'_>, severity: Severity) -> Outcome {
    let unsure = |reason, input| Outcome::undetermined(severity, reason, USED, Inputs::of(&[input]));
    if !view.has_user_part() || view.return_frame.is_none() {
        return without_frames(view, severity, USED);
    }
    match view.unknown {
        Some(unknown) => unsure(Reason::FrameUnknown, Input::Modules).at(unknown),
        None => match view.cut() {
            Some(reason) => unsure(reason, Input::Stack),
            None => Outcome::no(Reason::AllBacked, USED),
        },
    }
}

/// CS07.
pub(crate) fn caller(evidence: &mut Evidence<'_, '_>) -> Outcome {
    let view = evidence.view;
    let is_sensitive = evidence.lists.is_sensitive(view.case.event.operation);
    let severity = if is_sensitive { Severity::High } else { Severity::Medium };
    if let Some(caller) = unbacked_caller(view) {
        let found = Outcome::yes(severity, Some(caller), Reason::CallerUnbacked, USED);
        let found = if is_sensitive { found.because(Reason::SensitiveOperation) } else { found };
        return with_guards(view, caller, found);
    }
    match outside_layer(view) {
        // Outer frames do not matter for this detection.
        Some(caller) if view.has_user_part() => match view.frame(caller).code {
            Code::Unknown => none_found(view, severity),
            Code::Unbacked => Outcome::no(Reason::NativeUnbacked, USED).at(caller),
            Code::Image(..) | Code::Jit(_) => Outcome::no(Reason::AllBacked, USED).at(caller),
        },
        _ => none_found(view, severity),
    }
}

/// CS08.
pub(crate) fn elsewhere(evidence: &mut Evidence<'_, '_>) -> Outcome {
    let view = evidence.view;
    // Frames that CS01 and CS07 report are not reported again.
    let reported = match view.return_frame {
        Some(return_frame) if view.frame(return_frame).code == Code::Unbacked && is_entry(view) => {
            run_end(view, return_frame)
        }
        _ => unbacked_caller(view).map_or(0, |caller| run_end(view, caller)),
    };
    let unbacked_from = |start: usize| {
        let mut others = view.user_frames().skip_while(|(index, _)| *index < start);
        others.find(|(_, frame)| frame.code == Code::Unbacked).map(|(index, _)| index)
    };
    let Some(first) = unbacked_from(reported) else { return none_found(view, Severity::Medium) };
    match unbacked_from(reported.max(reported_at_most(view))) {
        Some(index) => {
            let found = Outcome::yes(Severity::Medium, Some(index), Reason::FrameUnbacked, USED);
            with_guards(view, index, found)
        }
        // An unknown frame before it decides which detection reports it.
        None => {
            let missing = Inputs::of(&[Input::Modules]);
            let unsure = Outcome::undetermined(Severity::Medium, Reason::FrameUnknown, USED, missing);
            unsure.at(view.unknown.unwrap_or(first))
        }
    }
}

/// The end of the frames that CS01 and CS07 could report if the unknown frames were in no module or
/// in the native layer.
fn reported_at_most(view: &View<'_>) -> usize {
    let is_unknown = |index| view.frame(index).code == Code::Unknown;
    let is_layer = |index| view.roles(view.frame(index)).has(Role::NativeLayer);
    let user = || view.user_frames().map(|(index, _)| index);
    let layer = user().take_while(|&index| is_layer(index) || is_unknown(index)).count();
    if layer == 0 && !is_entry(view) {
        return 0;
    }
    let is_run = |index| view.frame(index).code == Code::Unbacked || is_unknown(index);
    user().skip(layer).take_while(|&index| is_run(index)).last().map_or(0, |index| index + 1)
}

/// Whether CS01 evaluates the innermost user frame.
fn is_entry(view: &View<'_>) -> bool {
    view.case.event.entry == Entry::SystemCall
}

/// CS09.
pub(crate) fn region(evidence: &mut Evidence<'_, '_>) -> Outcome {
    const USED: Inputs = Inputs::of(&[Input::Stack, Input::Modules, Input::Regions]);
    let view = evidence.view;
    if view.unbacked.is_none() {
        return none_found(view, Severity::High);
    }
    let mut unknown = None;
    for (index, _) in view.user_frames().filter(|(_, frame)| frame.code == Code::Unbacked) {
        let found = |severity, reason| {
            let found = Outcome::yes(severity, Some(index), reason, USED);
            with_guards(view, index, found)
        };
        let memory = view.memory(index);
        match (memory.kind, memory.protection) {
            (_, Some(protection)) if is_writable(protection) => {
                return found(Severity::High, Reason::WritableCode);
            }
            (Some(MemoryKind::Private), _) => return found(Severity::High, Reason::PrivateCode),
            (Some(MemoryKind::Mapped), _) => return found(Severity::Medium, Reason::MappedCode),
            // An image that is not in the list of modules of the process.
            (Some(MemoryKind::Image), _) => {}
            (None, _) if view.history(index).is_some_and(|history| history.made_executable) => {
                return found(Severity::High, Reason::MadeExecutable);
            }
            (None, _) => drop(unknown.get_or_insert(index)),
        }
    }
    match unknown {
        Some(index) => {
            let missing = Inputs::of(&[Input::Regions]);
            Outcome::undetermined(Severity::High, Reason::RegionsUnknown, USED, missing).at(index)
        }
        None => Outcome::no(Reason::AllBacked, USED),
    }
}
