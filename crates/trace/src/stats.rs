//! What was read and what could not be.

use stackhound_etl::Damage;

/// Counters of one run over a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Events handed out.
    pub events: u64,
    /// Buffers read.
    pub buffers: u64,
    /// Bytes of all sources.
    pub bytes: u64,
    /// Events whose time lies before that of the event handed out before them: a clock was set back, or buffers are
    /// in disorder.
    pub out_of_order: u64,
    /// Events that Windows counted as lost.
    pub events_lost: u64,
    /// Buffers that Windows counted as lost.
    pub buffers_lost: u64,
    /// Buffers whose sequence numbers are missing.
    pub buffers_missing: u64,
    /// Events of live sessions that were dropped because the reader was too slow.
    pub events_dropped: u64,
    /// Events of live sessions that no record can hold, and places in their buffers that cannot be read.
    pub events_unreadable: u64,
    /// Whole buffers of live sessions that had come before and were not read again. In files these are damage.
    pub buffers_repeated: u64,
    /// Damaged places by source, in file order.
    pub damage: Vec<(u16, Damage)>,
}

impl Stats {
    pub(crate) fn sorted(mut self) -> Stats {
        self.damage.sort_by_key(|(source, damage)| (*source, damage.offset));
        self
    }
}
