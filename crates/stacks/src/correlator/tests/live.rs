//! Unbounded sessions: stacks that are dropped and stacks that are kept.

use super::*;
use crate::Kept;

const EVENTS: i64 = 4_000;
const FRAMES_MAX: usize = 500;

/// Every event has a new stack: two frames of its own on top of a common one.
fn ever_new() -> OpenTrace {
    let mut lines = String::new();
    for n in 1..=EVENTS {
        let (time, kernel, user) = (n * 10, n + 10, n + 20);
        lines += &format!(
            "0 @{time} event 010c pid=5 tid=7\n0 @{} stack @{time} pid=5 tid=7 k{kernel}\n",
            time + 1
        );
        lines += &format!("1 @{} stack @{time} pid=5 tid=7 u{user} u1\n", time + 2);
        // A part without an event, and a key that is never defined.
        lines += &format!("1 @{} stack @{} pid=5 tid=8 u{} u2\n", time + 3, time + 3, n + 30);
        lines += &format!("1 @{} user @{time} pid=5 tid=9 #{n}\n", time + 4);
    }
    let source = Source::new("", etl_file(&lines));
    OpenTrace::new(vec![source], 1).unwrap()
}

fn expected(n: i64) -> Vec<Address> {
    [address(&format!("k{}", n + 10)), address(&format!("u{}", n + 20)), address("u1")].into()
}

/// Reads the trace as a live session and gives every event that has a stack, by number, to `see`.
fn read(window: Window, mut see: impl FnMut(i64, Delivered<'_>)) -> Correlator {
    let trace = ever_new();
    let mut correlator = Correlator::live(window, trace.time_bases(), FRAMES_MAX);
    let mut events = trace.ordered();
    let mut number = 0;
    loop {
        let more = events.next().map(|event| correlator.push(&event)).is_some();
        if !more {
            correlator.end();
        }
        while let Some(delivered) = correlator.pop() {
            if delivered.stack.is_some() {
                number += 1;
                see(number, delivered);
            }
        }
        if !more {
            return correlator;
        }
    }
}

#[test]
fn stacks_of_the_past_are_forgotten_and_none_is_changed() {
    let mut events = 0;
    // Fifty events are held back: at most 350 frames with those of orphans, taken over into each
    // generation.
    let window = Window { max_hold: 500, ..WIDE };
    let correlator = read(window, |number, delivered| {
        assert_eq!(delivered.frames().collect::<Vec<_>>(), expected(number));
        assert_eq!(delivered.state(), StackState::Complete);
        let held = delivered.table.len();
        assert!(held <= FRAMES_MAX + 2 * 350, "{held} frames at event {number}");
        events = number;
    });
    assert_eq!(events, EVENTS);
    let stats = correlator.stats();
    // An event brings at least four new frames.
    assert!(stats.generations >= (EVENTS as u64 * 4) / (FRAMES_MAX as u64 + 350), "{stats:?}");
    assert_eq!((stats.orphaned_parts, stats.excess_parts), (2 * EVENTS as u64, 0));
    assert_eq!(stats.unresolved_keys, EVENTS as u64);
    assert!(correlator.waiting_for_user.len() < 10 && correlator.waiting_for_key.is_empty());
}

#[test]
fn a_kept_event_keeps_its_stack() {
    const KEPT: usize = 40;
    let window = Window { max_hold: 50, ..WIDE };
    let mut kept: VecDeque<(i64, Kept)> = VecDeque::new();
    let mut forever: Option<Kept> = None;
    let correlator = read(window, |number, delivered| {
        if number % 10 == 0 {
            kept.push_back((number, delivered.keep()));
        }
        forever.get_or_insert_with(|| delivered.keep());
        if kept.len() > KEPT {
            let (number, event) = kept.pop_front().unwrap();
            let frames: Vec<_> = event.delivered(delivered.table).frames().collect();
            assert_eq!(frames, expected(number));
        }
        // 400 events and one from the beginning: as many generations as they are of, and the
        // newest.
        assert!(delivered.table.len() <= 400 * 6 + 4 * FRAMES_MAX, "{} frames", delivered.table.len());
    });
    let first = forever.unwrap();
    assert_eq!(first.delivered(correlator.table()).frames().collect::<Vec<_>>(), expected(1));
    assert!(correlator.stats().generations > 20);
}

#[test]
fn the_number_of_parts_of_an_event_is_limited() {
    let mut lines = String::from("0 @10 event 010c pid=5 tid=7\n");
    for n in 0..2 * PARTS_MAX {
        lines += &format!("0 @{} stack @10 pid=5 tid=7 k{n}\n", n + 11);
    }
    let (out, stats) = correlate(&lines, Way::Live(100), WIDE);
    assert_eq!(out[0].split_whitespace().count(), "@10 tid=7 kernel-only".split(' ').count() + PARTS_MAX);
    assert_eq!(stats.excess_parts, PARTS_MAX as u64);
    let (out, stats) = correlate(&lines, Way::OnePass, WIDE);
    assert_eq!((out[0].split_whitespace().count() - 3, stats.excess_parts), (2 * PARTS_MAX, 0));
}
