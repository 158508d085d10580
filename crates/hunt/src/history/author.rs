//! The author of a change of memory, by the facts and the stack of its event.

use std::sync::Arc;

use stackhound_detect::Author;
use stackhound_etl::Clock;
use stackhound_frames::{Frame, FrameResolver, Modules, Role};
use stackhound_pipeline::EventView;
use stackhound_system::{Evidence, ModuleRef};
use stackhound_types::{Mode, TICKS_PER_SECOND};

/// The loader changes the code of an image within this time after it mapped the image.
const LOADER_TIME: i64 = TICKS_PER_SECOND;

/// The author of a change by a user-mode process. `changed` is the image whose pages the process
/// changed in itself.
pub(super) fn of_process(view: &EventView<'_>, clock: &Clock, changed: Option<ModuleRef<'_>>) -> Author {
    if is_protected(view) {
        return Author::Protected;
    }
    let is_new = changed.is_some_and(|module| is_new(view, clock, module));
    by_stack(view, changed, is_new)
}

/// The author of the load of an image.
pub(super) fn of_load(view: &EventView<'_>) -> Author {
    by_stack(view, None, false)
}

/// The author by the stack of the event. `is_new` is whether the changed image was just mapped.
fn by_stack(view: &EventView<'_>, changed: Option<ModuleRef<'_>>, is_new: bool) -> Author {
    let mut resolver = view.resolver();
    let changed = changed.map(|module| resolver.loaded(view.trace_state().system(), module.id()).index);
    match frames(view, &mut resolver) {
        Some(frames) if is_new && is_by_loader(&frames, resolver.modules()) => Author::Loader,
        Some(frames) => Author::of(&frames, resolver.modules(), changed),
        None => Author::Unknown,
    }
}

/// The frames of the stack, if it is there and certain.
fn frames(view: &EventView<'_>, resolver: &mut FrameResolver) -> Option<Arc<[Frame]>> {
    view.stack().filter(|_| view.stack_states().has_certain_frames())?;
    let (system, pointer_size) = (view.trace_state().system(), view.event().block().session().pointer_size);
    Some(resolver.at(system, view.stack_owner(), view.time(), pointer_size).all(view.delivered()))
}

/// Whether an image was just mapped.
fn is_new(view: &EventView<'_>, clock: &Clock, module: ModuleRef<'_>) -> bool {
    let span = module.span();
    let age = view.time().0.saturating_sub(span.from.0);
    span.start == Evidence::Observed && clock.span_from_raw(age) <= LOADER_TIME
}

/// Whether functions of `ntdll.dll` called the service, as those of the loader do.
fn is_by_loader(frames: &[Frame], modules: &Modules) -> bool {
    let is_ntdll =
        |frame: &Frame| frame.code.module().is_some_and(|module| modules.roles(module).has(Role::Ntdll));
    let mut user = frames.iter().filter(|frame| frame.mode == Mode::User);
    user.next().is_some_and(is_ntdll) && user.next().is_some_and(is_ntdll)
}

/// Whether the caller is a process that Windows protects, as `PS_PROTECTION` with the signer
/// antimalware, Windows, WinTcb or WinSystem.
fn is_protected(view: &EventView<'_>) -> bool {
    let protection = view.field("CallingProcessProtection").and_then(|(_, value)| value.as_u64());
    protection.is_some_and(|protection| protection & 7 != 0 && matches!(protection >> 4 & 15, 3 | 5..=7))
}
