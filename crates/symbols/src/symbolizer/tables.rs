//! The tables that are kept in memory: the least used go first.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Loaded, ModuleNumber};

#[derive(Debug)]
struct Kept {
    loaded: Arc<Loaded>,
    memory: usize,
    /// What it is worth, and when it was used last; the least goes first.
    rank: (u64, u64),
}

/// Loaded modules within a limit of memory.
///
/// A use makes a table worth the present age plus the magnitude of how often its module was met. A table that goes sets
/// the age to its worth. So a module met a million times outlives twenty that were met once, not all of them.
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

    fn rank(&mut self, met: u64) -> (u64, u64) {
        self.uses += 1;
        (self.age + u64::from((met | 1).ilog2()), self.uses)
    }

    pub fn get(&mut self, module: ModuleNumber, met: u64) -> Option<Arc<Loaded>> {
        let rank = self.rank(met);
        let kept = self.kept.get_mut(&module)?;
        kept.rank = rank;
        Some(Arc::clone(&kept.loaded))
    }

    /// Keeps a table if it is within the limit at all. Gives those that had to go, to be freed without the lock.
    pub fn keep(&mut self, module: ModuleNumber, met: u64, loaded: &Arc<Loaded>) -> Vec<Arc<Loaded>> {
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
        let kept = Kept { loaded: Arc::clone(loaded), memory, rank: self.rank(met) };
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

    /// Tables of 10 KB under a limit of three of them. Each row: uses as (module, met), then the modules that are left.
    #[test]
    fn the_least_used_goes_first() {
        type Row = (&'static str, &'static [(u32, u64)], &'static [u32]);
        let rows: [Row; 5] = [
            ("room for all", &[(1, 1), (2, 1), (3, 1)], &[1, 2, 3]),
            ("equal use: the one used longest ago", &[(1, 1), (2, 1), (3, 1), (4, 1)], &[2, 3, 4]),
            ("often met stays", &[(1, 1000), (2, 1), (3, 1), (4, 1), (5, 1)], &[1, 4, 5]),
            ("a use renews", &[(1, 1), (2, 1), (3, 1), (1, 8), (4, 1)], &[1, 3, 4]),
            (
                "not for ever",
                &[(1, 8), (2, 2), (3, 2), (4, 4), (5, 4), (6, 8), (7, 8), (8, 16), (9, 16), (10, 99)],
                &[8, 9, 10],
            ),
        ];
        for (what, uses, left) in rows {
            let mut tables = Tables::new(3 * (10 * KB + 512));
            for &(module, met) in uses {
                if tables.get(ModuleNumber(module), met).is_none() {
                    tables.keep(ModuleNumber(module), met, &Arc::new(table_of(10 * KB)));
                }
                assert!(tables.used <= tables.limit, "{what}");
            }
            let mut kept: Vec<_> = tables.kept.keys().map(|module| module.0).collect();
            kept.sort_unstable();
            assert_eq!(kept, left, "{what}");
        }
    }

    #[test]
    fn what_is_larger_than_the_limit_is_not_kept() {
        let mut tables = Tables::new(10 * KB);
        tables.keep(ModuleNumber(0), 1, &Arc::new(table_of(4 * KB)));
        tables.keep(ModuleNumber(1), 1, &Arc::new(table_of(20 * KB)));
        assert!(tables.contains(ModuleNumber(0)) && !tables.contains(ModuleNumber(1)));
        assert_eq!((tables.evictions, tables.used), (1, 4 * KB + 512));
    }
}
