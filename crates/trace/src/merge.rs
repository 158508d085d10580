//! Time order: merges the streams of all processors of all sources.
//!
//! Each stream is in time order. A loser tree over the streams' next times yields the next event
//! with one comparison per tree level. For equal times, the stream with the lower number (source,
//! then processor) comes first, so the order depends only on the content of the files.

use std::sync::Arc;

use stackhound_etl::{Block, Clock, Extent};
use stackhound_types::RawTime;

use crate::event::{Event, TraceTime};
use crate::feed::Feed;
use crate::stats::Stats;

/// The conversion from a session's raw time to trace time. Equal raw times become equal trace
/// times.
#[derive(Clone, Copy, Debug)]
pub enum TimeBase {
    /// Raw time is trace time.
    Same,
    /// Converts through UTC.
    Convert {
        /// The session's clock.
        from: Clock,
        /// The trace's clock.
        to: Clock,
    },
}

impl TimeBase {
    /// The conversion from the clock of a session to that of the trace.
    pub fn between(from: Clock, to: Clock) -> TimeBase {
        if from.comparable(&to) { TimeBase::Same } else { TimeBase::Convert { from, to } }
    }

    /// The trace time of a raw time of the session.
    #[inline]
    pub fn trace_time(&self, raw: RawTime) -> TraceTime {
        match self {
            TimeBase::Same => TraceTime(raw.0),
            TimeBase::Convert { from, to } => converted(raw, from, to),
        }
    }
}

/// Apart from its caller, which is small enough for the loop over events without it.
#[cold]
fn converted(raw: RawTime, from: &Clock, to: &Clock) -> TraceTime {
    TraceTime(to.to_raw(from.to_file_time(raw)).0)
}

/// A block that was read: its location and the extent of its records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockExtent {
    pub source: u16,
    pub session: u32,
    pub processor: Option<u16>,
    pub offset: u64,
    pub extent: Extent,
}

/// Counters and, for a survey, extents that a merge collects.
#[derive(Debug, Default)]
struct Notes {
    stats: Stats,
    /// All blocks that were read, if the merge is a survey.
    extents: Option<Vec<BlockExtent>>,
}

/// One stream with its current block.
#[derive(Debug)]
struct Stream {
    block: Arc<Block>,
    position: u32,
    /// The time base of the block's session.
    base: TimeBase,
    feed: Feed,
}

impl Stream {
    /// The trace time of the next event, loading blocks as needed; `None` at the end.
    fn settle(&mut self, bases: &[TimeBase], notes: &mut Notes) -> Option<TraceTime> {
        loop {
            if let Some(entry) = self.block.entries().get(self.position as usize) {
                return Some(self.base.trace_time(entry.time));
            }
            let block = next_block(&mut self.feed, notes, Some(&*self.block))?;
            self.base = bases[block.origin().session as usize];
            (self.block, self.position) = (block, 0);
        }
    }
}

/// The next readable block of a feed, marked if records before it were lost. `previous` is the one
/// before it.
fn next_block(feed: &mut Feed, notes: &mut Notes, previous: Option<&Block>) -> Option<Arc<Block>> {
    let Notes { stats, extents } = notes;
    loop {
        let loaded = feed.next()?.and_then(|(block, mut damage)| match previous {
            Some(previous) => block.after(previous).map(|(block, at_start)| {
                damage.extend(at_start);
                (block, damage)
            }),
            None => Ok((block, damage)),
        });
        let (block, damage) = match loaded {
            Ok((block, damage)) => (Some(block), damage),
            Err(damage) => (None, vec![damage]),
        };
        stats.buffers += 1;
        let after_loss = std::mem::take(&mut feed.has_lost);
        stats.damage.extend(damage.into_iter().map(|damage| (feed.source(), damage)));
        feed.has_lost = block.as_ref().is_none_or(|block| block.extent().is_cut);
        let Some(block) = block else { continue };
        let block = if after_loss { block.after_loss().after_unreadable() } else { block };
        if let Some(extents) = extents {
            let origin = block.origin();
            extents.push(BlockExtent {
                source: origin.etl_file,
                session: origin.session,
                processor: origin.processor,
                offset: origin.file_offset,
                extent: block.extent(),
            });
        }
        return Some(Arc::new(block));
    }
}

