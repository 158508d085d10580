//! The stub through which the kernel was entered, compared with the images: the stub of another
//! service (CS03), no known stub (CS04), or a stub that the caller did not call (CS05).
//!
//! An indirect system call uses the `syscall` instruction of a genuine stub, so that the stack
//! begins in `ntdll.dll`. It is recognized if the stub belongs to another service, if the
//! instruction is in no stub, or if the caller called its own code instead.

use stackhound_frames::{Code, Frame, Role};
use stackhound_types::{Mode, Rva};

use super::{Evidence, without_frames};
use crate::binaries::{CodeLocation, Lookup};
use crate::case::{Entry, Services};
use crate::images::site::{Call, Region, Site, ends_system_call};
use crate::images::stubs::StubLocation;
use crate::verdict::{Input, Inputs, Outcome, Reason, Severity, Verdict};

const WITHOUT_IMAGE: Inputs = Inputs::of(&[Input::Stack, Input::Modules]);
const USED: Inputs = WITHOUT_IMAGE.with(Input::ImageBytes);

/// Undetermined, because an image is missing or cannot be used.
fn without_image<T>(lookup: &Lookup<T>, severity: Severity) -> Outcome {
    let unsure = |reason, missing| Outcome::undetermined(severity, reason, WITHOUT_IMAGE, missing);
    match lookup {
        Lookup::NoFile => unsure(Reason::ImageMissing, Inputs::of(&[Input::ImageBytes])),
        Lookup::Unsupported => unsure(Reason::MachineUnsupported, Inputs::NONE),
        Lookup::Unreadable | Lookup::Found(_) => {
            unsure(Reason::ImageUnreadable, Inputs::of(&[Input::ImageBytes]))
        }
    }
}

/// The frames of system-call modules from which the kernel was entered: in a 32-bit process the
/// frame of the 64-bit layer, if present, and the 32-bit frame.
fn stub_frames(evidence: &Evidence<'_, '_>, severity: Severity) -> Result<[Option<usize>; 2], Outcome> {
    let view = evidence.view;
    if view.case.event.entry == Entry::Interrupt {
        return Err(Outcome::no(Reason::NoSystemCall, Inputs::of(&[Input::KernelEntry])));
    }
    let Some(return_frame) = view.return_frame else {
        return Err(without_frames(view, severity, WITHOUT_IMAGE));
    };
    if view.frame(return_frame).code == Code::Unknown {
        let missing = Inputs::of(&[Input::Modules]);
        return Err(
            Outcome::undetermined(severity, Reason::TopUnknown, WITHOUT_IMAGE, missing).at(return_frame)
        );
    }
    let frame_32_bit = view.top_32_bit.filter(|index| {
        *index != return_frame && view.is(return_frame, Role::Wow64) | view.is(return_frame, Role::SystemCall)
    });
    let frames = [Some(return_frame), frame_32_bit]
        .map(|frame| frame.filter(|frame| view.is(*frame, Role::SystemCall)));
    if frames == [None, None] {
        return Err(Outcome::no(Reason::NoStubFrame, WITHOUT_IMAGE).at(return_frame));
    }
    Ok(frames)
}

fn code_location(frame: &Frame) -> Option<CodeLocation> {
    match frame.code {
        Code::Image(module, offset) => Some((module, offset)),
        _ => None,
    }
}

/// The facts about a frame from its image. If the kernel returns to an address before the stub, the
/// next frame, of the stub, is used.
fn entered(
    evidence: &mut Evidence<'_, '_>,
    index: usize,
    severity: Severity,
) -> Result<(usize, Site), Outcome> {
    let view = evidence.view;
    let mut look = |index: usize| {
        let location = code_location(view.frame(index))?;
        let site = evidence.binaries.site(view.modules, location);
        Some(site.found().ok_or_else(|| without_image(&site, severity).at(index)))
    };
    let Some(site) = look(index).transpose()? else {
        return Err(Outcome::no(Reason::NoStubFrame, WITHOUT_IMAGE));
    };
    if site.region == Region::Outside {
        let missing = Inputs::of(&[Input::Stack]);
        return Err(Outcome::undetermined(severity, Reason::TopOutsideModule, USED, missing).at(index));
    }
    let is_next = |next: &Frame| next.code.module() == view.frame(index).code.module();
    if site.stub == StubLocation::Landing && view.frames().get(index + 1).is_some_and(is_next) {
        return Ok((index + 1, look(index + 1).transpose()?.unwrap_or(site)));
    }
    Ok((index, site))
}

