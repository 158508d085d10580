//! More events than the reader can process: each of them is counted.
//!
//! Runs for one second at half a million events per second, or for the seconds and events per
//! second in `STACKHOUND_LOAD`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use stackhound::live::{Delivery, Overflow, Queue, Session};
use stackhound::{Provider, Running, Trace, TraceStats};
use stackhound_etw_fake::deliver::LOST_EVENT;
use stackhound_etw_fake::harness::{Harness, number, wait_for};

use crate::trace_files;

/// Capacity of the queue in blocks: small, so that a slow reader has an immediate effect.
const BLOCKS: usize = 4;

fn load() -> (u64, u64) {
    let setting = std::env::var("STACKHOUND_LOAD").unwrap_or("1 500000".to_owned());
    let (seconds, rate) = setting.split_once(' ').expect("seconds and events per second");
    (seconds.parse().expect("seconds"), rate.parse().expect("events per second"))
}

fn settings() -> String {
    let (seconds, rate) = load();
    let events = seconds * rate;
    format!(
        "[*]\ntrace = TRACE\nrounds = forever\nrate = {rate}\nstop_after = {events}\nbuffers = 64\n\
         at_end = wait\n"
    )
}

fn queue(overflow: Overflow) -> Queue {
    Queue { blocks: BLOCKS, ..Queue::new(overflow) }
}

/// Waits after every thousandth event, which limits the rate to 100,000 events per second.
fn slow(count: u64) {
    if count.is_multiple_of(1_000) {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Checks that every generated event was read, dropped in the queue, or lost by the session.
#[track_caller]
fn check_counters(harness: &Harness, stats: &TraceStats, counts: &Counts) -> (u64, u64) {
    let generated = harness.number("generated");
    // The fake reports losses by separate events, except in whole buffers.
    let by_events = harness.log("OpenTraceFromRealTimeLogger").is_empty();
    let notices = if by_events { harness.number("notices") } else { 0 };
    let lost = harness.number("events_lost");
    let read = stats.trace.events;
    let (dropped, unreadable) = (stats.trace.events_dropped, stats.trace.events_unreadable);
    println!(
        "generated {generated} + {notices} notices = read {read} + dropped {dropped} + lost by the session {lost}"
    );
    assert_eq!(unreadable, 0);
    assert_eq!(generated + notices, read + dropped + lost);
    assert_eq!(stats.delivered + stats.unclaimed, read);
    assert_eq!(stats.delivered, counts.events.load(Ordering::SeqCst));
    assert_eq!(stats.unclaimed, counts.notices.load(Ordering::SeqCst));
    let [session] = &stats.sessions[..] else { panic!("one session: {:?}", stats.sessions) };
    assert_eq!(session.events_lost, lost, "as Windows reports");
    assert_eq!(session.real_time_buffers_lost, harness.number("buffers_lost"));
    (dropped, lost)
}

/// Checks that the memory of the process does not grow: compares the second half of the run with
/// the first.
#[track_caller]
fn check_memory(harness: &Harness) {
    let lines = harness.log("memory");
    let resident: Vec<u64> = lines.iter().filter_map(|line| number(line, "resident_kib")).collect();
    // A short run is not significant.
    if resident.len() < 8 {
        return;
    }
    let (first, second) = resident.split_at(resident.len() / 2);
    let (first, second) =
        (first.iter().max().copied().unwrap_or(0), second.iter().max().copied().unwrap_or(0));
    println!("memory: at most {first} KiB in the first half, {second} KiB in the second");
    assert!(second <= first + first / 4 + (16 << 10), "{resident:?}");
}

/// Counters of a handler.
#[derive(Default)]
struct Counts {
    events: AtomicU64,
    notices: AtomicU64,
    last: AtomicI64,
    stopped: AtomicBool,
}

/// Starts a trace whose handler is slow and checks the order.
fn start(session: Session, overflow: Overflow) -> (Running, Arc<Counts>) {
    let counts = Arc::new(Counts::default());
    let (counted, noticed) = (counts.clone(), counts.clone());
    let provider = Provider::guid(trace_files::PROVIDER).on_event(move |view| {
        let time = view.raw_time().0;
        assert!(counted.last.swap(time, Ordering::SeqCst) <= time, "events are in order, whatever is lost");
        assert!(!counted.stopped.load(Ordering::SeqCst), "called after the end");
        slow(counted.events.fetch_add(1, Ordering::SeqCst));
    });
    let trace = Trace::live(session).queue(queue(overflow)).without_stacks().enable(provider);
    let trace = trace.on_unclaimed(move |view| {
        assert_eq!(view.provider_guid(), Some(LOST_EVENT));
        noticed.notices.fetch_add(1, Ordering::SeqCst);
    });
    (trace.start().expect("started"), counts)
}

#[track_caller]
fn check(test: &str, overflow: Overflow, delivery: Delivery) {
    let Some(harness) = Harness::run(test, &settings(), trace_files::plain) else { return };
    let (running, counts) = start(Session::user("load").delivery(delivery), overflow);
    harness.wait_until_all_delivered();
    let stats = running.stop().expect("stopped");
    let (seconds, rate) = load();
    assert_eq!(harness.number("generated"), seconds * rate);
    let (dropped, lost) = check_counters(&harness, &stats, &counts);
    match overflow {
        Overflow::Block => assert!(dropped == 0 && lost > 0, "the session must lose unread events"),
        _ => assert!(dropped > 0, "the queue must drop unread events"),
    }
    if delivery == Delivery::Events && overflow == Overflow::Block {
        assert!(counts.notices.load(Ordering::SeqCst) > 0, "losses are reported to the reader");
    }
    check_memory(&harness);
}

#[test]
fn a_session_that_waits_loses_buffers() {
    check("load::a_session_that_waits_loses_buffers", Overflow::Block, Delivery::Events);
}

#[test]
fn the_newest_are_dropped() {
    check("load::the_newest_are_dropped", Overflow::DropNewest, Delivery::Events);
}

#[test]
fn the_oldest_are_dropped() {
    check("load::the_oldest_are_dropped", Overflow::DropOldest, Delivery::Events);
}

#[test]
fn the_oldest_whole_buffers_are_dropped() {
    check("load::the_oldest_whole_buffers_are_dropped", Overflow::DropOldest, Delivery::WholeBuffers);
}

#[test]
fn a_burst_can_be_stopped() {
    let test = "load::a_burst_can_be_stopped";
    let settings = "[*]\ntrace = TRACE\nrounds = forever\nrate = 500000\nbuffers = 64\n";
    let Some(harness) = Harness::run(test, settings, trace_files::plain) else { return };
    let (running, counts) = start(Session::user("burst"), Overflow::Block);
    wait_for("events, and lost events", || {
        let lost = running.stats().expect("counters").sessions[0].events_lost;
        counts.events.load(Ordering::SeqCst) > 0 && lost > 0
    });
    let stats = running.stop().expect("stopped");
    counts.stopped.store(true, Ordering::SeqCst);
    let (_, lost) = check_counters(&harness, &stats, &counts);
    assert!(stats.delivered > 0 && lost > 0);
    // A pending call would happen now.
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(stats.delivered, counts.events.load(Ordering::SeqCst));
}
