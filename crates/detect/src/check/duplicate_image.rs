//! A second `ntdll.dll`: a copy without inline hooks (CS10).

use stackhound_frames::{Code, Frame, Role};

use super::Evidence;
use crate::verdict::{Input, Inputs, Outcome, Reason, Severity};
use crate::view::View;

const USED: Inputs = Inputs::of(&[Input::Stack, Input::Modules]);

/// CS10.
pub(crate) fn second_ntdll(evidence: &mut Evidence<'_, '_>) -> Outcome {
    let view = evidence.view;
    if let Some(load) = view.case.event.load {
        let roles = view.modules.get(load.module).roles;
        if roles.has(Role::NamedNtdll) && (!roles.has(Role::Ntdll) || load.duplicate.is_some()) {
            return Outcome::yes(Severity::High, None, Reason::SecondNtdllLoaded, USED);
        }
    }
    // The first frame of each bitness.
    let mut firsts: [Option<&Frame>; 2] = [None; 2];
    for (index, frame) in view.user_frames() {
        let roles = view.roles(frame);
        if !roles.has(Role::NamedNtdll) {
            continue;
        }
        if !roles.has(Role::Ntdll) {
            return Outcome::yes(Severity::High, Some(index), Reason::NtdllElsewhere, USED);
        }
        let first = firsts[usize::from(frame.is_wow64)].get_or_insert(frame);
        if is_other(view, first, frame) {
            return Outcome::yes(Severity::High, Some(index), Reason::TwoNtdlls, USED);
        }
    }
    let unsure = |reason, input| Outcome::undetermined(Severity::High, reason, USED, Inputs::of(&[input]));
    match view.unknown {
        _ if !view.has_user_part() => unsure(Reason::StackMissing, Input::Stack),
        Some(unknown) => unsure(Reason::FrameUnknown, Input::Modules).at(unknown),
        None => match view.cut() {
            Some(reason) => unsure(reason, Input::Stack),
            None => Outcome::no(Reason::OneNtdll, USED),
        },
    }
}

/// Whether two frames of `ntdll.dll` are in different mappings of it.
fn is_other(view: &View<'_>, one: &Frame, other: &Frame) -> bool {
    let base = |frame: &Frame| match frame.code {
        Code::Image(_, offset) => frame.address.map(|address| address.0.wrapping_sub(offset)),
        _ => None,
    };
    if let (Some(one), Some(other)) = (base(one), base(other)) {
        return one != other;
    }
    if one.code.module() == other.code.module() {
        return false;
    }
    let (Some(one), Some(other)) = (view.module(one), view.module(other)) else { return false };
    // In one stack, a file has one path, apart from its case.
    !one.path.eq_ignore_ascii_case(&other.path)
        || (one.identity.image != other.identity.image
            && one.identity.image.is_some()
            && other.identity.image.is_some())
}
