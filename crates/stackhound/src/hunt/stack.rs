//! Stacks and frames as the detections want them.

use stackhound_detect::{Code, Frame, Gap, Judge, Memory, MemoryKind, Mode, Part};
use stackhound_enrich::{self as enrich, Backing, RegionKind};
use stackhound_etl::Address;
use stackhound_stacks::{StackState, StackStates};
use stackhound_symbols::AddressKind;
use stackhound_system::{Evidence, ModuleId, Runtime, System};

use super::modules::ModuleNumbers;

/// The parts of a stack: the kernel's and the rest.
pub(super) fn parts(states: StackStates, has_kernel: bool, has_user: bool, has_losses: bool) -> (Part, Part) {
    let is_lost = has_losses || states.has(StackState::Lost);
    let never_came = Part::Missing(if is_lost { Gap::Lost } else { Gap::NotRecorded });
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
    (unless(has_kernel, never_came), unless(has_user, never_came))
}

/// Frames of the kernel's own image that stand between user code and the event of a system call's entry, at most.
const WAY_IN_MAX: usize = 4;

/// Whether the stack of a system call's entry shows that code of the kernel made the call: then more of the kernel is in the
/// stack than the way in. Drivers call services so, on behalf of the one that user code asked for; and where the kernel calls
/// user code back, the part of user code that made the call may not be there.
pub(super) fn is_called_by_kernel(frames: &[Frame]) -> bool {
    let mut kernel = frames.iter().take_while(|frame| frame.mode == Mode::Kernel);
    let Some(innermost) = kernel.clone().next() else { return false };
    kernel.clone().count() > WAY_IN_MAX || kernel.any(|frame| frame.code.module() != innermost.code.module())
}

/// What is known of the place of a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Whether its process runs 32-bit code on 64-bit Windows.
    pub is_wow64: bool,
    /// Whether all modules of the process are known.
    pub all_modules: bool,
    /// Whether all drivers are known.
    pub all_drivers: bool,
}

/// A frame in the form of the detections.
pub(super) fn frame(
    system: &System,
    (judge, modules): (&mut Judge, &mut ModuleNumbers),
    facts: &enrich::Frame,
    place: Place,
) -> Frame {
    let mode = if facts.mode == enrich::Mode::User { Mode::User } else { Mode::Kernel };
    if let Some(in_module) = facts.module {
        return frame_in_module(
            system,
            (judge, modules),
            (facts.address, facts.kind),
            mode,
            in_module,
            place.is_wow64,
        );
    }
    let is_wide = facts.address.0 > u64::from(u32::MAX);
    Frame {
        address: Some(facts.address.0),
        mode,
        is_wow64: mode == Mode::User && place.is_wow64 && !is_wide,
        is_instruction: facts.kind == AddressKind::Instruction,
        code: code_outside(system, facts, place),
        memory: Memory { kind: memory_kind(facts.region.kind), ..Memory::UNKNOWN },
        bytes: None,
    }
}

/// The same of a frame that lies in a module.
pub(super) fn frame_in_module(
    system: &System,
    (judge, modules): (&mut Judge, &mut ModuleNumbers),
    (address, kind): (Address, AddressKind),
    mode: Mode,
    (module, rva): (ModuleId, u64),
    is_wow64: bool,
) -> Frame {
    let known = modules.of(system, judge, module);
    Frame {
        address: Some(address.0),
        mode,
        is_wow64: mode == Mode::User && is_wow64 && !known.is_wide,
        is_instruction: kind == AddressKind::Instruction,
        code: Code::Image(known.index, rva),
        memory: Memory { kind: Some(MemoryKind::Image), ..Memory::UNKNOWN },
        bytes: None,
    }
}

/// Code in no module that is known.
fn code_outside(system: &System, facts: &enrich::Frame, place: Place) -> Code {
    if let Some(method) = facts.method {
        return Code::Compiled(runtime(system.method(method).runtime()));
    }
    if let RegionKind::Jit(by) = facts.region.kind {
        return Code::Compiled(runtime(by));
    }
    // What was seen to be allocated there is no image, whatever else is not known of the process.
    let is_allocated = facts.region.kind == RegionKind::Private
        && matches!(facts.region.evidence, Some((_, Evidence::Observed)));
    match (facts.mode, facts.backing) {
        (enrich::Mode::Kernel, _) if may_be_of_system(system, facts) => Code::Unknown,
        (enrich::Mode::Kernel, _) if place.all_drivers => Code::Unbacked,
        (enrich::Mode::Kernel, _) => Code::Unknown,
        (enrich::Mode::User, Backing::Unbacked) if place.all_modules => Code::Unbacked,
        (enrich::Mode::User, _) if is_allocated => Code::Unbacked,
        (enrich::Mode::User, _) => Code::Unknown,
    }
}

/// Whether a place in the kernel that no driver covers can be the system's own all the same.
fn may_be_of_system(system: &System, facts: &enrich::Frame) -> bool {
    is_of_hal(facts.address.0) || system.may_be_hypercall(facts.address)
}

/// The last 4 MB belong to the hardware abstraction layer. It maps the page there by which the kernel calls a hypervisor, and
/// no recording of old systems tells where.
fn is_of_hal(address: u64) -> bool {
    const SIZE: u64 = 4 << 20;
    address > u64::MAX - SIZE || (u64::from(u32::MAX) - SIZE + 1..=u64::from(u32::MAX)).contains(&address)
}

fn runtime(runtime: Runtime) -> &'static str {
    match runtime {
        Runtime::Clr => "clr",
        Runtime::Script => "script",
    }
}

/// Recordings tell what memory was mapped or allocated as, not what its pages allow now.
fn memory_kind(kind: RegionKind) -> Option<MemoryKind> {
    match kind {
        RegionKind::Image => Some(MemoryKind::Image),
        RegionKind::Mapped => Some(MemoryKind::Mapped),
        RegionKind::Private | RegionKind::Jit(_) => Some(MemoryKind::Private),
        RegionKind::Unknown => None,
    }
}

#[cfg(test)]
mod tests {
    use stackhound_detect::{Binaries, Lists, ModuleFacts};
    use stackhound_symbols::ModuleIdentity;

    use super::*;

    #[test]
    fn the_way_in_is_short_and_of_one_image() {
        let (mut judge, none) = (Judge::new(Lists::default(), Binaries::none()), None);
        let mut image = |name: &str| {
            let identity = ModuleIdentity { name: name.to_owned(), ..ModuleIdentity::default() };
            let path = format!(r"C:\Windows\System32\{name}").into();
            Code::Image(judge.module(&ModuleFacts { path, identity, sha256: None, signer: None }, none), 0)
        };
        let (kernel, driver, ntdll) = (image("ntoskrnl.exe"), image("win32kfull.sys"), image("ntdll.dll"));
        let called = |codes: &[Code]| {
            let inner = codes.iter().map(|code| Frame { mode: Mode::Kernel, ..Frame::user(*code) });
            let frames: Vec<Frame> = inner.chain([Frame::user(ntdll)]).collect();
            is_called_by_kernel(&frames)
        };
        assert!(!called(&[]));
        assert!(!called(&[kernel; 2]));
        assert!(!called(&[kernel; WAY_IN_MAX]));
        assert!(called(&[kernel; WAY_IN_MAX + 1]));
        assert!(called(&[kernel, kernel, driver, kernel]));
        assert!(!is_called_by_kernel(&[]));
    }

    #[test]
    fn no_state_gives_a_part_that_may_be_missing_as_whole() {
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
