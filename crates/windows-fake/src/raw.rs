//! Buffers as Windows 11 hands them out whole: header and records as they stand in a recording.

use stackhound_etl::BUFFER_HEADER_SIZE;

use crate::deliver::is_logfile_header;
use crate::replay::Slice;

/// StackWalk records that name the time of the event whose stack they are, in the first eight bytes of the payload.
const STACKS: [u16; 3] = [0x1820, 0x1825, 0x1826];

/// Where the payload of a StackWalk record starts that names a time.
pub(crate) fn stack_time_offset(record: &stackhound_etl::record::Record<'_>) -> Option<usize> {
    let named =
        record.hook_id().is_some_and(|hook_id| STACKS.contains(&hook_id)) && record.payload().len() >= 8;
    named.then(|| record.bytes().len() - record.payload().len())
}

/// Where a record's raw timestamp stands, if it is at a fixed place.
fn time_offset(kind: stackhound_etl::record::HeaderKind) -> Option<usize> {
    use stackhound_etl::record::HeaderKind::{Error, Message, PerfInfo32, PerfInfo64};
    match kind {
        PerfInfo32 | PerfInfo64 => Some(8),
        Message | Error => None,
        _ => Some(0x10),
    }
}

/// Moves a time inside `bytes`.
pub(crate) fn shift_time(bytes: &mut [u8], at: usize, shift: i64) {
    if let Some(time) = bytes.get_mut(at..at + 8) {
        let moved = i64::from_le_bytes(time.try_into().expect("eight bytes")).wrapping_add(shift);
        time.copy_from_slice(&moved.to_le_bytes());
    }
}

/// Bytes behind the records of a whole buffer: what was in it before.
pub const STALE: usize = 512;

/// A buffer without events, of a kind that sessions in real time may have (`ETW_BUFFER_TYPE_EMPTY_MARKER` of published headers).
pub fn empty_marker() -> Vec<u8> {
    let mut bytes = vec![0; BUFFER_HEADER_SIZE];
    for at in [0, 4, 8, 0x30] {
        bytes[at..at + 4].copy_from_slice(&(BUFFER_HEADER_SIZE as u32).to_le_bytes());
    }
    bytes[0x36..0x38].copy_from_slice(&6u16.to_le_bytes());
    bytes
}

/// The bytes of a whole buffer: header, records, and older ones behind them.
///
/// `FilledBytes` states the end of the records, and no other place does: what else states an offset in files includes what is
/// older. A loss just before it is told by flags.
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
    // A generic buffer; the flag for 16-bit processor numbers is kept, a loss is said as in files.
    let flags = (u16::from(slice.processor_index) * 0x20) | (u16::from(slice.after_loss) * 0x04);
    put(0x34, &flags.to_le_bytes());
    put(0x36, &0u16.to_le_bytes());
    bytes
}
