//! Buffers with equal sequence numbers. Sequence numbers are unique in a session, so these buffers
//! are copies or damaged.
//!
//! The rules are described in `docs/format/damage.md`.

use crate::buffer::{BUFFER_HEADER_SIZE, BufferHeader};
use crate::damage::{Damage, DamageReason};
use crate::index::BufferRef;

/// Buffers of one processor that agree in this number of bytes after the header start with the same
/// record and time.
const BEGINNING: usize = 32;

/// Identifies further copies of a buffer in its session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BufferIdentity {
    processor: u16,
    sequence: i64,
    /// Padded with zeros if the buffer is shorter.
    beginning: [u8; BEGINNING],
}

impl BufferIdentity {
    /// The identity of a whole buffer, including its header; `None` without a sequence number above
    /// 0.
    pub fn of(bytes: &[u8]) -> Option<BufferIdentity> {
        let header = BufferHeader::read(bytes).filter(|header| header.sequence_number.get() > 0)?;
        let mut beginning = [0; BEGINNING];
        let found = beginning_of(bytes);
        beginning[..found.len()].copy_from_slice(found);
        Some(BufferIdentity {
            processor: header.processor(),
            sequence: header.sequence_number.get(),
            beginning,
        })
    }
}

/// Removes all copies but the first of each buffer from `buffers`, and reports buffers with equal
/// numbers by their offset.
pub(crate) fn remove(bytes: &[u8], buffers: &mut Vec<BufferRef>) -> Vec<Damage> {
    let number = |buffer: &BufferRef| (buffer.epoch, buffer.processor, buffer.sequence);
    let mut numbered: Vec<BufferRef> = buffers.iter().filter(|buffer| buffer.sequence > 0).copied().collect();
    numbered.sort_unstable_by_key(|buffer| (number(buffer), buffer.offset));
    let (mut damage, mut copies) = (Vec::new(), Vec::new());
    for equal in numbered.chunk_by_mut(|a, b| number(a) == number(b)).filter(|equal| equal.len() > 1) {
        let first = equal[0].offset;
        equal.sort_unstable_by_key(|buffer| (beginning(bytes, buffer), buffer.offset));
        for same in equal.chunk_by(|a, b| beginning(bytes, a) == beginning(bytes, b)) {
            let original = &same[0];
            if original.offset != first {
                let reason = DamageReason::SameNumber { first };
                damage.push(Damage { offset: original.offset, skipped: 0, reason });
            }
            for copy in &same[1..] {
                let is_equal = content(bytes, copy) == content(bytes, original);
                let skipped = if is_equal { 0 } else { copy.size.into() };
                let reason = DamageReason::Repeated { first: original.offset };
                damage.push(Damage { offset: copy.offset, skipped, reason });
                copies.push(copy.offset);
            }
        }
    }
    copies.sort_unstable();
    buffers.retain(|buffer| copies.binary_search(&buffer.offset).is_err());
    damage
}

fn content<'b>(bytes: &'b [u8], buffer: &BufferRef) -> &'b [u8] {
    let start = buffer.offset as usize;
    &bytes[start..start + buffer.size as usize]
}

fn beginning<'b>(bytes: &'b [u8], buffer: &BufferRef) -> &'b [u8] {
    beginning_of(content(bytes, buffer))
}

fn beginning_of(buffer: &[u8]) -> &[u8] {
    let records = buffer.get(BUFFER_HEADER_SIZE..).unwrap_or_default();
    &records[..records.len().min(BEGINNING)]
}
