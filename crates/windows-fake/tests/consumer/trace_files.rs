//! A small trace with known contents.

use std::io::Cursor;

use stackhound_etl::write::{EtlWriter, HeaderSpec, Issuer, Payload, RecordSpec, Session};
use stackhound_types::{Pid, PointerSize, RawTime, Tid};

pub const PROCESSORS: u16 = 3;
pub const EVENTS: u64 = 3_000;
/// Raw ticks per millisecond.
pub const TICKS: i64 = 10_000;

/// System calls on three processors, every half millisecond, each with its number as payload.
pub fn etl_file() -> Vec<u8> {
    let session = Session { processors: PROCESSORS, buffer_size: 4 << 10, ..Session::default() };
    let start = session.start.0;
    let mut writer = EtlWriter::new(session, Cursor::new(Vec::new())).expect("a writer");
    for number in 0..EVENTS as u32 {
        let payload = number.to_le_bytes();
        let record = RecordSpec {
            time: RawTime(start + i64::from(number) * TICKS / 2),
            pointer_size: PointerSize::Eight,
            header: HeaderSpec::System { hook_id: 0x0f33, version: 2, issuer: Issuer::new(Pid(8), Tid(9)) },
            payload: Payload::Bytes(&payload),
        };
        writer.write((number % u32::from(PROCESSORS)) as u16, &record).expect("written");
    }
    writer.finish().expect("finished").0.into_inner()
}
