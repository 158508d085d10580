//! Many statements about one address or id. Each must cost about as little as the first: if the
//! cost of a statement were proportional to the number of earlier statements, these tests would
//! take hours.

use stackhound_system::{
    AllocationEvent, AllocationFacts, FileKey, FileNameEvent, ModuleFacts, Phase, ProcessFacts, System,
    ThreadFacts,
};
use stackhound_trace::TraceTime;
use stackhound_types::{Address, Pid, PointerSize, Tid};

const COUNT: u64 = 300_000;
const PID: Pid = Pid(7);

fn module(phase: Phase, base: u64, size: u64, stamp: u64) -> impl Fn(&mut System, TraceTime) {
    move |system, time| {
        let facts = ModuleFacts {
            pid: PID,
            base: Address(base),
            size,
            time_date_stamp: Some(stamp as u32),
            checksum: Some(1),
            path: "\\Device\\a.dll",
        };
        system.take_module(phase, time, &facts);
    }
}

fn allocation(event: AllocationEvent, base: u64, size: u64, flags: u32) -> impl Fn(&mut System, TraceTime) {
    move |system, time| {
        let facts = AllocationFacts { pid: PID, base: Address(base), size, flags, by: None };
        system.take_allocation(event, time, &facts);
    }
}

/// Records the statements 0, 1, 2, … at the times that `time` returns, and queries all times in
/// between.
fn check(time: impl Fn(u64) -> u64, statement: impl Fn(&mut System, u64, TraceTime)) {
    let mut system = System::new(PointerSize::Eight);
    for n in 0..COUNT {
        statement(&mut system, n, TraceTime(time(n) as i64));
    }
    for n in 0..COUNT {
        let (time, address) = (TraceTime(n as i64), Address(n.wrapping_mul(0x9e37_79b9) % (COUNT * 0x1000)));
        system.process_at(PID, time);
        system.thread_at(Tid(9), time);
        system.module_at(PID, address, time);
        system.region_at(PID, address, time);
        system.file_name(Some(FileKey(5)), None, time);
    }
}

fn upwards(n: u64) -> u64 {
    n
}

fn downwards(n: u64) -> u64 {
    COUNT - n
}

#[test]
fn modules_at_one_base() {
    check(upwards, |s, n, t| module(Phase::Start, 0x1000, 0x1000, n)(s, t));
    check(downwards, |s, n, t| module(Phase::Start, 0x1000, 0x1000, n)(s, t));
}

#[test]
fn modules_over_one_another() {
    check(upwards, |s, n, t| module(Phase::Start, (COUNT - n) * 0x1000, 2 * n * 0x1000, n)(s, t));
    check(upwards, |s, n, t| module(Phase::RundownAtEnd, n * 0x1000, 0x100_0000, n)(s, t));
    check(upwards, |s, n, t| {
        let phase = if n % 2 == 0 { Phase::Start } else { Phase::End };
        module(phase, (n / 2 % 1000) * 0x1000, 0x1000, 1)(s, t);
        if n % 100 == 0 {
            module(Phase::Start, 0, u64::MAX, n)(s, t);
        }
    });
}

#[test]
fn commits_all_over_and_one_release() {
    check(upwards, |s, n, t| {
        allocation(AllocationEvent::Allocate, n % 5000 * 0x2000, 0x1000, 0x3000)(s, t);
        if n % 3 == 0 {
            allocation(AllocationEvent::Free, 0, u64::MAX, 0x8000)(s, t);
        }
    });
}

#[test]
fn holders_of_one_number() {
    check(downwards, |s, _, t| {
        s.take_process(Phase::Start, t, &ProcessFacts::of(PID));
    });
    check(downwards, |s, _, t| {
        s.take_thread(Phase::End, t, (PID, Tid(9)), &ThreadFacts::default());
    });
}

#[test]
fn names_of_one_object() {
    check(upwards, |s, n, t| {
        s.take_thread_name(t, (PID, Tid(9)), &n.to_string());
        s.take_thread(Phase::RundownAtEnd, t, (PID, Tid(9)), &ThreadFacts::default());
    });
    check(downwards, |s, n, t| {
        s.take_file_name(FileNameEvent::Rundown(FileKey(5)), t, &n.to_string());
    });
}
