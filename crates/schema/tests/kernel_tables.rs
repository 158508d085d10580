//! Compares the class tables with facts from other sources.

use std::collections::BTreeSet;

use stackhound_schema::{Length, kernel};
use stackhound_types::{Guid, PointerSize};

/// Names that other crates and users rely on.
const NAMES: [(u16, &str); 48] = [
    (0x0000, "EventTrace/Header"),
    (0x0005, "EventTrace/Extension"),
    (0x0020, "EventTrace/EndExtension"),
    (0x010A, "DiskIo/Read"),
    (0x010C, "DiskIo/ReadInit"),
    (0x010D, "DiskIo/WriteInit"),
    (0x010F, "DiskIo/FlushInit"),
    (0x020B, "PageFault/DemandZeroFault"),
    (0x0220, "PageFault/HardFault"),
    (0x0262, "PageFault/VirtualAlloc"),
    (0x0263, "PageFault/VirtualFree"),
    (0x0301, "Process/Start"),
    (0x0302, "Process/End"),
    (0x0303, "Process/DCStart"),
    (0x0304, "Process/DCEnd"),
    (0x030A, "Image/Load"),
    (0x030B, "Process/Terminate"),
    (0x0327, "Process/Defunct"),
    (0x0424, "FileIo/FileRundown"),
    (0x0440, "FileIo/Create"),
    (0x0501, "Thread/Start"),
    (0x0502, "Thread/End"),
    (0x0503, "Thread/DCStart"),
    (0x0504, "Thread/DCEnd"),
    (0x0524, "Thread/CSwitch"),
    (0x0532, "Thread/ReadyThread"),
    (0x0548, "Thread/SetName"),
    (0x060A, "TcpIp/SendIPV4"),
    (0x081B, "UdpIp/RecvIPV6"),
    (0x090A, "Registry/Create"),
    (0x0B0A, "SystemConfig/CPU"),
    (0x0F2E, "PerfInfo/SampledProfile"),
    (0x0F33, "PerfInfo/SysCallEnter"),
    (0x0F34, "PerfInfo/SysCallExit"),
    (0x0F42, "PerfInfo/ThreadedDPC"),
    (0x0F43, "PerfInfo/ISR"),
    (0x0F44, "PerfInfo/DPC"),
    (0x0F45, "PerfInfo/TimerDPC"),
    (0x1402, "Image/Unload"),
    (0x1403, "Image/DCStart"),
    (0x1404, "Image/DCEnd"),
    (0x1820, "StackWalk/Stack"),
    (0x1822, "StackWalk/KeyCreate"),
    (0x1823, "StackWalk/KeyDelete"),
    (0x1824, "StackWalk/KeyRundown"),
    (0x1825, "StackWalk/KeyKernel"),
    (0x1826, "StackWalk/KeyUser"),
    (0x1A21, "ALPC/SendMessage"),
];

#[test]
fn events_have_the_agreed_names() {
    for (hook_id, name) in NAMES {
        assert_eq!(kernel::name(hook_id), Some(name), "{hook_id:#06x}");
        assert_eq!(&*kernel::lookup(hook_id, 2, PointerSize::Eight).unwrap().event_name, name);
    }
    for hook_id in [0x0001, 0x0999, 0x1500, 0x1F00, 0xFFFF] {
        assert_eq!(kernel::name(hook_id), None, "{hook_id:#06x}");
        assert_eq!(kernel::lookup(hook_id, 2, PointerSize::Eight), None);
    }
}

/// The number of known types in each group, by the published constants and class definitions.
const TYPES_OF_GROUP: [(u16, usize); 28] = [
    (0x00, 16),
    (0x01, 30),
    (0x02, 64),
    (0x03, 35),
    (0x04, 37),
    (0x05, 37),
    (0x06, 26),
    (0x07, 14),
    (0x08, 5),
    (0x09, 33),
    (0x0A, 1),
    (0x0B, 27),
    (0x0C, 1),
    (0x0D, 5),
    (0x0E, 16),
    (0x0F, 76),
    (0x10, 26),
    (0x11, 11),
    (0x12, 27),
    (0x13, 11),
    (0x14, 48),
    (0x16, 13),
    (0x17, 4),
    (0x18, 6),
    (0x19, 5),
    (0x1A, 9),
    (0x1B, 1),
    (0x1C, 17),
];

#[test]
fn all_known_types_have_a_name() {
    let hook_ids: Vec<u16> = kernel::events().filter_map(|event| event.hook_id).collect();
    for (group, n_types) in TYPES_OF_GROUP {
        let found = hook_ids.iter().filter(|&&hook_id| hook_id >> 8 == group).count();
        assert_eq!(found, n_types, "group {group:#04x}");
    }
    assert_eq!(hook_ids.iter().collect::<BTreeSet<_>>().len(), hook_ids.len());
}

