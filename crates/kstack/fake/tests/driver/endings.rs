//! Captures without a stack, and their cleanup.

use std::time::{Duration, Instant};

use stackhound_kstack_fake::report::Behavior;
use stackhound_kstack_proto::{Capture, MAX_OUTSTANDING, Outcome};
use windows_sys::Win32::Foundation::ERROR_BUSY;
use windows_sys::Win32::System::Services::SERVICE_RUNNING;

use crate::captures;
use crate::device::Device;
use crate::world::{World, calls};

/// A request that a deaf thread will not answer.
fn short(world: &mut World, tid: u32) -> Capture {
    Capture { timeout_ms: 20, ..world.capture(tid) }
}

/// Lets the deaf threads take the APCs in their queues, and waits until `count` more calls that
/// begin with `like` have been logged.
fn wake(world: &mut World, like: &str, count: usize) {
    let logged = || calls().iter().filter(|call| call.starts_with(like)).count();
    let before = logged();
    world.set(|settings| settings.wakes += 1);
    await_until(|| logged() >= before + count);
}

pub fn await_until(condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(120), "the condition was not met in time");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub fn time_out_and_removal(world: &mut World) {
    captures::await_all_apcs();
    let tid = world.thread(Behavior::Deaf);
    for _ in 0..3 {
        let capture = short(world, tid);
        let (answered, calls) = world.calls(|world| world.device.capture(&capture).expect("served"));
        assert_eq!(answered.outcome, Outcome::TimedOut);
        let waited = Duration::from_nanos(answered.header.waited.get() * 100);
        assert!((Duration::from_millis(15)..Duration::from_secs(5)).contains(&waited), "{waited:?}");
        assert!(calls.contains(&"KeRemoveQueueApc = 1".to_owned()), "{calls:#?}");
        assert!(calls.contains(&"released, 0 threads are referenced".to_owned()), "{calls:#?}");
    }
    // A removed APC does not run.
    let before = calls().len();
    world.set(|settings| settings.wakes += 1);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(calls().len(), before);
}

pub fn run_down(world: &mut World) {
    for tid in world.report.threads_with(Behavior::Exits) {
        let capture = world.capture(tid);
        let (answered, calls) = world.calls(|world| world.device.capture(&capture).expect("served"));
        assert_eq!(answered.outcome, Outcome::Terminating);
        assert!(answered.header.waited.get() < 10_000 * u64::from(capture.timeout_ms), "not by the timeout");
        assert!(calls.contains(&format!("runs down {tid}")), "{calls:#?}");
        // The thread no longer exists, once Wine has noticed its end.
        let again = world.capture(tid);
        await_until(|| world.device.outcome(&again) == Ok(Outcome::NoThread));
    }
}

pub fn terminating(world: &mut World) {
    let tid = world.thread(Behavior::Refuses);
    // No slot stays claimed: more requests than there are slots end in the same way.
    for _ in 0..=MAX_OUTSTANDING {
        let capture = world.capture(tid);
        let (outcome, calls) = world.calls(|world| world.device.outcome(&capture));
        assert_eq!(outcome, Ok(Outcome::Terminating));
        assert!(calls.contains(&format!("KeInsertQueueApc {tid} increment 0 = 0")), "{calls:#?}");
    }
}

pub fn balance(world: &mut World) {
    let (waits, deaf) = (world.thread(Behavior::Waits), world.thread(Behavior::Deaf));
    let ((), calls) = world.calls(|world| {
        for round in 0..1000 {
            let (capture, expected) = if round % 50 == 0 {
                (Capture { timeout_ms: 1, ..world.capture(deaf) }, Outcome::TimedOut)
            } else {
                (world.capture(waits), Outcome::Captured)
            };
            let outcome = world.device.capture(&capture).map(|answered| answered.outcome);
            assert_eq!(outcome, Ok(expected), "round {round}");
        }
    });
    let count = |like: &str| calls.iter().filter(|call| call.starts_with(like)).count();
    // Retries are included.
    assert!(count("PsLookupThreadByThreadId") >= 1000);
    assert_eq!(count("released, 0 threads are referenced"), count("PsLookupThreadByThreadId"));
    assert_eq!((count("runs"), count("KeRemoveQueueApc = 1")), (980, 20));
    // A thread cannot be suspended during its request, and can be suspended afterwards.
    assert_eq!(count("KeEnterCriticalRegion 1"), count("PsLookupThreadByThreadId"));
    assert_eq!(count("KeLeaveCriticalRegion 0"), count("KeEnterCriticalRegion"));
    assert_eq!(count("completed in a critical region"), 0);
}

pub fn busy_until_answered(world: &mut World) {
    let tid = world.thread(Behavior::Deaf);
    let capture = short(world, tid);
    assert_eq!(world.device.outcome(&capture), Ok(Outcome::TimedOut));
    for _ in 0..3 {
        let capture = short(world, tid);
        assert_eq!(world.device.outcome(&capture), Err(ERROR_BUSY));
    }
    // Requests for other threads are served meanwhile.
    captures::frames_in_order(world);
    // The request was abandoned: the APC runs without walking a stack, and then frees its slot.
    let ((), calls) = world.calls(|world| wake(world, &format!("ran {tid}"), 1));
    assert!(calls.iter().all(|call| !call.starts_with("RtlWalkFrameChain")), "{calls:#?}");
    let capture = short(world, tid);
    assert_eq!(world.device.outcome(&capture), Ok(Outcome::TimedOut));
    wake(world, &format!("ran {tid}"), 1);
}

pub fn late_run_down(world: &mut World) {
    // The threads do not exit before this test has observed the timeout.
    world.set(|settings| settings.exits_when_woken = true);
    for tid in world.report.threads_with(Behavior::Exits) {
        let capture = Capture { timeout_ms: 1, ..world.capture(tid) };
        assert_eq!(world.device.outcome(&capture), Ok(Outcome::TimedOut));
        let ready = format!("{tid} exits when woken");
        await_until(|| calls().contains(&ready));
        world.set(|settings| settings.wakes += 1);
        let run_down = format!("run down {tid}");
        await_until(|| calls().contains(&run_down));
    }
    // The next case checks the number of free slots.
}

pub fn limit(world: &mut World) {
    let deaf = world.report.threads_with(Behavior::Deaf);
    assert!(deaf.len() > MAX_OUTSTANDING);
    for _ in 0..2 {
        for (index, &tid) in deaf.iter().enumerate() {
            let capture = Capture { timeout_ms: 1, ..world.capture(tid) };
            let expected = if index < MAX_OUTSTANDING { Ok(Outcome::TimedOut) } else { Err(ERROR_BUSY) };
            assert_eq!(world.device.outcome(&capture), expected, "{index}");
        }
        let waits = world.thread(Behavior::Waits);
        let capture = world.capture(waits);
        assert_eq!(world.device.outcome(&capture), Err(ERROR_BUSY));
        wake(world, "ran", MAX_OUTSTANDING);
        captures::frames_in_order(world);
    }
}

/// Windows refuses the control (1052, ERROR_INVALID_SERVICE_CONTROL). Wine accepts it, and then
/// finds no unload routine to call.
pub fn stop_has_no_effect(world: &mut World) {
    if let Ok(status) = world.service.stop() {
        assert_eq!(status.dwCurrentState, SERVICE_RUNNING, "the service begins to stop");
    }
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(world.service.status().dwCurrentState, SERVICE_RUNNING);
    captures::frames_in_order(world);
    world.device = Device::open().expect("opens again");
    captures::frames_in_order(world);
}
