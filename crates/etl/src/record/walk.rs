//! Iteration over the records of one buffer.
//!
//! This is the innermost loop of all reading: it has one dependent load for the marker and one for
//! the timestamp. It checks the conditions that all later accesses rely on: a known kind, a size
//! that covers the fixed header of the kind, and an end inside the buffer.

use prefetch_index::prefetch_index;
use stackhound_types::RawTime;

use super::{HeaderKind, MessageOptions, Record};
use crate::buffer::BUFFER_HEADER_SIZE;

/// Records start at multiples of this, counted from the start of the buffer.
const ALIGNMENT: usize = 8;

/// The distance in bytes from a record to the cache lines that are requested with it.
const AHEAD: usize = 2048;
/// Size of a cache line in bytes.
const CACHE_LINE: usize = 64;

/// The reason why a walk ended before the end of its buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The first four bytes are not the start of a record.
    #[error("{0:#010x} is not the start of a record")]
    Marker(u32),
    /// The record is shorter than its own header.
    #[error("the {} record of {size} bytes is shorter than its header of {} bytes", kind.name(), kind.header_size())]
    TooShort {
        /// Kind of header.
        kind: HeaderKind,
        /// The stated size in bytes.
        size: usize,
    },
    /// The record ends after the end of the buffer's records.
    #[error("the {} record of {size} bytes does not fit into the remaining {left} bytes", kind.name())]
    TooLong {
        /// Kind of header.
        kind: HeaderKind,
        /// The stated size in bytes.
        size: usize,
        /// Bytes up to the end of the buffer's records.
        left: usize,
    },
    /// An ERROR record. Its size is unknown, because it is followed neither by a record nor by the
    /// end.
    #[error("an ERROR record of unknown size")]
    UnknownSize,
}

/// The records of one buffer, in file order.
///
/// Ends at the end of the bytes, at a filler (0 or all ones), or at the first invalid record.
/// [`Records::error`] is set only in the last case.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    bytes: &'a [u8],
    position: usize,
    time: RawTime,
    error: Option<RecordError>,
}

/// The layout that a header type byte stands for. `header_size` is zero for types that this table
/// does not cover.
#[derive(Clone, Copy)]
struct Shape {
    kind: HeaderKind,
    header_size: u8,
    time_offset: u8,
    /// Number of bits by which the size field must be shifted out of the first eight bytes.
    size_shift: u8,
}

const SHAPES: [Shape; 256] = {
    let unknown = Shape { kind: HeaderKind::Error, header_size: 0, time_offset: 0, size_shift: 0 };
    let mut shapes = [unknown; 256];
    let types = [1, 2, 3, 4, 16, 17, 10, 20, 11, 21, 18, 19];
    let mut index = 0;
    while index < types.len() {
        let kind = HeaderKind::ALL[index];
        let Some(time_offset) = kind.time_offset() else { panic!("every kind of the table has a timestamp") };
        shapes[types[index]] = Shape {
            kind,
            header_size: kind.header_size() as u8,
            time_offset: time_offset as u8,
            size_shift: if kind.has_hook_id() { 32 } else { 0 },
        };
        index += 1;
    }
    shapes
};

/// The header type of ERROR records.
const ERROR_TYPE: u32 = 13;

const FIXED_HEADER: u32 = 0xc000_0000;
const WPP_MESSAGE: u32 = 0x9000_0000;

/// The layout that a marker stands for.
#[inline]
fn shape_of(marker: u32) -> &'static Shape {
    &SHAPES[(marker >> 16 & 0xff) as usize]
}

fn is_message(marker: u32) -> bool {
    marker & (FIXED_HEADER | WPP_MESSAGE) == WPP_MESSAGE
}

/// Whether the first four bytes of a buffer's payload can be those of a record or of an empty
/// buffer.
pub(crate) fn is_plausible_start(marker: u32) -> bool {
    let fixed = marker & FIXED_HEADER == FIXED_HEADER
        && (shape_of(marker).header_size > 0 || marker >> 16 & 0xff == ERROR_TYPE);
    marker == 0 || marker == u32::MAX || fixed || is_message(marker)
}

/// Whether bytes start with a whole record that has a fixed header and a timestamp, with the flags
/// that every writer sets.
///
/// The test of the marker alone accepts about one of 6,000 random words.
pub(crate) fn starts_with_event(bytes: &[u8]) -> bool {
    let marker = bytes.first_chunk().map_or(0, |&first| u32::from_le_bytes(first));
    marker >> 24 == 0xc0 && shape_of(marker).header_size > 0 && Records::new(bytes, 0).next().is_some()
}

/// The time of the record with a fixed header at the start of `bytes`, which need not contain the
/// whole record.
pub(crate) fn time_of_first(bytes: &[u8]) -> Option<RawTime> {
    let marker = u32::from_le_bytes(*bytes.first_chunk()?);
    let shape = shape_of(marker);
    let at = usize::from(shape.time_offset);
    let has_time = marker & FIXED_HEADER == FIXED_HEADER && shape.header_size > 0;
    let time = bytes.get(at..at + 8).filter(|_| has_time)?;
    Some(RawTime(i64::from_le_bytes(time.try_into().ok()?)))
}

