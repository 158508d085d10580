//! Memory of images, compared with their files (CS18).

use stackhound_frames::{Code, Role};

use super::Evidence;
use crate::binaries::Lookup;
use crate::stack::SiteBytes;
use crate::verdict::{Input, Inputs, Outcome, Reason, Reasons, Severity};

const USED: Inputs = Inputs::of(&[Input::Stack, Input::Modules]);

/// CS18.
pub(crate) fn stomped(evidence: &mut Evidence<'_, '_>) -> Outcome {
    let view = evidence.view;
    let (mut used, mut missing, mut doubts) = (USED, Inputs::NONE, Reasons::NONE);
    let (mut found, mut is_hooked): (Option<Outcome>, bool) = (None, false);
    for (index, frame) in view.user_frames() {
        let roles = view.roles(frame);
        is_hooked |= roles.has(Role::Hook);
        let Code::Image(module, offset) = frame.code else { continue };
        let is_original = view.memory(index).is_original;
        if is_original.is_some() {
            used = used.with(Input::Regions);
        }
        // An unmodified page cannot differ from its file.
        let compared = view
            .bytes(index)
            .filter(|_| is_original != Some(true))
            .map(|bytes| evidence.binaries.is_like(view.modules, (module, offset), &joined(&bytes)));
        let is_like = compared.and_then(|compared| compared.found()).flatten();
        if is_like.is_some() {
            used = used.with(Input::MemoryBytes).with(Input::ImageBytes);
        }
        // Security products and Windows itself modify code of these modules at run time, so their
        // pages are often private.
        let is_hooked_often = roles.has(Role::NativeLayer);
        let (severity, reason) = match (is_original, is_like) {
            (_, Some(false)) => (Severity::High, Reason::BytesDiffer),
            (Some(false), None) if !is_hooked_often => (Severity::High, Reason::PageChanged),
            (Some(false), Some(true)) if is_hooked_often => (Severity::Low, Reason::PageChanged),
            (Some(false), _) => (Severity::Medium, Reason::PageChanged),
            (Some(true), _) | (None, Some(true)) => continue,
            (None, None) => {
                match compared {
                    None => {
                        missing = missing.with(Input::Regions).with(Input::MemoryBytes);
                        doubts = doubts.with(Reason::MemoryUnknown);
                    }
                    Some(Lookup::NoFile) => {
                        missing = missing.with(Input::ImageBytes);
                        doubts = doubts.with(Reason::ImageMissing);
                    }
                    Some(Lookup::Unsupported) => doubts = doubts.with(Reason::MachineUnsupported),
                    Some(Lookup::Unreadable) => {
                        missing = missing.with(Input::ImageBytes);
                        doubts = doubts.with(Reason::ImageUnreadable);
                    }
                    Some(Lookup::Found(_)) => {
                        missing = missing.with(Input::Regions);
                        doubts = doubts.with(Reason::NoBytesInFile);
                    }
                }
                continue;
            }
        };
        if found.is_none_or(|found| found.severity < severity) {
            let outcome = Outcome::yes(severity, Some(index), reason, USED);
            let is_both = reason == Reason::BytesDiffer && is_original == Some(false);
            found = Some(if is_both { outcome.because(Reason::PageChanged) } else { outcome });
        }
    }
    match found {
        Some(found) if is_hooked && found.severity > Severity::Low => {
            let severity = if found.severity == Severity::High { Severity::Medium } else { Severity::Low };
            Outcome { severity, used, missing, ..found.because(Reason::HookInStack) }
        }
        Some(found) => Outcome { used, missing, ..found },
        None if doubts == Reasons::NONE => Outcome::no(Reason::PagesOriginal, used),
        None => {
            let unsure = Outcome::undetermined(Severity::High, Reason::MemoryUnknown, used, missing);
            Outcome { reasons: doubts, ..unsure }
        }
    }
}

fn joined(bytes: &SiteBytes) -> [u8; 32] {
    let mut joined = [0; 32];
    joined[..16].copy_from_slice(&bytes.before);
    joined[16..].copy_from_slice(&bytes.after);
    joined
}
