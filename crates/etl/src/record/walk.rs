//! Walking the records of one buffer.
//!
//! This is the innermost loop of everything: one dependent load for the marker, one for the timestamp. It checks what
//! every later access relies on: a known kind, a size that covers the kind's fixed header, and an end inside the buffer.

use super::{HeaderKind, MessageOptions, Record};
use crate::RawTime;

/// Records start at multiples of this, counted from the start of the buffer.
const ALIGNMENT: usize = 8;

/// Why a walk ended before the end of its buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The first four bytes are not those of any record.
    #[error("{0:#010x} is not the start of a record")]
    Marker(u32),
    /// The record is shorter than its own header.
    #[error("{} record of {size} bytes, its header alone has {}", kind.name(), kind.header_size())]
    TooShort {
        /// Header kind.
        kind: HeaderKind,
        /// The size it claims.
        size: usize,
    },
    /// The record ends behind the end of the buffer's records.
    #[error("{} record of {size} bytes, but only {left} bytes are left", kind.name())]
    TooLong {
        /// Header kind.
        kind: HeaderKind,
        /// The size it claims.
        size: usize,
        /// Bytes up to the end.
        left: usize,
    },
    /// An ERROR record, whose size is unknown, without a record behind it.
    #[error("an ERROR record of unknown size")]
    UnknownSize,
}

/// The records of one buffer in the order in which they stand.
///
/// Ends at the end of the bytes, at a filler (0 or all ones) or at the first impossible record; [`Records::error`]
/// tells the last case from the others.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    bytes: &'a [u8],
    position: usize,
    time: RawTime,
    error: Option<RecordError>,
}

/// What a header type byte stands for.
const KINDS: [Option<HeaderKind>; 256] = {
    let mut kinds = [None; 256];
    kinds[1] = Some(HeaderKind::System32);
    kinds[2] = Some(HeaderKind::System64);
    kinds[3] = Some(HeaderKind::Compact32);
    kinds[4] = Some(HeaderKind::Compact64);
    kinds[10] = Some(HeaderKind::Full32);
    kinds[11] = Some(HeaderKind::Instance32);
    kinds[13] = Some(HeaderKind::Error);
    kinds[16] = Some(HeaderKind::PerfInfo32);
    kinds[17] = Some(HeaderKind::PerfInfo64);
    kinds[18] = Some(HeaderKind::Event32);
    kinds[19] = Some(HeaderKind::Event64);
    kinds[20] = Some(HeaderKind::Full64);
    kinds[21] = Some(HeaderKind::Instance64);
    kinds
};

const FIXED_HEADER: u32 = 0xc000_0000;
const WPP_MESSAGE: u32 = 0x9000_0000;

/// The kind that a marker stands for.
#[inline]
fn kind_of(marker: u32) -> Option<HeaderKind> {
    if marker & FIXED_HEADER == FIXED_HEADER {
        KINDS[(marker >> 16 & 0xff) as usize]
    } else if marker & (FIXED_HEADER | WPP_MESSAGE) == WPP_MESSAGE {
        Some(HeaderKind::Message)
    } else {
        None
    }
}

/// Whether a buffer's first four bytes of payload can be those of a record or of an empty buffer.
pub(crate) fn is_plausible_start(marker: u32) -> bool {
    marker == 0 || marker == u32::MAX || kind_of(marker).is_some()
}

impl<'a> Records<'a> {
    /// Walks `buffer`, which starts with its buffer header and ends where its records end, from `start` on.
    pub fn new(buffer: &'a [u8], start: usize) -> Records<'a> {
        Records { bytes: buffer, position: start, time: RawTime(0), error: None }
    }

    /// Why the walk ended early, once it has ended.
    pub fn error(&self) -> Option<RecordError> {
        self.error
    }

    /// Where the next record starts, or where the walk ended; from the start of the buffer.
    pub fn position(&self) -> usize {
        self.position
    }

    fn stop(&mut self, error: RecordError) -> Option<Record<'a>> {
        self.error = Some(error);
        self.bytes = &self.bytes[..self.position];
        None
    }

    /// An ERROR record does not say its size: take whichever of the two size fields leads to another record.
    #[cold]
    fn error_record_size(&self, left: &[u8]) -> Option<usize> {
        let candidates = [u16::from_le_bytes([left[0], left[1]]), u16::from_le_bytes([left[4], left[5]])];
        candidates.into_iter().map(usize::from).find(|&size| {
            let next = size.next_multiple_of(ALIGNMENT);
            let follows = left.get(next..next + 4).map(|m| u32::from_le_bytes([m[0], m[1], m[2], m[3]]));
            size >= HeaderKind::Error.header_size() && follows.is_some_and(is_plausible_start)
        })
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    #[inline]
    fn next(&mut self) -> Option<Record<'a>> {
        let left = self.bytes.get(self.position..)?;
        // Fewer than eight bytes hold no record of any kind: padding.
        let head: &[u8; 8] = left.first_chunk()?;
        let marker = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
        if marker == 0 || marker == u32::MAX {
            self.bytes = &self.bytes[..self.position];
            return None;
        }
        let Some(kind) = kind_of(marker) else { return self.stop(RecordError::Marker(marker)) };
        let size = if kind.has_hook() {
            usize::from(u16::from_le_bytes([head[4], head[5]]))
        } else if kind == HeaderKind::Error {
            match self.error_record_size(left) {
                Some(size) => size,
                None => return self.stop(RecordError::UnknownSize),
            }
        } else {
            (marker & 0xffff) as usize
        };
        if size < kind.header_size() {
            return self.stop(RecordError::TooShort { kind, size });
        }
        let Some(bytes) = left.get(..size) else {
            return self.stop(RecordError::TooLong { kind, size, left: left.len() });
        };
        let mut record = Record { bytes, time: self.time, kind };
        if let Some(at) = kind.time_offset() {
            record.time = RawTime(i64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes")));
        } else if kind == HeaderKind::Message {
            let options = MessageOptions(u16::from_le_bytes([head[6], head[7]]));
            if let Some(time) = options.time(bytes) {
                record.time = time;
            }
        }
        self.time = record.time;
        self.position += size.next_multiple_of(ALIGNMENT);
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record of the given kind with `payload` bytes behind its header and the timestamp in its place.
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
        assert!(walk.next().is_none(), "a walk that stopped stays stopped");
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
    fn an_error_record_leads_to_the_next() {
        let mut buffer = vec![0u8; 24];
        buffer[..6].copy_from_slice(&[0x18, 0, 13, 0xc0, 0xaa, 0xaa]);
        buffer.extend(bytes_of(17, 0x10, false, 7));
        let kinds: Vec<_> = Records::new(&buffer, 0).map(|r| (r.kind(), r.bytes().len())).collect();
        assert_eq!(kinds, [(HeaderKind::Error, 24), (HeaderKind::PerfInfo64, 16)]);
    }
}
