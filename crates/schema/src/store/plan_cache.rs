//! Caches the plan of each key, including keys without a description.

use std::sync::Arc;

use foldhash::HashMap;

use super::Key;
use crate::plan::Plan;

/// The maximum number of cached keys.
const MAX_ENTRIES: usize = 1 << 16;

/// Results of look-ups, which are valid until a description is learned.
#[derive(Clone, Debug, Default)]
pub(super) struct PlanCache {
    index_of: HashMap<Key, usize>,
    entries: Vec<Entry>,
    generation: u64,
}

#[derive(Clone, Debug)]
struct Entry {
    generation: u64,
    plan: Option<Arc<Plan>>,
}

impl PlanCache {
    /// The plan for a key. Calls `find` if the key is not cached or its entry is out of date.
    pub fn get(&mut self, key: Key, find: impl FnOnce() -> Option<Arc<Plan>>) -> Option<&Arc<Plan>> {
        let generation = self.generation;
        let index = match self.index_of.get(&key) {
            Some(&index) => {
                if self.entries[index].generation != generation {
                    self.entries[index] = Entry { generation, plan: find() };
                }
                index
            }
            None => {
                if self.entries.len() >= MAX_ENTRIES {
                    self.index_of.clear();
                    self.entries.clear();
                }
                self.index_of.insert(key, self.entries.len());
                self.entries.push(Entry { generation, plan: find() });
                self.entries.len() - 1
            }
        };
        self.entries[index].plan.as_ref()
    }

    /// The number of invalidations so far.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Invalidates all entries.
    pub fn invalidate(&mut self) {
        self.generation += 1;
    }
}

#[cfg(test)]
mod tests {
    use stackhound_types::Guid;

    use super::*;
    use crate::store::Kind;

    #[test]
    fn plans_are_cached_until_invalidated() {
        let mut cache = PlanCache::default();
        let mut calls = 0;
        let key = |number| Key { guid: Guid::ZERO, kind: Kind::Manifest, number, version: 0 };
        for (number, expected) in [(1, 1), (1, 1), (2, 2), (1, 2)] {
            cache.get(key(number), || {
                calls += 1;
                None
            });
            assert_eq!(calls, expected);
        }
        cache.invalidate();
        for (number, expected) in [(1, 3), (1, 3), (2, 4)] {
            cache.get(key(number), || {
                calls += 1;
                None
            });
            assert_eq!(calls, expected);
        }
    }

    #[test]
    fn the_number_of_cached_plans_is_limited() {
        let mut cache = PlanCache::default();
        for number in 0..=u16::MAX {
            for version in 0..3 {
                let key = Key { guid: Guid::ZERO, kind: Kind::Manifest, number, version };
                cache.get(key, || None);
                assert!(cache.entries.len() <= MAX_ENTRIES && cache.index_of.len() <= MAX_ENTRIES);
            }
        }
    }
}
