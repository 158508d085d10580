//! Search for the next buffer after damage.
//!
//! Buffers have no magic number. An offset is accepted as a buffer if every field of its header is
//! possible, both fields for the end of the records agree, the first record has a valid start, and
//! the buffer is followed by another one or by the end of the data.

use crate::buffer::{BUFFER_HEADER_SIZE, BufferHeader, BufferType};
use crate::record::is_plausible_start;

/// Whether `bytes` can follow a buffer: nothing, the unused end of a file, or another buffer.
pub(crate) fn continues(bytes: &[u8], nominal: Option<u32>) -> bool {
    match BufferHeader::read(bytes) {
        None => bytes.iter().all(|&byte| byte == 0),
        Some(header) => {
            header.implausible(nominal).is_none() || bytes[..BUFFER_HEADER_SIZE].iter().all(|&byte| byte == 0)
        }
    }
}

/// Offset of the first buffer in `bytes` at or after `from`.
///
/// Examines each offset once, with a few comparisons.
pub(crate) fn find(bytes: &[u8], from: usize, nominal: Option<u32>) -> Option<usize> {
    (from..bytes.len().saturating_sub(BUFFER_HEADER_SIZE)).find(|&at| is_buffer(&bytes[at..], nominal))
}

fn is_buffer(bytes: &[u8], nominal: Option<u32>) -> bool {
    // The type and flag words are checked first, because they rule out nearly every offset.
    if bytes[0x37] != 0 || bytes[0x35] != 0 || bytes[0x36] > 7 {
        return false;
    }
    let Some(header) = BufferHeader::read(bytes) else { return false };
    if header.implausible(nominal).is_some() || header.buffer_type() != Some(BufferType::Generic) {
        return false;
    }
    let (saved, inflated) = (header.saved_offset.get(), header.inflated_size());
    let ends_agree =
        saved == header.offset.get() && (BUFFER_HEADER_SIZE..=inflated).contains(&(saved as usize));
    if !ends_agree || header.sequence_number.get() < 0 {
        return false;
    }
    if !header.is_compressed() {
        let marker = bytes.get(BUFFER_HEADER_SIZE..BUFFER_HEADER_SIZE + 4);
        if !marker.is_some_and(|m| is_plausible_start(u32::from_le_bytes([m[0], m[1], m[2], m[3]]))) {
            return false;
        }
    }
    // The end of the file may cut off the last buffer.
    bytes.get(header.buffer_size.get() as usize..).is_none_or(|next| continues(next, nominal))
}