/// Sizes of payloads in 64-bit traces, for hook ids without texts: hook id, version, bytes.
const SIZES: [(u16, u8, usize); 41] = [
    (0x0005, 2, 36),
    (0x0008, 2, 0),
    (0x0020, 2, 36),
    (0x0050, 2, 48),
    (0x010A, 3, 52),
    (0x010B, 3, 52),
    (0x010C, 3, 12),
    (0x010D, 3, 12),
    (0x010E, 3, 28),
    (0x010F, 3, 12),
    (0x0220, 2, 40),
    (0x030B, 2, 4),
    (0x0320, 2, 104),
    (0x0321, 2, 104),
    (0x0501, 3, 72),
    (0x0524, 1, 16),
    (0x0524, 4, 24),
    (0x0532, 2, 8),
    (0x060A, 2, 40),
    (0x060B, 2, 32),
    (0x060D, 2, 32),
    (0x060F, 2, 48),
    (0x061A, 2, 64),
    (0x061B, 2, 56),
    (0x080A, 2, 32),
    (0x080B, 2, 32),
    (0x081A, 2, 56),
    (0x081B, 2, 56),
    (0x0B0A, 3, 828),
    (0x0B0B, 2, 568),
    (0x0B0C, 2, 112),
    (0x0B0E, 2, 2584),
    (0x0B10, 2, 8),
    (0x0B11, 2, 16),
    (0x0B21, 2, 16),
    (0x0B23, 2, 428),
    (0x0B25, 2, 16),
    (0x0F2E, 2, 16),
    (0x1421, 2, 8),
    (0x1825, 2, 24),
    (0x1826, 2, 24),
];

#[test]
fn layouts_have_the_sizes_of_payloads_in_traces() {
    for (hook_id, version, size) in SIZES {
        let payload = vec![0; size];
        let schema = kernel::lookup_for(hook_id, version, PointerSize::Eight, &payload).unwrap();
        let mut decoder = schema.decode(&payload, PointerSize::Eight);
        let all = decoder.by_ref().all(|decoded| decoded.is_ok());
        assert!(all && decoder.rest().is_empty(), "{hook_id:#06x} version {version} in {size} bytes");
    }
}

/// The names of fields, without padding.
fn fields(schema: &stackhound_schema::Schema) -> Vec<&str> {
    schema.fields.iter().map(|field| &*field.name).filter(|name| !name.is_empty()).collect()
}

