//! Counters of symbol work and its cost.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::failure::{Cause, FileKind};
use crate::image::NoCall;

/// Counters of a symbolizer. Equal requests give equal values, except for `loads`, `evictions`,
/// `memory_peak` and the times.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SymbolStats {
    /// Distinct modules.
    pub modules: u64,
    /// Requests of a known address.
    pub hits: u64,
    /// Requests of a new address. Each is resolved once.
    pub misses: u64,
    /// Addresses resolved so far.
    pub resolved: u64,
    /// Resolved addresses with at least one name.
    pub named: u64,
    /// Resolved return addresses whose call is known.
    pub calls: u64,
    /// Resolved return addresses whose call is not known, by reason, if
    /// [call sites](crate::SymbolizerOptions::call_sites) are requested.
    pub no_calls: BTreeMap<NoCall, u64>,
    /// Loaded tables, including repeated loads.
    pub loads: u64,
    /// Tables evicted because of the memory limit.
    pub evictions: u64,
    /// Maximum memory of cached tables, in bytes.
    pub memory_peak: usize,
    /// Time for loading including downloads, summed over all threads.
    pub load_time: Duration,
    /// Time for looking up addresses, summed over all threads.
    pub resolve_time: Duration,
    /// Downloaded bytes.
    pub downloaded: u64,
    /// Modules whose loading, and addresses whose lookup, panicked. They have no names.
    pub panics: u64,
    /// The number of modules by missing file and cause.
    pub failures: BTreeMap<(FileKind, Cause), u64>,
}
