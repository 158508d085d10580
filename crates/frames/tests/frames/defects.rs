//! Defects of another program's stack enrichment, each shown to be absent here: B of finding a stack's event, S of
//! giving meaning to its addresses.

use stackhound_stacks::Window;

use crate::script::{WINDOW, check_stacks, replay_trace, run_script, trace};

/// A process whose modules are all known, with one thread, and a kernel.
const MACHINE: &str = r"
    @1 image dcstart pid=0 0xfffff80000000000+0x100000 \SystemRoot\system32\ntoskrnl.exe
    @2 process start pid=7 parent=4 by=4/1 a.exe
    @3 image load pid=7 by=4/1 0x400000+0x10000 \Device\HarddiskVolume1\a.exe
    @4 image load pid=7 by=7/8 0x7ff00000+0x100000 \Windows\System32\ntdll.dll
";

fn on_machine(script: &str) -> String {
    format!("{MACHINE}\n{script}")
}

#[test]
fn b1_two_events_with_one_timestamp_keep_both_their_stacks() {
    let replay = run_script(&on_machine(
        "@100 event 090e by=7/8 cpu=0
         @100 event 090e by=7/9 cpu=1
         @101 stack @100 by=7/8 0xfffff80000000011 0x400011 cpu=0
         @101 stack @100 by=7/9 0xfffff80000000022 0x400022 cpu=1",
    ));
    assert_eq!(
        replay.stacks,
        ["@100 a.exe: k:ntoskrnl.exe+0x11 a.exe+0x11", "@100 a.exe: k:ntoskrnl.exe+0x22 a.exe+0x22"]
    );
    assert_eq!((replay.events, replay.stack_stats.ambiguous_parts), (6, 0));
}

/// What decides is how far the times of the records lie apart, however late they are read.
#[test]
fn b2_stacks_expire_by_the_time_of_the_trace() {
    let near = run_script(&on_machine(
        "@100 event 090e by=7/8
         @1099 event 090e by=7/9
         @1100 stack @100 by=7/8 0xfffff80000000011 0x400011
         @9999 event 090e by=7/9",
    ));
    assert_eq!((near.stacks.len(), near.stack_stats.orphaned_parts, near.events), (1, 0, 7));
    // When an event later than the window comes, the first one goes out.
    let far = run_script(&on_machine(
        "@100 event 090e by=7/8
         @1101 event 090e by=7/9
         @1102 stack @100 by=7/8 0xfffff80000000011 0x400011
         @9999 event 090e by=7/9",
    ));
    assert_eq!((far.stacks.len(), far.stack_stats.orphaned_parts, far.events), (0, 1, 7));
}

#[test]
fn b3_both_halves_of_a_stack_are_kept() {
    check_stacks(
        &on_machine(
            "@100 event 090e by=7/8
             @101 stack @100 by=7/8 0xfffff80000000011 0xfffff80000000012
             @102 stack @100 by=7/8 0x7ff00011 0x400011 cpu=1",
        ),
        &["@100 a.exe: k:ntoskrnl.exe+0x11 k:ntoskrnl.exe+0x12 ntdll.dll+0x11 a.exe+0x11"],
    );
}

/// There is no channel and no lock to wait for: who takes events late gets the same ones.
#[test]
fn b4_a_slow_consumer_stalls_nothing() {
    let mut script = MACHINE.to_owned();
    for n in 0..300 {
        let (at, thread) = (100 + n * 10, 8 + n % 3);
        script += &format!(
            "@{at} event 090e by=7/{thread}\n@{} stack @{at} by=7/{thread} 0xfffff80000000011 0x4000{:02x}\n",
            at + 1,
            n % 200 + 16
        );
    }
    let trace = trace(&script);
    let soon = replay_trace(&trace, 1, WINDOW);
    let late = replay_trace(&trace, 1, Window { max_hold: i64::MAX, max_pending: usize::MAX });
    assert_eq!((soon.stacks.len(), &soon.stacks), (300, &late.stacks));
}

