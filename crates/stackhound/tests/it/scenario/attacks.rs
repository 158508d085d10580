//! The attacks are visible in the trace, and only at the events of the ground truth.

use stackhound_scenario::{Attack, AttackKind, Mix, Process, Scenario, State, Truth};
use stackhound_types::{Address, PointerSize, RawTime};

use super::{Expected, Written, written};

fn process_of<'t>(truth: &'t Truth, attack: &Attack) -> &'t Process {
    truth.processes.iter().find(|process| process.pid == attack.pid).unwrap()
}

fn user_frames(frames: &[Address]) -> impl Iterator<Item = Address> + Clone {
    frames.iter().copied().filter(|frame| !frame.is_kernel(PointerSize::Eight))
}

fn is_private(process: &Process, address: Address) -> bool {
    process.code_regions.iter().any(|region| region.contains(address))
}

/// The name of the image that contains an address, or the kind of its memory.
fn image_name<'t>(truth: &'t Truth, process: &Process, address: Address) -> &'t str {
    match truth.image_at(process, address) {
        Some(image) => image.name(),
        None if is_private(process, address) => "private",
        None => "nowhere",
    }
}

fn check_attack(truth: &Truth, attack: &Attack) {
    let process = process_of(truth, attack);
    let user: Vec<Address> = user_frames(&attack.frames).collect();
    let names: Vec<&str> = user.iter().map(|&frame| image_name(truth, process, frame)).collect();
    let root = &names[names.len() - 2..];
    assert_eq!(root, ["kernel32.dll", "ntdll.dll"], "{attack:?}");
    match attack.kind {
        AttackKind::DirectSyscall => {
            assert_eq!(process.name, "updater.exe");
            assert_eq!(names[0], "updater.exe", "{names:?}");
        }
        AttackKind::IndirectSyscall => {
            assert_eq!(names[..2], ["ntdll.dll", "private"], "{names:?}");
            // The return address after the system call of NtQueryInformationFile; the service that
            // runs is NtSetValueKey.
            let ntdll = truth.image_at(process, user[0]).unwrap();
            assert_eq!(user[0].0 - ntdll.base.0, 0x9_bfd0 + 0x14);
        }
        AttackKind::OwnStub | AttackKind::StraySyscall => {
            assert_eq!(process.name, "updater.exe");
            assert_eq!(names[..2], ["ntdll.dll", "updater.exe"], "{names:?}");
            let ntdll = truth.image_at(process, user[0]).unwrap();
            // The return address after the system call of NtOpenProcess, or an address in no stub.
            let is_stub = attack.kind == AttackKind::OwnStub;
            assert_eq!(user[0].0 - ntdll.base.0, if is_stub { 0x9_c270 + 0x14 } else { 0xa_1042 });
        }
        AttackKind::UnbackedThreadStart => {
            assert_eq!((attack.event.name(), &*process.name), ("Thread/Start", "updater.exe"));
            let victim = truth.processes_named("explorer.exe").next().unwrap();
            let thread = victim.threads.iter().find(|thread| thread.started == Some(attack.time)).unwrap();
            assert!(is_private(victim, thread.start_address));
        }
        AttackKind::UnbackedThread => {
            assert_eq!(process.name, "explorer.exe");
            assert_eq!(names[names.len() - 3], "private", "{names:?}");
        }
    }
}

#[test]
fn attacks_have_their_characteristic_stacks() {
    for seed in 0..20 {
        let Written { truth, expected, .. } = written(Scenario::EVENTS_MIN, seed, Mix::Default);
        let mut by_kind = [0; 6];
        let mut last = RawTime(0);
        for attack in &truth.attacks {
            check_attack(&truth, attack);
            assert!(attack.time > last);
            last = attack.time;
            by_kind[attack.kind as usize] += 1;
            let is_attack = |expected: &Expected| expected.frames == attack.frames;
            let found = (0..4).filter_map(|on| expected.get(&(attack.time, on))).any(is_attack);
            assert!(found, "{attack:?}");
        }
        assert!(by_kind.iter().all(|&count| count > 0), "seed {seed}: {by_kind:?}");
        assert_eq!(by_kind[AttackKind::DirectSyscall as usize], 4);
        assert_eq!(by_kind[AttackKind::IndirectSyscall as usize], 2);
        assert_eq!(by_kind[AttackKind::OwnStub as usize], 2);
        assert_eq!(by_kind[AttackKind::StraySyscall as usize], 2);
    }
}

/// All other stacks look legitimate.
#[test]
fn other_stacks_do_not_look_like_attacks() {
    let Written { truth, expected, .. } = written(30_000, 5, Mix::Default);
    let attacks: Vec<RawTime> = truth.attacks.iter().map(|attack| attack.time).collect();
    for ((time, _), Expected { event, tid, state, frames }) in &expected {
        if attacks.contains(time) || *state != State::Complete {
            continue;
        }
        let has_thread = |process: &&Process| process.threads.iter().any(|thread| thread.tid == *tid);
        let Some(process) = truth.processes.iter().find(has_thread) else {
            // The idle process.
            assert!(frames.iter().all(|frame| frame.is_kernel(PointerSize::Eight)));
            continue;
        };
        let names: Vec<&str> = frames.iter().map(|&frame| image_name(&truth, process, frame)).collect();
        assert!(!names.contains(&"nowhere"), "{event:?} of {}: {names:?}", process.name);
        let is_injected = process.name == "explorer.exe" && names.contains(&"private");
        assert!(!names.contains(&"private") || is_injected, "{event:?} of {}: {names:?}", process.name);
        let kernel_frames = frames.iter().filter(|frame| frame.is_kernel(PointerSize::Eight)).count();
        if kernel_frames > 0 && kernel_frames < frames.len() && event.name() == "PerfInfo/SysCallEnter" {
            assert!(["ntdll.dll", "win32u.dll"].contains(&names[kernel_frames]), "{names:?}");
        }
    }
}
