//! One event of a trace.

use stackhound_etl::record::{HeaderKind, Record};
use stackhound_etl::{Block, Entry};
use stackhound_types::{FileTime, Guid, Pid, RawTime, Tid};
use std::sync::Arc;

/// Ticks of the first source's clock. Every event of a trace has such a time, whatever its own source's clock is;
/// within one source it is the raw timestamp.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct TraceTime(pub i64);

/// A view of one event; cheap to copy. To keep an event, keep its [`block`](Event::block) and
/// [`index`](Event::index).
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

    /// The event that was seen before with this entry and index; reads nothing of the block.
    #[inline]
    pub fn again(block: &'b Arc<Block>, entry: Entry, index: u32, time: TraceTime) -> Event<'b> {
        debug_assert_eq!(block.entries()[index as usize], entry);
        Event { block, entry, index, time }
    }

    /// The block that holds the event's bytes.
    #[inline]
    pub fn block(&self) -> &'b Arc<Block> {
        self.block
    }

    /// Which entry of its block the event is.
    #[inline]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Time in the trace's order.
    #[inline]
    pub fn time(&self) -> TraceTime {
        self.time
    }

    /// Time in its own source's clock, as the record states it.
    #[inline]
    pub fn raw_time(&self) -> RawTime {
        self.entry.time
    }

    /// UTC time. Computes the conversion at each call.
    pub fn utc(&self) -> FileTime {
        self.block.session().clock().to_file_time(self.entry.time)
    }

    /// Header kind.
    #[inline]
    pub fn kind(&self) -> HeaderKind {
        self.entry.kind()
    }

    /// Hook id of a kernel event.
    #[inline]
    pub fn hook_id(&self) -> Option<u16> {
        self.entry.hook_id()
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

    /// The processor that logged the event; `None` where the session did not keep processors apart.
    #[inline]
    pub fn processor(&self) -> Option<u16> {
        self.block.origin().processor
    }

    /// Which of the trace's sources it comes from.
    #[inline]
    pub fn source(&self) -> u16 {
        self.block.origin().etl_file
    }

    /// Which of the trace's sessions it comes from. Stack keys, raw times and addresses mean something within one session
    /// only; an appended recording has several.
    #[inline]
    pub fn session_number(&self) -> u32 {
        self.block.origin().session
    }

    /// Process id in the header, if there is one.
    pub fn header_pid(&self) -> Option<Pid> {
        self.record().pid()
    }

    /// Thread id in the header, if there is one.
    pub fn header_tid(&self) -> Option<Tid> {
        self.record().tid()
    }

    /// Class or provider GUID, of events that carry one.
    pub fn guid(&self) -> Option<Guid> {
        self.record().guid()
    }

    /// The payload.
    #[inline]
    pub fn payload(&self) -> &'b [u8] {
        self.record().payload()
    }
}