#[test]
fn the_version_selects_the_layout() {
    let process = |version| fields(kernel::lookup(0x0301, version, PointerSize::Eight).unwrap());
    assert_eq!(process(0), ["ProcessId", "ParentId", "UserSID", "ImageFileName"]);
    assert_eq!(process(1).len(), 7);
    assert_eq!((process(3).len(), process(4).len(), process(5).len()), (9, 12, 13));
    // A version above the highest known one has its layout.
    assert_eq!(process(200), process(5));
    // A version below the lowest known one, or between two, has the layout of the next lower one,
    // if there is one.
    let init = |version| fields(kernel::lookup(0x010C, version, PointerSize::Four).unwrap());
    assert_eq!((init(0), init(2).len(), init(3).len()), (vec!["Irp"], 1, 2));
    assert_eq!(kernel::versions(0x0301).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    assert_eq!(kernel::versions(0x010C).collect::<Vec<_>>(), [0, 3]);
}

#[test]
fn the_payload_selects_between_layouts_of_one_version() {
    let chosen =
        |hook_id, pointer, payload: &[u8]| fields(kernel::lookup_for(hook_id, 3, pointer, payload).unwrap());
    let (four, eight) = (PointerSize::Four, PointerSize::Eight);
    // The name of the thread is optional, even in version 3.
    assert_eq!(chosen(0x0501, eight, &[0; 72]).last(), Some(&"ThreadFlags"));
    assert_eq!(chosen(0x0501, eight, &[0; 74]).last(), Some(&"ThreadName"));
    // A callback with only its task, or with all fields.
    assert_eq!(chosen(0x1C21, eight, &[0; 8]), ["TaskId"]);
    assert_eq!(chosen(0x1C21, four, &[0; 20]).len(), 5);
    // Nodes of eight or sixteen bytes.
    assert_eq!(chosen(0x0B18, eight, &[&[1, 0, 0, 0][..], &[0; 8]].concat()), ["NodeCount", "NodeMap"]);
    assert_eq!(chosen(0x0B18, eight, &[&[1, 0, 0, 0][..], &[0; 16]].concat()).len(), 5);
    // Pages by priority, with and without the number of priorities before them.
    assert_eq!(chosen(0x0270, eight, &[0; 168])[0], "ZeroPages");
    assert_eq!(chosen(0x0270, eight, &[0; 176]).last(), Some(&"ModifiedPageFilePages"));
    assert_eq!(chosen(0x0270, eight, &[&[8][..], &[0; 168]].concat())[0], "PriorityLevels");
    assert_eq!(chosen(0x0270, four, &[&[8][..], &[0; 88]].concat()).last(), Some(&"ModifiedPageFilePages"));
    // Processes with as many columns as the payload contains.
    let two = |columns: usize| [&[2, 0, 0, 0][..], &vec![0; 2 * (4 + 8 * columns)]].concat();
    for columns in 1..=8 {
        assert_eq!(chosen(0x027D, eight, &two(columns)).len(), 3 + columns);
    }
    // Without a payload, the first layout is used.
    assert_eq!(fields(kernel::lookup(0x1C21, 2, eight).unwrap()).len(), 5);
}

#[test]
fn only_padding_has_no_name() {
    for event in kernel::events() {
        let Some(hook_id) = event.hook_id else { continue };
        for version in kernel::versions(hook_id) {
            for pointer in [PointerSize::Four, PointerSize::Eight] {
                let schema = kernel::lookup(hook_id, version, pointer).unwrap();
                for field in schema.fields.iter().filter(|field| field.name.is_empty()) {
                    assert!(field.is_padding() && matches!(field.length, Length::Fixed(1..8)), "{field:?}");
                }
            }
        }
    }
}

fn guid(text: &str) -> Guid {
    text.parse().unwrap()
}

#[test]
fn consumers_see_class_and_opcode() {
    let process = guid("3d6fa8d0-fe05-11d0-9dda-00c04fd7ba7c");
    let image = guid("2cb15d1d-5fc1-11d2-abe1-00a0c911f518");
    assert_eq!(kernel::class_of_group(0x03), Some(process));
    assert_eq!(kernel::class_of_group(0x1E), Some(guid("2ce9a149-effe-42f0-a635-a1d39e26c8f2")));
    assert_eq!((kernel::class_of_group(0x1F), kernel::class_of_group(0xFF)), (None, None));
    assert_eq!(kernel::hook_id_of(process, 1), Some(0x0301));
    assert_eq!(kernel::hook_id_of(image, 2), Some(0x1402));
    assert_eq!(kernel::hook_id_of(image, 10), Some(0x030A));
    assert_eq!(kernel::lookup(0x030A, 2, PointerSize::Eight).unwrap().provider, image);
    assert_eq!(kernel::hook_id_of(Guid::ZERO, 1), None);
}

#[test]
fn classes_without_a_group_are_found_by_guid() {
    let name = |class: &str, opcode| {
        let schema = kernel::lookup_classic(guid(class), opcode, 2, PointerSize::Eight);
        schema.map(|schema| &*schema.event_name)
    };
    let image_id = "b3e675d7-2554-4f18-830b-2762732560de";
    assert_eq!(name(image_id, 0), Some("ImageId/Info"));
    assert_eq!(name(image_id, 36), Some("ImageId/DbgIdRsds"));
    assert_eq!(name(image_id, 64), Some("ImageId/FileVersion"));
    assert_eq!(name(image_id, 1), None);
    assert_eq!(name("9b79ee91-b5fd-41c0-a243-4248e266e9d0", 35), Some("SysConfigEx/VolumeMapping"));
    assert_eq!(name("6a399ae0-4bc6-4de9-870b-3657f8947e7e", 33), Some("LostEvent/RTLostBuffer"));
    assert_eq!(name("ed54dff8-c409-4cf6-bf83-05e1e61a09c4", 35), Some("WinSAT/Metrics"));
    assert_eq!(name("bbccf6c1-6cd1-48c4-80ff-839482e37671", 32), Some("EventMetaData/EventInfo"));
    // By class and opcode, as an old logger writes them.
    assert_eq!(name("3d6fa8d1-fe05-11d0-9dda-00c04fd7ba7c", 36), Some("Thread/CSwitch"));
    assert_eq!(name("2cb15d1d-5fc1-11d2-abe1-00a0c911f518", 10), Some("Image/Load"));
    // A mark has a different layout with a classic header.
    let perf_info = guid("ce1dbfb4-137e-4da6-87b0-3f59aa102cbc");
    assert_eq!(fields(kernel::lookup_classic(perf_info, 34, 0, PointerSize::Eight).unwrap()), ["Message"]);
    assert_eq!(name("ce1dbfb4-137e-4da6-87b0-3f59aa102cbc", 46), Some("PerfInfo/SampledProfile"));
    assert_eq!(name("00000000-0000-0000-0000-000000000000", 0), None);
}

#[test]
fn values_have_names() {
    let name = |map: &str, value| kernel::map(map).unwrap().value_name(value).map(str::to_owned);
    assert_eq!(name("WaitReason", 36).as_deref(), Some("WrRundown"));
    assert_eq!(name("ThreadState", 5).as_deref(), Some("Waiting"));
    assert_eq!(name("PageKind", 13).as_deref(), Some("LargePage"));
    assert_eq!(name("PageList", 6).as_deref(), Some("Active"));
    assert_eq!(name("WaitReason", 43), None);
    assert!(kernel::map("Colour").is_none());
}
