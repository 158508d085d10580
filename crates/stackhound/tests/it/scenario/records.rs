//! Records: numbers of each kind, order, and reproducibility.

use std::collections::{BTreeMap, HashMap};
use std::io::Cursor;

use stackhound_etl::record::ExtendedType;
use stackhound_scenario::{EventKind, Mix, Scenario, ScenarioError, Truth};
use stackhound_types::RawTime;

use super::{Written, kind_of, written};

#[test]
fn records_are_counted_and_sorted() {
    let scenarios = [
        (Scenario::EVENTS_MIN, 3, Mix::Default),
        (20_000, 4, Mix::Default),
        (100_000, 5, Mix::Default),
        (Scenario::EVENTS_MIN, 3, Mix::Profile),
        (300_000, 4, Mix::Profile),
    ];
    for (events, seed, mix) in scenarios {
        let Written { truth, trace, .. } = written(events, seed, mix);
        let mut counts: BTreeMap<EventKind, u64> = BTreeMap::new();
        let mut last: HashMap<u16, RawTime> = HashMap::new();
        let mut ordered = trace.ordered();
        while let Some(event) = ordered.next() {
            *counts.entry(kind_of(&event)).or_default() += 1;
            let before = last.insert(event.processor().unwrap_or_default(), event.raw_time());
            assert!(before.is_none_or(|before| before <= event.raw_time()));
        }
        let stats = ordered.into_stats();
        assert_eq!(counts, truth.events);
        assert!(counts.keys().all(|kind| kind.name() != "?"));
        assert!(truth.records().abs_diff(events) * 100 <= events, "{} of {events}", truth.records());
        assert_eq!((stats.events, stats.bytes), (truth.records(), truth.bytes));
        assert_eq!((stats.out_of_order, stats.damage.len()), (0, 0));
        assert_eq!((stats.buffers_lost, stats.buffers_missing), (truth.lost.buffers, truth.lost.buffers));
    }
}

/// The records that kernel sessions of Windows 8 and later write when they start and end, in this
/// order; true for group masks that are not zero.
const START_AND_END: [(u16, bool); 14] = [
    (0x0000, false),
    (0x0005, false),
    (0x0050, false),
    (0x0020, false),
    (0x0005, true),
    (0x0303, false),
    (0x0f49, false),
    (0x0008, false),
    (0x0020, true),
    (0x0304, false),
    (0x0f4a, false),
    (0x0005, false),
    (0x0008, false),
    (0x1824, false),
];

#[test]
fn sessions_start_and_end_as_those_of_windows() {
    for mix in [Mix::Default, Mix::Profile] {
        let Written { trace, .. } = written(20_000, 2, mix);
        let (mut order, mut listed) = (Vec::new(), [Vec::new(), Vec::new()]);
        let mut ordered = trace.ordered();
        while let Some(event) = ordered.next() {
            let payload = event.payload();
            let Some(hook_id) = event.hook_id() else {
                // All events have a thread. A 64-bit system walks stacks with 64-bit frames, also
                // those of 32-bit processes.
                assert!(event.header_tid().is_some(), "{mix:?}: {:?}", kind_of(&event));
                let mut items = event.record().extended_items();
                assert!(items.all(|item| item.item_type != ExtendedType::STACK_TRACE32), "{mix:?}");
                // Readers concatenate paths without a separator.
                let is_folder = kind_of(&event).name() == "SysConfigEx/SystemPaths";
                assert!(!is_folder || payload.ends_with(b"\\\0\0\0"), "{mix:?}");
                continue;
            };
            let number = |at: usize| u32::from_le_bytes(payload[at..at + 4].try_into().unwrap());
            match hook_id {
                0x0301..=0x0304 => {
                    let (pid, parent) = (number(8), number(12));
                    // Idle and System never start or end, and only Idle has no parent.
                    assert!(pid > 4 || hook_id > 0x0302, "{mix:?}: {hook_id:04x} of {pid}");
                    assert!(pid == 0 || pid != parent, "{mix:?}: {pid}");
                    if hook_id > 0x0302 {
                        listed[usize::from(hook_id == 0x0304)].push(pid);
                    }
                }
                // Threads of System run only in the kernel.
                0x0503 | 0x0504 if number(0) <= 4 => assert!(payload[0x37] == 0xff, "{mix:?}: {}", number(4)),
                _ => {}
            }
            let has_groups =
                matches!(hook_id, 0x0005 | 0x0020) && payload[..32].iter().any(|&byte| byte != 0);
            let step = (hook_id, has_groups);
            if START_AND_END.iter().any(|(known, _)| *known == hook_id) && order.last() != Some(&step) {
                order.push(step);
            }
        }
        assert_eq!(order, START_AND_END, "{mix:?}");
        for listed in listed {
            assert_eq!(listed[..2], [0, 4], "{mix:?}");
        }
    }
}

