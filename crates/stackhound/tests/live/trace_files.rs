//! The traces that sessions deliver.

use std::io::Cursor;

use stackhound_etl::record::Descriptor;
use stackhound_etl::write::{EtlWriter, HeaderSpec, Issuer, Payload, RecordSpec, Session};
use stackhound_types::{Guid, Pid, PointerSize, RawTime, Tid};

/// The provider of the events.
pub const PROVIDER: Guid = Guid([7; 16]);

/// Ten thousand small events of four processors, a microsecond apart, without stacks.
pub fn plain() -> Vec<u8> {
    let session = Session { processors: 4, buffer_size: 64 << 10, ..Session::default() };
    let start = session.start.0;
    let mut writer = EtlWriter::new(session, Cursor::new(Vec::new())).expect("a writer");
    for number in 0..10_000u16 {
        let descriptor =
            Descriptor { id: number, version: 1, channel: 0, level: 4, opcode: 2, task: 3, keyword: 0x10 };
        let header = HeaderSpec::Event {
            provider: PROVIDER,
            descriptor,
            property: 0,
            issuer: Issuer::new(Pid(8), Tid(9)),
            activity: Guid::ZERO,
            items: &[],
        };
        let record = RecordSpec {
            time: RawTime(start + i64::from(number) * 10),
            pointer_size: PointerSize::Eight,
            header,
            payload: Payload::Bytes(&[1; 32]),
        };
        writer.write(number / 8 % 4, &record).expect("written");
    }
    writer.finish().expect("finished").0.into_inner()
}

/// A generated system with stacks in every form and a lost buffer.
pub fn scenario() -> Vec<u8> {
    let mut file = Cursor::new(Vec::new());
    let scenario = stackhound_scenario::Scenario { seed: 3, events: 20_000, ..Default::default() };
    scenario.write(&mut file).expect("written");
    file.into_inner()
}
