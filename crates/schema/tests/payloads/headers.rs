//! Buffer and record headers, which the container crate reads, with its field names.

use stackhound_etl::record::Records;
use stackhound_etl::{BUFFER_HEADER_SIZE, BufferHeader};

use super::decoded::{DecodedValue, Fields};

/// A buffer header.
pub fn buffer(bytes: &[u8]) -> Fields {
    let header = BufferHeader::read(bytes).expect("a buffer header");
    let links = header.links.as_chunks::<8>().0;
    Fields::from_iter([
        ("buffer_size", header.buffer_size.get().into()),
        ("saved_offset", header.saved_offset.get().into()),
        ("current_offset", header.current_offset.get().into()),
        ("reference_count", header.reference_count.get().into()),
        ("time_stamp", header.time_stamp.get().into()),
        ("sequence_number", header.sequence_number.get().into()),
        ("clock", header.clock.get().into()),
        ("processor", header.processor().into()),
        ("logger_id", header.logger_id.get().into()),
        ("state", header.state.get().into()),
        ("offset", header.offset.get().into()),
        ("flags", header.flags.get().into()),
        ("buffer_type", header.buffer_type.get().into()),
        ("start_time", u64::from_le_bytes(links[0]).into()),
        ("start_perf_clock", u64::from_le_bytes(links[1]).into()),
    ])
}

/// The header of a record without a payload.
pub fn record(bytes: &[u8]) -> Fields {
    let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    // Kernel records have the size after the marker, the other records before it.
    let size = if bytes[2] <= 0x11 && bytes[2] != 0x0A && bytes[2] != 0x0B { u16_at(4) } else { u16_at(0) };
    let mut buffer = vec![0; BUFFER_HEADER_SIZE + usize::from(size)];
    buffer[BUFFER_HEADER_SIZE..][..bytes.len()].copy_from_slice(bytes);
    let record = Records::new(&buffer, BUFFER_HEADER_SIZE).next().expect("a record");
    let times = record.processor_times();
    let descriptor = record.descriptor();
    let (flags, property) = record.event_flags().unzip();
    Fields::from_iter([
        ("kind", DecodedValue::Text(record.kind().name().to_owned())),
        ("marker", (bytes[3] & 0xF0).into()),
        ("size", DecodedValue::Number(record.bytes().len() as i128)),
        ("version", record.version().into()),
        ("opcode", record.opcode().into()),
        ("group", record.hook_id().map(|hook_id| hook_id >> 8).into()),
        ("level", bytes[5].into()),
        ("tid", record.tid().into()),
        ("pid", record.pid().into()),
        ("time", record.time().into()),
        ("kernel_time", times.map(|times| times.0).into()),
        ("user_time", times.map(|times| times.1).into()),
        ("processor_time", times.map(|times| u64::from(times.1) << 32 | u64::from(times.0)).into()),
        ("counters", record.counters().collect()),
        ("pebs", record.pebs_index().into()),
        ("event_flags", flags.into()),
        ("event_property", property.into()),
        ("id", descriptor.map(|d| d.id).into()),
        ("event_version", descriptor.map(|d| d.version).into()),
        ("channel", descriptor.map(|d| d.channel).into()),
        ("event_level", descriptor.map(|d| d.level).into()),
        ("event_opcode", descriptor.map(|d| d.opcode).into()),
        ("task", descriptor.map(|d| d.task).into()),
        ("keyword", descriptor.map(|d| d.keyword).into()),
    ])
}
