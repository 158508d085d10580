//! Recorded changes of memory: written memory that became executable (CS27), protection that
//! changes back and forth (CS28), images that were patched or replaced (CS29).
//!
//! JIT compilers, packers, hooks and the loader change memory in the same ways. They are recognized
//! by the code that made the change, and lower a finding.

use stackhound_frames::{Code, Frame, Role};

use super::Evidence;
use super::unbacked::{none_found, with_guards};
use crate::binaries::Lookup;
use crate::history::{Author, Change, ChangeKind, History, Replaced, is_executable, is_patch};
use crate::stack::MemoryKind;
use crate::verdict::{Input, Inputs, Outcome, Reason, Severity, Verdict};
use crate::view::View;

const USED: Inputs = Inputs::of(&[Input::MemoryChanges, Input::Modules]);
const MISSING: Inputs = Inputs::of(&[Input::MemoryChanges]);

/// How many times pages become executable again before their protection counts as changing back
/// and forth.
const CYCLES_MIN: u32 = 3;
/// The shortest period of sleeping code, in units of 100 ns: half a second. JIT compilers change
/// the protection for the time that they write.
const PERIOD_MIN: u64 = 5_000_000;

/// Whether another process took part in the changes.
pub(super) fn is_by_other(history: &History) -> bool {
    history.written_by_other || history.changed_by_other
}

/// Adds the history of a frame's memory to the reasons of a finding about the frame.
pub(super) fn because_of(history: Option<&History>, found: Outcome) -> Outcome {
    let Some(history) = history else { return found };
    let reasons = [
        (history.made_executable, Reason::MadeExecutable),
        (history.writable_code, Reason::WritableMemory),
        (history.written_by_other, Reason::WrittenByOther),
        (history.changed_by_other, Reason::ChangedByOther),
    ];
    let found = Outcome { used: found.used.with(Input::MemoryChanges), ..found };
    with_reasons(found, reasons)
}

/// Adds the reasons that apply.
fn with_reasons(found: Outcome, reasons: [(bool, Reason); 4]) -> Outcome {
    let applying = reasons.into_iter().filter(|(applies, _)| *applies);
    applying.fold(found, |found, (_, reason)| found.because(reason))
}

/// The reason for an author that lowers a finding or explains its severity.
fn reason_of(author: Author) -> Option<Reason> {
    Some(match author {
        Author::Kernel => Reason::ByKernel,
        Author::Protected => Reason::ByProtected,
        Author::Loader => Reason::ByLoader,
        Author::Hook => Reason::ByHook,
        Author::Runtime => Reason::ByRuntime,
        Author::OwnImage => Reason::ByOwnImage,
        Author::Unknown => Reason::AuthorUnknown,
        Author::Unbacked => Reason::ByUnbacked,
        Author::Image => return None,
    })
}

fn with_author(author: Author, found: Outcome) -> Outcome {
    reason_of(author).map_or(found, |reason| found.because(reason))
}

fn unsure(severity: Severity, reason: Reason) -> Outcome {
    Outcome::undetermined(severity, reason, USED, MISSING)
}

/// If events were lost, memory may have been freed and used again, so that no finding is certain.
fn unless_lost(view: &View<'_>, outcome: Outcome) -> Outcome {
    if outcome.verdict != Verdict::Yes || !view.case.stack.has_losses {
        return outcome;
    }
    let outcome = Outcome { verdict: Verdict::Undetermined, ..outcome.because(Reason::EventsLost) };
    Outcome { missing: outcome.missing.with(Input::MemoryChanges), ..outcome }
}

/// Whether the code at an address comes from memory that is known not to be an image or reported
/// JIT-compiled code.
fn is_outside_images(code: Code, history: &History) -> bool {
    let is_no_image = matches!(history.kind, Some(MemoryKind::Private | MemoryKind::Mapped));
    code == Code::Unbacked || code == Code::Unknown && is_no_image
}

/// The frames whose memory has a history, if the stack is certain.
fn known_frames<'a>(view: &View<'a>) -> impl Iterator<Item = (usize, &'a Frame, &'a History)> {
    let frames = view.user_frames().filter(|_| view.case.stack.is_certain);
    frames.filter_map(|(index, frame)| Some((index, frame, view.history(index)?)))
}

fn worse(found: Option<Outcome>, other: Outcome) -> Option<Outcome> {
    match found {
        Some(found) if found.severity >= other.severity => Some(found),
        _ => Some(other),
    }
}

