//! Requests to create files, and their results.

use stackhound_frames::{CreateDisposition, CreateResult, CreateStats};
use stackhound_stacks::Window;

use crate::script::{Replay, WINDOW, replay_trace, run_script, trace};

#[track_caller]
fn check(script: &str, expected: &[&str]) -> CreateStats {
    let replay = run_script(script);
    assert_eq!(replay.creates, expected, "{script}");
    replay.create_stats
}

#[test]
fn create_outcomes_have_request_and_result() {
    for (disposition, status, info, expected) in [
        (1, 0_u32, 1_u32, "open: open -> opened 0x0"),
        (2, 0, 2, "creation: create -> created 0x0"),
        (3, 0, 1, "open: open-if -> opened 0x0"),
        (3, 0, 2, "creation: open-if -> created 0x0"),
        (0, 0, 0, "creation: supersede -> superseded 0x0"),
        (5, 0, 3, "creation: overwrite-if -> overwritten 0x0"),
        (4, 0, 3, "creation: overwrite -> overwritten 0x0"),
        // Without an effect, the requested disposition decides whether it is an open.
        (1, 0xc000_0034, 0, "open: open -> does-not-exist 0xc0000034"),
        (1, 0xc000_0022, 0, "open: open -> refused 0xc0000022"),
        (2, 0xc000_0035, 4, "creation: create -> exists 0xc0000035"),
        (3, 0xc000_0022, 0, "creation: open-if -> refused 0xc0000022"),
        (1, 0x104, 0xa000_000c, "open: open -> redirected 0x104"),
        (1, 0, 77, "open: open -> unclear 0x0"),
        (9, 0, 1, "open: other -> opened 0x0"),
    ] {
        let script = format!(
            r"@10 create by=7/8 irp=1 disposition={disposition} \a.txt
              @20 end irp=1 status={status} info={info}"
        );
        let stats = check(&script, &[&format!("@10 {expected}")]);
        assert_eq!((stats.joined, stats.other_ends), (1, 0));
    }
}

/// The results that NtCreateFile can return for each disposition, by number.
const PERMITTED: [&[u32]; 6] = [&[0, 2], &[1], &[2], &[1, 2], &[3], &[3, 2]];

#[test]
fn impossible_results_are_contradictory() {
    for (disposition, permitted) in (0..).zip(PERMITTED) {
        for info in 0..4_u32 {
            let script = format!(
                r"@10 create by=7/8 irp=1 disposition={disposition} \a.txt
                  @20 end irp=1 status=0 info={info}"
            );
            let requested = CreateDisposition::of(disposition).name();
            let is_permitted = permitted.contains(&info);
            let result = if is_permitted { CreateResult::of(0, info.into()).name() } else { "contradictory" };
            // For a contradictory result, the request decides whether it is an open.
            let is_open = if is_permitted { info == 1 } else { disposition == 1 };
            let kind = if is_open { "open" } else { "creation" };
            let stats = check(&script, &[&format!("@10 {kind}: {requested} -> {result} 0x0")]);
            assert_eq!((stats.joined, stats.contradictory), (1, u64::from(!is_permitted)));
        }
    }
}

#[test]
fn the_create_has_the_stack_and_the_end_is_a_separate_event() {
    let replay = run_script(
        r"@1 process start pid=7 parent=4 by=4/1 a.exe
          @2 image load pid=7 by=7/8 0x400000+0x10000 \a.exe
          @10 create by=7/8 irp=1 disposition=2 \a.txt
          @11 stack @10 by=7/8 0xfffff80000000011 0x400011
          @20 end irp=1 status=0 info=2",
    );
    assert_eq!(replay.creates, ["@10 creation: create -> created 0x0"]);
    assert_eq!(replay.stacks, ["@10 a.exe: k:unknown? a.exe+0x11"]);
    assert_eq!(replay.events, 4);
}

#[test]
fn irps_are_reused() {
    let stats = check(
        r"@10 create by=7/8 irp=1 disposition=2 \a
          @20 end irp=1 status=0 info=2
          @30 create by=7/9 irp=1 disposition=1 \b
          @40 end irp=1 status=0 info=1",
        &["@10 creation: create -> created 0x0", "@30 open: open -> opened 0x0"],
    );
    assert_eq!((stats.joined, stats.other_ends), (2, 0));
}

