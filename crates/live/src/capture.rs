//! The work of the callback: each event is copied once, into the block of its processor.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use stackhound_etl::{
    Block, BlockBuilder, BufferHeader, BufferIdentity, BufferType, LogFileMode, LogfileHeader,
};
use stackhound_trace::Flow;
use stackhound_types::RawTime;

use crate::event_record::EventRecord;
use crate::queue::Refused;
use crate::ring::Sender;

/// The size at which a block is sent, unless the buffers of the session are smaller.
const BLOCK_SIZE: usize = 256 << 10;

/// The minimum size at which a block is sent.
const BLOCK_SIZE_MIN: usize = 32 << 10;

/// The maximum number of processors. No machine has more.
const PROCESSORS_MAX: usize = 1 << 12;

/// The time for which blocks wait for more events, in the time of the session. It is not longer
/// than common flush timers, and much shorter than the time for which readers wait for slower
/// processors.
pub(crate) const SLICE: Duration = Duration::from_millis(10);

/// The number of recent whole buffers that are checked for repetition.
const RECENT_MAX: usize = 64;

/// Blocks that are being filled.
#[derive(Debug, Default)]
pub(crate) struct Filling {
    /// Indexed by processor.
    builders: Vec<BlockBuilder>,
    /// Processors whose builders are not empty.
    filled: Vec<u16>,
    /// The number of full blocks that were sent before.
    pub sent: u64,
}

impl Filling {
    /// Takes all partly filled blocks, one for each processor.
    pub fn take(&mut self) -> impl Iterator<Item = Block> {
        let Filling { builders, filled, .. } = self;
        filled.drain(..).filter_map(|processor| Some(builders[usize::from(processor)].take()?.0))
    }
}

/// The partly filled blocks between two calls of Windows. The reader may take their content.
pub(crate) type Pending = Mutex<Option<Filling>>;

/// Captures the events of one session, on the thread that Windows calls. The cost is one copy of
/// each event, and one allocation for each block.
///
/// Windows merges the buffers of all processors by time, and calls
/// [`buffer_done`](Capture::buffer_done) after each of them: 64 times in short succession for a
/// flush on 64 processors, each time after a few events of every processor. Therefore blocks are
/// not sent at each call, but when they are full, or at the first call after 10 ms of session time.
/// Between calls, partly filled blocks are available to the reader, which takes them if nothing
/// else has arrived for a moment.
#[derive(Debug)]
pub struct Capture {
    session: Arc<LogfileHeader>,
    one_stream: bool,
    capacity: usize,
    /// The number of ticks after which all blocks are sent.
    slice: i64,
    /// The time of the latest event, and the time at which all blocks were last sent.
    latest: RawTime,
    last_sent: RawTime,
    /// The blocks while Windows delivers events, up to its next call after a buffer.
    filling: Option<Filling>,
    /// The blocks at other times.
    pending: Arc<Pending>,
    sender: Sender<Block>,
    refused: Arc<Refused>,
    /// The latest whole buffers.
    recent: VecDeque<BufferIdentity>,
}

impl Capture {
    pub(crate) fn new(
        session: Arc<LogfileHeader>,
        sender: Sender<Block>,
        refused: Arc<Refused>,
        pending: Arc<Pending>,
    ) -> Capture {
        let one_stream = session.mode.has(LogFileMode::NO_PER_PROCESSOR_BUFFERING);
        let capacity = (session.buffer_size as usize).clamp(BLOCK_SIZE_MIN, BLOCK_SIZE);
        Capture {
            slice: session.clock().duration_to_raw(SLICE),
            latest: RawTime(0),
            last_sent: RawTime(0),
            session,
            one_stream,
            capacity,
            filling: Some(Filling::default()),
            pending,
            sender,
            refused,
            recent: VecDeque::new(),
        }
    }

    /// The header of the session.
    pub fn session(&self) -> &Arc<LogfileHeader> {
        &self.session
    }

    /// Captures an event. Breaks if the reader is gone.
    #[inline]
    pub fn event(&mut self, event: &EventRecord<'_>) -> Flow {
        let processor = if self.one_stream { 0 } else { event.processor };
        if self.filling.is_none() {
            self.resume();
        }
        let Some(filling) = &mut self.filling else { return Flow::Continue(()) };
        if usize::from(processor) >= filling.builders.len() {
            let count = usize::from(processor).min(PROCESSORS_MAX - 1) + 1;
            add_processors(filling, &self.session, self.one_stream, self.capacity, count);
        }
        let Some(builder) = filling.builders.get(usize::from(processor)) else {
            self.count_unreadable(1);
            return Flow::Continue(());
        };
        self.latest = event.time();
        let is_loss = event.reports_loss();
        // Events after a loss begin a new block, which starts with this event.
        if is_loss || builder.is_full() {
            self.seal(processor, is_loss)?;
        }
        self.append(processor, event)
    }

