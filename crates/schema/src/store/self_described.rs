//! Descriptions that TraceLogging events contain. They are read once for all events with the same
//! metadata.

use std::sync::Arc;

use foldhash::HashMap;
use stackhound_types::Guid;

use crate::plan::Plan;
use crate::tracelogging::EventMetadata;

/// The maximum size of cached metadata in bytes. A schema takes up to about thirty times as much
/// memory.
const MAX_BYTES: usize = 4 << 20;

/// Plans by provider, opcode and metadata.
#[derive(Clone, Debug, Default)]
pub(super) struct SelfDescribed {
    index_of: HashMap<Box<[u8]>, usize>,
    /// `None` for metadata that cannot be read.
    plans: Vec<Option<Arc<Plan>>>,
    /// The total size of all keys in bytes.
    bytes: usize,
    /// The key of the current look-up.
    key: Vec<u8>,
}

impl SelfDescribed {
    /// The description in the metadata.
    pub fn lookup(&mut self, provider: Guid, metadata: &[u8], opcode: u8) -> Option<&Arc<Plan>> {
        self.key.clear();
        self.key.extend(provider.0);
        self.key.push(opcode);
        self.key.extend(metadata);
        let index = match self.index_of.get(&*self.key) {
            Some(&index) => index,
            None => {
                if self.bytes + self.key.len() > MAX_BYTES {
                    self.index_of.clear();
                    self.plans.clear();
                    self.bytes = 0;
                }
                self.bytes += self.key.len();
                self.index_of.insert(self.key.as_slice().into(), self.plans.len());
                self.plans.push(read(provider, metadata, opcode));
                self.plans.len() - 1
            }
        };
        self.plans[index].as_ref()
    }
}

fn read(provider: Guid, metadata: &[u8], opcode: u8) -> Option<Arc<Plan>> {
    let schema = EventMetadata::parse(metadata).and_then(|metadata| metadata.schema(provider, opcode));
    schema.ok().map(|schema| Arc::new(Plan::new(Arc::new(schema))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::blocks::event_metadata;

    #[test]
    fn the_size_of_cached_metadata_is_limited() {
        let mut cache = SelfDescribed::default();
        for number in 0..1000 {
            let metadata = event_metadata(&format!("{number}{}", "x".repeat(10_000)), &[]);
            assert!(cache.lookup(Guid::ZERO, &metadata, 0).is_some());
            let key_bytes: usize = cache.index_of.keys().map(|key| key.len()).sum();
            assert_eq!(key_bytes, cache.bytes);
            assert!(key_bytes <= MAX_BYTES && cache.plans.len() == cache.index_of.len());
        }
    }
}
