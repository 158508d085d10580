//! Gaps in the events of a processor: the buffers after and before which events are missing.

use std::collections::{HashMap, HashSet};

use stackhound_etl::BufferRef;
use stackhound_trace::{Event, OpenTrace};
use stackhound_types::RawTime;

/// A buffer: the number of its source, and its offset in the file.
type BufferKey = (u16, u64);

/// The buffers around gaps.
///
/// A missing sequence number does not identify its processor. Any processor whose own numbers
/// continue after it can have lost the buffer, so all of them have a gap there.
#[derive(Debug, Default)]
pub struct Gaps {
    /// Buffers that a gap follows.
    before: HashSet<BufferKey>,
    /// Buffers that follow a gap.
    after: HashSet<BufferKey>,
    /// The previous buffer of each one in its stream.
    previous: HashMap<BufferKey, u64>,
    streams: Vec<Stream>,
}

/// The read position in a processor's buffers.
#[derive(Debug)]
struct Stream {
    source: u16,
    processor: Option<u16>,
    offset: u64,
    /// The event of the buffer after which a gap begins.
    last: Option<u32>,
    is_lost: bool,
    /// The end of a gap within the buffer, until an event after it is passed.
    inner_end: Option<RawTime>,
}

/// Whether a gap precedes an event on its processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Before {
    /// No gap is known before the event.
    Nothing,
    /// A gap ends here whose begin was reported by [`Gaps::begins_after`].
    End,
    /// A gap ends here whose begin was not reported.
    Gap,
}

impl Gaps {
    /// The gaps of all files of a trace, by the sequence numbers of their buffers.
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
                    // Nothing was recorded between two sessions of an appended file.
                    if after.after_loss || is_missing || before.epoch != after.epoch {
                        gaps.before.insert((source, before.offset));
                        gaps.after.insert((source, after.offset));
                    }
                }
            }
        }
        gaps
    }

    /// Whether a gap precedes an event. Events must be passed in the order of their processor.
    pub fn before(&mut self, event: &Event<'_>) -> Before {
        let (source, processor) = (event.source(), event.processor());
        let offset = event.block().origin().file_offset;
        let is_its = |stream: &&mut Stream| (stream.source, stream.processor) == (source, processor);
        let Some(stream) = self.streams.iter_mut().find(is_its) else {
            let (last, inner_end) = (self.last_of(event), inner_end(event));
            self.streams.push(Stream { source, processor, offset, last, is_lost: false, inner_end });
            return Before::Nothing;
        };
        if stream.offset == offset {
            let is_after = stream.inner_end.take_if(|end| event.entry().time >= *end).is_some();
            return if is_after { Before::Gap } else { Before::Nothing };
        }
        // If the previous buffer could not be read, the stream is at another offset.
        let is_next = self.previous.get(&(source, offset)) == Some(&stream.offset);
        let is_after_gap = self.after.contains(&(source, offset)) || event.block().origin().after_loss;
        let was_reported = std::mem::take(&mut stream.is_lost);
        stream.offset = offset;
        stream.last = last_of(&self.before, event);
        stream.inner_end = inner_end(event);
        match (was_reported, is_next && !is_after_gap) {
            (true, _) => Before::End,
            (false, true) => Before::Nothing,
            (false, false) => Before::Gap,
        }
    }

    /// Whether a gap begins after an event.
    pub fn begins_after(&mut self, event: &Event<'_>) -> bool {
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

/// The end of a gap within the buffer of its first event.
fn inner_end(first: &Event<'_>) -> Option<RawTime> {
    let (_, end) = first.block().extent().gap?;
    (first.entry().time < end).then_some(end)
}

/// The last event of an event's buffer that is delivered, if a gap follows the buffer.
fn last_of(before: &HashSet<BufferKey>, event: &Event<'_>) -> Option<u32> {
    let block = event.block();
    if !before.contains(&(event.source(), block.origin().file_offset)) {
        return None;
    }
    // Stack records are consumed and not delivered.
    let is_delivered = |hook_id: Option<u16>| hook_id.is_none_or(|hook_id| hook_id >> 8 != 0x18);
    block.entries().iter().rposition(|entry| is_delivered(entry.hook_id())).map(|index| index as u32)
}