/// The time of a stream's next event, and the number of the stream. The least one is next.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Next {
    time: TraceTime,
    /// With [`ENDED`](Next::ENDED) if the stream has ended.
    number: u32,
}

impl Next {
    /// Streams that have ended stay in the tree, after all others, because removing one would
    /// require a new tree.
    const ENDED: u32 = 1 << 31;

    fn of(number: u32, time: Option<TraceTime>) -> Next {
        match time {
            Some(time) => Next { time, number },
            None => Next { time: TraceTime(i64::MAX), number: number | Next::ENDED },
        }
    }

    fn stream(self) -> usize {
        (self.number & !Next::ENDED) as usize
    }
}

/// The merge of all streams.
#[derive(Debug)]
pub(crate) struct Merge {
    streams: Vec<Stream>,
    /// Indexed by the number of the session.
    bases: Vec<TimeBase>,
    /// The first is the stream with the next event; the others lost the match at their node. Empty
    /// if there are no events.
    losers: Vec<Next>,
    /// Whether the event of the first stream was returned and must be skipped.
    taken: bool,
    notes: Notes,
}

impl Merge {
    /// `stats` contains the damage found while indexing the sources. A survey collects the extents
    /// of its blocks.
    pub fn new(feeds: Vec<Feed>, bases: Vec<TimeBase>, stats: Stats, is_survey: bool) -> Merge {
        let mut notes = Notes { stats, extents: is_survey.then(Vec::new) };
        let mut streams = Vec::new();
        let mut next = Vec::new();
        for mut feed in feeds {
            let Some(block) = next_block(&mut feed, &mut notes, None) else { continue };
            let base = bases[block.origin().session as usize];
            let mut stream = Stream { block, position: 0, base, feed };
            if let Some(time) = stream.settle(&bases, &mut notes) {
                next.push(Next::of(streams.len() as u32, Some(time)));
                streams.push(stream);
            }
        }
        Merge { streams, bases, losers: tree_of(&next), taken: false, notes }
    }

    /// Skips the event that was returned last.
    #[inline]
    fn advance(&mut self) {
        let first = self.losers[0];
        if first.number & Next::ENDED != 0 {
            return;
        }
        let stream = &mut self.streams[first.stream()];
        stream.position += 1;
        let time = match stream.block.entries().get(stream.position as usize) {
            Some(entry) => Some(stream.base.trace_time(entry.time)),
            None => stream.settle(&self.bases, &mut self.notes),
        };
        let mut winner = Next::of(first.number, time);
        let mut node = (self.streams.len() + first.stream()) / 2;
        while node > 0 {
            let other = &mut self.losers[node];
            if *other < winner {
                std::mem::swap(other, &mut winner);
            }
            node /= 2;
        }
        self.losers[0] = winner;
    }

    /// The number of streams.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// Goes to the next event, and returns the number of its stream and its time; `None` at the end.
    #[inline]
    pub fn step(&mut self) -> Option<(u32, TraceTime)> {
        if self.taken {
            self.advance();
        }
        let first = *self.losers.first()?;
        self.taken = true;
        (first.number & Next::ENDED == 0).then_some((first.number, first.time))
    }

    /// The event that [`step`](Merge::step) returned last.
    #[inline]
    pub fn event(&self, stream: u32, time: TraceTime) -> Event<'_> {
        let stream = &self.streams[stream as usize];
        Event::new(&stream.block, stream.position, time)
    }

    /// The counters of buffers and damage so far; those of events are up to the caller.
    pub fn stats(&self) -> &Stats {
        &self.notes.stats
    }

    pub fn stats_mut(&mut self) -> &mut Stats {
        &mut self.notes.stats
    }

    /// The blocks that were read, if this is a survey.
    pub fn into_extents(self) -> Vec<BlockExtent> {
        self.notes.extents.unwrap_or_default()
    }
}

/// The tree over the next events of all streams. Leaf `i` of the tree is node `len + i`; node `n` has
/// the children `2n` and `2n + 1`.
fn tree_of(next: &[Next]) -> Vec<Next> {
    let len = next.len();
    let mut winners = [next, next].concat();
    let mut losers = next.to_vec();
    for node in (1..len).rev() {
        let (left, right) = (winners[2 * node], winners[2 * node + 1]);
        (winners[node], losers[node]) = (left.min(right), left.max(right));
    }
    if len > 1 {
        losers[0] = winners[1];
    }
    losers
}
