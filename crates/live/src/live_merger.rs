//! Time order for blocks as they arrive.
//!
//! The blocks of each processor arrive in order, but the buffers of different processors are
//! delivered at different times. An event is emitted when no older event can arrive any more: when
//! all processors have sent a newer event, or when an event has arrived that is newer by more than
//! the possible delay of the session's buffers. Events with equal times are ordered as in trace
//! files, so that the order depends only on the events.
//!
//! The wall clock decides only when the last events of an idle session are emitted. No event can be
//! ordered between them at that point, so the order does not depend on the clock.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use stackhound_etl::{Block, Clock, LogFileMode, LogfileHeader};
use stackhound_trace::{Event, Stats, TimeBase, TraceTime};

use crate::Error;
use crate::queue::{Dropped, Incoming};
use crate::ring::Received;

/// The maximum size in bytes of blocks that wait for slower processors. Beyond it, the oldest event
/// is emitted, perhaps too early.
const HELD_MAX: usize = 512 << 20;

/// How long the reader sleeps if it is not woken.
const NAP: Duration = Duration::from_millis(10);

/// The result of [`LiveMerger::next`].
#[derive(Debug)]
pub enum Step<'a> {
    /// An event.
    Event(Event<'a>),
    /// No event is available. No event before this time will follow.
    Idle(TraceTime),
    /// No event will follow.
    End,
}

/// One processor of one session.
#[derive(Debug)]
struct Stream {
    source: u16,
    processor: Option<u16>,
    base: TimeBase,
    blocks: VecDeque<Arc<Block>>,
    position: u32,
}

/// The order of streams: the time of the next event, then source and processor, then the stream.
type Next = Reverse<(TraceTime, u16, Option<u16>, usize)>;

impl Stream {
    /// Moves to the next event, and frees blocks that were read.
    fn settle(&mut self, held: &mut usize) -> Option<TraceTime> {
        loop {
            let block = self.blocks.front()?;
            if let Some(entry) = block.entries().get(self.position as usize) {
                return Some(self.base.trace_time(entry.time));
            }
            *held -= block.memory();
            self.blocks.pop_front();
            self.position = 0;
        }
    }
}

/// The events of live sessions in time order.
#[derive(Debug)]
pub struct LiveMerger {
    sources: Vec<Source>,
    clock: Clock,
    streams: Vec<Stream>,
    ready: BinaryHeap<Next>,
    /// The stream whose event was emitted and must be skipped. It is not in `ready`.
    current: Option<usize>,
    /// The time of the newest event that has arrived.
    newest: TraceTime,
    /// The time without newer events, as far as this thread waited for them.
    silence: Duration,
    /// The possible delay between streams, in ticks.
    window: i64,
    /// The size of waiting blocks in bytes.
    held: usize,
    /// All sources have ended.
    ended: bool,
    /// More bytes are waiting than allowed.
    pressed: bool,
    /// No event before this time can arrive any more.
    safe: TraceTime,
    last: TraceTime,
    stats: Stats,
}

#[derive(Debug)]
struct Source {
    incoming: Incoming,
    base: TimeBase,
    ended: bool,
    processors: usize,
}

impl LiveMerger {
    /// Merges the events of these sessions. The clock of the first session is that of trace time.
    ///
    /// # Errors
    /// No session is given, or more than 65,535.
    pub fn new(incoming: Vec<Incoming>) -> Result<LiveMerger, Error> {
        let clock = incoming.first().ok_or(Error::Nothing)?.session().clock();
        if incoming.len() > usize::from(u16::MAX) {
            return Err(Error::TooMany);
        }
        let disorder = incoming.iter().map(Incoming::disorder).max().unwrap_or_default();
        let sources = incoming.into_iter().map(|incoming| {
            let session = incoming.session();
            let base = TimeBase::between(session.clock(), clock);
            let one_stream = session.mode.has(LogFileMode::NO_PER_PROCESSOR_BUFFERING);
            let processors = if one_stream { 1 } else { session.processors as usize };
            Source { base, ended: false, processors, incoming }
        });
        Ok(LiveMerger {
            sources: sources.collect(),
            window: clock.duration_to_raw(disorder),
            clock,
            streams: Vec::new(),
            ready: BinaryHeap::new(),
            current: None,
            newest: TraceTime(i64::MIN),
            silence: Duration::ZERO,
            held: 0,
            ended: false,
            pressed: false,
            safe: TraceTime(i64::MIN),
            last: TraceTime(i64::MIN),
            stats: Stats::default(),
        })
    }