#[test]
fn a_lost_end_displaces_its_create() {
    let stats = check(
        r"@10 create by=7/8 irp=1 disposition=2 \a
          @30 create by=7/9 irp=1 disposition=1 \b
          @40 end irp=1 status=0 info=1",
        &["@10 creation: create -> displaced", "@30 open: open -> opened 0x0"],
    );
    assert_eq!((stats.joined, stats.displaced), (1, 1));
    // The end belongs to the read.
    let stats = check(
        r"@10 create by=7/8 irp=1 disposition=2 \a
          @30 read by=7/9 irp=1
          @40 end irp=1 status=0 info=1",
        &["@10 creation: create -> displaced"],
    );
    assert_eq!((stats.displaced, stats.other_ends), (1, 1));
}

#[test]
fn nested_creates_on_one_thread_are_joined() {
    check(
        r"@10 create by=7/8 irp=1 disposition=2 \outer
          @11 create by=7/8 irp=2 disposition=1 \inner
          @12 create by=7/8 irp=3 disposition=1 \innermost
          @13 end irp=3 status=0xc0000034 info=0
          @14 end irp=2 status=0 info=1
          @15 end irp=1 status=0 info=2",
        &[
            "@10 creation: create -> created 0x0",
            "@11 open: open -> opened 0x0",
            "@12 open: open -> does-not-exist 0xc0000034",
        ],
    );
}

#[test]
fn an_end_before_its_create_is_not_joined() {
    let stats = check(
        r"@5 end irp=1 status=0 info=2
          @10 create by=7/8 irp=1 disposition=1 \a
          @20 end irp=1 status=0xc0000022 info=0",
        &["@10 open: open -> refused 0xc0000022"],
    );
    assert_eq!((stats.joined, stats.other_ends), (1, 1));
    // Events with equal times have no defined order: an end on another processor can be read first.
    let stats = check(
        r"@10 create by=7/8 irp=1 disposition=1 cpu=1 \a
          @10 end irp=1 status=0 info=1 cpu=0",
        &["@10 open: open -> opened 0x0"],
    );
    assert_eq!((stats.joined, stats.other_ends), (1, 0));
}

#[test]
fn missing_ends_do_not_delay_events() {
    let stats = check(
        r"@10 create by=7/8 irp=1 disposition=2 \a
          @5000 create by=7/8 irp=2 disposition=1 \b
          @6500 end irp=1 status=0 info=2
          @6600 create by=7/8 irp=0 disposition=1 \c
          @6700 create by=7/8 irp=3 disposition=1 \d",
        &[
            "@10 creation: create -> late",
            "@5000 open: open -> late",
            "@6600 open: open -> unnamed",
            "@6700 open: open -> unfinished",
        ],
    );
    assert_eq!((stats.late, stats.unnamed, stats.unfinished, stats.other_ends), (2, 1, 1, 1));
}

#[test]
fn the_window_limits_ends() {
    for (at, expected) in [(1_010, "opened 0x0"), (1_011, "late")] {
        let script = format!("@10 create by=7/8 irp=1 disposition=1 a\n@{at} end irp=1 status=0 info=1");
        check(&script, &[&format!("@10 open: open -> {expected}")]);
    }
}

#[test]
fn many_concurrent_creates_are_joined() {
    let mut script = String::new();
    for n in 1..=3000 {
        script += &format!("@{n} create by=7/8 irp={n} disposition=1 a\n");
        if n > 50 {
            script += &format!("@{n} end irp={} status=0 info=1\n", n - 50);
        }
    }
    let trace = trace(&script);
    let full: Replay = replay_trace(&trace, 2, WINDOW);
    let stats = full.create_stats;
    assert_eq!((full.creates.len(), stats.joined, stats.unfinished), (3000, 2950, 50));
    // The correlator holds fewer events than there are concurrent creates.
    let limited = replay_trace(&trace, 1, Window { max_pending: 60, ..WINDOW });
    let stats = limited.create_stats;
    assert_eq!((limited.creates.len(), stats.joined + stats.late + stats.unfinished), (3000, 3000));
    assert!(stats.late > 2000);
}

#[test]
fn numbers_have_the_meaning_of_windows() {
    assert_eq!(
        [0, 1, 2, 3, 4, 5].map(|n| CreateDisposition::of(n).name()),
        ["supersede", "open", "create", "open-if", "overwrite", "overwrite-if"]
    );
    assert_eq!(
        [0, 1, 2, 3, 4, 5].map(|n| CreateResult::of(0, n).name()),
        ["superseded", "opened", "created", "overwritten", "exists", "does-not-exist"]
    );
}
