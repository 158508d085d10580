//! Where events of a processor are missing: behind which of its buffers, and before which.

use std::collections::{HashMap, HashSet};

use stackhound_etl::BufferRef;
use stackhound_trace::{Event, OpenTrace};

/// A buffer: which recording, and where it is there.
type BufferKey = (u16, u64);

/// The buffers around gaps.
///
/// A missing sequence number does not tell whose buffer it was. Any processor whose own numbers go past it can have lost
/// one, so all count as having lost something there.
#[derive(Debug, Default)]
pub struct Gaps {
    /// Buffers behind which something is missing.
    before: HashSet<BufferKey>,
    /// Buffers before which something is missing.
    behind: HashSet<BufferKey>,
    /// The buffer that comes before each one in its stream.
    previous: HashMap<BufferKey, u64>,
    streams: Vec<Stream>,
}

/// Where the reading of a processor's buffers is.
#[derive(Debug)]
struct Stream {
    source: u16,
    processor: Option<u16>,
    offset: u64,
    /// The event of the buffer behind which a gap begins.
    last: Option<u32>,
    is_lost: bool,
}

/// What lies before an event on its processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Before {
    /// Its predecessor, or nothing that is known.
    Nothing,
    /// A gap of which it was told when it began.
    End,
    /// A gap of which nothing was told.
    Gap,
}

impl Gaps {
    /// Those of all files of a trace, by the sequence numbers of their buffers.
    pub fn of(trace: &OpenTrace) -> Gaps {
        let mut gaps = Gaps::default();
        for (source, index) in (0..).zip(trace.indexes()) {
            let mut numbers: Vec<(u32, i64)> =
                index.buffers.iter().map(|buffer| (buffer.epoch, buffer.sequence)).collect();
            numbers.sort_unstable();
            let missing: Vec<(u32, i64)> = numbers
                .windows(2)
                .filter(|pair| {
                    pair[0].1 > 0 && pair[0].0 == pair[1].0 && pair[1].1.saturating_sub(pair[0].1) > 1
                })
                .map(|pair| pair[0])
                .collect();
            for stream in index.streams() {
                for pair in stream.windows(2) {
                    let (before, after) = (&pair[0], &pair[1]);
                    gaps.previous.insert((source, after.offset), before.offset);
                    let number = |buffer: &BufferRef| (buffer.epoch, buffer.sequence);
                    let next = missing.partition_point(|&missing| missing < number(before));
                    let is_missing = missing.get(next).is_some_and(|&missing| missing < number(after));
                    // Between two sessions of an appended recording nothing was recorded.
                    if after.after_loss || is_missing || before.epoch != after.epoch {
                        gaps.before.insert((source, before.offset));
                        gaps.behind.insert((source, after.offset));
                    }
                }
            }
        }
        gaps
    }

    /// What lies before an event, which is the next one of its processor.
    pub fn before(&mut self, event: &Event<'_>) -> Before {
        let (source, processor) = (event.source(), event.processor());
        let offset = event.block().origin().file_offset;
        let is_its = |stream: &&mut Stream| (stream.source, stream.processor) == (source, processor);
        let Some(stream) = self.streams.iter_mut().find(is_its) else {
            let last = self.last_of(event);
            self.streams.push(Stream { source, processor, offset, last, is_lost: false });
            return Before::Nothing;
        };
        if stream.offset == offset {
            return Before::Nothing;
        }
        // A buffer that could not be read is not what comes before this one.
        let is_next = self.previous.get(&(source, offset)) == Some(&stream.offset);
        let is_behind = self.behind.contains(&(source, offset)) || event.block().origin().after_loss;
        let was_told = std::mem::take(&mut stream.is_lost);
        stream.offset = offset;
        stream.last = last_of(&self.before, event);
        match (was_told, is_next && !is_behind) {
            (true, _) => Before::End,
            (false, true) => Before::Nothing,
            (false, false) => Before::Gap,
        }
    }

    /// Whether a gap begins behind an event.
    pub fn begins_behind(&mut self, event: &Event<'_>) -> bool {
        let (source, processor, index) = (event.source(), event.processor(), Some(event.index()));
        let is_its = |stream: &&mut Stream| {
            (stream.source, stream.processor, stream.last) == (source, processor, index)
        };
        let found = self.streams.iter_mut().find(is_its);
        found.map(|stream| stream.is_lost = true).is_some()
    }

    fn last_of(&self, event: &Event<'_>) -> Option<u32> {
        last_of(&self.before, event)
    }
}

/// Of the buffer of an event, the last event that is delivered, if a gap comes behind the buffer.
fn last_of(before: &HashSet<BufferKey>, event: &Event<'_>) -> Option<u32> {
    let block = event.block();
    if !before.contains(&(event.source(), block.origin().file_offset)) {
        return None;
    }
    // Stack records are used up.
    let is_delivered = |hook_id: Option<u16>| hook_id.is_none_or(|hook_id| hook_id >> 8 != 0x18);
    block.entries().iter().rposition(|entry| is_delivered(entry.hook_id())).map(|index| index as u32)
}
