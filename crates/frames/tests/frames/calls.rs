//! System calls: entries and exits.

use std::time::Duration;

use stackhound_frames::{CallEnd, CallJoin, CallOutcome, CallStats, ServiceKind};
use stackhound_stacks::Window;
use stackhound_trace::OpenTrace;
use stackhound_types::Address;

use crate::read::{ReadStep, read};
use crate::script::{START, WINDOW, trace};

/// The kind of a service, by the hundreds of its address.
fn kind_of(routine: Address) -> ServiceKind {
    match routine.0 / 0x100 {
        1 => ServiceKind::Other,
        2 => ServiceKind::Graphics,
        3 => ServiceKind::CallbackReturn,
        _ => ServiceKind::Unknown,
    }
}

fn shown(outcome: CallOutcome) -> String {
    let text = |number: Option<u64>| number.map_or_else(|| "?".to_owned(), |number| format!("{number:x}"));
    let tid = outcome.tid.map_or_else(|| "?".to_owned(), |tid| tid.0.to_string());
    let end = match outcome.end {
        CallEnd::Completed { status, from, until, duration } => {
            // The clock of scripts has 10 MHz.
            assert_eq!(duration, Duration::from_nanos((until.0 - from.0) as u64 * 100));
            format!("{status:#x} after {}", until.0 - from.0)
        }
        end => end.name().to_owned(),
    };
    format!("{tid} {}: {end}", text(outcome.routine.map(|routine| routine.0)))
}

fn replay(trace: &OpenTrace, passes: u32, window: Window) -> (Vec<String>, CallStats) {
    let mut join = CallJoin::new(window, 10_000_000);
    let mut calls = Vec::new();
    let mut handle = |step: ReadStep<'_, '_>| match step {
        ReadStep::Pushed(event, losses) => join.push(event, losses, kind_of),
        ReadStep::Ended => join.end(),
        ReadStep::Popped(delivered, _) => {
            if let Some(outcome) = join.outcome(&delivered.event, delivered.tid(), delivered.losses()) {
                let at = delivered.event.raw_time().0 - START;
                let is_exit = delivered.event.hook_id() == Some(0x0f34);
                calls.push(format!("@{at}{} {}", if is_exit { " exit" } else { "" }, shown(outcome)));
            }
        }
    };
    read(trace, passes, window, &mut handle);
    (calls, join.stats())
}

/// Checks the entries and exits of a script, which must be the same in one pass and in two.
#[track_caller]
fn check(script: &str, expected: &[&str]) -> CallStats {
    let trace = trace(script);
    let (calls, stats) = replay(&trace, 2, WINDOW);
    assert_eq!(calls, expected, "{script}");
    assert_eq!(replay(&trace, 1, WINDOW), (calls, stats), "{script}");
    let exits = expected.iter().filter(|line| line.contains(" exit ")).count();
    assert_eq!(stats.entries(), (expected.len() - exits) as u64);
    stats
}

#[test]
fn an_exit_belongs_to_the_innermost_call_of_the_running_thread() {
    let stats = check(
        "@1 switch old=0 new=7
         @10 enter routine=0x110
         @15 exit status=0xc0000022
         @20 enter routine=0x210
         @30 enter routine=0x120
         @31 exit status=0
         @40 exit status=1",
        &[
            "@10 7 110: 0xc0000022 after 5",
            "@15 exit 7 110: 0xc0000022 after 5",
            "@20 7 210: 0x1 after 20",
            "@30 7 120: 0x0 after 1",
            "@31 exit 7 120: 0x0 after 1",
            "@40 exit 7 210: 0x1 after 20",
        ],
    );
    assert_eq!((stats.joined, stats.other_exits), (3, 0));
}

