//! Statements without end about one place: each must cost about as little as the first.

use std::time::{Duration, Instant};

use stackhound_etl::{Address, Pid, PointerSize, Tid};
use stackhound_system::{
    AllocationEvent, AllocationFacts, FileKey, FileNameEvent, Losses, ModuleFacts, Phase, ProcessFacts,
    System, ThreadFacts,
};
use stackhound_trace::TraceTime;

const COUNT: u64 = 100_000;
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

/// Feeds statement number 0, 1, 2, … at the times that `time` gives, and asks at all times in between.
#[track_caller]
fn check(name: &str, time: impl Fn(u64) -> u64, statement: impl Fn(&mut System, u64, TraceTime)) {
    let started = Instant::now();
    let mut system = System::new(PointerSize::Eight, Losses::default());
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
    // Anything quadratic takes minutes.
    assert!(started.elapsed() < Duration::from_secs(20), "{name}: {:?}", started.elapsed());
}

#[test]
fn nothing_is_quadratic() {
    let upwards = |n| n;
    let downwards = |n| COUNT - n;
    check("reloads at one base", upwards, |s, n, t| module(Phase::Start, 0x1000, 0x1000, n)(s, t));
    check("reloads backwards in time", downwards, |s, n, t| module(Phase::Start, 0x1000, 0x1000, n)(s, t));
    check("nested modules", upwards, |s, n, t| {
        module(Phase::Start, (COUNT - n) * 0x1000, 2 * n * 0x1000, n)(s, t);
    });
    check("rundowns of overlapping modules", upwards, |s, n, t| {
        module(Phase::RundownAtEnd, n * 0x1000, 0x100_0000, n)(s, t);
    });
    check("modules that come and go under a large one", upwards, |s, n, t| {
        let phase = if n % 2 == 0 { Phase::Start } else { Phase::End };
        module(phase, (n / 2 % 1000) * 0x1000, 0x1000, 1)(s, t);
        if n % 100 == 0 {
            module(Phase::Start, 0, u64::MAX, n)(s, t);
        }
    });
    check("commits all over and one release", upwards, |s, n, t| {
        allocation(AllocationEvent::Allocate, n % 5000 * 0x2000, 0x1000, 0x3000)(s, t);
        if n % 3 == 0 {
            allocation(AllocationEvent::Free, 0, u64::MAX, 0x8000)(s, t);
        }
    });
    check("processes that start only", downwards, |s, _, t| {
        s.take_process(Phase::Start, t, &ProcessFacts::of(PID));
    });
    check("threads that end only", downwards, |s, _, t| {
        s.take_thread(Phase::End, t, (PID, Tid(9)), &ThreadFacts::default());
    });
    check("names of one thread", upwards, |s, n, t| {
        s.take_thread_name(t, (PID, Tid(9)), &n.to_string());
        s.take_thread(Phase::RundownAtEnd, t, (PID, Tid(9)), &ThreadFacts::default());
    });
    check("names of one file", downwards, |s, n, t| {
        s.take_file_name(FileNameEvent::Rundown(FileKey(5)), t, &n.to_string());
    });
}
