//! Writes small traces with every kind of record, each with a description of its contents.
//!
//! `write_sample FOLDER` writes `NAME.etl` and `NAME.jsonl` for several sessions.
//! `scripts/check-writer.py` compares both with an independent reader. Therefore, descriptions are
//! made from the records, never from the files.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use stackhound_etl::ClockKind;
use stackhound_etl::record::{Descriptor, ExtendedType, MessageOptions};
use stackhound_etl::write::{
    EtlWriter, EventClass, Form, HeaderSpec, InstanceIds, Issuer, ItemSpec, MessageSpec, Payload, RecordSpec,
    Session, stack,
};
use stackhound_types::{Address, Guid, Pid, PointerSize, RawTime, Tid};

type Error = Box<dyn std::error::Error>;

const PAYLOAD: &[u8] = b"payload of a length that is no multiple of eight";
const FRAMES: &[Address] = &[Address(0x7700_1234), Address(0x7700_5678), Address(0x40_1000)];
const GUID: Guid = Guid::new(0x9e81_4aad, 0x3204, 0x11d2, [0x9a, 0x82, 0, 0x60, 0x08, 0xa8, 0x69, 0x39]);
/// The SID S-1-5-18.
const SID: &[u8] = &[1, 1, 0, 0, 0, 0, 0, 5, 18, 0, 0, 0];
/// A provider name without traits.
const TRAITS: &[u8] = b"\x09\x00Sample\x00";
const SCHEMA: &[u8] = b"\x0f\x00\x00Event\x00field\x00\x04";
const ISSUER: Issuer = Issuer { tid: Some(Tid(4321)), pid: Some(Pid(1234)), kernel_time: 5, user_time: 6 };
const INSTANCE: InstanceIds = InstanceIds { id: 1, parent_id: 2, parent_guid: GUID };
/// Only the first word of ERROR records is known. Readers expect a header of 0x50 bytes.
const ERROR_PAYLOAD: &[u8] = &[b'?'; 0x60];
const DESCRIPTOR: Descriptor =
    Descriptor { id: 500, version: 1, channel: 11, level: 4, opcode: 2, task: 9, keyword: 1 << 47 };
const CLASS: EventClass = EventClass { guid: GUID, opcode: 10, level: 4, version: 2 };

fn main() -> Result<(), Error> {
    write_all(Path::new(&std::env::args_os().nth(1).ok_or("usage: write_sample FOLDER")?))
}

/// Writes all traces to a folder, which is created if it is missing.
pub fn write_all(folder: &Path) -> Result<(), Error> {
    std::fs::create_dir_all(folder)?;
    let live = Session { processors: 4, buffer_size: 4096, ..Session::default() };
    let windows7 = Session {
        pointer_size: PointerSize::Four,
        form: Form::Windows7,
        windows_version: (6, 1),
        build: 7_601,
        ..live.clone()
    };
    for (name, session) in [
        ("live", live.clone()),
        ("odd-frequency", Session { perf_frequency: 2_648_433.try_into()?, ..live.clone() }),
        ("compressed", Session { compressed: true, buffer_size: 64 << 10, ..live.clone() }),
        ("merged-plain", Session { form: Form::Merged, ..live.clone() }),
        ("merged-compressed", Session { form: Form::Merged, compressed: true, ..live.clone() }),
        ("windows7-32bit", windows7),
        ("cycles", Session { clock: ClockKind::CpuCycles, ..live.clone() }),
        ("system-time", Session { clock: ClockKind::SystemTime, start: RawTime(live.start_time.0), ..live }),
    ] {
        write(folder, name, session)?;
    }
    Ok(())
}

