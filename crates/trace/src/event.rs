//! One event of a trace.

use stackhound_etl::record::{HeaderKind, Record};
use stackhound_etl::{Block, Entry};
use stackhound_types::{FileTime, Guid, Pid, RawTime, Tid};
use std::sync::Arc;

/// A time in ticks of the first source's clock. Every event of a trace has such a time, whatever
/// the clock of its own source is. For events of the first source, it is the raw timestamp.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct TraceTime(pub i64);

impl TraceTime {
    /// The ticks since an earlier time; 0 if that is not earlier.
    #[inline]
    pub fn ticks_since(self, earlier: TraceTime) -> u64 {
        u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0)
    }
}

/// Identifies an event of a trace. The order is arbitrary, and not the one of the trace.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct EventKey {
    /// The number of the session within the trace.
    pub session_number: u32,
    /// The processor that logged the event.
    pub processor: Option<u16>,
    /// The index of the event's entry in its block.
    pub index: u32,
    /// The time by which the trace is ordered.
    pub time: TraceTime,
}

/// A borrowed view of one event; cheap to copy. To keep an event, keep its [`block`](Event::block)
/// and [`index`](Event::index).
#[derive(Clone, Copy, Debug)]
pub struct Event<'b> {
    block: &'b Arc<Block>,
    entry: Entry,
    index: u32,
    time: TraceTime,
}

impl<'b> Event<'b> {
    /// The event at `index` of a block.
    ///
    /// # Panics
    /// If the block has no such entry.
    #[inline]
    pub fn new(block: &'b Arc<Block>, index: u32, time: TraceTime) -> Event<'b> {
        Event { block, entry: block.entries()[index as usize], index, time }
    }

    /// Recreates an event from its entry and index, without reading the block.
    #[inline]
    pub fn again(block: &'b Arc<Block>, entry: Entry, index: u32, time: TraceTime) -> Event<'b> {
        debug_assert_eq!(block.entries()[index as usize], entry);
        Event { block, entry, index, time }
    }

    /// The block that contains the event's bytes.
    #[inline]
    pub fn block(&self) -> &'b Arc<Block> {
        self.block
    }

    /// The index of the event's entry in its block.
    #[inline]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The time by which the trace is ordered.
    #[inline]
    pub fn time(&self) -> TraceTime {
        self.time
    }

    /// Identifies the event among those of its trace.
    #[inline]
    pub fn key(&self) -> EventKey {
        let (session_number, processor) = (self.session_number(), self.processor());
        EventKey { session_number, processor, index: self.index, time: self.time }
    }

    /// The raw timestamp of the record, in ticks of its own session's clock.
    #[inline]
    pub fn raw_time(&self) -> RawTime {
        self.entry.time
    }

    /// The UTC time. Converts at each call.
    pub fn utc(&self) -> FileTime {
        self.block.session().clock().to_file_time(self.entry.time)
    }

    /// The kind of the record's header.
    #[inline]
    pub fn kind(&self) -> HeaderKind {
        self.entry.kind()
    }

    /// The hook id; `None` if it is not a kernel event.
    #[inline]
    pub fn hook_id(&self) -> Option<u16> {
        self.entry.hook_id()
    }

    /// Whether its header states that extended items follow it.
    #[inline]
    pub fn has_extended_items(&self) -> bool {
        self.entry.has_extended_items()
    }

    /// The entry: time, kind and tag.
    #[inline]
    pub fn entry(&self) -> Entry {
        self.entry
    }

    /// The record with all its fields.
    #[inline]
    pub fn record(&self) -> Record<'b> {
        self.block.record(&self.entry)
    }

    /// The processor that logged the event; `None` if the session did not use per-processor
    /// buffers.
    #[inline]
    pub fn processor(&self) -> Option<u16> {
        self.block.origin().processor
    }

    /// The number of the source within the trace.
    #[inline]
    pub fn source(&self) -> u16 {
        self.block.origin().etl_file
    }

    /// The number of the session within the trace. Stack keys, raw times and addresses are
    /// meaningful only within one session. A file with appended sessions has several.
    #[inline]
    pub fn session_number(&self) -> u32 {
        self.block.origin().session
    }

    /// The process id in the header, if there is one.
    pub fn header_pid(&self) -> Option<Pid> {
        self.record().pid()
    }

    /// The thread id in the header, if there is one.
    pub fn header_tid(&self) -> Option<Tid> {
        self.record().tid()
    }

    /// The class GUID or provider GUID, if the header has one.
    pub fn guid(&self) -> Option<Guid> {
        self.record().guid()
    }

    /// The payload.
    #[inline]
    pub fn payload(&self) -> &'b [u8] {
        self.record().payload()
    }
}
