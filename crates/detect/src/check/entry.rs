//! The point where the kernel was entered: direct system calls (CS01, CS02) and direct use of the
//! native API (CS06).

use stackhound_frames::{Code, Operation, Role, Roles};

use super::{Evidence, without_frames};
use crate::case::Entry;
use crate::images::site;
use crate::verdict::{Input, Inputs, Outcome, Reason, Severity};

const USED: Inputs = Inputs::of(&[Input::Stack, Input::Modules, Input::KernelEntry]);

/// The page that the kernel shares with all processes. Before Windows 8, 32-bit systems entered the
/// kernel through it.
const SHARED_PAGE: std::ops::Range<u64> = 0x7ffe_0000..0x7ffe_1000;

/// The code that entered the kernel.
enum Top {
    /// A system-call module or the WoW64 layer.
    SystemCall,
    /// Code in no module, at this frame.
    Unbacked(usize),
    /// JIT-compiled code, at this frame.
    Jit(usize),
    /// An image other than the system-call modules, at this frame.
    Image(usize),
    /// The detections do not apply, or evidence is missing.
    Other(Outcome),
}

fn return_frame(evidence: &Evidence<'_, '_>) -> Top {
    let view = evidence.view;
    let Some(return_frame) = view.return_frame else {
        return Top::Other(without_frames(view, Severity::High, USED));
    };
    if view.case.event.entry == Entry::Interrupt {
        return Top::Other(Outcome::no(Reason::NoSystemCall, USED));
    }
    let found = match location(evidence, return_frame) {
        // The frames of the WoW64 layer come before those of the 32-bit code that entered it.
        Top::SystemCall => view.top_32_bit.map_or(Top::SystemCall, |index| location(evidence, index)),
        other => other,
    };
    match (found, view.case.event.entry) {
        (Top::Unbacked(frame) | Top::Jit(frame) | Top::Image(frame), Entry::Unknown) => {
            let missing = Inputs::of(&[Input::KernelEntry]);
            Top::Other(Outcome::undetermined(Severity::High, Reason::EntryUnknown, USED, missing).at(frame))
        }
        (found, _) => found,
    }
}

fn location(evidence: &Evidence<'_, '_>, index: usize) -> Top {
    let view = evidence.view;
    let frame = view.frame(index);
    let undetermined = |reason| {
        let missing = Inputs::of(&[Input::Modules]);
        Top::Other(Outcome::undetermined(Severity::High, reason, USED, missing).at(index))
    };
    match frame.code {
        Code::Unbacked if frame.address.is_some_and(|address| SHARED_PAGE.contains(&address.0)) => {
            Top::SystemCall
        }
        Code::Unbacked => Top::Unbacked(index),
        Code::Unknown => undetermined(Reason::TopUnknown),
        Code::Jit(_) => Top::Jit(index),
        Code::Image(module, offset) => {
            let module = view.modules.get(module);
            let size = module.identity.image.map_or(u32::MAX, |image| image.size);
            if module.roles.has_any(Role::SystemCall | Role::Wow64) {
                return Top::SystemCall;
            }
            if offset >= u64::from(size) {
                return undetermined(Reason::TopOutsideModule);
            }
            match view.case.process.has_win32u {
                Some(false) if module.roles.has(Role::LegacySystemCall) => Top::SystemCall,
                None if module.roles.has(Role::LegacySystemCall) => undetermined(Reason::TopLegacy),
                _ => Top::Image(index),
            }
        }
    }
}

/// Whether the bytes before a frame are an instruction that enters the kernel; `None` if they are
/// not available.
fn follows_system_call(evidence: &mut Evidence<'_, '_>, index: usize) -> Option<bool> {
    let frame = evidence.view.frame(index);
    // 32-bit code enters the kernel through a call.
    if frame.is_wow64 {
        return None;
    }
    match (evidence.view.bytes(index), frame.code) {
        (Some(bytes), _) => Some(site::ends_system_call(&bytes.before)),
        (None, Code::Image(module, offset)) => {
            evidence.binaries.follows_system_call(evidence.view.modules, (module, offset))
        }
        _ => None,
    }
}

/// Checks the bytes before the frame. If they are not a system call, the frame is an artifact of
/// the stack walk.
fn confirmed(evidence: &mut Evidence<'_, '_>, index: usize, found: Outcome) -> Outcome {
    let input = if evidence.view.bytes(index).is_some() { Input::MemoryBytes } else { Input::ImageBytes };
    match follows_system_call(evidence, index) {
        Some(true) => Outcome { used: found.used.with(input), ..found.because(Reason::SystemCallBefore) },
        Some(false) => Outcome::no(Reason::NoSystemCallBefore, found.used.with(input)).at(index),
        None => Outcome { missing: found.missing.with(input), ..found },
    }
}

/// CS01.
pub(crate) fn unbacked(evidence: &mut Evidence<'_, '_>) -> Outcome {
    match return_frame(evidence) {
        Top::Unbacked(frame) => {
            // The sandboxes of browsers call copies of stubs in private memory.
            let is_like_one = evidence.lists.is_like_direct_caller(evidence.view.case.process.image);
            let found = |severity| Outcome::yes(severity, Some(frame), Reason::TopUnbacked, USED);
            let found = match is_like_one {
                true => found(Severity::Medium).because(Reason::LikeDirectCaller),
                false => found(Severity::High),
            };
            confirmed(evidence, frame, found)
        }
        Top::Jit(frame) => {
            let found = Outcome::yes(Severity::Medium, Some(frame), Reason::TopJit, USED);
            confirmed(evidence, frame, found)
        }
        Top::Image(frame) => Outcome::no(Reason::TopImage, USED).at(frame),
        Top::SystemCall => Outcome::no(Reason::TopSystemCall, USED),
        Top::Other(outcome) => outcome,
    }
}

