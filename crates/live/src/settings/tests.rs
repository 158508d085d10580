//! The numbers for sessions and providers. Expected values are Microsoft's constants, written out.

use std::io::Cursor;
use std::ops::ControlFlow;
use std::time::Duration;

use stackhound_etl::EtlFile;
use stackhound_etl::record::Descriptor;
use stackhound_etl::write::{self, EtlWriter, HeaderSpec, Issuer, Payload, RecordSpec};
use stackhound_trace::{OpenTrace, Source};
use stackhound_types::{Pid, PointerSize, RawTime, Tid};

use super::*;

const PROVIDER: Guid = Guid([9; 16]);

fn settings() -> ProviderSettings {
    ProviderSettings::new(PROVIDER)
}

#[test]
fn a_user_session_is_real_time_with_buffers_for_each_processor() {
    let numbers = Session::user("one").numbers().unwrap();
    let expected = SessionNumbers {
        guid: Guid::ZERO,
        clock: 1,
        mode: 0x0800_0100,
        buffer_size: 64,
        minimum_buffers: 64,
        maximum_buffers: 512,
        flush_timer: 1,
        enable_flags: 0,
        group_masks: Vec::new(),
        stacks: Vec::new(),
        sample_interval: None,
        profile_privilege: false,
    };
    assert_eq!(numbers, expected);
}

#[test]
fn each_setting_changes_its_number() {
    let one = || Session::user("one");
    let mode = |session: Session| session.numbers().unwrap().mode;
    assert_eq!(mode(one().buffers(Buffers::low_latency())), 0x0800_0110);
    // Not in real time as well: Windows would write buffers once a second, full or not.
    assert_eq!(mode(one().to_file("out.etl")), 0x0800_0001);
    assert_eq!(mode(one().buffers(Buffers::throughput().shared_by_processors())), 0x1800_0100);
    assert_eq!(mode(Session::kernel("k", KernelGroups::PROCESS)), 0x0a00_0100);
    assert_eq!(mode(Session::nt_kernel_logger(KernelGroups::PROCESS)), 0x0800_0100);
    assert_eq!(one().buffers(Buffers::low_latency()).numbers().unwrap().flush_timer, 5);
    for (clock, number) in
        [(SessionClock::Qpc, 1), (SessionClock::SystemTime, 2), (SessionClock::CpuCycle, 3)]
    {
        assert_eq!(one().clock(clock).numbers().unwrap().clock, number);
    }
    let logger = Session::nt_kernel_logger(KernelGroups::PROCESS);
    assert_eq!(logger.name(), "NT Kernel Logger");
    assert_eq!(logger.numbers().unwrap().guid.to_string(), "9e814aad-3204-11d2-9a82-006008a86939");
}