    /// The clock of trace time.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// The conversion of the raw time of each session to trace time.
    pub fn time_bases(&self) -> Vec<TimeBase> {
        self.sources.iter().map(|source| source.base).collect()
    }

    /// The headers of the sessions, as of the time at which they were opened.
    pub fn sessions(&self) -> impl Iterator<Item = &LogfileHeader> {
        self.sources.iter().map(|source| &**source.incoming.session())
    }

    /// The start time of the first session, as stated by its header.
    pub fn start_time(&self) -> stackhound_types::FileTime {
        self.sources[0].incoming.session().start_time
    }

    /// The next event or state. Waits at most for a short time.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot lend its items")]
    pub fn next(&mut self) -> Step<'_> {
        if let Some(stream) = self.current.take() {
            self.streams[stream].position += 1;
            if let Some(next) = self.next_of(stream) {
                // Usually, several events of one processor follow each other.
                let Reverse((time, ..)) = next;
                if self.ready.peek().is_none_or(|first| next > *first) && self.can_emit(time) {
                    return self.emit(time, stream);
                }
                self.ready.push(next);
            }
        }
        if !self.can_emit_first() {
            self.receive_all();
            if !self.can_emit_first() && !self.ended {
                return self.wait();
            }
        }
        match self.ready.pop() {
            Some(Reverse((time, _, _, stream))) => self.emit(time, stream),
            None => Step::End,
        }
    }

    /// The position of a stream in the order; `None` if it has no event.
    #[inline]
    fn next_of(&mut self, stream: usize) -> Option<Next> {
        let time = self.streams[stream].settle(&mut self.held)?;
        let Stream { source, processor, .. } = self.streams[stream];
        Some(Reverse((time, source, processor, stream)))
    }

    /// Whether an event of this time can be emitted if it is the first.
    #[inline]
    fn can_emit(&self, time: TraceTime) -> bool {
        time < self.safe || self.ended || self.pressed
    }

    fn can_emit_first(&self) -> bool {
        self.ready.peek().is_some_and(|Reverse((time, ..))| self.can_emit(*time))
    }

    #[inline]
    fn emit(&mut self, time: TraceTime, stream: usize) -> Step<'_> {
        self.current = Some(stream);
        self.stats.events += 1;
        self.stats.out_of_order += u64::from(time < self.last);
        self.last = time;
        let Stream { blocks, position, .. } = &self.streams[stream];
        Step::Event(Event::new(&blocks[0], *position, time))
    }

    /// Receives all blocks that have arrived, and updates the time up to which events can be
    /// emitted.
    fn receive_all(&mut self) {
        self.ended = true;
        for index in 0..self.sources.len() {
            while !self.sources[index].ended && self.held <= HELD_MAX {
                match self.sources[index].incoming.receive() {
                    Received::Content { content, .. } => self.take(index, content),
                    Received::Nothing => break,
                    Received::End => self.sources[index].ended = true,
                }
            }
            self.ended &= self.sources[index].ended;
        }
        self.pressed = self.held > HELD_MAX;
        self.safe = self.safe.max(self.safe_time());
    }

    fn take(&mut self, source: usize, block: Block) {
        let Some(last) = block.entries().last() else { return };
        let base = self.sources[source].base;
        let (number, processor) = (source as u16, block.origin().processor);
        self.stats.buffers += 1;
        self.stats.bytes += block.bytes().len() as u64;
        let time = base.trace_time(last.time);
        if time > self.newest {
            (self.newest, self.silence) = (time, Duration::ZERO);
        }
        self.held += block.memory();
        let block = Arc::new(if number == 0 { block } else { block.of_file(number) });
        let same = |stream: &Stream| stream.source == number && stream.processor == processor;
        match self.streams.iter().position(same) {
            Some(stream) => {
                let was_empty = self.streams[stream].blocks.is_empty();
                self.streams[stream].blocks.push_back(block);
                if was_empty {
                    let next = self.next_of(stream);
                    self.ready.extend(next);
                }
            }
            None => {
                let blocks = VecDeque::from([block]);
                self.streams.push(Stream { source: number, processor, base, blocks, position: 0 });
                let next = self.next_of(self.streams.len() - 1);
                self.ready.extend(next);
            }
        }
    }

    /// The time before which no event can arrive any more.
    fn safe_time(&self) -> TraceTime {
        let by_window = TraceTime(self.newest.0.saturating_sub(self.window));
        let processors: usize = self.sources.iter().map(|source| source.processors).sum();
        if self.ready.len() < processors {
            return by_window;
        }
        // Every processor has sent an event, so later events are not older than the last event of
        // each.
        let last = |stream: &Stream| {
            let entry = stream.blocks.back().and_then(|block| block.entries().last());
            entry.map_or(TraceTime(i64::MIN), |entry| stream.base.trace_time(entry.time))
        };
        self.streams.iter().map(last).min().map_or(by_window, |oldest| oldest.max(by_window))
    }

    /// Sleeps for a short time, and allows the events of idle sessions to be emitted.
    #[cold]
    fn wait(&mut self) -> Step<'_> {
        self.sources.iter().for_each(|source| source.incoming.wake_me());
        let begun = Instant::now();
        thread::park_timeout(NAP);
        // If this thread was not running for a while, the callback may not have run either.
        self.silence += begun.elapsed().min(2 * NAP);
        if self.newest == TraceTime(i64::MIN) {
            return Step::Idle(self.newest);
        }
        // The clock of the session has reached at least this time.
        let now = self.newest.0.saturating_add(self.clock.duration_to_raw(self.silence));
        self.safe = self.safe.max(TraceTime(now.saturating_sub(self.window)));
        let first = self.ready.peek().map(|Reverse((time, ..))| *time);
        Step::Idle(first.map_or(self.safe, |first| first.min(self.safe)))
    }

    /// The counters so far, including events that the queues dropped.
    pub fn stats(&self) -> Stats {
        let mut stats = self.stats.clone();
        for source in &self.sources {
            let Dropped { events, unreadable, repeated } = source.incoming.dropped();
            stats.events_dropped += events;
            stats.events_unreadable += unreadable;
            stats.buffers_repeated += repeated;
        }
        stats
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use stackhound_etl::EtlFile;
    use stackhound_etl::record::Descriptor;
    use stackhound_etl::write::{EtlWriter, HeaderSpec, Issuer, Payload, RecordSpec, Session};
    use stackhound_types::{Guid, Pid, PointerSize, RawTime, Tid};

    use super::*;
    use crate::{Capture, EventRecord, Overflow, Queue, channel};

    fn session(processors: u16) -> Arc<LogfileHeader> {
        let settings = Session { processors, ..Session::default() };
        let mut writer = EtlWriter::new(settings.clone(), std::io::Cursor::new(Vec::new())).unwrap();
        writer.write(0, &record(settings.start.0, 0)).unwrap();
        let (file, _) = writer.finish().unwrap();
        EtlFile::open(file.into_inner().into()).unwrap().session().clone()
    }

    fn record(time: i64, id: u16) -> RecordSpec<'static> {
        let descriptor = Descriptor { id, version: 0, channel: 0, level: 0, opcode: 0, task: 0, keyword: 0 };
        let header = HeaderSpec::Event {
            provider: Guid([3; 16]),
            descriptor,
            property: 0,
            issuer: Issuer::new(Pid(1), Tid(2)),
            activity: Guid::ZERO,
            items: &[],
        };
        RecordSpec {
            time: RawTime(time),
            pointer_size: PointerSize::Eight,
            header,
            payload: Payload::Bytes(&[]),
        }
    }

    /// An event as Windows delivers it, with only a time and an id.
    fn header(time: i64, id: u16) -> [u8; 80] {
        let mut header = [0; 80];
        header[4] = 0x40;
        header[0x10..0x18].copy_from_slice(&time.to_le_bytes());
        header[0x18..0x28].copy_from_slice(&[3; 16]);
        header[0x28..0x2a].copy_from_slice(&id.to_le_bytes());
        header
    }

    fn send(capture: &mut Capture, processor: u16, events: &[(i64, u16)]) {
        send_with(capture, processor, events, &[]);
    }

    fn send_with(capture: &mut Capture, processor: u16, events: &[(i64, u16)], payload: &[u8]) {
        for &(time, id) in events {
            let _ = capture.event(&EventRecord { header: &header(time, id), processor, items: &[], payload });
        }
        let _ = capture.buffer_done();
    }

    /// Two events with this payload fill a block, which is sent before the next one is begun.
    static HALF_A_BLOCK: [u8; 40 << 10] = [0; 40 << 10];

    fn read(merger: &mut LiveMerger) -> Vec<(i64, u16)> {
        let mut seen = Vec::new();
        loop {
            match merger.next() {
                Step::Event(event) => seen.push((event.time().0, event.record().descriptor().unwrap().id)),
                Step::Idle(_) => {}
                Step::End => return seen,
            }
        }
    }

    /// The buffers of each processor in order, as (processor, events).
    fn buffers() -> impl Strategy<Value = Vec<(u16, Vec<(i64, u16)>)>> {
        let buffer = (0..4u16, prop::collection::vec(0..50i64, 1..8));
        prop::collection::vec(buffer, 1..20).prop_map(|shapes| {
            let mut clocks = [0i64; 4];
            let mut id = 0;
            let mut buffers = Vec::new();
            for (processor, steps) in shapes {
                let events = steps.into_iter().map(|step| {
                    clocks[usize::from(processor)] += step;
                    id += 1;
                    (clocks[usize::from(processor)], id)
                });
                buffers.push((processor, events.collect()));
            }
            buffers
        })
    }

    proptest! {
        /// The events are emitted in the same order for any order of arrival of the processors'
        /// buffers.
        #[test]
        fn the_order_of_arrival_does_not_matter(buffers in buffers(), seed in prop::collection::vec(any::<u16>(), 20)) {
            // All buffers at once: those of each processor in order, the processors in the order of
            // the seed.
            let mut left: Vec<VecDeque<_>> = (0..4).map(|wanted| {
                buffers.iter().filter(|(processor, _)| *processor == wanted).collect()
            }).collect();
            let mut arrival = Vec::new();
            for pick in seed {
                let filled: Vec<usize> = (0..4).filter(|&processor| !left[processor].is_empty()).collect();
                if let Some(&processor) = filled.get(usize::from(pick) % filled.len().max(1)) {
                    arrival.extend(left[processor].pop_front());
                }
            }
            let mut expected: Vec<(i64, u16, u16)> = buffers.iter()
                .flat_map(|(processor, events)| events.iter().map(|&(time, id)| (time, *processor, id)))
                .collect();
            expected.sort_by_key(|&(time, processor, _)| (time, processor));
            let (mut capture, incoming) = channel(session(4), Queue::new(Overflow::Block));
            let reader = std::thread::spawn(move || {
                let mut merger = LiveMerger::new(vec![incoming]).unwrap();
                (read(&mut merger), merger.stats())
            });
            for (processor, events) in arrival {
                send(&mut capture, *processor, events);
            }
            drop(capture);
            let (seen, stats) = reader.join().unwrap();
            prop_assert_eq!(seen, expected.iter().map(|&(time, _, id)| (time, id)).collect::<Vec<_>>());
            prop_assert_eq!((stats.events, stats.out_of_order), (expected.len() as u64, 0));
        }
    }

    #[test]
    fn an_event_waits_for_possible_earlier_events() {
        let queue = Queue { disorder: Some(Duration::from_secs(3600)), ..Queue::new(Overflow::Block) };
        let (mut capture, incoming) = channel(session(2), queue);
        let mut merger = LiveMerger::new(vec![incoming]).unwrap();
        send(&mut capture, 0, &[(10, 1), (20, 2)]);
        assert!(matches!(merger.next(), Step::Idle(_)), "the other processor may have an older event");
        send(&mut capture, 1, &[(15, 3)]);
        assert!(matches!(merger.next(), Step::Event(event) if event.time() == TraceTime(10)));
        assert!(
            matches!(merger.next(), Step::Idle(time) if time == TraceTime(15)),
            "another event at 15 may arrive"
        );
        drop(capture);
        assert_eq!(read(&mut merger), [(15, 3), (20, 2)]);
    }

    #[test]
    fn sessions_with_different_clocks_are_merged_by_time() {
        let ten_mhz = session(1);
        let mut other = (*session(1)).clone();
        // The same moment by another clock: a hundred ticks per microsecond, and another zero.
        other.perf_freq = 100_000_000;
        other.reference = RawTime(7_000_000);
        other.clock_type = 1;
        let mut first = (*ten_mhz).clone();
        first.clock_type = 1;
        first.perf_freq = 10_000_000;
        first.reference = RawTime(1_000);
        first.start_time = other.start_time;
        let (mut kernel, from_kernel) = channel(Arc::new(first), Queue::new(Overflow::Block));
        let (mut user, from_user) = channel(Arc::new(other), Queue::new(Overflow::Block));
        let mut merger = LiveMerger::new(vec![from_kernel, from_user]).unwrap();
        send(&mut kernel, 0, &[(1_000, 1), (1_020, 2), (1_040, 3)]);
        send(&mut user, 0, &[(7_000_100, 4), (7_000_300, 5)]);
        drop((kernel, user));
        let mut seen = Vec::new();
        while let Step::Event(event) = merger.next() {
            seen.push((event.source(), event.time().0, event.record().descriptor().unwrap().id));
        }
        assert_eq!(seen, [(0, 1_000, 1), (1, 1_010, 4), (0, 1_020, 2), (1, 1_030, 5), (0, 1_040, 3)]);
    }

    #[test]
    fn the_last_events_of_an_idle_session_are_emitted() {
        let queue = Queue { disorder: Some(Duration::from_millis(30)), ..Queue::new(Overflow::Block) };
        let (mut capture, incoming) = channel(session(8), queue);
        let mut merger = LiveMerger::new(vec![incoming]).unwrap();
        send(&mut capture, 0, &[(10, 1)]);
        let began = Instant::now();
        while !matches!(merger.next(), Step::Event(_)) {
            assert!(began.elapsed() < Duration::from_secs(20));
        }
        assert!(began.elapsed() >= Duration::from_millis(25));
    }

    /// Simulates a computer that was asleep: the callback did not run during that time either.
    #[test]
    fn time_without_a_reader_does_not_count_as_silence() {
        let queue = Queue { disorder: Some(Duration::from_millis(300)), ..Queue::new(Overflow::Block) };
        let (mut capture, incoming) = channel(session(2), queue);
        let mut merger = LiveMerger::new(vec![incoming]).unwrap();
        send(&mut capture, 0, &[(20, 1)]);
        assert!(matches!(merger.next(), Step::Idle(_)));
        std::thread::sleep(Duration::from_millis(400));
        assert!(matches!(merger.next(), Step::Idle(_)));
        send(&mut capture, 1, &[(10, 2)]);
        drop(capture);
        assert_eq!(read(&mut merger), [(10, 2), (20, 1)]);
        assert_eq!(merger.stats().out_of_order, 0);
    }

    /// Simulates Windows: events of all processors by time, and a call after the buffer of each
    /// processor.
    #[test]
    fn a_flush_of_many_processors_becomes_a_block_of_each() {
        const PROCESSORS: u16 = 64;
        let (mut capture, incoming) = channel(session(PROCESSORS), Queue::new(Overflow::Block));
        for round in 0..8i64 {
            for processor in 0..PROCESSORS {
                let time = round * 1000 + i64::from(processor);
                let _ = capture.event(&EventRecord {
                    header: &header(time, 0),
                    processor,
                    items: &[],
                    payload: &[],
                });
                if round == 7 {
                    let _ = capture.buffer_done();
                }
            }
        }
        let mut merger = LiveMerger::new(vec![incoming]).unwrap();
        drop(capture);
        assert_eq!(read(&mut merger).len(), 8 * usize::from(PROCESSORS));
        let stats = merger.stats();
        assert_eq!((stats.buffers, stats.out_of_order), (PROCESSORS.into(), 0));
    }

    /// Partly filled blocks do not overtake full ones, and a slow reader finds them eventually.
    #[test]
    fn partly_filled_blocks_come_after_full_ones() {
        let (mut capture, incoming) = channel(session(1), Queue::new(Overflow::Block));
        let mut merger = LiveMerger::new(vec![incoming]).unwrap();
        let mut expected = Vec::new();
        for n in 0..6 {
            send_with(&mut capture, 0, &[(n, n as u16)], &HALF_A_BLOCK);
            expected.push((n, n as u16));
        }
        let mut seen = Vec::new();
        while seen.len() < 5 {
            if let Step::Event(event) = merger.next() {
                seen.push((event.time().0, event.record().descriptor().unwrap().id));
            }
        }
        drop(capture);
        seen.extend(read(&mut merger));
        assert_eq!(seen, expected);
        assert_eq!(merger.stats().out_of_order, 0);
    }

    #[test]
    fn a_repeated_whole_buffer_is_read_once() {
        let settings = Session { processors: 2, buffer_size: 1024, ..Session::default() };
        let mut writer = EtlWriter::new(settings.clone(), std::io::Cursor::new(Vec::new())).unwrap();
        for n in 1..100u16 {
            writer.write(n % 2, &record(settings.start.0 + i64::from(n), n)).unwrap();
        }
        let file = EtlFile::open(writer.finish().unwrap().0.into_inner().into()).unwrap();
        let buffers: Vec<&[u8]> = file.bytes().chunks(1024).skip(1).collect();
        assert!(buffers.len() > 8);
        let (mut capture, incoming) = channel(file.session().clone(), Queue::new(Overflow::Block));
        for (number, buffer) in buffers.iter().enumerate() {
            let _ = capture.raw_buffer(buffer);
            let _ = capture.raw_buffer(buffers[number / 2]);
        }
        drop(capture);
        let mut merger = LiveMerger::new(vec![incoming]).unwrap();
        let ids: Vec<u16> = read(&mut merger).into_iter().map(|(_, id)| id).collect();
        assert_eq!(ids, (1..100).collect::<Vec<_>>());
        let stats = merger.stats();
        assert_eq!((stats.buffers, stats.buffers_repeated), (buffers.len() as u64, buffers.len() as u64));
    }

    #[test]
    fn every_event_is_delivered_or_dropped_and_counted() {
        for overflow in [Overflow::DropNewest, Overflow::DropOldest] {
            let queue = Queue { blocks: 3, ..Queue::new(overflow) };
            let (mut capture, incoming) = channel(session(1), queue);
            for n in 0..10i64 {
                let events = [(2 * n, 2 * n as u16), (2 * n + 1, 2 * n as u16 + 1)];
                send_with(&mut capture, 0, &events, &HALF_A_BLOCK);
            }
            drop(capture);
            assert_eq!(incoming.captured(), 20);
            let mut merger = LiveMerger::new(vec![incoming]).unwrap();
            let mut after_loss = Vec::new();
            let mut seen = Vec::new();
            while let Step::Event(event) = merger.next() {
                if event.index() == 0 {
                    after_loss.push(event.block().origin().after_loss);
                }
                seen.push(event.time().0);
            }
            let (expected, marks) = match overflow {
                Overflow::DropNewest => ((0..6).collect::<Vec<_>>(), [false, false, false]),
                _ => ((14..20).collect(), [true, false, false]),
            };
            assert_eq!((seen, after_loss), (expected, marks.to_vec()), "{overflow:?}");
            assert_eq!(merger.stats().events_dropped, 14, "{overflow:?}");
        }
    }

    #[test]
    fn a_blocked_sender_continues_when_there_is_space_or_no_reader() {
        let queue = Queue { blocks: 1, ..Queue::new(Overflow::Block) };
        let (mut capture, incoming) = channel(session(1), queue);
        let sender = std::thread::spawn(move || {
            for n in 0..100 {
                send_with(&mut capture, 0, &[(n, n as u16)], &HALF_A_BLOCK);
            }
        });
        let mut merger = LiveMerger::new(vec![incoming]).unwrap();
        assert_eq!(read(&mut merger).len(), 100);
        sender.join().unwrap();

        let (mut capture, incoming) = channel(session(1), queue);
        send(&mut capture, 0, &[(1, 1)]);
        let sender = std::thread::spawn(move || {
            let _ =
                capture.event(&EventRecord { header: &header(2, 2), processor: 0, items: &[], payload: &[] });
            capture.buffer_done()
        });
        drop(incoming);
        assert!(sender.join().unwrap().is_break());
    }
}