#[test]
fn b5_creates_find_stack_and_end_by_thread_and_request() {
    let mut script = MACHINE.to_owned();
    // All of them at one time, under way together.
    for n in 0..500 {
        script += &format!("@100 create by=7/{} irp={} ask=2 a\n", 8 + n, 1 + n);
    }
    for n in (0..500).rev() {
        script += &format!(
            "@101 stack @100 by=7/{} 0xfffff80000000011 {:#x}\n@102 end irp={} status={} info=2\n",
            8 + n,
            0x400010 + n,
            1 + n,
            0x1000 + n
        );
    }
    let mut lines: Vec<&str> = script.lines().collect();
    lines.sort_by_key(|line| line.trim().split(' ').next().map(|time| (time.len(), time)));
    let replay = run_script(&lines.join("\n"));
    for n in 0..500 {
        let (rva, status) = (n + 0x10, n + 0x1000);
        assert_eq!(replay.stacks[n], format!("@100 a.exe: k:ntoskrnl.exe+0x11 a.exe+{rva:#x}"));
        assert_eq!(replay.creates[n], format!("@100 creation: create -> created {status:#x}"));
    }
    assert_eq!((replay.create_stats.joined, replay.stack_stats.ambiguous_parts), (500, 0));
}

#[test]
fn b6_what_cannot_be_enriched_is_delivered() {
    let replay = run_script(
        "@100 event 090e by=77/8
         @101 stack @100 by=77/8 0xfffff80000000011 0x400011
         @110 create by=77/8 irp=1 ask=1 short
         @120 audit 5 by=77/8 0x400011 0x400012
         @130 image load pid=9 by=77/8 0x400000+0x10000 short",
    );
    assert_eq!(replay.events, 4);
    assert_eq!(replay.stacks, ["@100 77: k:unknown? unknown?", "@120 77: unknown? unknown?"]);
    assert_eq!(replay.create_stats.malformed, 1);
}

#[test]
fn b7_what_waits_is_bounded_and_counted() {
    let mut script = MACHINE.to_owned();
    for n in 0..2000 {
        script += &format!("@{} stack @50 by=9/9 0x10 0x20\n", 100 + n);
        script += &format!("@{} create by=7/8 irp={} ask=1 a\n", 100 + n, n + 1);
    }
    let small = Window { max_hold: 1_000_000, max_pending: 100 };
    for passes in [1, 2] {
        let replay = replay_trace(&trace(&script), passes, small);
        assert_eq!((replay.stack_stats.orphaned_parts, replay.stacks.len()), (2000, 0));
        let stats = replay.create_stats;
        assert_eq!((replay.creates.len(), stats.late, stats.unfinished), (2000, 1900, 100));
    }
}

#[test]
fn s1_the_kernel_is_a_half_and_no_list_of_modules() {
    // Session space, and the lowest address of the upper half: both lie below all modules of the kernel.
    let replay = run_script(&on_machine(
        "@100 event 090e by=7/8
         @101 stack @100 by=7/8 0xfffff96000000011 0xffff800000000001 0x400011",
    ));
    assert_eq!(replay.stacks, ["@100 a.exe: k:unknown! k:unknown! a.exe+0x11"]);
    assert_eq!(replay.summaries, ["a.exe / unbacked / no / a.exe / none"]);
}

#[test]
fn s2_modules_of_a_parent_back_nothing() {
    check_stacks(
        &on_machine(
            r"@10 image load pid=7 by=7/8 0x500000+0x1000 \b.dll
              @20 process start pid=9 parent=7 by=7/8 child.exe
              @21 image load pid=9 by=9/10 0x7ff00000+0x100000 \Windows\System32\ntdll.dll
              @100 event 090e by=9/10
              @101 stack @100 by=9/10 0x7ff00011 0x500011
              @110 event 090e by=7/8
              @111 stack @110 by=7/8 0x7ff00011 0x500011",
        ),
        &["@100 child.exe: ntdll.dll+0x11 unknown!", "@110 a.exe: ntdll.dll+0x11 b.dll+0x11"],
    );
}