#[test]
fn the_preset_of_a_system_call_sensor() {
    let numbers = Session::syscalls("sensor").numbers().unwrap();
    assert_eq!((numbers.buffer_size, numbers.minimum_buffers, numbers.maximum_buffers), (64, 20, 128));
    assert_eq!((numbers.flush_timer, numbers.mode), (1, 0x0a00_0100));
    // EVENT_TRACE_FLAG_SYSTEMCALL and CSWITCH, which are also bits of the third and the second word,
    // IMAGE_LOAD, THREAD and PROCESS. None of them is enabled at the start, because stacks cannot be
    // requested earlier.
    assert_eq!((numbers.enable_flags, numbers.group_masks), (0, vec![[0x97, 4, 0x40, 0, 0, 0, 0, 0]]));
    assert!(numbers.profile_privilege);
    let [stack] = numbers.stacks[..] else { panic!("{:?}", numbers.stacks) };
    // The class PerfInfo, type 51.
    assert_eq!(Guid(stack[..16].try_into().unwrap()).to_string(), "ce1dbfb4-137e-4da6-87b0-3f59aa102cbc");
    assert_eq!(stack[16..], [51, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn the_enrichment_preset_records_the_enriched_events() {
    let numbers = Session::enrichment("").numbers().unwrap();
    // PROCESS 1, THREAD 2, IMAGE_LOAD 4, VIRTUAL_ALLOC 0x4000, REGISTRY 0x20000, FILE_IO,
    // FILE_IO_INIT.
    assert_eq!(numbers.enable_flags, 0x0602_4007);
    // First no groups, then the same again; memory allocation is also a bit of the second word.
    assert_eq!(numbers.group_masks, [[0; 8], [0x0602_4007, 0x8000, 0, 0, 0, 0, 0, 0]]);
    let kinds = |class: &str| -> Vec<u8> {
        let class: Guid = class.parse().unwrap();
        let of_class = numbers.stacks.iter().filter(|stack| stack[..16] == class.0);
        of_class.map(|stack| stack[16]).collect()
    };
    // The start of a process, and the load of an image, which is an event of this class.
    assert_eq!(kinds("3d6fa8d0-fe05-11d0-9dda-00c04fd7ba7c"), [1, 10]);
    assert_eq!(kinds("3d6fa8d1-fe05-11d0-9dda-00c04fd7ba7c"), [1, 2]);
    assert_eq!(kinds("ae53722e-c863-11d2-8659-00c04fa321a1"), [10, 12, 14, 15]);
    assert_eq!(kinds("90cbdc39-4a3e-11d1-84f4-0000f80464e3"), [64, 78, 70, 79, 71, 80]);
    assert_eq!(kinds("3d6fa8d3-fe05-11d0-9dda-00c04fd7ba7c"), [98]);
    assert_eq!(numbers.stacks.len(), 15);
}

#[test]
fn generated_names_differ() {
    let (one, other) = (Session::user(""), Session::user(""));
    assert!(one.numbers().is_ok());
    assert_ne!(one.name(), other.name());
    assert_eq!(one.clone().name(), one.name());
}

#[test]
fn generated_guids_differ_and_are_of_version_4() {
    let (one, other) = (fresh_guid(), fresh_guid());
    assert_ne!(one, other);
    for guid in [one, other] {
        let text = guid.to_string();
        assert_eq!(&text[14..15], "4", "{text}");
        assert!(["8", "9", "a", "b"].contains(&&text[19..20]), "{text}");
    }
}

#[test]
fn the_privilege_is_requested_only_if_needed() {
    let needs = |session: Session| session.numbers().unwrap().profile_privilege;
    assert!(!needs(Session::kernel("k", KernelGroups::PROCESS)));
    assert!(needs(Session::kernel("k", KernelGroups::PROFILE)));
    assert!(needs(Session::kernel("k", KernelGroups::PROCESS).kernel_stacks([ClassicEvent::IMAGE_LOAD])));
    assert!(needs(Session::kernel("k", KernelGroups::PROCESS).sample_every(Duration::from_millis(1))));
}

#[test]
fn invalid_settings_are_refused() {
    let long = "x".repeat(1024);
    let kernel = || Session::kernel("k", KernelGroups::PROFILE);
    let many = (0..257).map(|kind| ClassicEvent { class: Guid([(kind >> 8) as u8; 16]), kind: kind as u8 });
    let rows = [
        (Session::user(long.clone()), Error::Name(long)),
        (Session::user("a\0b"), Error::Name("a\0b".into())),
        (kernel().kernel_stacks(many), Error::TooManyStacks(257)),
        (kernel().sample_every(Duration::from_micros(122)), Error::SampleInterval(1220)),
        (kernel().sample_every(Duration::from_millis(1001)), Error::SampleInterval(10_010_000)),
        (
            Session::user("u").kernel_stacks([ClassicEvent::IMAGE_LOAD]),
            Error::NoKernelSession("stacks of kernel events"),
        ),
        (Session::user("u").kernel_groups(KernelGroups::PROCESS), Error::NoKernelSession("kernel groups")),
        (Session::user("u").sample_every(Duration::from_millis(1)), Error::NoKernelSession("samples")),
    ];
    for (session, expected) in rows {
        assert_eq!(session.numbers(), Err(expected));
    }
    let interval = kernel().sample_every(Duration::from_millis(1)).numbers().unwrap().sample_interval;
    assert_eq!(interval, Some(10_000));
    assert_eq!(Session::user("x".repeat(1023)).numbers().map(|_| ()), Ok(()));
}

#[test]
fn the_same_stack_is_requested_once() {
    let session = Session::syscalls("s").kernel_stacks([ClassicEvent::SYSTEM_CALL_ENTER]);
    assert_eq!(session.numbers().unwrap().stacks.len(), 1);
}

#[test]
fn group_masks_come_with_the_flags() {
    let session = Session::kernel("k", KernelGroups::PROCESS | KernelGroups::OBJECT_HANDLE);
    let numbers = session.numbers().unwrap();
    assert_eq!((numbers.enable_flags, &*numbers.group_masks), (0, &[[1, 0, 0, 0, 0x40, 0, 0, 0]][..]));
    // Windows 7 has no masks, but has this session.
    let numbers = Session::nt_kernel_logger(KernelGroups::PROCESS).numbers().unwrap();
    assert_eq!((numbers.enable_flags, &*numbers.group_masks), (1, &[][..]));
}

#[test]
fn a_provider_in_numbers() {
    let parameters = settings().parameters();
    assert_eq!((parameters.level, parameters.any, parameters.all), (255, u64::MAX, 0));
    // The second mask is used only together with the first.
    let parameters = settings().all(0x10).level(4).parameters();
    assert_eq!((parameters.level, parameters.any, parameters.all), (4, u64::MAX, 0x10));
    let parameters = settings()
        .any(0x10)
        .any(0x20)
        .stack_trace()
        .enable_properties(EnableProperties::SID | EnableProperties::PROCESS_START_KEY)
        .rundown()
        .only_in_etw(EtwFilter::EventIds(vec![3]))
        .and_then(|settings| settings.only_in_etw(EtwFilter::Pids(vec![8])))
        .unwrap()
        .parameters();
    assert_eq!((parameters.any, parameters.properties, parameters.rundown), (0x30, 0x85, true));
    let kinds: Vec<u32> = parameters.filters.iter().map(|filter| filter.kind).collect();
    assert_eq!(kinds, [0x8000_0004, 0x8000_0200]);
}

#[test]
fn all_properties_have_their_bits() {
    let all = [
        EnableProperties::SID,
        EnableProperties::TERMINAL_SESSION,
        EnableProperties::STACK_TRACE,
        EnableProperties::PSM_KEY,
        EnableProperties::IGNORE_KEYWORD_0,
        EnableProperties::PROVIDER_GROUP,
        EnableProperties::ENABLE_KEYWORD_0,
        EnableProperties::PROCESS_START_KEY,
        EnableProperties::EVENT_KEY,
        EnableProperties::EXCLUDE_IN_PRIVATE,
        EnableProperties::ENABLE_SILOS,
        EnableProperties::SOURCE_CONTAINER,
    ];
    for (bit, property) in all.into_iter().enumerate() {
        assert_eq!(settings().enable_properties(property).parameters().properties, 1 << bit);
    }
    for bit in 0..32 {
        let property = EnableProperties::from_bits(1 << bit);
        assert_eq!(settings().enable_properties(property).parameters().properties, 1 << bit);
    }
}

#[test]
fn one_filter_of_a_kind() {
    let ids = |ids: &[u16]| EtwFilter::EventIds(ids.to_vec());
    let twice = settings().only_in_etw(ids(&[1])).unwrap().only_in_etw(EtwFilter::NotEventIds(vec![2]));
    assert_eq!(twice, Err(Error::SecondFilter("event ids")));
}

#[track_caller]
fn check_merge(of: &[ProviderSettings], expected: ProviderSettings) {
    assert_eq!(ProviderSettings::merged(of), [expected]);
    let mut turned = of.to_vec();
    turned.reverse();
    assert_eq!(ProviderSettings::merged(&turned), ProviderSettings::merged(of));
}

#[test]
fn settings_of_one_provider_are_merged_so_that_each_gets_its_events() {
    let with = |settings: ProviderSettings, filter| settings.only_in_etw(filter).unwrap();
    let ids = |ids: &[u16]| EtwFilter::EventIds(ids.to_vec());
    // Levels are ordered and are not bits: 2 and 4 are 4.
    check_merge(&[settings().level(2), settings().level(4)], settings().level(4));
    check_merge(&[settings().level(2), settings()], settings());
    check_merge(&[settings().any(1), settings().any(4)], settings().any(5));
    // One of them selects every keyword.
    check_merge(&[settings().any(1), settings()], settings());
    check_merge(&[settings().all(3), settings().all(6)], settings().all(2));
    check_merge(&[settings().stack_trace(), settings().rundown()], settings().stack_trace().rundown());
    // A property that omits events applies only if all settings have it.
    let ignore = || settings().enable_properties(EnableProperties::IGNORE_KEYWORD_0);
    check_merge(&[ignore(), settings().enable_properties(EnableProperties::SID)], {
        settings().enable_properties(EnableProperties::SID)
    });
    check_merge(&[ignore(), ignore()], ignore());
    // The ids of all, if all have ids.
    check_merge(
        &[with(settings(), ids(&[1])), with(settings(), ids(&[2, 1]))],
        with(settings(), ids(&[1, 2])),
    );
    check_merge(&[with(settings(), ids(&[1])), settings()], settings());
    check_merge(&[with(settings(), ids(&[1])), with(settings(), EtwFilter::Pids(vec![4]))], settings());
    let many: Vec<u16> = (0..64).collect();
    check_merge(&[with(settings(), ids(&many)), with(settings(), ids(&[64]))], settings());
}

#[test]
fn only_settings_with_stacks_select_events_with_stacks() {
    let stacks =
        |ids: &[u16]| settings().stack_trace().only_in_etw(EtwFilter::StackIds(ids.to_vec())).unwrap();
    check_merge(&[stacks(&[1]), stacks(&[2])], stacks(&[1, 2]));
    check_merge(&[stacks(&[1]), settings()], stacks(&[1]));
    check_merge(&[stacks(&[1]), settings().stack_trace()], settings().stack_trace());
}

#[test]
fn other_providers_stay_apart_in_their_order() {
    let other = ProviderSettings::new(Guid([1; 16])).level(3);
    let merged = ProviderSettings::merged(&[settings().level(2), other.clone(), settings().level(5)]);
    assert_eq!(merged, [settings().level(5), other]);
}

#[test]
fn generated_names_contain_the_process_id() {
    let generated = [Session::user(""), Session::kernel("", KernelGroups::PROCESS)];
    assert_ne!(generated[0].name(), generated[1].name());
    for session in generated {
        assert_eq!(process_of(session.name()), Some(std::process::id()), "{}", session.name());
        assert_eq!(process_of(&format!("{}-providers", session.name())), Some(std::process::id()));
    }
    for name in ["", "mine", "Stackhound", "Stackhound-", "Stackhound-7", "Stackhound-x-1", "stackhound-7-1"]
    {
        assert_eq!(process_of(name), None, "{name}");
    }
}

/// Ten events of one provider: event `n` has id and level `n`, keyword bit `n` (event 0 has none),
/// and process `n / 2`.
fn trace() -> OpenTrace {
    let mut writer = EtlWriter::new(write::Session::default(), Cursor::new(Vec::new())).unwrap();
    for n in 0..10u8 {
        let keyword = if n == 0 { 0 } else { 1 << n };
        let descriptor =
            Descriptor { id: n.into(), version: 0, channel: 0, level: n, opcode: 0, task: 0, keyword };
        let header = HeaderSpec::Event {
            provider: PROVIDER,
            descriptor,
            property: 0,
            issuer: Issuer::new(Pid(u32::from(n) / 2), Tid(1)),
            activity: Guid::ZERO,
            items: &[],
        };
        let time = RawTime(write::Session::default().start.0 + 1 + i64::from(n));
        let (pointer_size, payload) = (PointerSize::Eight, Payload::Bytes(&[]));
        writer.write(0, &RecordSpec { time, pointer_size, header, payload }).unwrap();
    }
    let (file, _) = writer.finish().unwrap();
    let etl_file = EtlFile::open(file.into_inner().into()).unwrap();
    OpenTrace::new(vec![Source::new("", etl_file)], 1).unwrap()
}

#[track_caller]
fn check_wanted(settings: Result<ProviderSettings, Error>, expected: &[u16]) {
    let settings = settings.unwrap();
    let mut ids = Vec::new();
    trace().run(|event| {
        if settings.wants(event) {
            ids.extend(event.record().descriptor().map(|descriptor| descriptor.id));
        }
        ControlFlow::Continue(())
    });
    assert_eq!(ids, expected);
}

#[test]
fn filters_given_to_etw_are_tested_again() {
    check_wanted(Ok(ProviderSettings::new(Guid::ZERO)), &[]);
    check_wanted(Ok(settings().any(0b110).level(1)), &[0, 1]);
    check_wanted(settings().only_in_etw(EtwFilter::EventIds(vec![7, 3])), &[3, 7]);
    check_wanted(settings().level(3).only_in_etw(EtwFilter::NotEventIds(vec![1, 2])), &[0, 3]);
    check_wanted(settings().only_in_etw(EtwFilter::Pids(vec![1, 4])), &[2, 3, 8, 9]);
    let without_keyword_0 = settings().level(2).enable_properties(EnableProperties::IGNORE_KEYWORD_0);
    check_wanted(Ok(without_keyword_0), &[1, 2]);
    // No header states the program, and the choice of events with stacks does not select events.
    check_wanted(settings().level(1).only_in_etw(EtwFilter::Executables(vec!["a.exe".into()])), &[0, 1]);
    check_wanted(settings().level(1).only_in_etw(EtwFilter::StackIds(vec![5])), &[0, 1]);
}
