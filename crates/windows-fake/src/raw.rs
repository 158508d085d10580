//! Builds raw buffers as Windows 11 delivers them: header and records in the format of a file.

use stackhound_etl::BUFFER_HEADER_SIZE;

use crate::deliver::is_logfile_header;
use crate::replay::Slice;

/// Hook ids of StackWalk records that contain the time of their event in the first eight bytes of
/// the payload.
const STACKS: [u16; 3] = [0x1820, 0x1825, 0x1826];

/// The offset of the event's time in a StackWalk record that contains one.
pub(crate) fn stack_time_offset(record: &stackhound_etl::record::Record<'_>) -> Option<usize> {
    let has_time =
        record.hook_id().is_some_and(|hook_id| STACKS.contains(&hook_id)) && record.payload().len() >= 8;
    has_time.then(|| record.bytes().len() - record.payload().len())
}

/// The offset of a record's raw time stamp, if it is fixed.
fn time_offset(kind: stackhound_etl::record::HeaderKind) -> Option<usize> {
    use stackhound_etl::record::HeaderKind::{Error, Message, PerfInfo32, PerfInfo64};
    match kind {
        PerfInfo32 | PerfInfo64 => Some(8),
        Message | Error => None,
        _ => Some(0x10),
    }
}

/// Adds `shift` to the time at an offset in `bytes`.
pub(crate) fn shift_time(bytes: &mut [u8], at: usize, shift: i64) {
    if let Some(time) = bytes.get_mut(at..at + 8) {
        let moved = i64::from_le_bytes(time.try_into().expect("eight bytes")).wrapping_add(shift);
        time.copy_from_slice(&moved.to_le_bytes());
    }
}

/// Number of stale bytes after the records of a raw buffer.
pub const STALE: usize = 512;

/// A buffer without events, of a type that real-time sessions may deliver
/// (`ETW_BUFFER_TYPE_EMPTY_MARKER` in published headers).
pub fn empty_marker() -> Vec<u8> {
    let mut bytes = vec![0; BUFFER_HEADER_SIZE];
    for at in [0, 4, 8, 0x30] {
        bytes[at..at + 4].copy_from_slice(&(BUFFER_HEADER_SIZE as u32).to_le_bytes());
    }
    bytes[0x36..0x38].copy_from_slice(&6u16.to_le_bytes());
    bytes
}

/// The bytes of a raw buffer: header, records, and stale records.
///
/// Only `FilledBytes` is the end of the records. The other fields that contain this offset in files
/// include the stale records. Flags report a loss directly before the buffer.
pub fn buffer(slice: &Slice, number: i64) -> Vec<u8> {
    let mut bytes = slice.block.bytes()[..BUFFER_HEADER_SIZE].to_vec();
    for entry in slice.entries().filter(|entry| !is_logfile_header(entry.hook_id())) {
        let record = slice.block.record(entry);
        let start = bytes.len();
        bytes.extend_from_slice(record.bytes());
        if slice.shift != 0 {
            for at in [time_offset(record.kind()), stack_time_offset(&record)].into_iter().flatten() {
                shift_time(&mut bytes[start..], at, slice.shift);
            }
        }
        bytes.resize(bytes.len().next_multiple_of(8), 0);
    }
    let filled = bytes.len();
    let stale: Vec<u8> = bytes[BUFFER_HEADER_SIZE..].iter().copied().cycle().take(STALE).collect();
    bytes.extend(stale);
    let size = bytes.len() as u32;
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    for at in [0, 4, 8] {
        put(at, &size.to_le_bytes());
    }
    put(0x30, &(filled as u32).to_le_bytes());
    put(0x0c, &0u32.to_le_bytes());
    put(0x18, &number.to_le_bytes());
    // A generic buffer. The flag for 16-bit processor numbers is kept; a loss is reported as in
    // files.
    let flags = (u16::from(slice.processor_index) * 0x20) | (u16::from(slice.after_loss) * 0x04);
    put(0x34, &flags.to_le_bytes());
    put(0x36, &0u16.to_le_bytes());
    bytes
}