#[test]
fn s3_the_stack_of_a_creation_is_looked_up_where_it_was_taken() {
    check_stacks(
        &on_machine(
            r"@10 image load pid=7 by=7/8 0x500000+0x1000 \creator.dll
              @100 process start pid=9 parent=7 by=7/8 child.exe
              @101 stack @100 by=7/8 0xfffff80000000011 0x7ff00011 0x500011
              @102 image load pid=9 by=7/8 0x500000+0x1000 \child.exe
              @103 stack @102 by=7/8 0xfffff80000000011 0x7ff00011 0x500012",
        ),
        &[
            "@100 a.exe: k:ntoskrnl.exe+0x11 ntdll.dll+0x11 creator.dll+0x11",
            "@102 a.exe: k:ntoskrnl.exe+0x11 ntdll.dll+0x11 creator.dll+0x12",
        ],
    );
}

#[test]
fn s4_what_was_unloaded_leaves_no_names() {
    check_stacks(
        &on_machine(
            r"@10 image load pid=7 by=7/8 0x500000+0x1000 \old.dll
              @100 event 090e by=7/8
              @101 stack @100 by=7/8 0x500011 0x501001
              @110 image unload pid=7 by=7/8 0x500000+0x1000 \old.dll
              @120 event 090e by=7/8
              @121 stack @120 by=7/8 0x500011 0x501001
              @130 image load pid=7 by=7/8 0x4ff000+0x4000 \new.dll
              @140 event 090e by=7/8
              @141 stack @140 by=7/8 0x500011 0x501001",
        ),
        &[
            "@100 a.exe: old.dll+0x11 unknown!",
            "@120 a.exe: unknown! unknown!",
            "@140 a.exe: new.dll+0x1011 new.dll+0x2001",
        ],
    );
}

#[test]
fn s5_what_was_not_found_can_be_found_later() {
    check_stacks(
        &on_machine(
            r"@10 memory alloc pid=7 by=7/8 0x500000+0x10000 reserve,commit
              @100 event 090e by=7/8
              @101 stack @100 by=7/8 0x500011
              @110 method load pid=7 0x500000+0x100 A.B.Main
              @120 event 090e by=7/8
              @121 stack @120 by=7/8 0x500011
              @130 method unload pid=7 0x500000+0x100 A.B.Main
              @131 memory free pid=7 by=7/8 0x500000+0x0 release
              @140 event 090e by=7/8
              @141 stack @140 by=7/8 0x500011
              @150 image load pid=7 by=7/8 0x500000+0x1000 \late.dll
              @160 event 090e by=7/8
              @161 stack @160 by=7/8 0x500011",
        ),
        &[
            "@100 a.exe: private!",
            "@120 a.exe: A.B.Main",
            "@140 a.exe: unknown!",
            "@160 a.exe: late.dll+0x11",
        ],
    );
}

#[test]
fn s6_the_state_is_that_of_the_time_of_the_event() {
    check_stacks(
        &on_machine(
            r"@100 event 090e by=7/8
              @101 stack @100 by=7/8 0x500011 0x600011
              @110 image load pid=7 by=7/8 0x500000+0x1000 \first.dll
              @120 event 090e by=7/8
              @121 stack @120 by=7/8 0x500011 0x600011
              @130 image load pid=7 by=7/8 0x500000+0x1000 \second.dll
              @140 event 090e by=7/8
              @141 stack @140 by=7/8 0x500011 0x600011
              @150 memory alloc pid=7 by=7/8 0x500000+0x10000 reserve,commit
              @160 event 090e by=7/8
              @161 stack @160 by=7/8 0x500011 0x600011",
        ),
        &[
            "@100 a.exe: unknown! unknown!",
            "@120 a.exe: first.dll+0x11 unknown!",
            // The unloads of both were not recorded.
            "@140 a.exe: second.dll+0x11 unknown!",
            "@160 a.exe: private! unknown!",
        ],
    );
}

#[test]
fn s7_a_return_address_is_looked_up_where_its_call_is() {
    check_stacks(
        &on_machine(
            r"@10 image load pid=7 by=7/8 0x500000+0x1000 \calls.dll
              @11 image load pid=7 by=7/8 0x501000+0x1000 \next.dll
              @100 event 090e by=7/8
              @101 stack @100 by=7/8 0x501000 0x500000
              @110 sample by=7/8 0x501000
              @111 stack @110 by=7/8 0x501000 0x501000",
        ),
        &[
            "@100 a.exe: calls.dll+0x1000 unknown!",
            // Where a sample was taken, the instruction had not run.
            "@110 a.exe: next.dll+0x0 calls.dll+0x1000",
        ],
    );
}
