//! Raw buffers that a consumer references. Each buffer keeps its address until its last reference
//! is released.

use std::collections::HashMap;
use std::sync::Mutex;

use super::code;
use super::sessions::{changed, lock};

#[derive(Debug)]
struct Kept {
    /// Read only by the consumer, through the address.
    _bytes: Box<[u64]>,
    trace: u64,
    references: u32,
}

static KEPT: Mutex<Option<HashMap<usize, Kept>>> = Mutex::new(None);

fn with<T>(use_them: impl FnOnce(&mut HashMap<usize, Kept>) -> T) -> T {
    use_them(lock(&KEPT).get_or_insert_default())
}

/// Stores a buffer with one reference. Returns its address, which is aligned to 8 bytes.
pub(super) fn lend(trace: u64, bytes: &[u8]) -> usize {
    let words = bytes.chunks(8).map(|word| {
        let mut whole = [0; 8];
        whole[..word.len()].copy_from_slice(word);
        u64::from_ne_bytes(whole)
    });
    let words: Box<[u64]> = words.collect();
    let address = words.as_ptr() as usize;
    with(|kept| kept.insert(address, Kept { _bytes: words, trace, references: 1 }));
    address
}

/// ProcessTraceBufferIncrementReference.
pub(super) fn keep(trace: u64, buffer: usize) -> u32 {
    with(|kept| match kept.get_mut(&buffer) {
        Some(buffer) if buffer.trace == trace => {
            buffer.references += 1;
            code::SUCCESS
        }
        _ => code::INVALID_PARAMETER,
    })
}

/// ProcessTraceBufferDecrementReference.
pub(super) fn give_back(buffer: usize) -> u32 {
    let result = with(|kept| {
        let Some(found) = kept.get_mut(&buffer) else { return code::INVALID_PARAMETER };
        found.references -= 1;
        if found.references == 0 {
            kept.remove(&buffer);
        }
        code::SUCCESS
    });
    changed();
    result
}

/// Number of buffers of a trace that are still referenced.
pub(super) fn outstanding(trace: u64) -> usize {
    with(|kept| kept.values().filter(|buffer| buffer.trace == trace).count())
}
