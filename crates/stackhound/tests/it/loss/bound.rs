//! The number of stacks with keys that no rule could confirm, from an independent reading of stack
//! records.
//!
//! A key stands for its first definition that is not earlier than the reference. If the interval of
//! the dropped buffer overlaps the time between the two, the buffer could have contained an earlier
//! definition of the key.

use std::collections::{BTreeMap, HashMap};

use stackhound_etl::EtlFile;
use stackhound_types::{PointerSize, RawTime};

const KERNEL_REFERENCE: u16 = 0x1825;
const USER_REFERENCE: u16 = 0x1826;
const STACK: u16 = 0x1820;
const DEFINITIONS: [u16; 3] = [0x1822, 0x1823, 0x1824];

/// The stack of one event, by the event's time and thread.
type Group = (i64, u32);

#[derive(Default)]
struct Reference {
    time: i64,
    buffer: u64,
    group: Group,
    key: (u64, bool),
}

/// The stack records of a trace, and the times of each buffer.
pub struct Bound {
    references: Vec<Reference>,
    groups: BTreeMap<Group, u64>,
    definitions: HashMap<(u64, bool), Vec<i64>>,
    /// By processor: offset, first and last time, in time order.
    buffers: BTreeMap<u16, Vec<(u64, i64, i64)>>,
}

impl Bound {
    /// Reads 64-bit stack records; `None` if the trace has no keys.
    pub fn of(etl_file: &EtlFile) -> Option<Bound> {
        let mut bound = Bound {
            references: Vec::new(),
            groups: BTreeMap::new(),
            definitions: HashMap::new(),
            buffers: BTreeMap::new(),
        };
        for buffer in etl_file.index().buffers {
            let (block, _) = etl_file.block(&buffer, None).expect("a whole buffer");
            let mut times = Vec::new();
            for entry in block.entries() {
                let record = block.record(entry);
                times.push(entry.time.0);
                let word = |at: usize| u64::from_le_bytes(record.payload()[at..at + 8].try_into().unwrap());
                match entry.hook_id() {
                    Some(hook_id @ (STACK | KERNEL_REFERENCE | USER_REFERENCE)) => {
                        assert_eq!(record.pointer_size(), PointerSize::Eight);
                        let group = (word(0) as i64, (word(8) >> 32) as u32);
                        bound.groups.insert(group, buffer.offset);
                        if hook_id != STACK {
                            let key = (word(16), hook_id == KERNEL_REFERENCE);
                            let RawTime(time) = entry.time;
                            bound.references.push(Reference { time, buffer: buffer.offset, group, key });
                        }
                    }
                    Some(hook_id) if DEFINITIONS.contains(&hook_id) => {
                        let is_kernel = word(record.payload().len() - 8) >> 63 == 1;
                        bound.definitions.entry((word(0), is_kernel)).or_default().push(entry.time.0);
                    }
                    _ => {}
                }
            }
            if let (Some(first), Some(last), true) = (times.first(), times.last(), buffer.sequence > 0) {
                let of = bound.buffers.entry(buffer.processor).or_default();
                of.push((buffer.offset, *first, *last));
            }
        }
        bound.definitions.values_mut().for_each(|times| times.sort_unstable());
        bound.buffers.values_mut().for_each(|buffers| buffers.sort_unstable_by_key(|buffer| buffer.1));
        (!bound.references.is_empty()).then_some(bound)
    }

    /// The share of stacks that can be confirmed without a buffer, which is given by its offset.
    pub fn confirmable_without(&self, dropped: u64) -> f64 {
        let of = self.buffers.values().find(|buffers| buffers.iter().any(|buffer| buffer.0 == dropped));
        let of = of.expect("a buffer of the trace");
        let at = of.iter().position(|buffer| buffer.0 == dropped).expect("its position");
        let from = at.checked_sub(1).map_or(i64::MIN, |before| of[before].2);
        let until = of.get(at + 1).map_or(i64::MAX, |after| after.1);
        let mut confirmable = self.groups.clone();
        confirmable.retain(|_, buffer| *buffer != dropped);
        let all = confirmable.len();
        for reference in self.references.iter().filter(|reference| reference.buffer != dropped) {
            let definitions = &self.definitions[&reference.key];
            let first = definitions.partition_point(|time| *time < reference.time);
            if definitions.get(first).is_none_or(|defined| reference.time <= until && *defined >= from) {
                confirmable.remove(&reference.group);
            }
        }
        confirmable.len() as f64 / all.max(1) as f64
    }
}
