//! The trace that the fake of the ETW functions replays in tests.

use std::io::Cursor;

use stackhound_etl::record::Descriptor;
use stackhound_etl::write::{EtlWriter, HeaderSpec, Issuer, ItemSpec, Payload, RecordSpec, Session};
use stackhound_etw_fake::harness::Harness;
use stackhound_types::{Guid, Pid, PointerSize, RawTime, Tid};

/// The number of events in the trace.
pub const EVENTS: u64 = 3_000;
/// The number of processors in the trace.
pub const PROCESSORS: u16 = 3;
/// The provider of the events.
pub const PROVIDER: Guid = Guid([7; 16]);
/// The type and the data of the extended data item of each event.
pub const ITEM: (u16, [u8; 8]) = (10, [1, 2, 3, 4, 5, 6, 7, 8]);

/// As [`Harness::run`], with a trace of these events.
pub fn run(test: &str, settings: &str) -> Option<Harness> {
    Harness::run(test, settings, etl_file)
}

/// Consecutive events on three processors, each with its number as id and payload.
fn etl_file() -> Vec<u8> {
    let session = Session { processors: PROCESSORS, buffer_size: 4 << 10, ..Session::default() };
    let start = session.start.0;
    let mut writer = EtlWriter::new(session, Cursor::new(Vec::new())).expect("a writer");
    for number in 0..EVENTS as u16 {
        let descriptor =
            Descriptor { id: number, version: 1, channel: 0, level: 4, opcode: 2, task: 3, keyword: 0x10 };
        let items = [ItemSpec::EventKey(u64::from_le_bytes(ITEM.1))];
        let header = HeaderSpec::Event {
            provider: PROVIDER,
            descriptor,
            property: 0,
            issuer: Issuer::new(Pid(8), Tid(9)),
            activity: Guid::ZERO,
            items: &items,
        };
        let payload = number.to_le_bytes();
        let record = RecordSpec {
            time: RawTime(start + i64::from(number) * 5_000),
            pointer_size: PointerSize::Eight,
            header,
            payload: Payload::Bytes(&payload),
        };
        writer.write(number % PROCESSORS, &record).expect("written");
    }
    writer.finish().expect("finished").0.into_inner()
}