#[test]
fn calls_continue_after_a_switch_and_on_other_processors() {
    // Thread 7 waits in its call, and continues on processor 1. Interrupts do not matter.
    let lines = [
        "@10 7 110: 0x5 after 40",
        "@21 8 120: 0x6 after 2",
        "@23 exit 8 120: 0x6 after 2",
        "@50 exit 7 110: 0x5 after 40",
    ];
    check(
        "@1 switch cpu=0 old=0 new=7
         @2 switch cpu=1 old=9 new=0
         @10 enter cpu=0 routine=0x110
         @12 event f43 cpu=0
         @20 switch cpu=0 old=7 new=8
         @21 enter cpu=0 routine=0x120
         @23 exit cpu=0 status=6
         @40 switch cpu=1 old=0 new=7
         @41 event f44 cpu=1
         @50 exit cpu=1 status=5",
        &lines,
    );
}

#[test]
fn a_missing_end_or_start_is_stated() {
    // The exit at 10 belongs to a call before the trace. The call at 20 waits until the end.
    let stats = check(
        "@1 switch old=0 new=7
         @10 exit status=0
         @20 enter routine=0x110
         @30 switch old=7 new=8
         @40 enter routine=0x120
         @41 thread end pid=4 tid=8 by=4/8
         @42 switch old=8 new=0",
        &["@10 exit 7 ?: not-entered", "@20 7 110: unfinished", "@40 8 120: thread-ended"],
    );
    assert_eq!((stats.unfinished, stats.thread_ended, stats.other_exits), (1, 1, 1));
    // The id of a thread is reused: nothing is joined across its start.
    check(
        "@1 switch old=0 new=7
         @10 enter routine=0x110
         @20 switch old=7 new=9
         @21 thread start pid=4 tid=7 by=4/9
         @22 switch old=9 new=7
         @30 exit status=0",
        &["@10 7 110: thread-ended", "@30 exit 7 ?: not-entered"],
    );
    // Two seconds of the window are over.
    let stats = check(
        "@1 switch old=0 new=7
         @10 enter routine=0x110
         @2000 exit status=3",
        &["@10 7 110: late", "@2000 exit 7 110: 0x3 after 1990"],
    );
    assert_eq!((stats.late, stats.other_exits), (1, 0));
}

#[test]
fn without_a_switch_the_thread_is_unknown() {
    let stats = check(
        "@10 enter routine=0x110
         @15 exit status=0
         @20 switch old=7 new=8
         @30 enter routine=0x120
         @31 exit status=0
         @40 switch old=8 new=0
         @41 enter routine=0x130",
        &[
            "@10 ? 110: unknown-thread",
            "@15 exit ? ?: unknown-thread",
            "@30 8 120: 0x0 after 1",
            "@31 exit 8 120: 0x0 after 1",
            // The idle thread makes no calls.
            "@41 ? 130: unknown-thread",
        ],
    );
    assert_eq!((stats.joined, stats.unknown_thread, stats.other_exits), (1, 2, 1));
    // The stack of an entry states the thread. The exit can be that of any thread.
    let stats = check(
        "@10 enter routine=0x110
         @10 stack @10 by=4/7 0x1000
         @15 exit status=0",
        &["@10 7 110: unknown-thread", "@15 exit ? ?: unknown-thread"],
    );
    assert_eq!((stats.joined, stats.unknown_thread), (0, 1));
}

#[test]
fn the_end_of_a_callback_leaves_the_call_around_it() {
    // A window procedure is called in 210. It calls 120, leaves 130 by another way than its exit,
    // and returns by 300. The exit belongs to 210.
    let stats = check(
        "@1 switch old=0 new=7
         @10 enter routine=0x210
         @20 enter routine=0x120
         @21 exit status=0
         @25 enter routine=0x130
         @30 enter routine=0x300
         @40 exit status=9
         @50 enter routine=0x300
         @51 exit status=0xc0000258",
        &[
            "@10 7 210: 0x9 after 30",
            "@20 7 120: 0x0 after 1",
            "@21 exit 7 120: 0x0 after 1",
            "@25 7 130: not-returned",
            "@30 7 300: not-returned",
            "@40 exit 7 210: 0x9 after 30",
            // It fails if there is no callback.
            "@50 7 300: 0xc0000258 after 1",
            "@51 exit 7 300: 0xc0000258 after 1",
        ],
    );
    assert_eq!((stats.joined, stats.not_returned), (3, 2));
    // The call around it was entered before the trace.
    check(
        "@1 switch old=0 new=7
         @30 enter routine=0x300
         @40 exit status=9",
        &["@30 7 300: not-returned", "@40 exit 7 ?: not-entered"],
    );
}

