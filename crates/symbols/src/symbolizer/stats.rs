//! What symbol work was done, and what it cost.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::failure::{Cause, FileKind};

/// Counters of a symbolizer. All but `loads`, `evictions`, `memory_peak` and the times are the same for the same requests.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SymbolStats {
    /// Distinct modules that were given numbers.
    pub modules: u64,
    /// Requests of an address that was known by then.
    pub hits: u64,
    /// Requests of an address that was new. Each is resolved once.
    pub misses: u64,
    /// Addresses resolved so far.
    pub resolved: u64,
    /// Those of them that have at least one name.
    pub named: u64,
    /// Tables loaded, those loaded again included.
    pub loads: u64,
    /// Tables given up to keep the memory limit.
    pub evictions: u64,
    /// Most bytes of memory that kept tables took at a time.
    pub memory_peak: usize,
    /// Time that threads spent loading, downloads included, summed over threads.
    pub load_time: Duration,
    /// Time that threads spent looking up addresses, summed over threads.
    pub resolve_time: Duration,
    /// Bytes downloaded.
    pub downloaded: u64,
    /// Modules whose loading, and addresses whose look-up, ended in a panic; they have no names.
    pub panics: u64,
    /// Modules by what was missing of them and why.
    pub failures: BTreeMap<(FileKind, Cause), u64>,
}