    #[inline]
    fn append(&mut self, processor: u16, event: &EventRecord<'_>) -> Flow {
        let Some(filling) = &mut self.filling else { return Flow::Continue(()) };
        let builder = &mut filling.builders[usize::from(processor)];
        let was_empty = builder.is_empty();
        match event.write(builder) {
            Ok(()) if was_empty => filling.filled.push(processor),
            Ok(()) => {}
            Err(_) => self.count_unreadable(1),
        }
        Flow::Continue(())
    }

    /// Continues with the blocks that were left at the last call, if the reader has not taken them.
    #[cold]
    fn resume(&mut self) {
        if self.filling.is_none() {
            self.filling = self.pending.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
    }

    /// Sends the block of one processor.
    #[cold]
    fn seal(&mut self, processor: u16, is_loss: bool) -> Flow {
        let Some(filling) = &mut self.filling else { return Flow::Continue(()) };
        filling.filled.retain(|&filled| filled != processor);
        let builder = &mut filling.builders[usize::from(processor)];
        let block = builder.take();
        if is_loss {
            builder.note_loss();
        }
        match block {
            Some((block, _)) => self.send(block),
            None => Flow::Continue(()),
        }
    }

    fn send_all(&mut self) -> Flow {
        let blocks: Vec<Block> = self.filling.iter_mut().flat_map(Filling::take).collect();
        let mut flow = Flow::Continue(());
        for block in blocks {
            if self.send(block).is_break() {
                flow = Flow::Break(());
            }
        }
        flow
    }

    fn send(&mut self, block: Block) -> Flow {
        let events = block.entries().len() as u64;
        if self.sender.send(block, events) { Flow::Continue(()) } else { Flow::Break(()) }
    }

    fn count_unreadable(&self, events: u64) {
        self.refused.unreadable.fetch_add(events, Ordering::Relaxed);
    }

    /// Sends all blocks, or leaves them to the reader, because Windows may have no more events for
    /// a long time. Breaks if the reader is gone.
    pub fn buffer_done(&mut self) -> Flow {
        // This also applies if the time went back.
        if self.latest.0.abs_diff(self.last_sent.0) >= self.slice as u64 {
            self.last_sent = self.latest;
            self.send_all()?;
        }
        if let Some(mut filling) = self.filling.take() {
            filling.sent = self.sender.sent();
            *self.pending.lock().unwrap_or_else(PoisonError::into_inner) = Some(filling);
        }
        if self.sender.is_abandoned() { Flow::Break(()) } else { Flow::Continue(()) }
    }

    /// Captures a whole buffer of the session, including its header, as Windows 11 delivers it. The
    /// cost is one copy of its bytes. A repetition of a recent buffer is counted and not read.
    pub fn raw_buffer(&mut self, bytes: &[u8]) -> Flow {
        let buffer_type = BufferHeader::read(bytes).and_then(BufferHeader::buffer_type);
        if buffer_type.is_some_and(BufferType::is_marker) {
            return Flow::Continue(());
        }
        if self.is_repeated(bytes) {
            self.refused.repeated.fetch_add(1, Ordering::Relaxed);
            return Flow::Continue(());
        }
        match Block::of_buffer(Bytes::copy_from_slice(bytes), self.session.clone(), 0) {
            Some((block, error)) => {
                // The number of events after the unreadable position is not known.
                self.count_unreadable(u64::from(error.is_some()));
                self.send(block)
            }
            None => {
                self.count_unreadable(1);
                Flow::Continue(())
            }
        }
    }

    fn is_repeated(&mut self, bytes: &[u8]) -> bool {
        let Some(identity) = BufferIdentity::of(bytes) else { return false };
        if self.recent.contains(&identity) {
            return true;
        }
        if self.recent.len() == RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(identity);
        false
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.resume();
        let _ = self.send_all();
    }
}

#[cold]
fn add_processors(
    filling: &mut Filling,
    session: &Arc<LogfileHeader>,
    one_stream: bool,
    capacity: usize,
    count: usize,
) {
    for number in filling.builders.len()..count {
        let processor = (!one_stream).then_some(number as u16);
        filling.builders.push(BlockBuilder::new(session.clone(), 0, processor, capacity));
    }
}
