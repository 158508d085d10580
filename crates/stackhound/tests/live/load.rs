//! More events than anybody can take: whatever happens to them is counted.
//!
//! One second at half a million events a second, or as `STACKHOUND_LOAD` says: seconds and events a second.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use stackhound::trace::live::{Overflow, Queue};
use stackhound::trace::{Delivery, Session};
use stackhound::{Provider, Seen, Trace, TraceStats};
use stackhound_etw_double::deliver::LOST_EVENT;
use stackhound_etw_double::harness::{Harness, number};

use crate::recordings;

/// Blocks that may wait: few, so that a slow reader is felt at once.
const BLOCKS: usize = 64;

fn load() -> (u64, u64) {
    let asked = std::env::var("STACKHOUND_LOAD").unwrap_or("1 500000".to_owned());
    let (seconds, rate) = asked.split_once(' ').expect("seconds and events a second");
    (seconds.parse().expect("seconds"), rate.parse().expect("events a second"))
}

fn settings() -> String {
    let (seconds, rate) = load();
    let events = seconds * rate;
    format!(
        "[*]\nrecording = RECORDING\nrounds = forever\nrate = {rate}\nstop_after = {events}\nbuffers = 64\n"
    )
}

fn queue(overflow: Overflow) -> Queue {
    Queue { blocks: BLOCKS, ..Queue::new(overflow) }
}

/// Takes a while for every thousandth event: 100,000 a second at most.
fn slow(count: u64) {
    if count.is_multiple_of(1_000) {
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What was generated was read, dropped on the way, or lost by the session; nothing else.
#[track_caller]
fn check_counters(harness: &Harness, stats: &TraceStats) -> (u64, u64) {
    let generated = harness.number("generated");
    // The double tells of losses by events of its own.
    let notices = if harness.log("OpenTraceW").is_empty() { 0 } else { harness.number("notices") };
    let lost = harness.number("events_lost");
    let read = stats.trace.events;
    let (dropped, unreadable) = (stats.trace.events_dropped, stats.trace.events_unreadable);
    println!(
        "generated {generated} + {notices} notices = read {read} + dropped {dropped} + lost by the session {lost}"
    );
    assert_eq!(unreadable, 0);
    assert_eq!(generated + notices, read + dropped + lost);
    assert_eq!(stats.delivered, read);
    let [session] = &stats.sessions[..] else { panic!("one session: {:?}", stats.sessions) };
    assert_eq!(session.events_lost, lost, "as Windows was asked");
    assert_eq!(session.real_time_buffers_lost, harness.number("buffers_lost"));
    (dropped, lost)
}

/// The process does not grow: what it has in the second half of the run is what it had in the first.
#[track_caller]
fn check_memory(harness: &Harness) {
    let lines = harness.log("memory");
    let resident: Vec<u64> = lines.iter().filter_map(|line| number(line, "resident_kib")).collect();
    let (first, second) = resident.split_at(resident.len() / 2);
    let (first, second) =
        (first.iter().max().copied().unwrap_or(0), second.iter().max().copied().unwrap_or(0));
    println!("memory: at most {first} KiB in the first half, {second} KiB in the second");
    assert!(second <= first + first / 4 + (16 << 10), "{resident:?}");
}

#[track_caller]
fn check(test: &str, overflow: Overflow, delivery: Delivery) {
    let Some(harness) = Harness::run(test, &settings(), recordings::plain) else { return };
    let session = Session::user("load").delivery(delivery);
    let (mut count, mut last, mut notices) = (0u64, i64::MIN, 0u64);
    let trace = Trace::live(session).queue(queue(overflow)).without_stacks();
    let stats = trace.run(|seen: &Seen<'_>| {
        notices += u64::from(seen.provider_guid() == Some(LOST_EVENT));
        assert!(seen.raw_time().0 >= last, "events are in order, whatever is lost");
        last = seen.raw_time().0;
        count += 1;
        slow(count);
        ControlFlow::Continue(())
    });
    let stats = stats.expect("a whole trace");
    assert_eq!(stats.delivered, count);
    let (seconds, rate) = load();
    assert_eq!(harness.number("generated"), seconds * rate);
    let (dropped, lost) = check_counters(&harness, &stats);
    match overflow {
        Overflow::Block => assert!(dropped == 0 && lost > 0, "the session has to lose what nobody takes"),
        _ => assert!(dropped > 0, "the queue has to drop what nobody takes"),
    }
    if delivery == Delivery::Events && lost > 0 && overflow == Overflow::Block {
        assert!(notices > 0, "who reads is told of losses");
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
    check("load::the_oldest_whole_buffers_are_dropped", Overflow::DropOldest, Delivery::Best);
}

#[test]
fn a_burst_can_be_stopped() {
    let test = "load::a_burst_can_be_stopped";
    let settings = "[*]\nrecording = RECORDING\nrounds = forever\nrate = 500000\nbuffers = 64\n";
    let Some(harness) = Harness::run(test, settings, recordings::plain) else { return };
    let count = Arc::new(AtomicU64::new(0));
    let stopped = Arc::new(AtomicBool::new(false));
    let trace = Trace::live(Session::user("burst")).queue(queue(Overflow::Block)).without_stacks();
    let (counted, ended) = (count.clone(), stopped.clone());
    let provider = Provider::guid(recordings::PROVIDER).on_event(move |_| {
        assert!(!ended.load(Ordering::SeqCst), "called after the end");
        slow(counted.fetch_add(1, Ordering::SeqCst));
    });
    let running = trace.enable(provider).start().expect("started");
    std::thread::sleep(Duration::from_millis(500));
    let stats = running.stop().expect("stopped");
    stopped.store(true, Ordering::SeqCst);
    let generated = harness.number("generated") + harness.number("notices");
    let lost = harness.number("events_lost");
    assert_eq!(generated, stats.trace.events + stats.trace.events_dropped + lost);
    println!("{} taken, {lost} lost", stats.delivered);
    assert_eq!(stats.delivered, count.load(Ordering::SeqCst));
    assert!(stats.delivered > 0);
    // Whoever called would do it now.
    std::thread::sleep(Duration::from_millis(100));
}
