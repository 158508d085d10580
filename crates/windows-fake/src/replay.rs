//! The order in which a real-time session delivers the buffers of a trace.
//!
//! The records of each processor are in order. The next processor, and the number of its records in
//! the next buffer, are random, with one limit: no record is later than the
//! [disorder](Order::disorder) allows. In a real session, the periodic flush of all buffers has
//! this effect.

use std::ops::Range;
use std::sync::Arc;

use stackhound_etl::{Block, BufferFlags, BufferHeader, BufferRef, Entry, EtlFile, MissingBuffers};

use crate::deliver;
use crate::random::Random;

/// Configures the order of the buffers of a trace.
#[derive(Clone, Debug)]
pub struct Order {
    /// Seed that selects one of the possible orders.
    pub seed: u64,
    /// Maximum number of raw ticks by which a record may follow a later one of another processor.
    pub disorder: i64,
    /// Number of times that the trace is delivered, with its times shifted each time; `None` for no
    /// limit.
    pub rounds: Option<u64>,
}

/// A part of a buffer of the trace, which is delivered as one buffer.
#[derive(Clone, Debug)]
pub struct Slice {
    /// The buffer of the trace.
    pub block: Arc<Block>,
    /// The range of its records.
    pub entries: Range<usize>,
    /// Number of its stream. There is one stream for each processor.
    pub stream: usize,
    /// Number of the processor.
    pub processor: u16,
    /// Number of the session on the machine of the trace.
    pub logger: u16,
    /// Whether the processor number has 16 bits.
    pub processor_index: bool,
    /// Whether records were lost directly before it.
    pub after_loss: bool,
    /// Offset that is added to all times, in raw ticks.
    pub shift: i64,
}

impl Slice {
    /// The records of the slice.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.block.entries()[self.entries.clone()].iter()
    }

    /// Number of events that a consumer receives for the slice. In raw buffers, all records except
    /// for the logfile header count, otherwise those that [`deliver`](deliver::deliver) converts.
    pub fn events(&self, raw: bool) -> u64 {
        let counts = |entry: &&Entry| match raw {
            true => !deliver::is_logfile_header(entry.hook_id()),
            false => deliver::is_delivered(entry.kind(), entry.hook_id()),
        };
        self.entries().filter(counts).count() as u64
    }

    /// `EVENT_HEADER.Flags` that depend on the buffer.
    pub fn buffer_flags(&self) -> u16 {
        if self.processor_index { deliver::flags::PROCESSOR_INDEX } else { 0 }
    }
}

/// The buffers of one processor.
#[derive(Debug)]
struct Stream {
    buffers: Vec<BufferRef>,
    next: usize,
    block: Option<Arc<Block>>,
    position: usize,
    after_loss: bool,
}

impl Stream {
    fn new(buffers: Vec<BufferRef>) -> Stream {
        Stream { buffers, next: 0, block: None, position: 0, after_loss: false }
    }

    /// Reads the buffer of the next record, and returns the record's raw time; `None` at the end.
    fn settle(&mut self, etl_file: &EtlFile) -> Option<i64> {
        loop {
            if let Some(block) = &self.block
                && let Some(entry) = block.entries().get(self.position)
            {
                return Some(entry.time.0);
            }
            let buffer = self.buffers.get(self.next)?;
            self.next += 1;
            self.position = 0;
            self.after_loss |= buffer.after_loss;
            match etl_file.block(buffer, None) {
                Ok((block, _)) => self.block = Some(Arc::new(block)),
                // An unreadable buffer counts as lost.
                Err(_) => (self.block, self.after_loss) = (None, true),
            }
        }
    }
}