fn write(folder: &Path, name: &str, session: Session) -> Result<(), Error> {
    let start = session.start;
    let clock = session.clock();
    let processors = i64::from(session.processors);
    let mut description = BufWriter::new(File::create(folder.join(name).with_extension("jsonl"))?);
    let mut writer = EtlWriter::new(session, File::create(folder.join(name).with_extension("etl"))?)?;
    if writer.session().form == Form::Live {
        // As Windows 10 writes it.
        writer.write_to_header(&RecordSpec {
            time: start,
            pointer_size: writer.session().pointer_size,
            header: HeaderSpec::System { hook_id: 0x0050, version: 2, issuer: ISSUER },
            payload: Payload::Bytes(&[0; 48]),
        })?;
    }
    let items = items();
    let specs: Vec<ItemSpec<'static>> = items.iter().map(|item| item.0).collect();
    let samples = samples(&specs, &items);
    for number in 0..5_000 {
        // Four records on different processors share a timestamp.
        let time = RawTime(start.0 + 1 + number / 4 * 1_000);
        let processor = (number % processors) as u16;
        let sample = &samples[number as usize * 7 % samples.len()];
        writer.write(processor, &RecordSpec { time, ..sample.record })?;
        let file_time = clock.to_file_time(time).0;
        let (time, rest) = (time.0, sample.describe());
        writeln!(description, r#"{{"processor":{processor},"time":{time},"file_time":{file_time},{rest}}}"#)?;
    }
    writer.finish()?;
    description.flush()?;
    Ok(())
}

/// A record and its expected description.
#[derive(Clone)]
struct Sample<'a> {
    record: RecordSpec<'a>,
    kind: &'static str,
    /// The hook id, GUID or message number of the event.
    identity: String,
    /// Whether the header stores the time, and whether it stores thread and process.
    stores: (bool, bool),
    /// The bytes between the fixed header and the payload, without items.
    extras: Vec<u8>,
    items: Vec<(u16, Vec<u8>)>,
    payload: Vec<u8>,
}

