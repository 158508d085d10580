//! Buffer headers: the 72 bytes at the start of every buffer of a trace.
//!
//! The layout, the flags and the rules for the end of the records are described in
//! `docs/format/buffers.md`.

use zerocopy::little_endian::{I32, I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Size of a buffer header in bytes. The records follow it.
pub const BUFFER_HEADER_SIZE: usize = 0x48;

/// Maximum size of a buffer in bytes, regardless of its header. Windows allows 16 MiB.
pub const BUFFER_SIZE_MAX: u32 = 64 << 20;

/// A compressed buffer expands to at most this many bytes, plus [`INFLATION_MAX`] bytes for each of
/// its bytes.
///
/// Real buffers expand about fivefold. Without a limit, a small file could require any amount of
/// memory and time.
const INFLATED_ALLOWANCE: u64 = 64 << 10;

/// See [`INFLATED_ALLOWANCE`].
const INFLATION_MAX: u64 = 1024;

/// A buffer header as stored in the file.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct BufferHeader {
    /// Bytes from this header to the next buffer.
    pub buffer_size: U32,
    /// End of the records, from the start of the header. In a compressed buffer, the end after
    /// decompression.
    pub saved_offset: U32,
    /// The reservation cursor of the kernel, usually beyond the end of the buffer.
    pub current_offset: U32,
    /// Zero on disk.
    pub reference_count: I32,
    /// Time when the buffer was written: raw ticks, or units of 100 ns since 1601 in merged traces.
    pub time_stamp: I64,
    /// Sequence number, in the order in which the session started to fill its buffers, across all
    /// processors.
    pub sequence_number: I64,
    /// Clock type and frequency in crash-dump extractions, stale pointers in other files.
    pub clock: U64,
    /// Processor index, or processor number and alignment; see [`BufferHeader::processor`].
    pub processor: U16,
    /// Number of the session on the machine that recorded the trace.
    pub logger_id: U16,
    /// Life cycle state. In the first buffer: the compression format.
    pub state: U32,
    /// End of the records, a second time.
    pub offset: U32,
    /// See [`BufferFlags`].
    pub flags: U16,
    /// See [`BufferType`].
    pub buffer_type: U16,
    /// List links, or a reference clock.
    pub links: [u8; 16],
}

const _: () = assert!(size_of::<BufferHeader>() == BUFFER_HEADER_SIZE);

/// Bits of [`BufferHeader::flags`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BufferFlags(pub u16);

impl BufferFlags {
    /// Written by an explicit flush, or at the end of the session.
    pub const FLUSH_MARKER: BufferFlags = BufferFlags(0x01);
    /// Events were lost before this buffer.
    pub const EVENTS_LOST: BufferFlags = BufferFlags(0x02);
    /// A whole buffer was lost before this one.
    pub const BUFFER_LOST: BufferFlags = BufferFlags(0x04);
    /// The processor index has 16 bits.
    pub const PROCESSOR_INDEX: BufferFlags = BufferFlags(0x20);
    /// The content after the header is compressed.
    pub const COMPRESSED: BufferFlags = BufferFlags(0x40);
    const KNOWN: u16 = 0x7f;

    /// Whether events or whole buffers were lost before this buffer.
    pub fn indicates_loss(self) -> bool {
        self.has(BufferFlags::EVENTS_LOST) || self.has(BufferFlags::BUFFER_LOST)
    }