/// Marks the buffers before which a buffer of the same processor may be missing. A real-time
/// session reports where it lost a buffer; in a file, only a sequence number is missing. The lost
/// buffer was in use before the first record of each buffer with a larger number. Therefore it can
/// only belong to a processor whose previous buffer had ended by that time.
fn mark_losses(etl_file: &EtlFile, streams: &mut [Vec<BufferRef>], missing: &[MissingBuffers]) {
    streams.iter_mut().flatten().for_each(|buffer| buffer.after_loss = buffer.is_marked_lossy);
    if missing.is_empty() {
        return;
    }
    let times = |buffer: &BufferRef| etl_file.block(buffer, None).ok()?.0.extent().times;
    let number = |buffer: &BufferRef| (buffer.epoch, buffer.sequence);
    let times: Vec<Vec<_>> = streams.iter().map(|stream| stream.iter().map(times).collect()).collect();
    for gap in missing {
        let is_later = |buffer: &BufferRef| buffer.epoch == gap.epoch && buffer.sequence > gap.last;
        let all = streams.iter().flatten().zip(times.iter().flatten());
        let begins = all.filter(|(buffer, _)| is_later(buffer)).filter_map(|(_, times)| *times);
        let not_after = begins.map(|(first, _)| first).min();
        for (stream, times) in streams.iter_mut().zip(&times) {
            let next = stream.partition_point(|buffer| number(buffer) < (gap.epoch, gap.first));
            let ended = next.checked_sub(1).and_then(|before| times[before]).map(|(_, last)| last);
            if let Some(buffer) = stream.get_mut(next) {
                buffer.after_loss |= ended <= not_after;
            }
        }
    }
}

/// Iterates over the buffers of a trace in the order of delivery.
#[derive(Debug)]
pub struct Replay {
    etl_file: EtlFile,
    order: Order,
    random: Random,
    streams: Vec<Stream>,
    round: u64,
    /// Earliest and latest time of the records that were delivered so far.
    span: Option<(i64, i64)>,
    shift: i64,
}

impl Replay {
    /// Reads every buffer header of the trace.
    pub fn new(etl_file: EtlFile, order: Order) -> Replay {
        let random = Random::new(order.seed);
        let index = etl_file.index();
        let (mut streams, missing) = (index.streams(), index.missing());
        mark_losses(&etl_file, &mut streams, &missing);
        let streams = streams.into_iter().map(Stream::new).collect();
        Replay { etl_file, order, random, streams, round: 0, span: None, shift: 0 }
    }

    /// Restarts the trace with shifted times. Returns `false` if no rounds are left.
    fn again(&mut self) -> bool {
        self.round += 1;
        let Some((first, last)) = self.span else { return false };
        if self.order.rounds.is_some_and(|rounds| self.round >= rounds) {
            return false;
        }
        self.shift += last - first + 1;
        for stream in &mut self.streams {
            *stream = Stream::new(std::mem::take(&mut stream.buffers));
        }
        true
    }

    fn take_from(&mut self, stream: usize, limit: i64) -> Slice {
        let source = &mut self.streams[stream];
        let block = source.block.clone().expect("a settled stream has a block");
        let (from, entries) = (source.position, block.entries());
        // A stream that several processors share is not in order, so at least one record is taken.
        let run = entries[from..].iter().take_while(|entry| entry.time.0 <= limit).count().max(1);
        let count = if self.random.below(2) == 0 { run } else { 1 + self.random.below(run) };
        source.position += count;
        for entry in &entries[from..from + count] {
            if !deliver::is_logfile_header(entry.hook_id()) {
                let (first, last) = self.span.unwrap_or((entry.time.0, entry.time.0));
                self.span = Some((first.min(entry.time.0), last.max(entry.time.0)));
            }
        }
        let header = BufferHeader::read(block.bytes()).expect("a block starts with a buffer header");
        Slice {
            entries: from..from + count,
            stream,
            processor: header.processor(),
            logger: header.logger_id.get(),
            processor_index: header.flags().has(BufferFlags::PROCESSOR_INDEX),
            after_loss: std::mem::take(&mut source.after_loss),
            shift: self.shift,
            block,
        }
    }
}

impl Iterator for Replay {
    type Item = Slice;

    fn next(&mut self) -> Option<Slice> {
        loop {
            let etl_file = &self.etl_file;
            let times: Vec<Option<i64>> =
                self.streams.iter_mut().map(|stream| stream.settle(etl_file)).collect();
            let Some(floor) = times.iter().copied().flatten().min() else {
                if self.again() {
                    continue;
                }
                return None;
            };
            let limit = floor.saturating_add(self.order.disorder);
            let ready = |&stream: &usize| times[stream].is_some_and(|time| time <= limit);
            let ready: Vec<usize> = (0..times.len()).filter(ready).collect();
            let stream = ready[self.random.below(ready.len())];
            return Some(self.take_from(stream, limit));
        }
    }
}
