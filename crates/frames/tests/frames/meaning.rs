//! Processes of stacks, memory regions of frames, and summaries.

use stackhound_frames::{FrameResolver, Region, RegionKind, RegionSource};
use stackhound_system::{Evidence, Protection};
use stackhound_types::{Address, AddressKind};

use crate::read::{ReadStep, read};
use crate::script::{WINDOW, check_stacks, run_script, trace};

const MACHINE: &str = r"
    @1 image dcstart pid=0 0xfffff80000000000+0x100000 \SystemRoot\system32\ntoskrnl.exe
    @2 process start pid=7 parent=4 by=4/1 a.exe
    @3 image load pid=7 by=4/1 0x400000+0x10000 \Device\HarddiskVolume1\a.exe
    @4 image load pid=7 by=7/8 0x7ff00000+0x100000 \Windows\System32\ntdll.dll
    @5 image load pid=7 by=7/8 0x7fe00000+0x10000 \Windows\System32\kernel32.dll
    @6 image load pid=7 by=7/8 0x600000+0x10000 \lib.dll
";

fn on_machine(script: &str) -> String {
    format!("{MACHINE}\n{script}")
}

#[test]
fn a_creation_belongs_to_the_creator_and_not_the_parent() {
    check_stacks(
        &on_machine(
            r"@20 process start pid=5 parent=4 by=4/1 broker.exe
              @21 image load pid=5 by=5/6 0x400000+0x10000 \broker.exe
              @100 process start pid=9 parent=7 by=5/6 child.exe
              @101 stack @100 by=5/6 0xfffff80000000011 0x400011
              @110 thread start pid=9 tid=10 by=7/8
              @111 stack @110 by=7/8 0xfffff80000000011 0x400012
              @120 memory alloc pid=9 by=7/8 0x10000+0x1000 reserve,commit
              @121 stack @120 by=7/8 0xfffff80000000011 0x400013
              @130 audit 5 by=7/8 0x7ff00011 0x400014",
        ),
        &[
            "@100 broker.exe: k:ntoskrnl.exe+0x11 broker.exe+0x11",
            "@110 a.exe: k:ntoskrnl.exe+0x11 a.exe+0x12",
            "@120 a.exe: k:ntoskrnl.exe+0x11 a.exe+0x13",
            "@130 a.exe: ntdll.dll+0x11 a.exe+0x14",
        ],
    );
}

/// If the header has no ids, the stack record identifies the process, and never the payload.
#[test]
fn stack_records_name_the_process_where_headers_do_not() {
    check_stacks(
        &on_machine(
            "@100 sample by=0/8 0x400010
             @101 stack @100 by=7/8 0x400010 0x7ff00020
             @200 process start pid=9 parent=7 child.exe
             @201 stack @200 by=7/8 0x400011",
        ),
        &["@100 a.exe: a.exe+0x10 ntdll.dll+0x20", "@200 a.exe: a.exe+0x11"],
    );
}

#[test]
fn process_ids_are_resolved_at_the_time_of_the_event() {
    check_stacks(
        &on_machine(
            r"@50 process end pid=7 parent=4 by=7/8 a.exe
              @60 event 090e by=7/8
              @61 stack @60 by=7/8 0x400011
              @70 process start pid=7 parent=4 by=4/1 b.exe
              @71 image load pid=7 by=7/8 0x500000+0x10000 \b.exe
              @80 event 090e by=7/8
              @81 stack @80 by=7/8 0x400011 0x500011",
        ),
        // The last events of a process follow its end. A process without ntdll.dll is still being
        // created, so that its modules are not all known.
        &["@60 a.exe: a.exe+0x11", "@80 b.exe: unknown? b.exe+0x11"],
    );
}

