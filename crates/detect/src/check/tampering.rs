//! Tampering with the image of a process (CS30).

use stackhound_frames::Role;

use super::Evidence;
use crate::case::TamperingKind;
use crate::verdict::{Input, Inputs, Outcome, Reason, Severity};

const USED: Inputs = Inputs::of(&[Input::ImageIdentity]);

/// CS30.
pub(crate) fn image(evidence: &mut Evidence<'_, '_>) -> Outcome {
    let view = evidence.view;
    let Some(tampering) = view.case.event.tampering else {
        return Outcome::no(Reason::NoTampering, USED);
    };
    let reason = match tampering.kind {
        TamperingKind::Replaced => Reason::ImageReplaced,
        TamperingKind::Locked => Reason::ImageLocked,
        TamperingKind::Unknown => Reason::TamperingUnnamed,
    };
    let is_installed = tampering.module.is_some_and(|module| view.modules.roles(module).has(Role::Installed));
    match is_installed {
        true => Outcome::yes(Severity::Medium, None, reason, USED).because(Reason::ProgramInstalled),
        false => Outcome::yes(Severity::High, None, reason, USED),
    }
}