    /// Whether all bits of `other` are set.
    pub fn has(self, other: BufferFlags) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The kind of content of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BufferType {
    /// Records of one processor.
    Generic,
    /// The rundown stream of old systems.
    Rundown,
    /// The context-switch stream of old systems, in its own format.
    ContextSwap,
    /// A reference time.
    ReferenceTime,
    /// The first buffer of a trace.
    Header,
    /// Several small buffers in one (live sessions only).
    Batched,
    /// A marker in place of an empty buffer (live sessions only).
    EmptyMarker,
    /// Extracted by a debugger.
    DebugInfo,
}

impl BufferType {
    fn parse(raw: u16) -> Option<BufferType> {
        Some(match raw {
            0 => BufferType::Generic,
            1 => BufferType::Rundown,
            2 => BufferType::ContextSwap,
            3 => BufferType::ReferenceTime,
            4 => BufferType::Header,
            5 => BufferType::Batched,
            6 => BufferType::EmptyMarker,
            7 => BufferType::DebugInfo,
            _ => return None,
        })
    }

    /// Whether buffers of this type never contain events.
    pub fn is_marker(self) -> bool {
        matches!(self, BufferType::ReferenceTime | BufferType::EmptyMarker)
    }

    /// Whether the payload is a sequence of records.
    pub fn has_records(self) -> bool {
        matches!(self, BufferType::Generic | BufferType::Rundown | BufferType::Header | BufferType::Batched)
    }
}

impl BufferHeader {
    /// Reads a header from the start of `bytes`; `None` if there are too few.
    pub fn read(bytes: &[u8]) -> Option<&BufferHeader> {
        BufferHeader::ref_from_prefix(bytes).ok().map(|(header, _)| header)
    }

    /// The flags.
    pub fn flags(&self) -> BufferFlags {
        BufferFlags(self.flags.get())
    }

    /// The type, if it is known.
    pub fn buffer_type(&self) -> Option<BufferType> {
        BufferType::parse(self.buffer_type.get())
    }

    /// Whether the payload is compressed.
    pub fn is_compressed(&self) -> bool {
        self.flags().has(BufferFlags::COMPRESSED)
    }

    /// The processor. Windows 7 and earlier use only the low byte; the high byte is an alignment.
    pub fn processor(&self) -> u16 {
        let raw = self.processor.get();
        if self.flags().has(BufferFlags::PROCESSOR_INDEX) { raw } else { raw & 0xff }
    }

    /// End of the records from the start of the header, given the size of the (decompressed)
    /// buffer.
    ///
    /// The larger of the two offsets that are inside the buffer. Header buffers may have records
    /// after [`saved_offset`](BufferHeader::saved_offset), or zero in that field. In all other
    /// buffers both offsets are equal. If damage makes them differ, no record is skipped unread,
    /// because records end at a filler anyway.
    pub fn records_end(&self, size: usize) -> usize {
        let inside = |raw: U32| {
            let end = raw.get() as usize;
            (BUFFER_HEADER_SIZE..=size).contains(&end).then_some(end)
        };
        inside(self.saved_offset).max(inside(self.offset)).unwrap_or(size)
    }

    /// End of the records of a whole buffer that a live session delivers. Only `FilledBytes` is
    /// documented there (`ETW_BUFFER_HEADER`); other fields may contain an older end. `None` if it
    /// is outside the buffer.
    pub fn filled(&self, size: usize) -> Option<usize> {
        let end = self.offset.get() as usize;
        (BUFFER_HEADER_SIZE..=size).contains(&end).then_some(end)
    }

    /// Size of the buffer in bytes after decompression, including the header.
    pub fn inflated_size(&self) -> usize {
        if self.is_compressed() { self.saved_offset.get() as usize } else { self.buffer_size.get() as usize }
    }

    /// Whether the buffer may expand to its stated size, given the number of its bytes in the file.
    pub(crate) fn expands_in_proportion(&self, found: usize) -> bool {
        u64::from(self.saved_offset.get()) <= INFLATED_ALLOWANCE + found as u64 * INFLATION_MAX
    }

