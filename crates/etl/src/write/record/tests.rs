use stackhound_types::Address;

use super::*;
use crate::write::stack::{self, KeyDefinition, StackMode, Trigger};

const ISSUER: Issuer =
    Issuer { tid: Some(Tid(0x1111)), pid: Some(Pid(0x2222)), kernel_time: 3, user_time: 4 };
const CLASS: EventClass = EventClass { guid: Guid([0xaa; 16]), opcode: 0x0a, level: 5, version: 2 };
const INSTANCE: InstanceIds = InstanceIds { id: 6, parent_id: 7, parent_guid: Guid([0xbb; 16]) };
const TIME: &str = "08 07 06 05 04 03 02 01";
const IDS: &str = "11 11 00 00 22 22 00 00";

/// `expected` is hexadecimal. `TIME`, `IDS`, `AA` and `BB` are replaced by the values above.
#[track_caller]
fn check(pointer_size: PointerSize, header: HeaderSpec<'_>, payload: Payload<'_>, expected: &str) {
    let expected = expected
        .replace("TIME", TIME)
        .replace("IDS", IDS)
        .replace("AA", &"aa ".repeat(16))
        .replace("BB", &"bb ".repeat(16));
    let expected: Vec<u8> =
        expected.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
    let record = RecordSpec { time: RawTime(0x0102_0304_0506_0708), pointer_size, header, payload };
    let mut bytes = vec![0xee; record.size().unwrap()];
    record.encode(&mut bytes);
    assert_eq!(bytes, expected, "{bytes:02x?}");
}

#[test]
fn every_header_has_its_layout() {
    use PointerSize::{Eight, Four};
    let bytes = Payload::Bytes(&[0xee]);

    let system = HeaderSpec::System { hook_id: 0x0301, version: 4, issuer: ISSUER };
    check(Four, system, bytes, "04 00 01 c0 21 00 01 03 IDS TIME 03 00 00 00 04 00 00 00 ee");
    check(Eight, system, bytes, "04 00 02 c0 21 00 01 03 IDS TIME 03 00 00 00 04 00 00 00 ee");

    let compact = HeaderSpec::Compact { hook_id: 0x0301, version: 4, issuer: Issuer::UNKNOWN };
    check(Four, compact, bytes, "04 00 03 c0 19 00 01 03 ff ff ff ff ff ff ff ff TIME ee");
    check(Eight, compact, bytes, "04 00 04 c0 19 00 01 03 ff ff ff ff ff ff ff ff TIME ee");

    let perf_info =
        |pebs_index, counters| HeaderSpec::PerfInfo { hook_id: 0x0f2e, version: 2, pebs_index, counters };
    check(Four, perf_info(None, &[]), bytes, "02 00 10 c0 11 00 2e 0f TIME ee");
    check(Eight, perf_info(None, &[]), bytes, "02 00 11 c0 11 00 2e 0f TIME ee");
    let two = "01 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00";
    check(Eight, perf_info(None, &[1, 2]), bytes, &format!("02 02 11 c0 21 00 2e 0f TIME {two} ee"));
    check(Eight, perf_info(Some(1), &[2]), bytes, &format!("02 81 11 c0 21 00 2e 0f TIME {two} ee"));

    let full = HeaderSpec::Full { class: CLASS, issuer: ISSUER };
    let rest = "c0 0a 05 02 00 IDS TIME AA 03 00 00 00 04 00 00 00";
    check(Four, full, bytes, &format!("31 00 0a {rest} ee"));
    check(Eight, full, bytes, &format!("31 00 14 {rest} ee"));
    let instance = HeaderSpec::Instance { class: CLASS, issuer: ISSUER, instance: INSTANCE };
    let rest = format!("{rest} 06 00 00 00 07 00 00 00 BB");
    check(Four, instance, bytes, &format!("49 00 0b {rest} ee"));
    check(Eight, instance, bytes, &format!("49 00 15 {rest} ee"));

    let error = "0d c0 00 00 00 00 ee";
    check(Four, HeaderSpec::Error, bytes, &format!("09 00 {error}"));
    check(Eight, HeaderSpec::Error, bytes, &format!("09 00 {error}"));
}

#[test]
fn event_headers_carry_their_items() {
    use PointerSize::{Eight, Four};
    let event = |items| HeaderSpec::Event {
        provider: Guid([0xaa; 16]),
        descriptor: Descriptor {
            id: 0x0102,
            version: 3,
            channel: 4,
            level: 5,
            opcode: 6,
            task: 0x0708,
            keyword: 0x8000_0000_0000_0001,
        },
        property: 1,
        issuer: ISSUER,
        activity: Guid([0xbb; 16]),
        items,
    };
    let rest = "01 00 IDS TIME AA 02 01 03 04 05 06 08 07 01 00 00 00 00 00 00 80 \
                03 00 00 00 04 00 00 00 BB";
    let bytes = Payload::Bytes(&[0xee]);
    check(Four, event(&[]), bytes, &format!("51 00 12 c0 00 00 {rest} ee"));
    check(Eight, event(&[]), bytes, &format!("51 00 13 c0 00 00 {rest} ee"));

    let frames = &[Address(0x10), Address(0x20)];
    let match_id = 9;
    let items = &[
        ItemSpec::TerminalSessionId(1),
        ItemSpec::StackTrace { pointer_size: Four, match_id, frames },
        ItemSpec::StackKey { pointer_size: Four, match_id, key: 0x30 },
        ItemSpec::Sid(&[]),
    ];
    let expected = format!(
        "99 00 13 c0 01 00 {rest} \
         10 00 03 00 01 00 04 00 01 00 00 00 00 00 00 00 \
         18 00 05 00 01 00 10 00 09 00 00 00 00 00 00 00 10 00 00 00 20 00 00 00 \
         18 00 11 00 01 00 10 00 09 00 00 00 00 00 00 00 30 00 00 00 00 00 00 00 \
         08 00 02 00 00 00 00 00 \
         ee"
    );
    check(Eight, event(items), bytes, &expected);
}