#[test]
fn a_service_without_a_name_is_confirmed_only_if_no_other_call_can_have_ended() {
    // 410 can be the end of a callback in 210, or in a call before the trace.
    let stats = check(
        "@1 switch old=0 new=7
         @10 enter routine=0x210
         @20 enter routine=0x410
         @30 exit status=0
         @40 exit status=0
         @50 enter routine=0x420
         @51 exit status=0
         @60 enter routine=0x110
         @61 exit status=0",
        &[
            "@10 7 210: unconfirmed",
            "@20 7 410: unconfirmed",
            "@30 exit 7 ?: unconfirmed",
            "@40 exit 7 ?: unconfirmed",
            "@50 7 420: unconfirmed",
            "@51 exit 7 ?: unconfirmed",
            "@60 7 110: 0x0 after 1",
            "@61 exit 7 110: 0x0 after 1",
        ],
    );
    assert_eq!((stats.joined, stats.unconfirmed, stats.other_exits), (1, 3, 3));
    // A new thread has no other call. Where 410 has returned with success, it always returns; 420
    // has failed, as the end of a callback would.
    check(
        "@1 switch cpu=0 old=0 new=9
         @2 switch cpu=1 old=0 new=8
         @3 thread start cpu=0 pid=4 tid=7 by=4/9
         @4 switch cpu=0 old=9 new=7
         @10 enter cpu=0 routine=0x410
         @11 exit cpu=0 status=0
         @12 enter cpu=0 routine=0x420
         @13 exit cpu=0 status=0xc0000258
         @20 enter cpu=1 routine=0x410
         @21 exit cpu=1 status=0
         @22 enter cpu=1 routine=0x420
         @23 exit cpu=1 status=0",
        &[
            "@10 7 410: 0x0 after 1",
            "@11 exit 7 410: 0x0 after 1",
            "@12 7 420: 0xc0000258 after 1",
            "@13 exit 7 420: 0xc0000258 after 1",
            "@20 8 410: 0x0 after 1",
            "@21 exit 8 410: 0x0 after 1",
            "@22 8 420: unconfirmed",
            "@23 exit 8 ?: unconfirmed",
        ],
    );
}

/// Two threads, on two of the four processors. A buffer of processor 1 is lost between 30 and 60.
const LOSS: &str = "@1 switch cpu=0 old=0 new=7
     @2 switch cpu=1 old=0 new=8
     @3 event f43 cpu=2
     @4 event f43 cpu=3
     @10 enter cpu=0 routine=0x110
     @11 exit cpu=0 status=0
     @12 enter cpu=1 routine=0x120
     @13 exit cpu=1 status=0
     @20 enter cpu=1 routine=0x130
     @25 enter cpu=0 routine=0x140
     @30 flush cpu=1
     @40 exit cpu=1 status=0
     @41 enter cpu=1 routine=0x150
     @50 lose cpu=1
     @60 exit cpu=1 status=1
     @61 enter cpu=1 routine=0x160
     @62 exit cpu=1 status=0
     @65 exit cpu=0 status=2
     @70 switch cpu=1 old=8 new=9
     @80 enter cpu=1 routine=0x170
     @81 exit cpu=1 status=0
     @82 enter cpu=0 routine=0x180
     @83 exit cpu=0 status=0
     @90 event f43 cpu=2
     @91 event f43 cpu=3";