    /// The reason why this header is impossible, if it is. `nominal` is the buffer size of the
    /// session.
    ///
    /// The rules hold for all buffers that Windows is known to write. A bit flip in the size
    /// violates one of them in almost all cases, which the search for the next buffer after damage
    /// relies on.
    pub fn implausible(&self, nominal: Option<u32>) -> Option<&'static str> {
        let size = self.buffer_size.get();
        let Some(buffer_type) = self.buffer_type() else { return Some("unknown buffer type") };
        if size < BUFFER_HEADER_SIZE as u32 {
            return Some("buffer size smaller than a buffer header");
        }
        if size > BUFFER_SIZE_MAX {
            return Some("buffer size beyond 64 MiB");
        }
        if self.flags.get() & !BufferFlags::KNOWN != 0 {
            return Some("unknown buffer flags");
        }
        if self.reference_count.get() != 0 {
            return Some("reference count not zero");
        }
        if self.state.get() & 0xffff > 6 {
            return Some("unknown buffer state");
        }
        if buffer_type == BufferType::Header {
            return None;
        }
        if self.is_compressed() {
            let saved = self.saved_offset.get();
            if !(BUFFER_HEADER_SIZE as u32..=BUFFER_SIZE_MAX).contains(&saved) {
                return Some("impossible inflated size");
            }
            if !self.expands_in_proportion(size as usize) {
                return Some("inflated size out of proportion");
            }
        } else if nominal.is_some_and(|nominal| nominal != size) {
            return Some("buffer size differs from the session's");
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(size: u32, saved: u32, offset: u32, flags: u16, buffer_type: u16) -> BufferHeader {
        let mut header = BufferHeader::read_from_bytes(&[0u8; BUFFER_HEADER_SIZE]).unwrap();
        header.buffer_size = size.into();
        header.saved_offset = saved.into();
        header.offset = offset.into();
        header.flags = flags.into();
        header.buffer_type = buffer_type.into();
        header
    }

    #[test]
    fn records_end_at_the_larger_valid_offset() {
        for (saved, offset, size, expected) in [
            (0x100, 0x100, 0x1000, 0x100),
            (0, 568, 0x2000, 568),
            (440, 520, 0x1000, 520),
            (0x2000, 0x100, 0x1000, 0x100),
            (0, 0, 0x1000, 0x1000),
        ] {
            assert_eq!(
                header(size as u32, saved, offset, 0, 0).records_end(size),
                expected,
                "{saved:#x} {offset:#x}"
            );
        }
    }

    #[test]
    fn old_buffers_have_eight_bits_of_processor() {
        let mut old = header(0x1000, 0x48, 0x48, 0, 0);
        old.processor = 0x0803.into();
        assert_eq!(old.processor(), 3);
        old.flags = 0x20.into();
        assert_eq!(old.processor(), 0x0803);
    }

    #[test]
    fn impossible_headers_are_named() {
        for (header, nominal, expected) in [
            (header(0x1000, 0x80, 0x80, 0x20, 0), Some(0x1000), None),
            (header(0x1000, 0x80, 0x80, 0x20, 0), None, None),
            (header(0x40, 0x80, 0x80, 0x20, 0), None, Some("buffer size smaller than a buffer header")),
            (header(0x8000_0000, 0x80, 0x80, 0x20, 0), None, Some("buffer size beyond 64 MiB")),
            (
                header(0x2000, 0x80, 0x80, 0x20, 0),
                Some(0x1000),
                Some("buffer size differs from the session's"),
            ),
            (header(0x200, 0x80, 0x80, 0x20, 4), Some(0x1000), None),
            (header(0x200, 0x1000, 0x1000, 0x60, 0), Some(0x1000), None),
            (header(0x200, 0x40, 0x40, 0x60, 0), Some(0x1000), Some("impossible inflated size")),
            (header(0x1000, 0x80, 0x80, 0x120, 0), Some(0x1000), Some("unknown buffer flags")),
            (header(0x1000, 0x80, 0x80, 0x20, 9), Some(0x1000), Some("unknown buffer type")),
        ] {
            assert_eq!(header.implausible(nominal), expected, "{header:?}");
        }
    }
}