impl Sample<'_> {
    fn describe(&self) -> String {
        let items: Vec<String> =
            self.items.iter().map(|(item_type, data)| format!(r#"[{item_type},"{}"]"#, hex(data))).collect();
        format!(
            r#""kind":"{}","identity":"{}","timed":{},"issued":{},"extras":"{}","items":[{}],"payload":"{}""#,
            self.kind,
            self.identity,
            self.stores.0,
            self.stores.1,
            hex(&self.extras),
            items.join(","),
            hex(&self.payload)
        )
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn words(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// An extended data item, its type and its data.
type Item = (ItemSpec<'static>, u16, Vec<u8>);

/// Every extended data item.
fn items() -> Vec<Item> {
    let (four, eight) = (PointerSize::Four, PointerSize::Eight);
    let match_id = words(&[9]);
    let frames32: Vec<u8> = FRAMES.iter().flat_map(|frame| (frame.0 as u32).to_le_bytes()).collect();
    let frames64: Vec<u8> = FRAMES.iter().flat_map(|frame| frame.0.to_le_bytes()).collect();
    let stack = |pointer_size| ItemSpec::StackTrace { pointer_size, match_id: 9, frames: FRAMES };
    let key = |pointer_size| ItemSpec::StackKey { pointer_size, match_id: 9, key: 8 };
    vec![
        (ItemSpec::RelatedActivityId(GUID), 0x01, GUID.0.to_vec()),
        (ItemSpec::Sid(SID), 0x02, SID.to_vec()),
        (ItemSpec::TerminalSessionId(3), 0x03, vec![3, 0, 0, 0]),
        (ItemSpec::InstanceInfo(INSTANCE), 0x04, [&[1, 0, 0, 0, 2, 0, 0, 0], &GUID.0[..]].concat()),
        (stack(four), 0x05, [match_id.clone(), frames32].concat()),
        (stack(eight), 0x06, [match_id, frames64].concat()),
        (ItemSpec::PebsIndex(5), 0x07, words(&[5])),
        (ItemSpec::PmcCounters(&[5, 6]), 0x08, words(&[5, 6])),
        (ItemSpec::PsmKey(b"eight of"), 0x09, b"eight of".to_vec()),
        (ItemSpec::EventKey(5), 0x0a, words(&[5])),
        (ItemSpec::Schema(SCHEMA), 0x0b, SCHEMA.to_vec()),
        (ItemSpec::ProviderTraits(TRAITS), 0x0c, TRAITS.to_vec()),
        (ItemSpec::ProcessStartKey(5), 0x0d, words(&[5])),
        (ItemSpec::ControlGuid(GUID), 0x0e, GUID.0.to_vec()),
        (ItemSpec::QpcDelta(5), 0x0f, words(&[5])),
        (ItemSpec::ContainerId(GUID), 0x10, b"9e814aad-3204-11d2-9a82-006008a86939".to_vec()),
        (key(four), 0x11, words(&[9, 8])),
        (key(eight), 0x12, words(&[9, 8])),
        (ItemSpec::Other { item_type: ExtendedType(0x20), data: &[] }, 0x20, Vec::new()),
    ]
}

/// Every kind of record, for each pointer size, with and without its optional parts.
fn samples<'a>(specs: &'a [ItemSpec<'static>], items: &[Item]) -> Vec<Sample<'a>> {
    let mut samples = Vec::new();
    for pointer_size in [PointerSize::Four, PointerSize::Eight] {
        let pick = |four, eight| if pointer_size == PointerSize::Four { four } else { eight };
        let sample = |header, kind, identity: String| Sample {
            record: RecordSpec { time: RawTime(0), pointer_size, header, payload: Payload::Bytes(PAYLOAD) },
            kind,
            identity,
            stores: (true, true),
            extras: Vec::new(),
            items: Vec::new(),
            payload: PAYLOAD.to_vec(),
        };

        let system = HeaderSpec::System { hook_id: 0x0301, version: 4, issuer: ISSUER };
        samples.push(sample(system, pick("SYSTEM32", "SYSTEM64"), "0301".into()));
        let compact = HeaderSpec::Compact { hook_id: 0x1a21, version: 2, issuer: ISSUER };
        samples.push(sample(compact, pick("COMPACT32", "COMPACT64"), "1a21".into()));
        let full = HeaderSpec::Full { class: CLASS, issuer: ISSUER };
        samples.push(sample(full, pick("FULL32", "FULL64"), hex(&GUID.0)));
        let instance = HeaderSpec::Instance { class: CLASS, issuer: ISSUER, instance: INSTANCE };
        let extras = [&[1, 0, 0, 0, 2, 0, 0, 0], &GUID.0[..]].concat();
        samples.push(Sample { extras, ..sample(instance, pick("INSTANCE32", "INSTANCE64"), hex(&GUID.0)) });

        let perf_info = |pebs_index, counters, hook_id: u16| Sample {
            stores: (true, false),
            ..sample(
                HeaderSpec::PerfInfo { hook_id, version: 2, pebs_index, counters },
                pick("PERFINFO32", "PERFINFO64"),
                format!("{hook_id:04x}"),
            )
        };
        for count in 0..=7 {
            for pebs_index in [None, Some(1)] {
                let counters = &[2, 3, 4, 5, 6, 7, 8][..count];
                let extras = [words(pebs_index.as_slice()), words(counters)].concat();
                samples.push(Sample { extras, ..perf_info(pebs_index, counters, 0x0524) });
            }
        }
        let trigger = stack::Trigger { time: RawTime(7), pid: Pid(8), tid: Tid(9) };
        let record = stack::frames(RawTime(0), pointer_size, trigger, FRAMES);
        let stack_item = if pointer_size == PointerSize::Four { 4 } else { 5 };
        let frames = &items[stack_item].2[8..];
        let payload = [&words(&[7])[..], &[8, 0, 0, 0, 9, 0, 0, 0], frames].concat();
        samples.push(Sample { record, payload, ..perf_info(None, &[], 0x1820) });

        let event = |specs, items: &[Item]| Sample {
            items: items.iter().map(|(_, item_type, data)| (*item_type, data.clone())).collect(),
            ..sample(
                HeaderSpec::Event {
                    provider: GUID,
                    descriptor: DESCRIPTOR,
                    property: 0,
                    issuer: ISSUER,
                    activity: Guid::ZERO,
                    items: specs,
                },
                pick("EVENT32", "EVENT64"),
                hex(&GUID.0),
            )
        };
        samples.push(event(&[], &[]));
        samples.push(event(specs, items));
        samples.extend((0..specs.len()).map(|at| event(&specs[at..=at], &items[at..=at])));

        let error = sample(HeaderSpec::Error, "ERROR", String::new());
        let record = RecordSpec { payload: Payload::Bytes(ERROR_PAYLOAD), ..error.record };
        samples.push(Sample {
            record,
            stores: (false, false),
            payload: ERROR_PAYLOAD[0x48..].to_vec(),
            ..error
        });
        samples.extend((0..=0xff).filter_map(|options| message(options, &sample)));
    }
    samples
}

/// A WPP message with these option bits; `None` if the independent reader is known to interpret
/// them differently.
fn message<'a>(
    options: u16,
    sample: &impl Fn(HeaderSpec<'a>, &'static str, String) -> Sample<'a>,
) -> Option<Sample<'a>> {
    let options = MessageOptions(options);
    let has = |option| options.has(option);
    let timed = has(MessageOptions::TIMESTAMP);
    if has(MessageOptions::COMPONENT_ID) || (has(MessageOptions::PERFORMANCE_TIMESTAMP) && !timed) {
        return None;
    }
    let (number, sequence, component) = (77, 5, 6);
    let message = MessageSpec { number, options, sequence, guid: GUID, component, issuer: ISSUER };
    let issued = has(MessageOptions::SYSTEM_INFO);
    Some(Sample {
        stores: (timed, issued),
        ..sample(HeaderSpec::Message(message), "MESSAGE", format!("{number}/{:02x}", options.0))
    })
}