/// CS27.
pub(crate) fn made_executable(evidence: &mut Evidence<'_, '_>) -> Outcome {
    let view = evidence.view;
    let event = &view.case.event;
    let is_written = |history: &History| history.made_executable || history.writable_code;
    let mut found = None;
    if let (Some(start), Some(history)) = (event.start, &event.memory.start)
        && is_outside_images(start.code, history)
        && is_written(history)
    {
        let outcome = written(history, start.is_remote, None, Reason::StartMadeExecutable);
        found = worse(
            found,
            match view.case.process.has_runtime {
                Some(true) if !start.is_remote && !is_by_other(history) => {
                    let severity = outcome.severity.min(Severity::Low);
                    Outcome { severity, ..outcome.because(Reason::RuntimeLoaded) }
                }
                _ => outcome,
            },
        );
    }
    for (index, frame, history) in known_frames(view) {
        if is_outside_images(frame.code, history) && is_written(history) {
            let reason =
                if history.made_executable { Reason::MadeExecutable } else { Reason::WritableMemory };
            found = worse(found, with_guards(view, index, written(history, false, Some(index), reason)));
        }
    }
    if let Some(found) = found {
        return unless_lost(view, found);
    }
    let is_unbacked_start = event.start.is_some_and(|start| start.code == Code::Unbacked);
    match view.unbacked {
        None if !is_unbacked_start => none_found(view, Severity::High),
        unbacked => {
            let outcome = unsure(Severity::High, Reason::ChangesUnknown);
            unbacked.map_or(outcome, |index| outcome.at(index))
        }
    }
}

/// The finding about code in memory with this history.
fn written(history: &History, is_remote: bool, frame: Option<usize>, reason: Reason) -> Outcome {
    let is_by_other = is_remote || is_by_other(history);
    let severity = match history.author {
        Author::Kernel | Author::Protected => Severity::Low,
        Author::Hook | Author::Runtime | Author::Loader if !is_by_other => Severity::Low,
        Author::Unbacked => Severity::High,
        _ if is_by_other => Severity::High,
        _ => Severity::Medium,
    };
    let found = Outcome::yes(severity, frame, reason, USED.with(Input::Stack));
    let reasons = [
        (history.writable_code, Reason::WritableMemory),
        (history.written_by_other, Reason::WrittenByOther),
        (history.changed_by_other, Reason::ChangedByOther),
        (is_remote, Reason::RemoteStart),
    ];
    with_author(history.author, with_reasons(found, reasons))
}

/// CS28.
pub(crate) fn fluctuates(evidence: &mut Evidence<'_, '_>) -> Outcome {
    let view = evidence.view;
    let fluctuates = |history: &History| history.cycles >= CYCLES_MIN;
    let change = view.case.event.memory.change.filter(|change| change.kind == ChangeKind::Protect);
    if let Some(change) = change.filter(|change| fluctuates(&change.history)) {
        let found = Outcome::yes(Severity::Medium, view.final_module_frame, Reason::Fluctuates, USED);
        return unless_lost(view, guarded_fluctuation(view, &change.history, found));
    }
    let mut frames = known_frames(view).filter(|(.., history)| fluctuates(history));
    // The libraries of the native layer have pages that hooks change.
    if let Some((index, _, history)) =
        frames.find(|(index, ..)| !view.is(*index, Role::NativeLayer) && !view.is(*index, Role::Hook))
    {
        let found =
            Outcome::yes(Severity::Medium, Some(index), Reason::FrameFluctuates, USED.with(Input::Stack));
        return unless_lost(view, guarded_fluctuation(view, history, found));
    }
    match change {
        Some(change) if change.is_whole => Outcome::no(Reason::FewChanges, USED),
        _ => unsure(Severity::Medium, Reason::ChangesUnknown),
    }
}

/// Lowers a finding about memory whose protection changes if a benign cause is likely.
fn guarded_fluctuation(view: &View<'_>, history: &History, found: Outcome) -> Outcome {
    let found = with_author(history.author, found);
    let low = |found: Outcome| Outcome { severity: Severity::Low, ..found };
    match history.author {
        Author::Kernel | Author::Protected | Author::Hook | Author::Runtime | Author::Loader => low(found),
        Author::Unknown if view.case.process.has_runtime == Some(true) && !is_by_other(history) => {
            low(found.because(Reason::RuntimeLoaded))
        }
        _ if history.period.is_some_and(|period| period < PERIOD_MIN) => {
            low(found.because(Reason::ShortPeriod))
        }
        Author::Unbacked => Outcome { severity: Severity::High, ..found },
        _ => found,
    }
}

/// CS29.
pub(crate) fn image(evidence: &mut Evidence<'_, '_>) -> Outcome {
    let view = evidence.view;
    let mut found = view.case.event.memory.change.and_then(|change| changed(evidence, &change));
    let replaces_program = |history: &History| history.replaced == Some(Replaced::Program);
    if let (Some(start), Some(history)) = (view.case.event.start, &view.case.event.memory.start)
        && replaces_program(history)
        && is_outside_images(start.code, history)
    {
        found = worse_than(found, Outcome::yes(Severity::High, None, Reason::StartInReplacement, USED));
    }
    for (index, frame, history) in known_frames(view) {
        let outcome = |severity, reason| {
            with_author(history.author, Outcome::yes(severity, Some(index), reason, USED.with(Input::Stack)))
        };
        match frame.code {
            Code::Image(..) if history.image_changed && !view.is(index, Role::NativeLayer) => {
                // Hooks, packers and the loader are reported once, by the event of the change.
                let severity = match history.author {
                    _ if history.written_by_other && history.author >= Author::Unknown => Severity::High,
                    Author::Unbacked => Severity::High,
                    Author::Image => Severity::Medium,
                    _ => continue,
                };
                found = worse_than(found, outcome(severity, Reason::FrameInChangedImage));
            }
            _ if replaces_program(history) && is_outside_images(frame.code, history) => {
                found = worse_than(found, outcome(Severity::High, Reason::FrameInReplacement));
            }
            _ => {}
        }
    }
    match found {
        Some(found) => unless_lost(view, found),
        None => unsure(Severity::High, Reason::ChangesUnknown),
    }
}

