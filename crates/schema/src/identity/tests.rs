use std::io::Cursor;

use stackhound_etl::EtlFile;
use stackhound_etl::record::MessageOptions;
use stackhound_etl::write::{
    EtlWriter, EventClass, HeaderSpec, InstanceIds, Issuer, ItemSpec, MessageSpec, Payload, RecordSpec,
    Session,
};
use stackhound_types::PointerSize;

use super::*;

const GUID: Guid = Guid::new(0x9e81_4aad, 0x3204, 0x11d2, [0x9a, 0x82, 0, 0x60, 8, 0xa8, 0x69, 0x39]);
const ISSUER: Issuer = Issuer::UNKNOWN;
const CLASS: EventClass = EventClass { guid: GUID, opcode: 5, level: 0, version: 0x0102 };
const DESCRIPTOR: Descriptor =
    Descriptor { id: 0x1234, version: 3, channel: 4, level: 5, opcode: 6, task: 0x789a, keyword: 8 };

/// A trace with one event.
fn written(header: HeaderSpec<'_>) -> Vec<u8> {
    let session = Session::default();
    let record = RecordSpec {
        time: session.start,
        pointer_size: PointerSize::Eight,
        header,
        payload: Payload::Bytes(&[]),
    };
    let mut writer = EtlWriter::new(session, Cursor::new(Vec::new())).unwrap();
    writer.write(0, &record).unwrap();
    writer.finish().unwrap().0.into_inner()
}

/// The identity of the last event of a trace, as text.
fn shown(file: Vec<u8>) -> String {
    let etl_file = EtlFile::open(file.into()).unwrap();
    let last = etl_file.index().streams().into_iter().flatten().last().unwrap();
    let (block, _) = etl_file.block(&last, None).unwrap();
    let record = block.record(block.entries().last().unwrap());
    format!("{:?}", Identity::of(&record))
}

fn check(header: HeaderSpec<'_>, expected: Option<Identity<'_>>) {
    assert_eq!(shown(written(header)), format!("{expected:?}"));
}

fn event<'a>(items: &'a [ItemSpec<'a>]) -> HeaderSpec<'a> {
    let (provider, descriptor) = (GUID, DESCRIPTOR);
    HeaderSpec::Event { provider, descriptor, property: 0, issuer: ISSUER, activity: Guid::ZERO, items }
}

#[test]
fn kernel_records_have_hook_ids() {
    let (hook_id, version, issuer) = (0x0524, 2, ISSUER);
    let expected = Some(Identity::Kernel { hook_id, version });
    check(HeaderSpec::System { hook_id, version, issuer }, expected);
    check(HeaderSpec::Compact { hook_id, version, issuer }, expected);
    check(HeaderSpec::PerfInfo { hook_id, version, pebs_index: None, counters: &[7] }, expected);
}

#[test]
fn classic_headers_have_classes() {
    let expected = Some(Identity::Classic { class: GUID, opcode: 5, version: 2 });
    check(HeaderSpec::Full { class: CLASS, issuer: ISSUER }, expected);
    let instance = InstanceIds { id: 1, parent_id: 0, parent_guid: Guid::ZERO };
    check(HeaderSpec::Instance { class: CLASS, issuer: ISSUER, instance }, expected);
}

#[test]
fn manifest_and_tracelogging_events_are_distinguished() {
    let manifest = Identity::Manifest { provider: GUID, id: 0x1234, version: 3, opcode: 6, task: 0x789a };
    check(event(&[]), Some(manifest));
    check(event(&[ItemSpec::EventKey(1), ItemSpec::ProviderTraits(&[2, 0])]), Some(manifest));
    let described = Identity::TraceLogging { provider: GUID, metadata: &[1, 2, 3], opcode: 6 };
    check(event(&[ItemSpec::EventKey(1), ItemSpec::Schema(&[1, 2, 3])]), Some(described));
    let items = [ItemSpec::ProviderTraits(&[4, 5]), ItemSpec::Schema(&[1, 2, 3])];
    check(event(&items), Some(described));
}

#[test]
fn text_events_are_recognized_by_their_flag() {
    let mut file = written(event(&[]));
    // The flags are at offset 4 of the header, the provider at offset 24.
    let provider = file.windows(16).rposition(|bytes| bytes == GUID.0).unwrap();
    file[provider - 20] |= 4;
    assert_eq!(shown(file), format!("{:?}", Some(Identity::Text { provider: GUID })));
}

#[test]
fn messages_have_a_guid_or_component() {
    let component = Guid::new(0x1122_3344, 0, 0, [0; 8]);
    let message = |options| MessageSpec {
        number: 9,
        options,
        sequence: 0,
        guid: GUID,
        component: 0x1122_3344,
        issuer: ISSUER,
    };
    for (options, guid) in [
        (MessageOptions::GUID, Some(GUID)),
        (MessageOptions::COMPONENT_ID, Some(component)),
        (MessageOptions(0), None),
    ] {
        let options = MessageOptions(options.0 | MessageOptions::TIMESTAMP.0);
        let expected = guid.map(|guid| Identity::Message { guid, number: 9 });
        check(HeaderSpec::Message(message(options)), expected);
    }
}