/// The results of NtCreateFile for each create disposition: (disposition, information) of
/// successful requests.
const PERMITTED: [(u8, u64); 9] = [(0, 0), (0, 2), (1, 1), (2, 2), (3, 1), (3, 2), (4, 3), (5, 3), (5, 2)];

#[test]
fn creates_end_as_windows_ends_them() {
    for mix in [Mix::Default, Mix::Profile] {
        let mut pairs: BTreeMap<(u8, u64), u64> = BTreeMap::new();
        for seed in 1..=5 {
            let Written { trace, .. } = written(60_000, seed, mix);
            let mut creates: HashMap<[u8; 8], u8> = HashMap::new();
            let mut ordered = trace.ordered();
            while let Some(event) = ordered.next() {
                let payload = event.payload();
                match event.hook_id() {
                    // FileIo/Create: request, file object, thread, options. The disposition is the
                    // high byte of the options.
                    Some(0x0440) => {
                        creates.insert(payload[..8].try_into().unwrap(), payload[23]);
                    }
                    // FileIo/OperationEnd: request, information, status.
                    Some(0x044c) => {
                        let Some(disposition) = creates.remove(&payload[..8]) else { continue };
                        let information = u64::from_le_bytes(payload[8..16].try_into().unwrap());
                        assert_eq!(payload[16..20], [0; 4], "all creates succeed");
                        assert!(
                            PERMITTED.contains(&(disposition, information)),
                            "{mix:?}, seed {seed}: disposition {disposition} gives {information}"
                        );
                        *pairs.entry((disposition, information)).or_default() += 1;
                    }
                    _ => {}
                }
            }
        }
        println!("{mix:?}: {pairs:?}");
        if mix == Mix::Default {
            assert!([(1, 1), (2, 2)].iter().all(|pair| pairs.get(pair) > Some(&50)), "{pairs:?}");
        }
    }
}

fn bytes(events: u64, seed: u64, mix: Mix) -> (Vec<u8>, Truth) {
    let mut file = Cursor::new(Vec::new());
    let truth = Scenario { events, seed, mix }.write(&mut file).unwrap();
    (file.into_inner(), truth)
}

#[test]
fn the_same_scenario_gives_the_same_bytes() {
    for mix in [Mix::Default, Mix::Profile] {
        assert!(bytes(9_000, 7, mix) == bytes(9_000, 7, mix));
        assert!(bytes(9_000, 7, mix).0 != bytes(9_000, 8, mix).0);
    }
}

#[test]
fn too_few_records_are_rejected() {
    let scenario = Scenario { events: Scenario::EVENTS_MIN - 1, ..Scenario::default() };
    let result = scenario.write(Cursor::new(Vec::new()));
    assert!(matches!(result, Err(ScenarioError::TooFew { .. })));
}