/// End of the trusted records in the decompressed beginning of a compressed buffer.
///
/// If the file ends inside the buffer (`is_cut_off`), all decompressed bytes are correct. Other
/// damage is detected late: it changes the size or the content of a record, and the following bytes
/// may look like data. Therefore, the walk also ends at a record that is older than the previous
/// one, and the last record before the end is not trusted.
pub(crate) fn trusted_end(buffer: &[u8], is_cut_off: bool) -> usize {
    let mut records = Records::new(buffer, BUFFER_HEADER_SIZE);
    let (mut last_start, mut last) = (BUFFER_HEADER_SIZE, RawTime(i64::MIN));
    loop {
        let start = records.position();
        match records.next() {
            Some(record) if is_cut_off || record.time() >= last => {
                (last_start, last) = (start, record.time())
            }
            _ if is_cut_off => return start.min(buffer.len()),
            _ => return last_start,
        }
    }
}

impl<'a> Records<'a> {
    /// Walks the records of `buffer` from the offset `start`. `buffer` starts with its buffer
    /// header and ends with its records.
    pub fn new(buffer: &'a [u8], start: usize) -> Records<'a> {
        Records { bytes: buffer, position: start, time: RawTime(0), error: None }
    }

    /// The reason why the walk ended early; set when the walk has ended.
    pub fn error(&self) -> Option<RecordError> {
        self.error
    }

    /// Offset of the next record, or of the end of the walk, from the start of the buffer.
    pub fn position(&self) -> usize {
        self.position
    }

    #[cold]
    fn stop(&mut self, error: RecordError) -> Option<Record<'a>> {
        self.error = Some(error);
        self.bytes = &self.bytes[..self.position];
        None
    }

    /// The size of an ERROR record is not known: uses the one of the two size fields that leads to
    /// another record or to the end of the records.
    fn error_record_size(left: &[u8]) -> Option<usize> {
        let candidates = [u16::from_le_bytes([left[0], left[1]]), u16::from_le_bytes([left[4], left[5]])];
        candidates.into_iter().map(usize::from).find(|&size| {
            let next = size.next_multiple_of(ALIGNMENT);
            let follows = left.get(next..next + 4).map(|m| u32::from_le_bytes([m[0], m[1], m[2], m[3]]));
            size >= HeaderKind::Error.header_size() && follows.map_or(next == left.len(), is_plausible_start)
        })
    }

