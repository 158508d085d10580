//! Reads records from arbitrary bytes.

use std::hint::black_box;

use stackhound_etl::record::{Record, Records};

/// Reads bytes as the records of a buffer, with all fields of every record.
pub fn records(bytes: &[u8]) {
    let mut walk = Records::new(bytes, 0);
    let mut position = 0;
    while let Some(record) = walk.next() {
        assert_eq!(bytes[position..].as_ptr(), record.bytes().as_ptr(), "records follow each other");
        assert!(record.bytes().len() >= record.kind().header_size());
        assert!(walk.position() >= position + record.bytes().len(), "a walk advances");
        position = walk.position();
        read_everything(&record);
    }
    assert!(walk.position() <= bytes.len().next_multiple_of(8));
    assert!(walk.next().is_none(), "a walk does not continue after its end");
}

/// Reads all fields of a record.
pub(crate) fn read_everything(record: &Record<'_>) {
    let kind = record.kind();
    assert_eq!(record.hook_id().is_some(), kind.has_hook_id());
    assert_eq!(record.descriptor().is_some(), kind.has_descriptor());
    black_box((record.time(), record.version(), record.opcode(), record.pointer_size()));
    black_box((record.pid(), record.tid(), record.guid(), record.activity(), record.instance()));
    black_box((record.processor_times(), record.pebs_index(), record.event_flags()));
    black_box((record.message_number(), record.message_sequence(), record.message_component()));
    assert!(record.counters().count() <= 7);

    let payload = record.payload();
    assert!(payload.len() + kind.header_size() <= record.bytes().len());
    let mut taken = payload.len() + kind.header_size();
    for item in record.extended_items() {
        // Items have headers of eight bytes and do not overlap with each other or the payload.
        taken += 8 + item.data.len();
        black_box((item.guid(), item.stack_pointer_size(), item.stack(), item.stack_key()));
        let first_of_type = record.extended_items().find(item.item_type);
        assert!(first_of_type.is_some());
    }
    assert!(taken <= record.bytes().len());
}