/// The answer with the more important verdict.
fn more_important(one: Outcome, other: Outcome) -> Outcome {
    let weight = |outcome: &Outcome| match outcome.verdict {
        Verdict::Yes => 2,
        Verdict::Undetermined => 1,
        Verdict::No => 0,
    };
    if weight(&other) > weight(&one) { other } else { one }
}

/// Evaluates each frame from which the kernel was entered.
fn of_each(
    evidence: &mut Evidence<'_, '_>,
    severity: Severity,
    mut check: impl FnMut(&mut Evidence<'_, '_>, usize) -> Outcome,
) -> Outcome {
    let frames = match stub_frames(evidence, severity) {
        Ok(frames) => frames,
        Err(outcome) => return outcome,
    };
    let outcomes = frames.into_iter().flatten().map(|frame| check(evidence, frame));
    outcomes.reduce(more_important).expect("at least one frame")
}

/// CS03.
pub(crate) fn mismatch(evidence: &mut Evidence<'_, '_>) -> Outcome {
    let frames = match stub_frames(evidence, Severity::High) {
        Ok(frames) => frames,
        Err(outcome) => return outcome,
    };
    let [return_frame, frame_32_bit] = frames;
    let view = evidence.view;
    let services = match view.case.event.services {
        Services::OneOf([]) => Services::Unknown,
        services => services,
    };
    let unnamed = |outcome: Outcome| {
        let missing = outcome.missing.with(Input::Service);
        Outcome { missing, ..outcome.because(Reason::ServiceUnknown) }
    };
    let Some(frame) = return_frame.or(frame_32_bit) else {
        return Outcome::no(Reason::NoStubFrame, WITHOUT_IMAGE);
    };
    let (frame, site) = match entered(evidence, frame, Severity::High) {
        Ok(found) => found,
        Err(outcome) if services == Services::Unknown && outcome.verdict == Verdict::Undetermined => {
            return unnamed(outcome);
        }
        Err(outcome) => return outcome,
    };
    let unsure = |reason, missing: &[Input]| {
        Outcome::undetermined(Severity::High, reason, USED, Inputs::of(missing)).at(frame)
    };
    let (stub, start) = match site.stub {
        StubLocation::Return { stub, start } => (stub, start),
        StubLocation::Changed => return unsure(Reason::StubChanged, &[]),
        _ if view.case.event.entry == Entry::Unknown => {
            return unsure(Reason::EntryUnknown, &[Input::KernelEntry]);
        }
        _ => return unsure(Reason::SiteUnknown, &[]),
    };
    if is_tampered(evidence, frame, stub, start) {
        let used = USED.with(Input::MemoryBytes);
        return Outcome::yes(Severity::High, Some(frame), Reason::StubTampered, used);
    }
    if services == Services::Unknown {
        return unnamed(unsure(Reason::ServiceUnknown, &[]));
    }
    let used = USED.with(Input::Service);
    let reason = match services {
        Services::OneOf(_) => Reason::StubCannotCause,
        _ => Reason::StubDiffers,
    };
    if is_named(evidence, frame, stub, services) {
        Outcome::no(Reason::StubMatches, used)
    } else if return_frame.is_none() {
        // The layer in between may call other services than the requested one.
        Outcome { used, ..unsure(reason, &[]) }
    } else {
        Outcome::yes(Severity::High, Some(frame), reason, used)
    }
}

