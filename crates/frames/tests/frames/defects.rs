//! Defects of another program's stack enrichment, each shown to be absent here: B in joining stacks
//! to events, S in resolving addresses.

use stackhound_stacks::Window;

use crate::script::{WINDOW, check_stacks, replay_trace, run_script, trace};

/// A process with known modules and one thread, and a kernel.
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
fn b1_events_with_equal_timestamps_keep_their_stacks() {
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

/// The time between the records decides, not the time at which they are read.
#[test]
fn b2_stacks_expire_by_trace_time() {
    let near = run_script(&on_machine(
        "@100 event 090e by=7/8
         @1099 event 090e by=7/9
         @1100 stack @100 by=7/8 0xfffff80000000011 0x400011
         @9999 event 090e by=7/9",
    ));
    assert_eq!((near.stacks.len(), near.stack_stats.orphaned_parts, near.events), (1, 0, 7));
    // An event after the end of the window delivers the first one.
    let far = run_script(&on_machine(
        "@100 event 090e by=7/8
         @1101 event 090e by=7/9
         @1102 stack @100 by=7/8 0xfffff80000000011 0x400011
         @9999 event 090e by=7/9",
    ));
    assert_eq!((far.stacks.len(), far.stack_stats.orphaned_parts, far.events), (0, 1, 7));
}

#[test]
fn b3_kernel_and_user_stack_are_joined() {
    check_stacks(
        &on_machine(
            "@100 event 090e by=7/8
             @101 stack @100 by=7/8 0xfffff80000000011 0xfffff80000000012
             @102 stack @100 by=7/8 0x7ff00011 0x400011 cpu=1",
        ),
        &["@100 a.exe: k:ntoskrnl.exe+0x11 k:ntoskrnl.exe+0x12 ntdll.dll+0x11 a.exe+0x11"],
    );
}

/// There are no channels and no locks: a consumer that takes events late gets the same ones.
#[test]
fn b4_a_slow_consumer_gets_the_same_events() {
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
fn b5_creates_are_joined_by_thread_and_request() {
    let mut script = MACHINE.to_owned();
    // Concurrent creates with equal times.
    for n in 0..500 {
        script += &format!("@100 create by=7/{} irp={} disposition=2 a\n", 8 + n, 1 + n);
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
fn b6_events_without_context_are_delivered() {
    let replay = run_script(
        "@100 event 090e by=77/8
         @101 stack @100 by=77/8 0xfffff80000000011 0x400011
         @110 create by=77/8 irp=1 disposition=1 short
         @120 audit 5 by=77/8 0x400011 0x400012
         @130 image load pid=9 by=77/8 0x400000+0x10000 short",
    );
    assert_eq!(replay.events, 4);
    assert_eq!(replay.stacks, ["@100 77: k:unknown? unknown?", "@120 77: unknown? unknown?"]);
    assert_eq!(replay.create_stats.malformed, 1);
}

#[test]
fn b7_pending_events_are_limited_and_counted() {
    let mut script = MACHINE.to_owned();
    for n in 0..2000 {
        script += &format!("@{} stack @50 by=9/9 0x10 0x20\n", 100 + n);
        script += &format!("@{} create by=7/8 irp={} disposition=1 a\n", 100 + n, n + 1);
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
fn s1_kernel_addresses_are_recognized_without_modules() {
    // Session space, and the lowest kernel address: both are below all kernel modules.
    let replay = run_script(&on_machine(
        "@100 event 090e by=7/8
         @101 stack @100 by=7/8 0xfffff96000000011 0xffff800000000001 0x400011",
    ));
    assert_eq!(replay.stacks, ["@100 a.exe: k:unknown! k:unknown! a.exe+0x11"]);
    assert_eq!(replay.summaries, ["a.exe / unbacked / no / a.exe / none"]);
}

#[test]
fn s2_modules_of_a_parent_do_not_back_frames_of_a_child() {
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
fn s3_the_stack_of_a_creation_is_resolved_in_the_creator() {
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
fn s4_unloaded_modules_do_not_name_frames() {
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
fn s5_unresolved_addresses_can_be_resolved_later() {
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
fn s6_frames_are_resolved_at_the_time_of_the_event() {
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
fn s7_a_return_address_is_looked_up_at_its_call() {
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
            // The address of a sample is an instruction that has not run yet.
            "@110 a.exe: next.dll+0x0 calls.dll+0x1000",
        ],
    );
}