/// The worse of two answers: findings before other answers, then the more severe one.
fn worse_than(found: Option<Outcome>, other: Outcome) -> Option<Outcome> {
    match found {
        Some(found) if found.verdict == Verdict::Yes => worse(Some(found), other),
        _ => Some(other),
    }
}

/// The answer about a change; `None` if it says nothing about images.
fn changed(evidence: &mut Evidence<'_, '_>, change: &Change) -> Option<Outcome> {
    if let Some(replaced) = change.replaced {
        return replacement(evidence.view, change, replaced);
    }
    let Code::Image(module, rva) = change.code else {
        // Memory that is not an image, or whose allocation was not recorded.
        let is_known = change.is_whole && change.history.kind != Some(MemoryKind::Image);
        return is_known.then(|| Outcome::no(Reason::ImageUnchanged, USED));
    };
    let reason = match change.kind {
        ChangeKind::Protect => match is_patch(change.previous.unwrap_or(0), change.protection.unwrap_or(0)) {
            true => Reason::ImageMadeWritable,
            false => return Some(Outcome::no(Reason::ImageUnchanged, USED)),
        },
        ChangeKind::Write => {
            let in_file = evidence.binaries.is_code(evidence.view.modules, (module, rva));
            let is_code = in_file.found().or(change.history.protection.map(is_executable));
            match is_code {
                Some(true) => Reason::ImageWritten,
                Some(false) => return Some(Outcome::no(Reason::ImageUnchanged, USED)),
                None => {
                    let missing = MISSING.with(Input::ImageBytes);
                    return Some(Outcome::undetermined(Severity::High, Reason::ImageMissing, USED, missing));
                }
            }
        }
        ChangeKind::Allocate | ChangeKind::Map | ChangeKind::Load => return None,
    };
    let export = evidence.binaries.export_in(evidence.view.modules, (module, rva), change.size);
    let (used, missing) = match export {
        Lookup::Found(_) => (USED.with(Input::ImageBytes), Inputs::NONE),
        _ => (USED, Inputs::of(&[Input::ImageBytes])),
    };
    let is_sensitive = export.found().flatten().is_some_and(|export| export.is_sensitive);
    let severity = patch_severity(evidence.view, change, is_sensitive);
    let found = Outcome::yes(severity, evidence.view.final_module_frame, reason, used);
    let found = if is_sensitive { found.because(Reason::SensitiveExport) } else { found };
    let found = if change.is_other { found.because(Reason::ChangedByOther) } else { found };
    Some(Outcome { missing, ..with_author(change.author, found) })
}

/// The severity of a change of an image's code.
fn patch_severity(view: &View<'_>, change: &Change, is_sensitive: bool) -> Severity {
    let is_runtime_image =
        change.code.module().is_some_and(|module| view.modules.roles(module).has(Role::Runtime));
    match change.author {
        Author::Kernel | Author::Protected => Severity::Low,
        Author::Loader | Author::Hook | Author::OwnImage if !change.is_other => Severity::Low,
        // Runtimes complete the code of images that they compiled in advance.
        Author::Runtime if !change.is_other && is_runtime_image => Severity::Low,
        Author::Unknown if !change.is_other => {
            if is_sensitive {
                Severity::Medium
            } else {
                Severity::Low
            }
        }
        _ if is_sensitive || change.is_other || change.author == Author::Unbacked => Severity::High,
        _ => Severity::Medium,
    }
}

/// The answer about memory that took the place of an image.
fn replacement(view: &View<'_>, change: &Change, replaced: Replaced) -> Option<Outcome> {
    let is_executable = change.protection.is_some_and(is_executable);
    let is_benign = matches!(change.author, Author::Kernel | Author::Protected);
    let (severity, reason) = match replaced {
        Replaced::Program if is_benign => (Severity::Low, Reason::ProgramReplaced),
        Replaced::Program if change.is_other || is_executable || change.author == Author::Unbacked => {
            (Severity::High, Reason::ProgramReplaced)
        }
        Replaced::Program => (Severity::Medium, Reason::ProgramReplaced),
        // Windows uses the addresses of unmapped libraries again.
        Replaced::Library if change.is_other && is_executable && !is_benign => {
            (Severity::Medium, Reason::LibraryReplaced)
        }
        Replaced::Library => return Some(Outcome::no(Reason::ImageUnchanged, USED)),
    };
    let found = Outcome::yes(severity, view.final_module_frame, reason, USED);
    let found = if change.is_other { found.because(Reason::ChangedByOther) } else { found };
    Some(with_author(change.author, found))
}
