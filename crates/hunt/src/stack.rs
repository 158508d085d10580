//! The parts of stacks in the normal form of detections.

use stackhound_detect::{Gap, Part};
use stackhound_frames::Frame;
use stackhound_stacks::{StackState, StackStates};
use stackhound_types::Mode;

/// The kernel part and the user part of a stack.
pub(super) fn parts(states: StackStates, has_kernel: bool, has_user: bool, has_losses: bool) -> (Part, Part) {
    let is_lost = has_losses || states.has(StackState::Lost);
    let not_present = Part::Missing(if is_lost { Gap::Lost } else { Gap::NotRecorded });
    let unresolved = Part::Missing(Gap::Unresolved);
    let unless = |is_there: bool, gap| if is_there { Part::Whole } else { gap };
    if [StackState::Damaged, StackState::Ambiguous, StackState::Unconfirmed]
        .iter()
        .any(|state| states.has(*state))
    {
        return (unresolved, unresolved);
    }
    if states.has(StackState::UnresolvedKey) {
        return (unless(has_kernel, unresolved), unless(has_user, unresolved));
    }
    if states.has(StackState::Complete) {
        return (Part::Whole, Part::Whole);
    }
    (unless(has_kernel, not_present), unless(has_user, not_present))
}

/// Maximum number of frames of the kernel image between user code and the event of a system-call
/// entry.
const ENTRY_FRAMES_MAX: usize = 4;

/// Whether the stack at a system-call entry shows that kernel code made the call, because it has
/// more kernel frames than the entry path. Drivers call services on behalf of the service that user
/// code requested. If the kernel calls user mode back, the user frames that made the call may be
/// missing.
/// user code back, the part of user code that made the call may not be there.
pub(super) fn is_called_by_kernel(frames: &[Frame]) -> bool {
    let mut kernel = frames.iter().take_while(|frame| frame.mode == Mode::Kernel);
    let Some(innermost) = kernel.clone().next() else { return false };
    kernel.clone().count() > ENTRY_FRAMES_MAX
        || kernel.any(|frame| frame.code.module() != innermost.code.module())
}

#[cfg(test)]
mod tests {
    use stackhound_frames::{Code, ModuleFacts, Modules};
    use stackhound_types::ModuleIdentity;

    use super::*;

    #[test]
    fn the_entry_path_is_short_and_in_one_image() {
        let mut modules = Modules::default();
        let mut image = |name: &str| {
            let identity = ModuleIdentity { name: name.to_owned(), ..ModuleIdentity::default() };
            let path = format!(r"C:\Windows\System32\{name}").into();
            let facts = ModuleFacts { path, identity, ..ModuleFacts::default() };
            Code::Image(modules.add(&facts, None), 0)
        };
        let (kernel, driver, ntdll) = (image("ntoskrnl.exe"), image("win32kfull.sys"), image("ntdll.dll"));
        let called = |codes: &[Code]| {
            let inner = codes.iter().map(|code| Frame { mode: Mode::Kernel, ..Frame::user(*code) });
            let frames: Vec<Frame> = inner.chain([Frame::user(ntdll)]).collect();
            is_called_by_kernel(&frames)
        };
        assert!(!called(&[]));
        assert!(!called(&[kernel; 2]));
        assert!(!called(&[kernel; ENTRY_FRAMES_MAX]));
        assert!(called(&[kernel; ENTRY_FRAMES_MAX + 1]));
        assert!(called(&[kernel, kernel, driver, kernel]));
        assert!(!is_called_by_kernel(&[]));
    }

    #[test]
    fn parts_that_may_be_missing_are_never_whole() {
        use StackState::*;
        let (lost, never, open) =
            (Part::Missing(Gap::Lost), Part::Missing(Gap::NotRecorded), Part::Missing(Gap::Unresolved));
        for (state, kernel, user, losses, expected) in [
            (Complete, true, true, true, (Part::Whole, Part::Whole)),
            (Complete, true, false, false, (Part::Whole, Part::Whole)),
            (KernelOnly, true, false, false, (Part::Whole, never)),
            (KernelOnly, true, false, true, (Part::Whole, lost)),
            (UserOnly, false, true, false, (never, Part::Whole)),
            (UnresolvedKey, true, false, false, (Part::Whole, open)),
            (UnresolvedKey, false, true, false, (open, Part::Whole)),
            (UnresolvedKey, false, false, false, (open, open)),
            (Ambiguous, true, true, false, (open, open)),
            (Lost, false, false, true, (lost, lost)),
            (Lost, true, false, false, (Part::Whole, lost)),
            (Unconfirmed, true, true, false, (open, open)),
            (Damaged, true, true, false, (open, open)),
            (None, false, false, false, (never, never)),
            (None, false, false, true, (lost, lost)),
        ] {
            assert_eq!(
                parts(StackStates::of(state), kernel, user, losses),
                expected,
                "{state:?} {kernel} {user} {losses}"
            );
        }
    }
}
