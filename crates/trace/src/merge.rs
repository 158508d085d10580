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
            TimeBase::Convert { from, to } => TraceTime(to.to_raw(from.to_file_time(raw)).0),
        }
    }
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
            let block = next_block(&mut self.feed, notes)?;
            self.base = bases[block.origin().session as usize];
            (self.block, self.position) = (block, 0);
        }
    }
}

/// The next readable block of a feed, marked if records before it were lost.
fn next_block(feed: &mut Feed, notes: &mut Notes) -> Option<Arc<Block>> {
    let Notes { stats, extents } = notes;
    loop {
        let (block, damage) = match feed.next()? {
            Ok((block, damage)) => (Some(block), damage),
            Err(damage) => (None, Some(damage)),
        };
        stats.buffers += 1;
        let after_loss = std::mem::take(&mut feed.has_lost);
        if let Some(damage) = damage {
            stats.damage.push((feed.source(), damage));
            feed.has_lost = damage.skipped > 0;
        }
        let Some(block) = block else {
            feed.has_lost |= after_loss;
            continue;
        };
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

/// The merge of all streams.
#[derive(Debug)]
pub(crate) struct Merge {
    /// `None` for streams that have ended. They stay in the tree, after all others, because
    /// removing one would require a new tree.
    streams: Vec<Option<Stream>>,
    /// Indexed by the number of the session.
    bases: Vec<TimeBase>,
    /// `losers[0]` is the stream with the next event; the others lost the match at their node.
    losers: Vec<u32>,
    /// The time of each stream's next event; the maximum for streams that have ended.
    times: Vec<TraceTime>,
    /// Whether the event of `losers[0]` was returned and must be skipped.
    taken: bool,
    notes: Notes,
}

impl Merge {
    /// `stats` contains the damage found while indexing the sources. A survey collects the extents
    /// of its blocks.
    pub fn new(feeds: Vec<Feed>, bases: Vec<TimeBase>, stats: Stats, is_survey: bool) -> Merge {
        let mut notes = Notes { stats, extents: is_survey.then(Vec::new) };
        let mut streams = Vec::new();
        let mut times = Vec::new();
        for mut feed in feeds {
            let Some(block) = next_block(&mut feed, &mut notes) else { continue };
            let base = bases[block.origin().session as usize];
            let mut stream = Stream { block, position: 0, base, feed };
            if let Some(time) = stream.settle(&bases, &mut notes) {
                streams.push(Some(stream));
                times.push(time);
            }
        }
        let mut merge = Merge { streams, bases, losers: Vec::new(), times, taken: false, notes };
        merge.build();
        merge
    }

    /// Whether stream `a` comes before stream `b`.
    #[inline]
    fn before(&self, a: u32, b: u32) -> bool {
        let (time_a, time_b) = (self.times[a as usize], self.times[b as usize]);
        let order = |stream: u32| (self.streams[stream as usize].is_none(), stream);
        time_a < time_b || (time_a == time_b && order(a) < order(b))
    }

    /// Builds the tree. Leaf `i` of the tree is node `len + i`; node `n` has the children `2n` and
    /// `2n + 1`.
    fn build(&mut self) {
        let len = self.streams.len();
        self.losers = vec![0; len];
        let mut winners = vec![0u32; 2 * len];
        for leaf in 0..len {
            winners[len + leaf] = leaf as u32;
        }
        for node in (1..len).rev() {
            let (left, right) = (winners[2 * node], winners[2 * node + 1]);
            let left_wins = self.before(left, right);
            (winners[node], self.losers[node]) = if left_wins { (left, right) } else { (right, left) };
        }
        if len > 1 {
            self.losers[0] = winners[1];
        }
    }

    /// Skips the event that was returned last.
    fn advance(&mut self) {
        let mut winner = self.losers[0];
        let Some(stream) = &mut self.streams[winner as usize] else { return };
        stream.position += 1;
        let next = match stream.block.entries().get(stream.position as usize) {
            Some(entry) => Some(stream.base.trace_time(entry.time)),
            None => stream.settle(&self.bases, &mut self.notes),
        };
        if next.is_none() {
            self.streams[winner as usize] = None;
        }
        self.times[winner as usize] = next.unwrap_or(TraceTime(i64::MAX));
        let mut node = (self.streams.len() + winner as usize) / 2;
        while node > 0 {
            let other = self.losers[node];
            if self.before(other, winner) {
                self.losers[node] = winner;
                winner = other;
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
        let winner = *self.losers.first()?;
        self.streams[winner as usize].as_ref()?;
        self.taken = true;
        Some((winner, self.times[winner as usize]))
    }

    /// The event that [`step`](Merge::step) returned last.
    #[inline]
    pub fn event(&self, stream: u32, time: TraceTime) -> Event<'_> {
        let stream =
            self.streams[stream as usize].as_ref().expect("the stream of the last step has an event");
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
