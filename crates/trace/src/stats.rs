//! Counters of events, buffers, losses and damage.

use stackhound_etl::Damage;

use crate::event::TraceTime;

/// Counters of one run over a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Delivered events.
    pub events: u64,
    /// Buffers read.
    pub buffers: u64,
    /// Size of all sources in bytes.
    pub bytes: u64,
    /// Events whose time is earlier than that of the event delivered before them: a clock was set
    /// back, or buffers are out of order.
    pub out_of_order: u64,
    /// Events that Windows counted as lost.
    pub events_lost: u64,
    /// Buffers that Windows counted as lost.
    pub buffers_lost: u64,
    /// Buffers that are missing, by their sequence numbers.
    pub buffers_missing: u64,
    /// Events of live sessions that were dropped because the reader was too slow.
    pub events_dropped: u64,
    /// Events of live sessions that do not fit into a record, and regions of their buffers that
    /// cannot be read.
    pub events_unreadable: u64,
    /// Buffers of live sessions that were delivered twice; each was read once. In files, repeated
    /// buffers are damage.
    pub buffers_repeated: u64,
    /// Damaged regions with the number of their source, in file order.
    pub damage: Vec<(u16, Damage)>,
}

impl Stats {
    /// Counts an event that is delivered after one with the time `last`.
    #[inline]
    pub(crate) fn count(&mut self, last: &mut TraceTime, time: TraceTime) {
        self.events += 1;
        self.out_of_order += u64::from(time < *last);
        *last = time;
    }

    pub(crate) fn sorted(mut self) -> Stats {
        self.damage.sort_by_key(|(source, damage)| (*source, damage.offset));
        self
    }
}
