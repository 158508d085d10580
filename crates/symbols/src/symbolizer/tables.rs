//! The tables that are cached in memory. The least used ones are evicted first.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Loaded, ModuleNumber};

#[derive(Debug)]
struct Kept {
    loaded: Arc<Loaded>,
    memory: usize,
    /// Its value, and the time of its last use. The table with the least rank is evicted first.
    rank: (u64, u64),
}

/// Loaded modules within a memory limit.
///
/// Each use sets the value of a table to the current age plus the binary logarithm of its module's
/// number of requests. An eviction sets the age to the value of the evicted table. A module with a
/// million requests therefore outlives twenty modules with one request each, but not any number of
/// them.
#[derive(Debug)]
pub(super) struct Tables {
    kept: HashMap<ModuleNumber, Kept, foldhash::fast::RandomState>,
    limit: usize,
    used: usize,
    age: u64,
    uses: u64,
    pub peak: usize,
    pub evictions: u64,
}

impl Tables {
    pub fn new(limit: usize) -> Tables {
        Tables { kept: HashMap::default(), limit, used: 0, age: 0, uses: 0, peak: 0, evictions: 0 }
    }

    pub fn contains(&self, module: ModuleNumber) -> bool {
        self.kept.contains_key(&module)
    }

    fn rank(&mut self, request_count: u64) -> (u64, u64) {
        self.uses += 1;
        (self.age + u64::from((request_count | 1).ilog2()), self.uses)
    }

    pub fn get(&mut self, module: ModuleNumber, request_count: u64) -> Option<Arc<Loaded>> {
        let rank = self.rank(request_count);
        let kept = self.kept.get_mut(&module)?;
        kept.rank = rank;
        Some(Arc::clone(&kept.loaded))
    }

    /// Caches a table unless it alone exceeds the limit. Returns the evicted tables, to be freed
    /// without the lock.
    pub fn keep(
        &mut self,
        module: ModuleNumber,
        request_count: u64,
        loaded: &Arc<Loaded>,
    ) -> Vec<Arc<Loaded>> {
        let mut all_gone = Vec::new();
        let memory = loaded.memory();
        if memory > self.limit {
            self.evictions += 1;
            return all_gone;
        }
        while self.used + memory > self.limit {
            let least = self.kept.iter().min_by_key(|(_, kept)| kept.rank);
            let Some(least) = least.map(|(module, _)| *module) else { break };
            if let Some(gone) = self.kept.remove(&least) {
                self.used -= gone.memory;
                self.age = gone.rank.0;
                self.evictions += 1;
                all_gone.push(gone.loaded);
            }
        }
        self.used += memory;
        self.peak = self.peak.max(self.used);
        let kept = Kept { loaded: Arc::clone(loaded), memory, rank: self.rank(request_count) };
        if let Some(old) = self.kept.insert(module, kept) {
            self.used -= old.memory;
        }
        all_gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbolizer::tests::table_of;

    const KB: usize = 1024;

    /// Tables of 10 KB under a limit of three tables. Each row: uses as (module, number of
    /// requests), then the remaining modules.
    #[test]
    fn the_least_used_table_is_evicted_first() {
        type Row = (&'static str, &'static [(u32, u64)], &'static [u32]);
        let rows: [Row; 5] = [
            ("all fit", &[(1, 1), (2, 1), (3, 1)], &[1, 2, 3]),
            ("equal use: the least recently used", &[(1, 1), (2, 1), (3, 1), (4, 1)], &[2, 3, 4]),
            ("a frequent module stays", &[(1, 1000), (2, 1), (3, 1), (4, 1), (5, 1)], &[1, 4, 5]),
            ("a use renews", &[(1, 1), (2, 1), (3, 1), (1, 8), (4, 1)], &[1, 3, 4]),
            (
                "but not permanently",
                &[(1, 8), (2, 2), (3, 2), (4, 4), (5, 4), (6, 8), (7, 8), (8, 16), (9, 16), (10, 99)],
                &[8, 9, 10],
            ),
        ];
        for (description, uses, left) in rows {
            let mut tables = Tables::new(3 * (10 * KB + 512));
            for &(module, request_count) in uses {
                if tables.get(ModuleNumber(module), request_count).is_none() {
                    tables.keep(ModuleNumber(module), request_count, &Arc::new(table_of(10 * KB)));
                }
                assert!(tables.used <= tables.limit, "{description}");
            }
            let mut kept: Vec<_> = tables.kept.keys().map(|module| module.0).collect();
            kept.sort_unstable();
            assert_eq!(kept, left, "{description}");
        }
    }

    #[test]
    fn tables_larger_than_the_limit_are_not_kept() {
        let mut tables = Tables::new(10 * KB);
        tables.keep(ModuleNumber(0), 1, &Arc::new(table_of(4 * KB)));
        tables.keep(ModuleNumber(1), 1, &Arc::new(table_of(20 * KB)));
        assert!(tables.contains(ModuleNumber(0)) && !tables.contains(ModuleNumber(1)));
        assert_eq!((tables.evictions, tables.used), (1, 4 * KB + 512));
    }
}