/// Every kind of event and every form of a stack occurs.
#[test]
fn nothing_is_missing_from_the_default_mix() {
    let (_, truth) = bytes(20_000, 1, Mix::Default);
    #[rustfmt::skip]
    let names = [
        "DiskIo/Read", "DiskIo/ReadInit", "DiskIo/Write", "DiskIo/WriteInit", "EventTrace/EndExtension",
        "EventTrace/Extension", "EventTrace/Header", "EventTrace/RDComplete", "FileIo/Cleanup", "FileIo/Close",
        "FileIo/Create", "FileIo/FileCreate", "FileIo/FileDelete", "FileIo/FileRundown", "FileIo/OperationEnd",
        "FileIo/Read", "FileIo/Write", "Image/DCEnd", "Image/DCStart", "Image/Load", "Image/Unload",
        "PageFault/HardFault", "PageFault/VirtualAlloc", "PageFault/VirtualFree", "PerfInfo/DPC", "PerfInfo/ISR",
        "PerfInfo/SampledProfile", "PerfInfo/SysCallEnter", "PerfInfo/SysCallExit", "PerfInfo/TimerDPC",
        "Process/DCEnd", "Process/DCStart", "Process/End", "Process/Start", "Process/Terminate", "Registry/Close",
        "Registry/Create", "Registry/KCBCreate", "Registry/KCBDelete", "Registry/KCBRundownBegin",
        "Registry/KCBRundownEnd", "Registry/Open", "Registry/QueryValue", "Registry/SetValue", "StackWalk/KeyDelete",
        "StackWalk/KeyKernel", "StackWalk/KeyRundown", "StackWalk/KeyUser", "StackWalk/Stack", "SysConfigEx/SystemPaths",
        "SysConfigEx/VolumeMapping", "SystemConfig/CPU", "TcpIp/RecvIPV4", "TcpIp/SendIPV4", "Thread/CSwitch",
        "Thread/DCEnd", "Thread/DCStart", "Thread/End", "Thread/ReadyThread", "Thread/Start",
        "Contoso-Browser/ManifestData", "Contoso-Browser/NavigationStart", "Contoso.Download/Progress",
        "Contoso.Sync/State", "Microsoft-Windows-Kernel-Audit-API-Calls/OpenProcess",
        "Microsoft-Windows-Kernel-EventTracing/UserStack", "Microsoft-Windows-Kernel-Process/ThreadStart",
    ];
    for name in names {
        assert!(truth.count(name) > 0, "{name}");
    }
    let stacks = truth.stacks;
    assert!(stacks.inline > 0 && stacks.keyed > 0 && stacks.definitions > 0);
    assert!(stacks.extended > 0 && stacks.extended_parts > 0 && stacks.orphaned > 0);
    assert!(truth.states.complete > 0 && truth.states.kernel_only > 0 && truth.states.damaged > 0);
    assert_eq!(truth.lost.buffers, 1);
}

#[test]
fn the_profile_mix_has_the_shares_of_a_real_trace() {
    let (_, truth) = bytes(2_000_000, 1, Mix::Profile);
    let records = truth.records() as f64;
    let of_providers = |kind: &EventKind| matches!(kind, EventKind::Provider(..));
    let events: u64 =
        truth.events.iter().filter(|(kind, _)| of_providers(kind)).map(|(_, count)| count).sum();
    let parts = truth.stacks.inline + truth.stacks.keyed;
    let shares = [
        ("samples", truth.count("PerfInfo/SampledProfile") as f64 / records, 0.43..0.46),
        ("events of providers", events as f64 / records, 0.37..0.40),
        ("parts of stacks", parts as f64 / records, 0.045..0.055),
        ("definitions", truth.stacks.definitions as f64 / records, 0.01..0.025),
        ("parts by key", truth.stacks.keyed as f64 / parts as f64, 0.96..0.98),
        ("bytes", truth.bytes as f64 / records, 120.0..134.0),
    ];
    for (name, share, expected) in shares {
        assert!(expected.contains(&share), "{name}: {share}");
    }
    // New processes and images continue to appear, but more slowly than records.
    let (_, shorter) = bytes(200_000, 1, Mix::Profile);
    assert!(truth.processes.len() > 2 * shorter.processes.len());
    assert!(truth.images.len() > 2 * shorter.images.len() && truth.images.len() < 5 * shorter.images.len());
}
