//! The packed entries of buffers that a first pass has scanned, for the second pass.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use stackhound_etl::PackedEntries;

/// Maximum memory of packed entries in bytes: those of eight million records. Other buffers are
/// scanned again.
const MEMORY_MAX: usize = 64 << 20;

/// Identifies a buffer: the index of its source in the trace, and its offset in the file. Numbers of
/// sources need not be distinct.
type BufferKey = (usize, u64);

/// Packed entries by buffer, up to a limit.
#[derive(Debug, Default)]
pub(crate) struct Scans(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    by_buffer: HashMap<BufferKey, PackedEntries>,
    memory: usize,
}

impl Scans {
    /// Keeps the entries of a buffer, if there is memory left for them.
    pub fn keep(&self, buffer: BufferKey, packed: PackedEntries) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let memory = kept.memory + packed.memory();
        if memory <= MEMORY_MAX && kept.by_buffer.insert(buffer, packed).is_none() {
            kept.memory = memory;
        }
    }

    /// Removes and returns the entries of a buffer.
    pub fn take(&self, buffer: BufferKey) -> Option<PackedEntries> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let packed = kept.by_buffer.remove(&buffer)?;
        kept.memory -= packed.memory();
        Some(packed)
    }
}
