//! Stack keys: numbers of cache slots that are recorded instead of frames.
//!
//! Windows reuses a key for different frames, and writes its definition after its uses. A reference
//! therefore resolves to the first definition that is not earlier. If a buffer between the two is
//! missing, it can have contained an earlier definition, and the frames are unconfirmed. Kernel and
//! user keys with equal numbers are different keys; the outermost frame of a definition decides
//! which kind it is.

use hashbrown::HashMap;
use stackhound_trace::{Event, TraceTime};
use stackhound_types::PointerSize;

use crate::part::Frames;
use crate::table::{StackId, StackTable};

pub(crate) type Map<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// A key: its session, its number, and whether it is a kernel key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Key {
    pub session: u32,
    pub kernel: bool,
    pub number: u64,
}

impl Key {
    /// The key that a definition defines.
    pub fn defined(session: u32, number: u64, frames: &Frames<'_>, pointer_size: PointerSize) -> Key {
        Key { session, kernel: frames.last().is_some_and(|address| address.is_kernel(pointer_size)), number }
    }
}

/// The definitions of one key, in time order once they are sealed.
#[derive(Debug, Default)]
struct Definitions {
    all: Vec<(TraceTime, StackId)>,
    /// The index at which the last reference was resolved. References come nearly in time order, so
    /// the next one is near.
    cursor: usize,
}

/// All key definitions of a trace.
#[derive(Debug, Default)]
pub(crate) struct KeyDefinitions {
    by_key: Map<Key, Definitions>,
    /// The stacks of all definitions.
    pub table: StackTable,
}

impl KeyDefinitions {
    /// Adds a definition and returns its key.
    pub fn define(&mut self, event: &Event<'_>, number: u64, frames: &Frames<'_>) -> Key {
        let key = Key::defined(event.session_number(), number, frames, event.block().session().pointer_size);
        if let Some(stack) = self.table.extend(None, frames.iter()) {
            self.by_key.entry(key).or_default().all.push((event.time(), stack));
        }
        key
    }

    /// Sorts definitions by time. Must be called before the first [`resolve`](Self::resolve).
    pub fn seal(&mut self) {
        for definitions in self.by_key.values_mut() {
            if !definitions.all.is_sorted_by_key(|&(time, _)| time) {
                definitions.all.sort_by_key(|&(time, _)| time);
            }
        }
    }

    /// The frames of a reference made at `time`, and the time of their definition.
    pub fn resolve(&mut self, key: Key, time: TraceTime) -> Option<(StackId, TraceTime)> {
        let Definitions { all, cursor } = self.by_key.get_mut(&key)?;
        let is_first = |at: usize| {
            all.get(at).is_none_or(|&(defined, _)| defined >= time)
                && (at == 0 || all.get(at - 1).is_some_and(|&(defined, _)| defined < time))
        };
        if !is_first(*cursor) {
            *cursor += 1;
            if !is_first(*cursor) {
                *cursor = all.partition_point(|&(defined, _)| defined < time);
            }
        }
        all.get(*cursor).map(|&(defined, stack)| (stack, defined))
    }
}