/// CS02.
pub(crate) fn image(evidence: &mut Evidence<'_, '_>) -> Outcome {
    match return_frame(evidence) {
        Top::Image(frame) => {
            let roles = evidence.view.roles(evidence.view.frame(frame));
            let found = |severity| Outcome::yes(severity, Some(frame), Reason::TopImage, USED);
            let found = if roles.has(Role::DirectCaller) {
                found(Severity::Low).because(Reason::KnownDirectCaller)
            } else if roles.has(Role::LikeDirectCaller) {
                found(Severity::Medium).because(Reason::LikeDirectCaller)
            } else {
                found(Severity::High)
            };
            confirmed(evidence, frame, found)
        }
        Top::Unbacked(frame) => Outcome::no(Reason::TopUnbacked, USED).at(frame),
        Top::Jit(frame) => Outcome::no(Reason::TopJit, USED).at(frame),
        Top::SystemCall => Outcome::no(Reason::TopSystemCall, USED),
        Top::Other(outcome) => outcome,
    }
}

/// Operations that `ntdll.dll` performs only for its caller, from any depth. Other operations are
/// also performed by its heap, loader and tracing, so that only a stub that was called directly is
/// conclusive.
const FOR_CALLERS: [Operation; 3] =
    [Operation::ProcessOpen, Operation::ThreadControl, Operation::MemoryAccess];

/// CS06.
pub(crate) fn native_api(evidence: &mut Evidence<'_, '_>) -> Outcome {
    const USED: Inputs = Inputs::of(&[Input::Stack, Input::Modules]);
    let view = evidence.view;
    let event = &view.case.event;
    if event.entry == Entry::Interrupt {
        return Outcome::no(Reason::NoSystemCall, USED);
    }
    let Some(return_frame) = view.return_frame else {
        return without_frames(view, Severity::Medium, USED);
    };
    if !view.is(return_frame, Role::SystemCall) {
        return Outcome::no(Reason::NoStubFrame, USED).at(return_frame);
    }
    let through = |roles: Roles| roles.has_any(Role::SystemCall | Role::Wow64) || roles.has(Role::Hook);
    let caller = view.user_frames().find(|(_, frame)| !through(view.roles(frame)));
    let Some((caller, frame)) = caller else {
        return match view.cut() {
            None => Outcome::no(Reason::CallerNative, USED),
            Some(reason) => Outcome::undetermined(Severity::Low, reason, USED, Inputs::of(&[Input::Stack])),
        };
    };
    // One stub of each bitness. The WoW64 layer between them and hooks are not counted.
    let stubs = view.user_frames().take_while(|(index, _)| *index < caller);
    let inner = stubs.filter(|(_, frame)| {
        view.roles(frame).has(Role::SystemCall) && frame.is_wow64 == view.frame(caller).is_wow64
    });
    let is_direct = inner.count() <= 1 || FOR_CALLERS.contains(&event.operation);
    let roles = view.roles(frame);
    let is_sensitive = event.target.is_some_and(|target| evidence.lists.is_sensitive_target(target.image));
    let severity = match (is_sensitive, roles.has(Role::DirectCaller)) {
        (_, true) => Severity::Info,
        (true, false) => Severity::Medium,
        (false, false) => Severity::Low,
    };
    let found = |reason| {
        let found = Outcome::yes(severity, Some(caller), reason, USED);
        if is_sensitive { found.because(Reason::SensitiveTarget) } else { found }
    };
    let unsure =
        |reason, input| Outcome::undetermined(severity, reason, USED, Inputs::of(&[input])).at(caller);
    match frame.code {
        Code::Unbacked => Outcome::no(Reason::CallerUnbacked, USED).at(caller),
        Code::Jit(_) => Outcome::no(Reason::TopJit, USED).at(caller),
        Code::Unknown => unsure(Reason::FrameUnknown, Input::Modules),
        Code::Image(..) if roles.has(Role::NativeLayer) || !is_direct => {
            Outcome::no(Reason::CallerNative, USED)
        }
        Code::Image(..) if event.entry == Entry::Unknown => unsure(Reason::EntryUnknown, Input::KernelEntry),
        Code::Image(..) if roles.has(Role::KnownSystem) => Outcome::no(Reason::CallerKnownSystem, USED),
        Code::Image(..) if roles.has(Role::Unsigned) => found(Reason::CallerUnsigned),
        Code::Image(..) if roles.has(Role::Windows) && evidence.lists.knows_system_images() => {
            found(Reason::CallerNotKnownSystem)
        }
        Code::Image(..) if roles.has(Role::Windows) => unsure(Reason::CallerInWindows, Input::ImageIdentity),
        Code::Image(module, _) if !view.modules.get(module).path.contains('\\') => {
            unsure(Reason::CallerInWindows, Input::ImageIdentity)
        }
        Code::Image(..) => found(Reason::CallerOutsideWindows),
    }
}
