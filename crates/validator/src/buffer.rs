//! Buffer headers, and the records of a buffer.

use crate::bytes::{i64, u16, u32, u64};

pub(crate) const BUFFER_HEADER_SIZE: usize = 0x48;
/// Fills the rest of a buffer.
pub(crate) const FILLER: u8 = 0xff;

/// Flags of a buffer.
pub(crate) const FLUSH_MARKER: u16 = 0x01;
pub(crate) const PROCESSOR_INDEX: u16 = 0x20;
pub(crate) const COMPRESSED: u16 = 0x40;

/// A buffer in the file.
#[derive(Debug)]
pub(crate) struct Buffer<'a> {
    /// Offset in the file.
    pub at: usize,
    /// Including the header.
    pub bytes: &'a [u8],
    pub saved_offset: u32,
    pub current_offset: u32,
    pub references: u32,
    pub timestamp: i64,
    pub sequence: i64,
    pub clock: u64,
    /// All 16 bits, regardless of the flags.
    pub processor: u16,
    pub logger: u16,
    pub state: u32,
    pub offset: u32,
    pub flags: u16,
    pub kind: u16,
    pub links: [u64; 2],
}

impl<'a> Buffer<'a> {
    /// `bytes` must contain at least a header.
    pub fn parse(at: usize, bytes: &'a [u8]) -> Buffer<'a> {
        Buffer {
            at,
            bytes,
            saved_offset: u32(bytes, 0x04),
            current_offset: u32(bytes, 0x08),
            references: u32(bytes, 0x0c),
            timestamp: i64(bytes, 0x10),
            sequence: i64(bytes, 0x18),
            clock: u64(bytes, 0x20),
            processor: u16(bytes, 0x28),
            logger: u16(bytes, 0x2a),
            state: u32(bytes, 0x2c),
            offset: u32(bytes, 0x30),
            flags: u16(bytes, 0x34),
            kind: u16(bytes, 0x36),
            links: [u64(bytes, 0x38), u64(bytes, 0x40)],
        }
    }

    /// Whether a flag is set.
    pub fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

/// Header kinds: the third byte of a record.
pub(crate) mod kind {
    pub(crate) const SYSTEM32: u8 = 1;
    pub(crate) const SYSTEM64: u8 = 2;
    pub(crate) const COMPACT32: u8 = 3;
    pub(crate) const COMPACT64: u8 = 4;
    pub(crate) const FULL32: u8 = 10;
    pub(crate) const INSTANCE32: u8 = 11;
    pub(crate) const PERF_INFO32: u8 = 16;
    pub(crate) const PERF_INFO64: u8 = 17;
    pub(crate) const EVENT32: u8 = 18;
    pub(crate) const EVENT64: u8 = 19;
    pub(crate) const FULL64: u8 = 20;
    pub(crate) const INSTANCE64: u8 = 21;
}
use kind::*;

/// The fourth byte of a record: records with one of the headers above, and WPP messages.
pub(crate) const TRACE_HEADER: u8 = 0xc0;
const MESSAGE: u8 = 0x90;

/// A record of a buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'a> {
    /// Offset in the expanded buffer.
    pub at: usize,
    pub marker: u8,
    pub kind: u8,
    /// Including the header, without the padding.
    pub bytes: &'a [u8],
}

impl Record<'_> {
    /// Size of the fixed part of the header; `None` for unknown kinds.
    pub fn header_size(&self) -> Option<usize> {
        Some(match self.kind {
            _ if self.marker != TRACE_HEADER => return None,
            PERF_INFO32 | PERF_INFO64 => 0x10,
            COMPACT32 | COMPACT64 => 0x18,
            SYSTEM32 | SYSTEM64 => 0x20,
            FULL32 | FULL64 => 0x30,
            INSTANCE32 | INSTANCE64 => 0x48,
            EVENT32 | EVENT64 => 0x50,
            _ => return None,
        })
    }

    /// Whether it is a kernel event, with a hook id.
    pub fn is_kernel(&self) -> bool {
        matches!(self.kind, SYSTEM32 | SYSTEM64 | COMPACT32 | COMPACT64 | PERF_INFO32 | PERF_INFO64)
    }

    /// The hook id of a kernel event.
    pub fn hook_id(&self) -> u16 {
        u16(self.bytes, 6)
    }

    /// The raw time stamp.
    pub fn time(&self) -> u64 {
        u64(self.bytes, if matches!(self.kind, PERF_INFO32 | PERF_INFO64) { 8 } else { 16 })
    }

    pub fn thread(&self) -> u32 {
        u32(self.bytes, 8)
    }

    pub fn process(&self) -> u32 {
        u32(self.bytes, 12)
    }
}

/// The records of an expanded buffer whose content ends at `end`, and the end of the last record.
pub(crate) fn records(buffer: &[u8], end: usize) -> (Vec<Record<'_>>, usize) {
    let mut found = Vec::new();
    let mut at = BUFFER_HEADER_SIZE;
    while at + 8 <= end.min(buffer.len()) {
        let first = u32(buffer, at);
        let (marker, kind) = ((first >> 24) as u8, (first >> 16) as u8);
        let mut record = Record { at, marker, kind, bytes: &[] };
        let size = match marker {
            // The first word is the size, or the version for kernel events.
            TRACE_HEADER if record.is_kernel() => u16(buffer, at + 4),
            TRACE_HEADER | MESSAGE => first as u16,
            _ => break,
        };
        let size = usize::from(size);
        let Some(bytes) = buffer.get(at..at + size).filter(|_| size >= 8 && at + size <= end) else { break };
        // Filler bytes and zeros have no marker, so they end the records too.
        record.bytes = bytes;
        found.push(record);
        at = (at + size).next_multiple_of(8);
    }
    (found, at)
}