    /// Handles fillers, messages, ERROR records and invalid records.
    #[cold]
    fn next_unusual(&mut self, left: &'a [u8], marker: u32) -> Option<Record<'a>> {
        if marker == 0 || marker == u32::MAX {
            self.bytes = &self.bytes[..self.position];
            return None;
        }
        let (kind, size) = if is_message(marker) {
            (HeaderKind::Message, (marker & 0xffff) as usize)
        } else if marker & FIXED_HEADER == FIXED_HEADER && marker >> 16 & 0xff == ERROR_TYPE {
            match Self::error_record_size(left) {
                Some(size) => (HeaderKind::Error, size),
                None => return self.stop(RecordError::UnknownSize),
            }
        } else {
            return self.stop(RecordError::Marker(marker));
        };
        if size < kind.header_size() {
            return self.stop(RecordError::TooShort { kind, size });
        }
        let Some(bytes) = left.get(..size) else {
            return self.stop(RecordError::TooLong { kind, size, left: left.len() });
        };
        if kind == HeaderKind::Message {
            let options = MessageOptions(u16::from_le_bytes([bytes[6], bytes[7]]));
            self.time = options.time(bytes).unwrap_or(self.time);
        }
        self.position += size.next_multiple_of(ALIGNMENT);
        Some(Record { bytes, time: self.time, kind })
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    #[inline(always)]
    fn next(&mut self) -> Option<Record<'a>> {
        let left = self.bytes.get(self.position..)?;
        // Fewer than eight bytes contain no record of any kind: they are padding.
        let head = u64::from_le_bytes(*left.first_chunk()?);
        let marker = head as u32;
        let shape = shape_of(marker);
        let header_size = usize::from(shape.header_size);
        if marker & FIXED_HEADER != FIXED_HEADER || header_size == 0 {
            return self.next_unusual(left, marker);
        }
        // Without a branch, because it cannot be predicted which of the two offsets contains the
        // size.
        let size = usize::from((head >> shape.size_shift) as u16);
        if size < header_size {
            return self.stop(RecordError::TooShort { kind: shape.kind, size });
        }
        let Some(bytes) = left.get(..size) else {
            return self.stop(RecordError::TooLong { kind: shape.kind, size, left: left.len() });
        };
        // The address of a header is known only when the one before it has been read: without these
        // requests, each record waits for memory. Three lines are as much as most records have, so
        // that hardly a line is left out.
        for line in 0..3 {
            prefetch_index(left, AHEAD + line * CACHE_LINE);
        }
        let at = usize::from(shape.time_offset);
        let time = bytes.get(at..at + 8).and_then(|time| time.try_into().ok()).map_or(0, i64::from_le_bytes);
        self.time = RawTime(time);
        self.position += size.next_multiple_of(ALIGNMENT);
        Some(Record { bytes, time: self.time, kind: shape.kind })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record of the given kind and total size, with the timestamp at its offset.
    fn bytes_of(header_type: u8, size: u16, sized_by_marker: bool, time: i64) -> Vec<u8> {
        let mut bytes = vec![0u8; usize::from(size).max(0x50).next_multiple_of(8)];
        bytes[2] = header_type;
        bytes[3] = 0xc0;
        let at = if sized_by_marker { 0 } else { 4 };
        bytes[at..at + 2].copy_from_slice(&size.to_le_bytes());
        let at = if header_type == 16 || header_type == 17 { 8 } else { 0x10 };
        bytes[at..at + 8].copy_from_slice(&time.to_le_bytes());
        bytes.truncate(usize::from(size).next_multiple_of(8));
        bytes
    }

    #[test]
    fn every_kind_is_walked() {
        let mut buffer = Vec::new();
        for (header_type, size, by_marker) in [
            (1, 0x24, false),
            (2, 0x20, false),
            (3, 0x18, false),
            (4, 0x1f, false),
            (16, 0x10, false),
            (17, 0x31, false),
            (10, 0x30, true),
            (20, 0x32, true),
            (11, 0x48, true),
            (21, 0x50, true),
            (18, 0x50, true),
            (19, 0x55, true),
        ] {
            buffer.extend(bytes_of(header_type, size, by_marker, i64::from(header_type) << 32));
        }
        let end = buffer.len();
        buffer.extend([0xff; 16]);
        let mut walk = Records::new(&buffer, 0);
        let seen: Vec<_> =
            walk.by_ref().map(|r| (r.kind().name(), r.bytes().len(), r.time().0 >> 32)).collect();
        assert_eq!(
            seen,
            [
                ("SYSTEM32", 0x24, 1),
                ("SYSTEM64", 0x20, 2),
                ("COMPACT32", 0x18, 3),
                ("COMPACT64", 0x1f, 4),
                ("PERFINFO32", 0x10, 16),
                ("PERFINFO64", 0x31, 17),
                ("FULL32", 0x30, 10),
                ("FULL64", 0x32, 20),
                ("INSTANCE32", 0x48, 11),
                ("INSTANCE64", 0x50, 21),
                ("EVENT32", 0x50, 18),
                ("EVENT64", 0x55, 19),
            ]
        );
        assert_eq!((walk.error(), walk.position()), (None, end));
    }

    #[track_caller]
    fn check_error(first: Vec<u8>, expected: RecordError) {
        let mut buffer = bytes_of(17, 0x10, false, 7);
        let at = buffer.len();
        buffer.extend(first);
        let mut walk = Records::new(&buffer, 0);
        assert_eq!(walk.by_ref().count(), 1);
        assert_eq!((walk.error(), walk.position()), (Some(expected), at));
        assert!(walk.next().is_none(), "a stopped walk yields no further records");
    }

    #[test]
    fn impossible_records_end_the_walk() {
        check_error(vec![1; 8], RecordError::Marker(0x0101_0101));
        check_error(vec![0, 0, 99, 0xc0, 0, 0, 0, 0], RecordError::Marker(0xc063_0000));
        check_error(
            vec![2, 0, 2, 0xc0, 0x1f, 0, 0, 0],
            RecordError::TooShort { kind: HeaderKind::System64, size: 0x1f },
        );
        check_error(
            vec![0x58, 0, 19, 0xc0, 0, 0, 0, 0],
            RecordError::TooLong { kind: HeaderKind::Event64, size: 0x58, left: 8 },
        );
        check_error(vec![9, 9, 13, 0xc0, 9, 9, 0, 0], RecordError::UnknownSize);
    }

    #[test]
    fn an_error_record_leads_to_the_next_or_to_the_end() {
        let mut buffer = vec![0u8; 24];
        buffer[..6].copy_from_slice(&[0x18, 0, 13, 0xc0, 0xaa, 0xaa]);
        buffer.extend(bytes_of(17, 0x10, false, 7));
        let kinds = |buffer: &[u8]| -> Vec<_> {
            Records::new(buffer, 0).map(|record| (record.kind(), record.bytes().len())).collect()
        };
        assert_eq!(kinds(&buffer), [(HeaderKind::Error, 24), (HeaderKind::PerfInfo64, 16)]);
        assert_eq!(kinds(&buffer[..24]), [(HeaderKind::Error, 24)]);
    }
}