/// Whether the stub belongs to one of these services.
fn is_named(evidence: &mut Evidence<'_, '_>, frame: usize, stub: u32, services: Services<'_>) -> bool {
    let Some((module, _)) = code_location(evidence.view.frame(frame)) else { return false };
    let lists = evidence.lists;
    let Lookup::Found(names) = evidence.binaries.services(evidence.view.modules, module) else {
        return false;
    };
    names.stubs.names(stub).any(|name| match services {
        Services::Entered(service) => lists.is_same_service(name, service),
        Services::OneOf(services) => services.iter().any(|service| lists.is_same_service(name, service)),
        Services::Unknown => false,
    })
}

/// Whether the service number in memory differs from the stub's number in the file.
fn is_tampered(evidence: &mut Evidence<'_, '_>, index: usize, stub: u32, start: Rva) -> bool {
    let frame = evidence.view.frame(index);
    let location = code_location(frame);
    let (Some(bytes), Some((module, offset))) = (evidence.view.bytes(index), location) else { return false };
    let Lookup::Found(names) = evidence.binaries.services(evidence.view.modules, module) else {
        return false;
    };
    let Some((number, distance)) = names.stubs.number(!frame.is_wow64, stub) else { return false };
    // The bytes of memory begin 16 bytes before the return address.
    let at = (u64::from(start.0 + distance) + bytes.before.len() as u64).checked_sub(offset);
    let found = at.and_then(|at| bytes.before.get(usize::try_from(at).ok()?..)?.first_chunk());
    found.is_some_and(|found| u32::from_le_bytes(*found) != number)
}

/// CS04.
pub(crate) fn unknown_site(evidence: &mut Evidence<'_, '_>) -> Outcome {
    of_each(evidence, Severity::Medium, site_is_stub)
}

fn site_is_stub(evidence: &mut Evidence<'_, '_>, frame: usize) -> Outcome {
    let (frame, site) = match entered(evidence, frame, Severity::Medium) {
        Ok(found) => found,
        Err(outcome) => return outcome,
    };
    let view = evidence.view;
    let unsure = |reason, missing: &[Input]| {
        Outcome::undetermined(Severity::Medium, reason, USED, Inputs::of(missing)).at(frame)
    };
    let found = |reason| Outcome::yes(Severity::Medium, Some(frame), reason, USED);
    match site.stub {
        StubLocation::Return { .. } | StubLocation::Landing => return Outcome::no(Reason::SiteIsStub, USED),
        StubLocation::Changed => return unsure(Reason::StubChanged, &[]),
        StubLocation::Elsewhere => {}
    }
    let module = view.frame(frame).code.module();
    let has_stubs = module.map(|module| evidence.binaries.services(view.modules, module));
    if !matches!(has_stubs, Some(Lookup::Found(services)) if !services.stubs.is_empty()) {
        return unsure(Reason::ImageUnreadable, &[Input::ImageBytes]);
    }
    if view.case.event.entry == Entry::Unknown {
        return unsure(Reason::EntryUnknown, &[Input::KernelEntry]);
    }
    match site.region {
        Region::NotCode => return found(Reason::SiteOutsideCode),
        Region::NoBytes => return unsure(Reason::NoBytesInFile, &[]),
        // A thread that has not started, or starts to run a callback.
        Region::FunctionStart => return unsure(Reason::NoSystemCallBefore, &[]),
        _ => {}
    }
    if site.enters_kernel == Some(true) {
        return found(Reason::SiteUnknown);
    }
    match view.bytes(frame) {
        // No system call in the file or in memory: the stack walk began elsewhere.
        Some(bytes) if !ends_system_call(&bytes.before) => unsure(Reason::NoSystemCallBefore, &[]),
        Some(_) => Outcome { used: USED.with(Input::MemoryBytes), ..found(Reason::SiteUnknown) },
        None => found(Reason::SiteUnknown).because(Reason::NoSystemCallBefore),
    }
}

/// CS05.
pub(crate) fn callee(evidence: &mut Evidence<'_, '_>) -> Outcome {
    of_each(evidence, Severity::High, callee_is_stub)
}