#[test]
fn messages_have_the_parts_that_their_options_indicate() {
    let message = |options| {
        HeaderSpec::Message(MessageSpec {
            number: 0x4d,
            options: MessageOptions(options),
            sequence: 5,
            guid: Guid([0xaa; 16]),
            component: 6,
            issuer: ISSUER,
        })
    };
    for (options, expected) in [
        (0x00, "09 00 00 90 4d 00 00 00 ee"),
        (0x01, "0d 00 00 90 4d 00 01 00 05 00 00 00 ee"),
        (0x02, "19 00 00 90 4d 00 02 00 AA ee"),
        (0x04, "0d 00 00 90 4d 00 04 00 06 00 00 00 ee"),
        (0x06, "0d 00 00 90 4d 00 06 00 06 00 00 00 ee"),
        (0x08, "11 00 00 90 4d 00 08 00 TIME ee"),
        (0x10, "11 00 00 90 4d 00 10 00 TIME ee"),
        (0x18, "11 00 00 90 4d 00 18 00 TIME ee"),
        (0x20, "11 00 00 90 4d 00 20 00 IDS ee"),
        (0xc0, "09 00 00 90 4d 00 c0 00 ee"),
        (0xbb, "2d 00 00 90 4d 00 bb 00 05 00 00 00 AA TIME IDS ee"),
    ] {
        check(PointerSize::Eight, message(options), Payload::Bytes(&[0xee]), expected);
    }
}

#[test]
fn stacks_are_records_of_their_own() {
    let time = RawTime(0x0102_0304_0506_0708);
    let trigger = Trigger { time: RawTime(9), pid: Pid(1), tid: Tid(2) };
    let frames = &[Address(0x10), Address(0x20)];
    let of = "09 00 00 00 00 00 00 00 01 00 00 00 02 00 00 00";
    let frames64 = "10 00 00 00 00 00 00 00 20 00 00 00 00 00 00 00";
    for (pointer_size, record, expected) in [
        (PointerSize::Eight, stack::frames(time, PointerSize::Eight, trigger, frames), {
            format!("02 00 11 c0 30 00 20 18 TIME {of} {frames64}")
        }),
        (PointerSize::Four, stack::frames(time, PointerSize::Four, trigger, frames), {
            format!("02 00 10 c0 28 00 20 18 TIME {of} 10 00 00 00 20 00 00 00")
        }),
        (PointerSize::Eight, stack::key(time, PointerSize::Eight, trigger, StackMode::Kernel, 0x30), {
            format!("02 00 11 c0 28 00 25 18 TIME {of} 30 00 00 00 00 00 00 00")
        }),
        (PointerSize::Four, stack::key(time, PointerSize::Four, trigger, StackMode::User, 0x30), {
            format!("02 00 10 c0 24 00 26 18 TIME {of} 30 00 00 00")
        }),
        (
            PointerSize::Eight,
            stack::definition(time, PointerSize::Eight, KeyDefinition::Delete, 0x30, frames),
            format!("02 00 11 c0 28 00 23 18 TIME 30 00 00 00 00 00 00 00 {frames64}"),
        ),
        (
            PointerSize::Eight,
            stack::definition(time, PointerSize::Eight, KeyDefinition::Rundown, 0x30, &[]),
            String::from("02 00 11 c0 18 00 24 18 TIME 30 00 00 00 00 00 00 00"),
        ),
        (
            PointerSize::Four,
            stack::definition(time, PointerSize::Four, KeyDefinition::Create, 0x30, &frames[1..]),
            String::from("02 00 10 c0 18 00 22 18 TIME 30 00 00 00 20 00 00 00"),
        ),
    ] {
        check(pointer_size, record.header, record.payload, &expected);
    }
}

#[test]
fn records_have_limits() {
    let payload = vec![0; RECORD_SIZE_MAX];
    let size = |header, length| {
        let payload = Payload::Bytes(&payload[..length]);
        RecordSpec { time: RawTime(0), pointer_size: PointerSize::Eight, header, payload }.size()
    };
    let compact = HeaderSpec::Compact { hook_id: 0, version: 0, issuer: ISSUER };
    assert_eq!(size(compact, RECORD_SIZE_MAX - 0x18).unwrap(), RECORD_SIZE_MAX);
    assert!(matches!(
        size(compact, RECORD_SIZE_MAX - 0x17),
        Err(WriteError::RecordTooLarge { size: 0x1_0000 })
    ));
    let counters = |counters| HeaderSpec::PerfInfo { hook_id: 0, version: 0, pebs_index: None, counters };
    assert_eq!(size(counters(&[0; 7]), 0).unwrap(), 0x48);
    assert!(matches!(size(counters(&[0; 8]), 0), Err(WriteError::TooManyCounters { count: 8 })));
}
