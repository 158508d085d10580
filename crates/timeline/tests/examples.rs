//! Short event sequences and the resulting frames, line by line.

use std::sync::Arc;

use stackhound_calltree::{ContextId, Cpu, EndType, LocationId};
use stackhound_timeline::{
    EventKind, Interruption, NOT_KNOWN, Options, Part, SampledFrame, Snapshot, StackEvent, Step, Timeline,
};
use stackhound_types::Tid;

/// Events, one per line: `CPU event`. Stacks are `user / kernel`, outermost first; a frame is a
/// letter for the function and a digit for the address in it.
fn parse(line: &str, time: i64) -> StackEvent {
    let (event, stack) = line.split_once('[').unwrap_or((line, "]"));
    let words: Vec<&str> = event.split_whitespace().collect();
    let tid = |word: usize| Tid(words[word].parse().unwrap());
    let routine = |word: usize| Some(function(words[word].as_bytes()[0]));
    let what = match words[1] {
        "switch" => EventKind::Switch { old: tid(2), new: tid(3), old_waits: true },
        "enter" => EventKind::SystemCallEnter { routine: routine(2) },
        "exit" => EventKind::SystemCallExit,
        "interrupt" => EventKind::Interrupted {
            by: Interruption::Service,
            since: words[2].parse().unwrap(),
            routine: routine(3),
        },
        "start" => EventKind::ThreadStart(tid(2)),
        _ => EventKind::Other,
    };
    let thread = (words[1] == "sample").then(|| tid(2));
    let stack = stack.strip_suffix(']').filter(|stack| !stack.is_empty()).map(|stack| {
        let (user, kernel) = stack.split_once('/').unwrap_or((stack, ""));
        Arc::new(Snapshot { user: part(user), kernel: part(kernel), wow64: Part::Absent })
    });
    StackEvent { time, cpu: Some(Cpu(words[0].parse().unwrap())), thread, what, stack }
}

fn function(letter: u8) -> LocationId {
    LocationId(u32::from(letter - b'a'))
}

fn part(text: &str) -> Part {
    let frame = |frame: &str| {
        let [letter, location] = frame.as_bytes() else { panic!("{frame}") };
        let function = Some(function(*letter));
        let address = u64::from(*letter) << 8 | u64::from(*location);
        SampledFrame { address, function, calls_back: false, location: function }
    };
    let frames: Box<[SampledFrame]> = text.split_whitespace().map(frame).collect();
    if frames.is_empty() { Part::Absent } else { Part::Frames(frames) }
}

fn between(lo: ContextId, hi: ContextId) -> String {
    match hi {
        _ if lo == hi => lo.0.to_string(),
        NOT_KNOWN => format!("{}..", lo.0),
        _ => format!("{}..{}", lo.0, hi.0),
    }
}

/// The frames, in the order in which they are closed.
#[track_caller]
fn check(events: &str, expected: &str) {
    let mut timeline = Timeline::new(Options { reorder: 1000, snapshots: true });
    for (time, line) in (0..).zip(events.trim().lines()) {
        match line.trim() {
            "lose 0" => timeline.lose(Cpu(0)),
            line => timeline.push(parse(line, time * 10)),
        }
    }
    timeline.end();
    let mut open: Vec<Vec<String>> = Vec::new();
    let mut found = Vec::new();
    for step in timeline.steps() {
        match step {
            Step::Stack { .. } => open.push(Vec::new()),
            Step::Open { stack, lo, hi, location, .. } => {
                let name = location.map_or('?', |location| char::from(b'a' + location.0 as u8));
                open[stack.0 as usize].push(format!("{name} {} to", between(lo, hi)));
            }
            Step::Close { stack, lo, hi, end } => {
                assert_eq!(end, EndType::Gone);
                found
                    .extend(open[stack.0 as usize].pop().map(|frame| format!("{frame} {}", between(lo, hi))));
            }
            Step::Change(stackhound_calltree::Change::Close { stack, last, .. }) => {
                found.extend(open[stack.0 as usize].pop().map(|frame| format!("{frame} {}", last.0)));
            }
            Step::Change(_) | Step::Enter { .. } => {}
        }
    }
    let expected: Vec<&str> = expected.trim().lines().map(str::trim).collect();
    assert_eq!(found, expected);
}

/// The frame for everything that is not known exists from the start of the thread on.
#[test]
fn a_stack_that_is_first_observed_later_may_exist_since_the_thread_started() {
    check(
        "0 start 7
         0 tick
         0 sample 7 [m1]
         0 start 7",
        "m 1..2 to 2..3
         ? 1..2 to 3",
    );
}

#[test]
fn frames_go_on_as_long_as_all_return_addresses_further_out_are_the_same() {
    check(
        "0 sample 7 [m1 f1 g1]
         0 sample 7 [m1 f1 g2]
         0 sample 7 [m1 f2 g2]",
        // g is another frame, because f called it from another address.
        "g 0 to 1
         g 2 to 2..
         f 0 to 2..
         m 0 to 2..",
    );
}

#[test]
fn changes_between_two_stacks_have_bounds() {
    check(
        "0 sample 7 [m1 f1]
         0 other
         0 other
         0 sample 7 [m1 h1]",
        "f 0 to 0..2
         h 1..3 to 3..
         m 0 to 3..",
    );
}

#[test]
fn the_user_stack_stands_still_during_a_system_call() {
    check(
        "0 switch 0 7
         0 sample 7 [m1]
         0 other
         0 enter n
         0 other
         0 sample 7 [m1 f1 / k1 n1 x1]
         0 exit
         0 sample 7 [m1]",
        // x is inside the call. f existed from its start, context 3, to its end, and then ended at
        // once.
        "x 4..5 to 5..6
         n 4 to 6
         f 2..3 to 6
         m 0..1 to 7..",
    );
}

#[test]
fn nothing_changes_while_a_thread_does_not_run() {
    check(
        "0 switch 0 7
         0 switch 7 0
         0 other
         0 other
         0 switch 0 7 [m1 / w1]",
        // The stack is that of context 1 already, when the thread was switched away from.
        "m 0..1 to 4..
         w 0..1 to 4..",
    );
}

#[test]
fn an_interruption_starts_at_the_first_event_after_its_start() {
    check(
        "0 switch 0 7
         1 other
         1 other
         0 sample 7 [m1 / i1 s1 t1]
         0 interrupt 15 s",
        "t 2..3 to 3..4
         s 2 to 4",
    );
}

#[test]
fn nothing_is_claimed_across_a_gap() {
    check(
        "0 switch 0 7
         0 enter n
         lose 0
         1 other
         1 other
         1 switch 0 7
         1 exit",
        // The call may have ended in the gap; then another call ends, whose start is unknown.
        "n 2 to 2..
         ? 0..5 to 5",
    );
}