fn callee_is_stub(evidence: &mut Evidence<'_, '_>, stub_frame: usize) -> Outcome {
    const SEVERITY: Severity = Severity::High;
    let view = evidence.view;
    // Without the image, the frame of a system call is assumed to be a stub.
    let (stub_frame, stub) = match entered(evidence, stub_frame, SEVERITY) {
        Ok((frame, site)) => (frame, Some(site.stub)),
        Err(outcome) if view.case.event.entry == Entry::Unknown => return outcome,
        Err(_) => (stub_frame, None),
    };
    let caller = stub_frame + 1;
    let unsure = |reason, missing: &[Input]| {
        Outcome::undetermined(SEVERITY, reason, WITHOUT_IMAGE, Inputs::of(missing)).at(caller)
    };
    let frame = match view.frames().get(caller) {
        Some(frame) if frame.mode == Mode::User => frame,
        _ => return Outcome { frame: None, ..unsure(Reason::StackMissing, &[Input::Stack]) },
    };
    let location = match frame.code {
        Code::Image(module, offset) => (module, offset),
        Code::Unknown => return unsure(Reason::FrameUnknown, &[Input::Modules]),
        Code::Unbacked | Code::Jit(_) => return unsure(Reason::FrameUnbacked, &[Input::MemoryBytes]),
    };
    if view.roles(frame).has_any(Role::SystemCall | Role::Wow64) {
        return Outcome::no(Reason::CallerNative, WITHOUT_IMAGE);
    }
    if view.case.event.entry == Entry::Unknown && !matches!(stub, Some(StubLocation::Return { .. })) {
        return unsure(Reason::EntryUnknown, &[Input::KernelEntry]);
    }
    let lookup = evidence.binaries.site(view.modules, location);
    let Lookup::Found(site) = lookup else { return without_image(&lookup, SEVERITY).at(caller) };
    let unsure = |reason| Outcome { used: USED, ..unsure(reason, &[]) };
    let differs = |reason| match () {
        // The walk of 32-bit stacks can skip the frame of the caller.
        () if site.is_32_bit => unsure(reason).because(Reason::Stack32),
        () if view.roles(frame).has(Role::Hook) => unsure(reason).because(Reason::CallerHook),
        () => Outcome::yes(SEVERITY, Some(caller), reason, USED),
    };
    let matches = Outcome::no(Reason::CalleeMatches, USED);
    let target = match site.call {
        None => return unsure(Reason::NoBytesInFile),
        Some(Call::None) => return unsure(Reason::NoCallBefore),
        Some(Call::Indirect) => return unsure(Reason::CalleeIndirect),
        Some(Call::Import(None)) => return matches,
        Some(Call::Import(Some(service))) => {
            return match is_imported(evidence, location, &[service], stub_frame, stub) {
                true => matches,
                false => differs(Reason::CalleeOther),
            };
        }
        Some(Call::Direct(target)) => target,
    };
    let reach = match evidence.binaries.reach(view.modules, location.0, target) {
        Lookup::Found(reach) => reach,
        other => return without_image(&other, SEVERITY).at(caller),
    };
    if reach.like_stub {
        return differs(Reason::CalleeDiffers);
    }
    if reach.imports {
        let services = if reach.pointers || reach.is_incomplete { None } else { reach.services.clone() };
        return match services {
            Some(services) if !is_imported(evidence, location, &services, stub_frame, stub) => {
                differs(Reason::CalleeOther)
            }
            _ => matches,
        };
    }
    if reach.is_closed() { differs(Reason::CalleeDiffers) } else { unsure(Reason::CalleeIndirect) }
}

/// Whether one of the imported services is that of the stub. Assumed if the stub is not known.
fn is_imported(
    evidence: &mut Evidence<'_, '_>,
    (module, _): CodeLocation,
    services: &[u32],
    stub_frame: usize,
    stub: Option<StubLocation>,
) -> bool {
    let Some(StubLocation::Return { stub, .. }) = stub else { return true };
    let modules = evidence.view.modules;
    services.iter().any(|service| {
        let Lookup::Found(names) = evidence.binaries.services(modules, module) else { return true };
        let Some(service) = names.imported.get(*service as usize) else { return true };
        // The name is cloned, because the names of both modules cannot be borrowed at once.
        let service = service.clone();
        is_named(evidence, stub_frame, stub, Services::Entered(&service))
    })
}
