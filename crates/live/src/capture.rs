//! What happens in the callback: each event is copied once, into the block of its processor.

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

/// A block is handed over when it has this size, if the session's buffers are not smaller.
const BLOCK_SIZE: usize = 256 << 10;

/// The least size of a block that is handed over because it is full.
const BLOCK_SIZE_MIN: usize = 32 << 10;

/// No machine has more processors.
const PROCESSORS_MAX: usize = 1 << 12;

/// How much of the session's time blocks wait for more. The flush timers of sessions are hardly shorter, and what readers wait
/// for slower processors is far longer.
pub(crate) const SLICE: Duration = Duration::from_millis(10);

/// Whole buffers among which a repeated one is looked for.
const RECENT_MAX: usize = 64;

/// Blocks that are being filled.
#[derive(Debug, Default)]
pub(crate) struct Filling {
    /// By processor.
    builders: Vec<BlockBuilder>,
    /// Processors whose builders are not empty.
    filled: Vec<u16>,
    /// How many full blocks were handed over before.
    pub sent: u64,
}

impl Filling {
    /// Takes what there is, one block for each processor.
    pub fn take(&mut self) -> impl Iterator<Item = Block> {
        let Filling { builders, filled, .. } = self;
        filled.drain(..).filter_map(|processor| Some(builders[usize::from(processor)].take()?.0))
    }
}

/// Where blocks that are being filled lie while Windows has no events. Whoever reads may take what is in them.
pub(crate) type Resting = Mutex<Option<Filling>>;

/// Takes the events of one session, in the thread that Windows calls. Costs a copy of each event, and an allocation a block.
///
/// Windows merges the buffers of all processors by time, and calls behind each of them: of a flush on 64 processors, 64 times
/// shortly one after the other, each time with a few events of every processor. So blocks are not handed over at each call, but
/// when they are full, or at the first call after a slice of the session's time. What is there at other calls is left for the
/// reader, who takes it when nothing else has come for a moment.
#[derive(Debug)]
pub struct Capture {
    session: Arc<LogfileHeader>,
    one_stream: bool,
    capacity: usize,
    /// Ticks between two calls at which all blocks are handed over.
    slice: i64,
    /// The time of the latest event, and of the one at which all blocks were handed over last.
    latest: RawTime,
    handed_over: RawTime,
    /// While Windows has events, which is up to its next call behind a buffer.
    filling: Option<Filling>,
    /// Otherwise.
    resting: Arc<Resting>,
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
        resting: Arc<Resting>,
    ) -> Capture {
        let one_stream = session.mode.has(LogFileMode::NO_PER_PROCESSOR_BUFFERING);
        let capacity = (session.buffer_size as usize).clamp(BLOCK_SIZE_MIN, BLOCK_SIZE);
        Capture {
            slice: session.clock().duration_to_raw(SLICE),
            latest: RawTime(0),
            handed_over: RawTime(0),
            session,
            one_stream,
            capacity,
            filling: Some(Filling::default()),
            resting,
            sender,
            refused,
            recent: VecDeque::new(),
        }
    }

    /// The session's description.
    pub fn session(&self) -> &Arc<LogfileHeader> {
        &self.session
    }

    /// Takes an event. Breaks if nobody reads any more.
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
        let is_loss = event.tells_of_loss();
        // What comes behind a loss begins a block of its own, with this event.
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

    /// Goes on with the blocks that were left at the last call, if they were.
    #[cold]
    fn resume(&mut self) {
        if self.filling.is_none() {
            self.filling = self.resting.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
    }

    /// Hands over the block of one processor.
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

    fn hand_over_all(&mut self) -> Flow {
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

    /// Hands over what there is, or leaves it to the reader: Windows may have no more events for a long time. Breaks if nobody
    /// reads any more.
    pub fn buffer_done(&mut self) -> Flow {
        // Also if times went back.
        if self.latest.0.abs_diff(self.handed_over.0) >= self.slice as u64 {
            self.handed_over = self.latest;
            self.hand_over_all()?;
        }
        if let Some(mut filling) = self.filling.take() {
            filling.sent = self.sender.sent();
            *self.resting.lock().unwrap_or_else(PoisonError::into_inner) = Some(filling);
        }
        if self.sender.is_abandoned() { Flow::Break(()) } else { Flow::Continue(()) }
    }

    /// Takes a whole buffer of the session, header included, as Windows 11 hands it over. Costs one copy of its bytes.
    /// A further copy of a recent buffer is counted and not read.
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
                // What stands behind the place that cannot be read, nobody can count.
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
        let _ = self.hand_over_all();
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