/// The region of an address of process 7 at the end of a script.
fn region(script: &str, address: u64) -> Region {
    let trace = trace(&on_machine(&format!("{script}\n@900 event 090e by=7/8")));
    let mut found = None;
    let mut look = |step: ReadStep<'_, '_>| {
        if let ReadStep::Popped(delivered, system) = step
            && delivered.event.hook_id() == Some(0x090e)
        {
            let mut resolver = FrameResolver::default();
            let mut frames = resolver.of(system, delivered);
            let frame = frames.frame(Address(address), AddressKind::Instruction);
            found = Some(frame.region);
        }
    };
    read(&trace, 2, WINDOW, &mut look);
    found.unwrap()
}

#[test]
fn memory_is_classified_by_its_records() {
    let region_of = |kind, extent: Option<(u64, u64)>, protection: Option<u8>, evidence| Region {
        kind,
        extent: extent.map(|(base, size)| (Address(base), size)),
        protection: protection.map(Protection::of_section),
        evidence,
    };
    let observed = |source| Some((source, Evidence::Observed));
    let clr = RegionKind::Jit(stackhound_system::Runtime::Clr);
    for (script, address, expected) in [
        (
            "@10 event 0001 by=7/8",
            0x400010,
            region_of(RegionKind::Image, Some((0x400000, 0x10000)), None, observed(RegionSource::Modules)),
        ),
        (
            "@10 view map pid=7 0x400000+0x10000 protection=7",
            0x400010,
            region_of(RegionKind::Image, Some((0x400000, 0x10000)), Some(7), observed(RegionSource::Modules)),
        ),
        (
            "@10 view map pid=7 0x500000+0x3000 protection=2",
            0x502fff,
            region_of(RegionKind::Mapped, Some((0x500000, 0x3000)), Some(2), observed(RegionSource::Views)),
        ),
        (
            "@10 memory alloc pid=7 by=5/5 0x500000+0x3000 reserve,commit",
            0x501000,
            region_of(
                RegionKind::Private,
                Some((0x500000, 0x3000)),
                None,
                observed(RegionSource::Allocations),
            ),
        ),
        (
            "@10 memory alloc pid=7 by=7/8 0x500000+0x3000 reserve,commit
             @20 method load pid=7 0x501000+0x80 A.Main",
            0x501010,
            region_of(clr, Some((0x500000, 0x3000)), None, observed(RegionSource::Methods)),
        ),
        (
            "@20 method load pid=7 0x501000+0x80 A.Main",
            0x501010,
            region_of(clr, Some((0x501000, 0x80)), None, observed(RegionSource::Methods)),
        ),
        // Memory that is freed and reused.
        (
            "@10 memory alloc pid=7 by=7/8 0x500000+0x3000 reserve,commit
             @20 memory free pid=7 by=7/8 0x500000+0x0 release
             @30 view map pid=7 0x500000+0x1000 protection=1",
            0x500010,
            region_of(RegionKind::Mapped, Some((0x500000, 0x1000)), Some(1), observed(RegionSource::Views)),
        ),
        // The same, without the free in the trace.
        (
            "@10 view map pid=7 0x500000+0x1000 protection=1
             @30 memory alloc pid=7 by=7/8 0x500000+0x3000 reserve,commit",
            0x500010,
            region_of(
                RegionKind::Private,
                Some((0x500000, 0x3000)),
                None,
                observed(RegionSource::Allocations),
            ),
        ),
        (
            "@30 view map pid=7 0x3f0000+0x100000 protection=1",
            0x400010,
            region_of(RegionKind::Mapped, Some((0x3f0000, 0x100000)), Some(1), observed(RegionSource::Views)),
        ),
        ("@10 event 0001 by=7/8", 0x500010, Region::UNKNOWN),
    ] {
        assert_eq!(region(script, address), expected, "{script}");
    }
}

