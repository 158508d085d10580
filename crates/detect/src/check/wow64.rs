//! System calls of 32-bit processes that do not go through the WoW64 layer (CS20).

use stackhound_frames::{Code, Role};

use super::{Evidence, without_frames};
use crate::case::Entry;
use crate::verdict::{Input, Inputs, Outcome, Reason, Severity};

const USED: Inputs = Inputs::of(&[Input::Stack, Input::Modules]);

/// CS20.
pub(crate) fn gate(evidence: &mut Evidence<'_, '_>) -> Outcome {
    let view = evidence.view;
    let unsure = |reason, input| Outcome::undetermined(Severity::High, reason, USED, Inputs::of(&[input]));
    let has_layer =
        view.top_32_bit.is_some() || view.user_frames().any(|(_, frame)| view.roles(frame).has(Role::Wow64));
    match view.case.process.is_wow64 {
        Some(false) => return Outcome::no(Reason::NotWow64, USED),
        None if !has_layer => return unsure(Reason::WidthUnknown, Input::Modules),
        _ => {}
    }
    if view.case.event.entry == Entry::Interrupt {
        return Outcome::no(Reason::NoSystemCall, USED);
    }
    let Some(return_frame) = view.return_frame else {
        return without_frames(view, Severity::High, USED);
    };
    // Turbo thunks enter the kernel in the layer itself. Frames in other code are evaluated by CS01
    // and CS02.
    if view.frame(return_frame).is_wow64 || !view.is(return_frame, Role::SystemCall) {
        return Outcome::no(Reason::ThroughWow64, USED);
    }
    let is_system = |index: usize| !view.frame(index).is_wow64 && view.is(index, Role::SystemCall);
    let caller = view.user_frames().map(|(index, _)| index).find(|index| !is_system(*index));
    let Some(caller) = caller else {
        return match view.cut() {
            // A thread that is being created has not reached 32-bit code.
            None => Outcome::no(Reason::ThroughWow64, USED),
            Some(reason) => unsure(reason, Input::Stack),
        };
    };
    match view.frame(caller).code {
        Code::Image(..) if view.is(caller, Role::Wow64) => Outcome::no(Reason::ThroughWow64, USED),
        Code::Unknown => unsure(Reason::FrameUnknown, Input::Modules).at(caller),
        _ => Outcome::yes(Severity::High, Some(caller), Reason::GateCaller, USED),
    }
}
