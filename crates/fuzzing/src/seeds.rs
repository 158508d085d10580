//! Valid inputs of each target, as seeds. They are built by the writer and by small builders, never
//! by the code under test.

use std::io::Cursor;
use std::num::NonZeroU32;

use stackhound_etl::ClockKind;
use stackhound_etl::compress::xpress;
use stackhound_etl::record::{Descriptor, MessageOptions};
use stackhound_etl::write::stack::{self, KeyDefinition, StackMode, Trigger};
use stackhound_etl::write::{
    EtlWriter, EventClass, Form, HeaderSpec, InstanceIds, Issuer, ItemSpec, MessageSpec, Payload, RecordSpec,
    Session,
};
use stackhound_types::{Address, Guid, Pid, PointerSize, RawTime, Tid};

use self::blocks::{Head, MANIFEST, Stored, event_info, event_metadata, field, map_info, structure, value};
use crate::metadata::{EVENT_INFO, EVENT_METADATA, MAP_INFO};

/// The metadata blocks from the tests of the schema crate.
#[path = "../../schema/src/testing/blocks.rs"]
mod blocks;

/// The compiled manifest from these tests.
#[path = "../../schema/src/testing/compiled.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod compiled;

fn hex(digits: &str) -> Vec<u8> {
    let digits: Vec<char> = digits.chars().filter(char::is_ascii_hexdigit).collect();
    let digit = |digit: char| digit.to_digit(16).expect("a digit") as u8;
    digits.chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

fn utf16z(text: &str) -> Vec<u8> {
    text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect()
}

const MANIFEST_XML: &str = r#"<?xml version="1.0"?>
<instrumentationManifest xmlns="http://schemas.microsoft.com/win/2004/08/events"><instrumentation><events>
<provider name="Seed-Provider" guid="{07070707-0707-0707-0707-070707070707}" symbol="Seed">
<tasks><task name="Request" value="7" message="$(string.hello)"/></tasks>
<maps><valueMap name="Color"><map value="1" message="$(string.hello)"/><map value="0x2" message="blue"/></valueMap>
<bitMap name="Access"><map value="0x1" message="Read"/><map value="0x2" message="Write"/></bitMap></maps>
<events><event value="1" version="2" task="Request" opcode="win:Start" template="T" message="$(string.hello)"/></events>
<templates><template tid="T"><data name="n" inType="win:UInt16" map="Color"/>
<data name="a" inType="win:UInt32" count="n" map="Access"/><data name="b" inType="win:Binary" length="n"/>
<struct name="s" count="2"><data name="t" inType="win:UnicodeString"/></struct></template></templates>
</provider></events></instrumentation><localization><resources><stringTable>
<string id="hello" value="hello %1"/></stringTable></resources></localization></instrumentationManifest>"#;

fn small() -> Session {
    Session { processors: 2, buffer_size: 1024, ..Session::default() }
}

/// .etl files of every form, small enough to be mutated.
pub fn trace_files() -> Vec<Vec<u8>> {
    let small = small();
    let start = RawTime(small.start_time.0);
    let form = Form::Merged;
    [
        small.clone(),
        Session { form: Form::Windows7, windows_version: (6, 1), ..small.clone() },
        Session { form, compressed: true, ..small.clone() },
        Session { circular: NonZeroU32::new(3), ..small.clone() },
        Session { clock: ClockKind::SystemTime, start, ..small.clone() },
        Session { clock: ClockKind::CpuCycles, pointer_size: PointerSize::Four, ..small.clone() },
    ]
    .into_iter()
    .map(write)
    .chain([unfinished(small)])
    .collect()
}

fn write(session: Session) -> Vec<u8> {
    fill(session).finish().expect("writing to memory succeeds").0.into_inner()
}

fn unfinished(session: Session) -> Vec<u8> {
    fill(session).leave_unfinished(2000).expect("writing to memory succeeds").0.into_inner()
}

/// Writes records of all kinds on two processors, with stacks and schemas.
fn fill(session: Session) -> EtlWriter<Cursor<Vec<u8>>> {
    let (pointer_size, start) = (session.pointer_size, session.start.0);
    let mut writer = EtlWriter::new(session, Cursor::new(Vec::new())).expect("a valid session");
    let kernel_address = if pointer_size == PointerSize::Four { 0x8000_0000 } else { 0xffff_8000_0000_0000 };
    let kernel_frames = [Address(kernel_address + 16), Address(kernel_address + 32)];
    let user_frames = [Address(0x7700_1000), Address(0x7700_2000), Address(0x7700_3000)];
    let issuer = Issuer::new(Pid(20), Tid(16));
    let class = |guid, opcode| EventClass { guid, opcode, level: 4, version: 0 };
    let descriptor =
        |id, task, opcode| Descriptor { id, version: 2, channel: 0, level: 4, opcode, task, keyword: 1 };
    let event = |descriptor, items| HeaderSpec::Event {
        provider: blocks::PROVIDER,
        descriptor,
        property: 0,
        issuer,
        activity: Guid([8; 16]),
        items,
    };
    let trace_logging = event_metadata("Logged", &[field("n", "07"), field("text", "01")].concat());
    let chunk = [&[1, 1, 0, 0x5b, 1, 0, 0, 0], &MANIFEST_XML.as_bytes()[..600]].concat();
    let info =
        event_info(&Head { top_level: 1, ..MANIFEST }, &[Stored { map: "TypeMap", ..value("n", 8, 7) }]);
    let map = map_info(1, 1, &[(1, "one")]);
    let items = [
        ItemSpec::RelatedActivityId(Guid([5; 16])),
        ItemSpec::Schema(&trace_logging),
        ItemSpec::StackTrace { pointer_size, match_id: 1 << 40, frames: &kernel_frames },
        ItemSpec::StackKey { pointer_size, match_id: 7, key: 2 },
    ];
    let message = MessageSpec {
        number: 3,
        options: MessageOptions(0x2b),
        sequence: 1,
        guid: Guid([3; 16]),
        component: 0,
        issuer,
    };
    let instance = InstanceIds { id: 1, parent_id: 2, parent_guid: Guid([4; 16]) };
    let perf_info =
        |hook_id| HeaderSpec::PerfInfo { hook_id, version: 2, pebs_index: Some(1), counters: &[1, 2] };
    let records: [(HeaderSpec<'_>, &[u8]); 12] = [
        (HeaderSpec::System { hook_id: 0x0301, version: 4, issuer }, &[1; 60]),
        (HeaderSpec::Compact { hook_id: 0x010c, version: 3, issuer }, &[2; 48]),
        (perf_info(0x0f2e), &[3; 16]),
        (perf_info(0x0524), &[16, 0, 0, 0, 18, 0, 0, 0]),
        (HeaderSpec::Full { class: class(EVENT_METADATA, MAP_INFO), issuer }, &map),
        (HeaderSpec::Full { class: class(EVENT_METADATA, EVENT_INFO), issuer }, &info),
        (HeaderSpec::Instance { class: class(blocks::CLASS, 1), issuer, instance }, b"instance"),
        (event(descriptor(0x102, 7, 1), &[]), &[1, 0, 0, 0]),
        (event(descriptor(5, 0, 0), &items), b"\x01\x00\x00\x00t\0\0\0"),
        (event(descriptor(0xfffe, 0xfffe, 0xfe), &[]), &chunk),
        (HeaderSpec::Message(message), b"argument"),
        (HeaderSpec::Error, &[0; 8]),
    ];
    for (number, (header, payload)) in (1..).zip(records) {
        let time = RawTime(start + 10 * i64::from(number));
        let trigger = Trigger { time, pid: Pid(20), tid: Tid(16) };
        let later = |ticks| RawTime(time.0 + ticks);
        let key = u64::from(number % 3);
        for record in [
            RecordSpec { time, pointer_size, header, payload: Payload::Bytes(payload) },
            stack::frames(later(1), pointer_size, trigger, &kernel_frames),
            stack::key(later(2), pointer_size, trigger, StackMode::User, key),
            stack::definition(later(3), pointer_size, KeyDefinition::Delete, key, &user_frames),
        ] {
            writer.write(number % 2, &record).expect("a record that fits");
        }
    }
    writer
}

/// The content of buffers after their headers.
pub fn records() -> Vec<Vec<u8>> {
    let etl_file = write(small());
    etl_file.chunks(1024).map(|buffer| buffer[0x48..].to_vec()).collect()
}

/// Compressed data of all algorithms, preceded by the expanded size.
pub fn chunks() -> Vec<Vec<u8>> {
    let of_size = |size: usize, chunk: &[u8]| [&(size as u32).to_le_bytes()[..3], chunk].concat();
    let mut seeds = Vec::new();
    for text in [MANIFEST_XML.as_bytes(), &[7; 20_000], &trace_files()[0], b"a"] {
        seeds.push(of_size(text.len(), &xpress::compress(text)));
    }
    // LZNT1: a stored chunk, and a compressed one with a match.
    seeds.push(of_size(5, b"\x02\x30abc\x01\x30de\0\0"));
    seeds.push(of_size(13, b"\x03\xb0\x02a\x07\x00\0\0"));
    // XPRESS-Huffman with codes of nine bits, which equal their symbols.
    seeds.push(of_size(7, &[&[0x99; 256][..], &hex("30 18 8c 46 24 12 89 44 00 00 00 00")].concat()));
    seeds
}

/// Event metadata of every kind.
pub fn metadata() -> Vec<Vec<u8>> {
    let properties = [
        value("count", 6, 0),
        Stored { flags: 0xf4, count: 0, ..value("numbers", 8, 0) },
        Stored { map: "TypeMap", ..value("type", 8, 7) },
        structure("both", 4, 2),
        value("text", 1, 1),
        Stored { flags: 0xf2, length: 0, ..value("bytes", 14, 15) },
    ];
    let head = Head { task: "Task", opcode: "Opcode", message: "text %1", top_level: 4, ..MANIFEST };
    let fields = [
        field("n", "07"),
        field("s", "98 02"),
        field("constant", "28 0300"),
        field("text", "42"),
        field("tagged", "88 84 01"),
    ];
    let traits = [&[0, 0][..], b"Provider\0", &[19, 0, 1], &[6; 16]].concat();
    let with_size = |mut block: Vec<u8>| {
        let size = block.len() as u16;
        block[..2].copy_from_slice(&size.to_le_bytes());
        block
    };
    vec![
        event_info(&head, &properties),
        event_info(&Head { source: 1, top_level: 1, ..MANIFEST }, &properties[..1]),
        map_info(1, 2, &[(1, "one"), (2, "two")]),
        map_info(2, 2, &[(1, "Read"), (2, "Write")]),
        event_metadata("Event", &fields.concat()),
        with_size(traits),
        MANIFEST_XML.as_bytes().to_vec(),
        compiled::image(Some(&compiled::manifest()), Some(&compiled::texts())),
    ]
}

/// The selection of a schema, and a payload.
pub fn payloads() -> Vec<Vec<u8>> {
    (0..40).map(|seed| random(seed, 40 + 8 * seed as usize)).collect()
}

/// Operations that build a trace.
pub fn operations() -> Vec<Vec<u8>> {
    (0..40).map(|seed| random(seed, 100 + 50 * seed as usize)).collect()
}

/// SplitMix64.
fn random(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed;
    let number = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) as u8
    };
    std::iter::repeat_with(number).take(length).collect()
}