#[test]
fn unbacked_requires_all_modules_to_be_known() {
    // The modules that were loaded before the trace are not known.
    check_stacks(
        r"@1 process dcstart pid=7 parent=4 a.exe
          @3 image load pid=7 by=7/8 0x400000+0x10000 \late.dll
          @10 event 090e by=7/8
          @11 stack @10 by=7/8 0x400011 0x500011",
        &["@10 a.exe: late.dll+0x11 unknown?"],
    );
    // A rundown describes them.
    check_stacks(
        r"@1 process dcstart pid=7 parent=4 a.exe
          @2 image dcstart pid=7 0x7ff00000+0x100000 \Windows\System32\ntdll.dll
          @3 image dcstart pid=7 0x400000+0x10000 \a.exe
          @10 event 090e by=7/8
          @11 stack @10 by=7/8 0x400011 0x500011",
        &["@10 a.exe: a.exe+0x11 unknown!"],
    );
    // After a lost buffer, they are uncertain again, and so are the known ones: the buffer can be that of
    // a processor without any other one, and then of any time.
    check_stacks(
        r"@1 process dcstart pid=7 parent=4 a.exe
          @2 image dcstart pid=7 0x7ff00000+0x100000 \Windows\System32\ntdll.dll
          @3 image dcstart pid=7 0x400000+0x10000 \a.exe
          @4 flush
          @5 event 0001 by=7/8
          @6 lose
          @10 event 090e by=7/8
          @11 stack @10 by=7/8 0x400011 0x500011",
        &["@10 a.exe: a.exe+0x11? unknown?"],
    );
}

#[test]
fn stacks_are_summarized() {
    for (frames, expected) in [
        (
            "0xfffff80000000011 0xfffff80000000022 0x7ff00011 0x7ff00022 0x600011 0x400011 0x7fe00011 0x7ff00033",
            "ntdll.dll|lib.dll|a.exe|kernel32.dll|ntdll.dll / ntoskrnl.exe / no / lib.dll / ntoskrnl.exe",
        ),
        (
            "0xfffff80000000011 0x7ff00011 0x500011 0x500022 0x7fe00011",
            "ntdll.dll|unbacked|kernel32.dll / ntoskrnl.exe / yes / unbacked / ntoskrnl.exe",
        ),
        // The innermost and only frame can be the final user frame.
        ("0x400011", "a.exe /  / no / a.exe / none"),
        ("0xfffff80000000011 0x400011", "a.exe / ntoskrnl.exe / no / a.exe / ntoskrnl.exe"),
        // Only the native layer.
        (
            "0xfffff80000000011 0x7ff00011 0x7fe00011",
            "ntdll.dll|kernel32.dll / ntoskrnl.exe / no / kernel32.dll / ntoskrnl.exe",
        ),
        // A callback to user mode: kernel frames between user frames do not belong to the call.
        (
            "0xfffff80000000011 0x7ff00011 0x7ff00022 0xfffff80000000022 0x600011",
            "ntdll.dll|lib.dll / ntoskrnl.exe / no / lib.dll / ntoskrnl.exe",
        ),
        // Without a user stack.
        ("0xfffff80000000011", " / ntoskrnl.exe / undetermined / none / ntoskrnl.exe"),
    ] {
        let script = format!("@100 event 090e by=7/8\n@101 stack @100 by=7/8 {frames}");
        assert_eq!(run_script(&on_machine(&script)).summaries, [expected], "{frames}");
    }
}

#[test]
fn jit_code_and_other_files_named_ntdll_are_final_user_modules() {
    let replay = run_script(&on_machine(
        r"@10 image load pid=7 by=7/8 0x500000+0x1000 \Device\HarddiskVolume1\Users\ntdll.dll
          @20 method load pid=7 0x700000+0x100 A.B.Main
          @100 event 090e by=7/8
          @101 stack @100 by=7/8 0x7ff00011 0x700011 0x400011
          @110 event 090e by=7/8
          @111 stack @110 by=7/8 0x7ff00011 0x500011 0x400011",
    ));
    assert_eq!(
        replay.summaries,
        ["ntdll.dll|jit:clr|a.exe /  / no / jit:clr / none", "ntdll.dll|a.exe /  / no / ntdll.dll / none",]
    );
}