#[test]
fn nothing_is_joined_across_a_loss() {
    let trace = trace(LOSS);
    let (calls, stats) = replay(&trace, 2, WINDOW);
    let expected = [
        "@10 7 110: 0x0 after 1",
        "@11 exit 7 110: 0x0 after 1",
        "@12 8 120: 0x0 after 1",
        "@13 exit 8 120: 0x0 after 1",
        "@20 8 130: lost",
        // Its thread may have been in the lost part.
        "@25 7 140: lost",
        "@60 exit ? ?: unknown-thread",
        "@61 ? 160: unknown-thread",
        "@62 exit ? ?: unknown-thread",
        "@65 exit 7 ?: lost",
        "@80 9 170: 0x0 after 1",
        "@81 exit 9 170: 0x0 after 1",
        "@82 7 180: 0x0 after 1",
        "@83 exit 7 180: 0x0 after 1",
    ];
    assert_eq!(calls, expected);
    assert_eq!((stats.joined, stats.lost, stats.unknown_thread), (4, 2, 1));
    // One pass knows less about the time of a loss, and joins no other calls.
    let (one, _) = replay(&trace, 1, WINDOW);
    for (one, two) in one.iter().zip(&calls) {
        assert!(one == two || one.ends_with("lost") || one.ends_with("unknown-thread"), "{one} / {two}");
    }
}

#[test]
fn contradictory_and_unreadable_records_make_calls_uncertain() {
    // At 30, another thread than 7 was running.
    check(
        "@1 switch old=0 new=7
         @10 enter routine=0x110
         @11 exit status=0
         @30 switch old=8 new=9
         @40 enter routine=0x120
         @41 exit status=0",
        &["@10 7 110: lost", "@11 exit 7 ?: lost", "@40 9 120: 0x0 after 1", "@41 exit 9 120: 0x0 after 1"],
    );
    let stats = check(
        "@1 switch old=0 new=7
         @10 enter routine=0x110
         @11 exit status=0 short
         @20 enter routine=0x120 short
         @21 exit status=0
         @30 enter routine=0x130
         @35 switch old=7 new=8 short
         @36 exit status=0",
        &[
            "@10 7 110: lost",
            "@11 exit 7 ?: lost",
            "@20 7 ?: unconfirmed",
            "@21 exit 7 ?: unconfirmed",
            "@30 7 130: lost",
            "@36 exit ? ?: unknown-thread",
        ],
    );
    assert_eq!(stats.malformed, 3);
}

#[test]
fn calls_that_a_limit_removes_are_lost_as_are_their_exits() {
    // The limit of calls of a thread: the outermost call is given up.
    let entries: String = (0..65).map(|n| format!("@{} enter routine=0x110\n", 10 + n)).collect();
    let exits: String = (0..65).map(|n| format!("@{} exit status=0\n", 100 + n)).collect();
    let entry = |n: u32| format!("@{} 7 110: 0x0 after {}", 10 + n, 154 - 2 * n);
    let exit = |n: u32| format!("@{} exit 7 110: 0x0 after {}", 164 - n, 154 - 2 * n);
    let mut lines = vec!["@10 7 110: lost".to_owned()];
    lines.extend((1..65).map(entry).chain((1..65).rev().map(exit)));
    lines.push("@164 exit 7 ?: lost".to_owned());
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    check(&format!("@1 switch old=0 new=7\n{entries}{exits}"), &lines);
    // The limit of threads: thread 7 does not end.
    let starts: String =
        (0..1 << 14).map(|n| format!("@20 thread start pid=4 tid={} by=4/9\n", 100 + n)).collect();
    let script = format!("@1 switch old=0 new=7\n@10 enter routine=0x110\n{starts}@30 exit status=0");
    check(&script, &["@10 7 110: lost", "@30 exit 7 ?: lost"]);
}

#[test]
fn memory_is_limited() {
    // Calls that are never left, and more calls than the window.
    let nested: String = (0..200).map(|n| format!("@{} enter routine={:#x}\n", 10 + n, 0x1000 + n)).collect();
    let (calls, stats) = replay(&trace(&format!("@1 switch old=0 new=7\n{nested}")), 2, WINDOW);
    let lost = calls.iter().filter(|line| line.ends_with(": lost")).count();
    assert_eq!((lost, stats.lost, stats.unfinished), (200 - 64, 200 - 64, 64));
    let narrow = Window { max_pending: 10, ..WINDOW };
    let (calls, stats) = replay(&trace(&format!("@1 switch old=0 new=7\n{nested}")), 2, narrow);
    assert_eq!((calls.len(), stats.entries()), (200, 200));
    assert!(stats.late > 100, "{stats:?}");
}
