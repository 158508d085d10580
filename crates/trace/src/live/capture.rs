//! What happens in the callback: each event is copied once, into the block of its processor.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use stackhound_etl::{Block, BlockBuilder, BufferIdentity, LogFileMode, LogfileHeader};

use crate::Flow;
use crate::live::handed::Handed;
use crate::live::queue::Refused;
use crate::live::ring::Sender;

/// A block is handed over when it has this size, if the session does not hand over earlier.
const BLOCK_SIZE: usize = 256 << 10;

/// What is allocated for a block at first; quiet processors have few events each time.
const FIRST_SIZE: usize = 32 << 10;

/// No machine has more processors.
const PROCESSORS_MAX: usize = 1 << 12;

/// Whole buffers among which a repeated one is looked for.
const RECENT_MAX: usize = 64;

/// Takes the events of one session, in the thread that Windows calls. Costs a copy of each event; no locks, and an
/// allocation a block.
#[derive(Debug)]
pub struct Capture {
    session: Arc<LogfileHeader>,
    one_stream: bool,
    capacity: usize,
    /// By processor.
    builders: Vec<BlockBuilder>,
    /// Processors whose builders are not empty.
    filled: Vec<u16>,
    sender: Sender<Block>,
    refused: Arc<Refused>,
    /// The latest whole buffers.
    recent: VecDeque<BufferIdentity>,
}

impl Capture {
    pub(crate) fn new(session: Arc<LogfileHeader>, sender: Sender<Block>, refused: Arc<Refused>) -> Capture {
        let one_stream = session.mode.has(LogFileMode::NO_PER_PROCESSOR_BUFFERING);
        let capacity = (session.buffer_size as usize).clamp(FIRST_SIZE, BLOCK_SIZE);
        Capture {
            session,
            one_stream,
            capacity,
            builders: Vec::new(),
            filled: Vec::new(),
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
    pub fn event(&mut self, event: &Handed<'_>) -> Flow {
        let processor = if self.one_stream { 0 } else { event.processor };
        if usize::from(processor) >= self.builders.len() {
            self.add_processors(processor);
        }
        let Some(builder) = self.builders.get(usize::from(processor)) else {
            self.count_unreadable(1);
            return Flow::Continue(());
        };
        if event.tells_of_loss() {
            // What comes behind the loss begins a block of its own, with this event.
            self.begin_anew(processor)?;
            return self.append(processor, event);
        }
        if builder.is_full() {
            self.seal(processor)?;
        }
        self.append(processor, event)
    }

    #[inline]
    fn append(&mut self, processor: u16, event: &Handed<'_>) -> Flow {
        let builder = &mut self.builders[usize::from(processor)];
        let was_empty = builder.is_empty();
        match event.write(builder) {
            Ok(()) if was_empty => self.filled.push(processor),
            Ok(()) => {}
            Err(_) => self.count_unreadable(1),
        }
        Flow::Continue(())
    }

    #[cold]
    fn add_processors(&mut self, processor: u16) {
        for number in self.builders.len()..=usize::from(processor).min(PROCESSORS_MAX - 1) {
            let processor = (!self.one_stream).then_some(number as u16);
            self.builders.push(BlockBuilder::new(self.session.clone(), 0, processor, self.capacity));
        }
    }

    /// Hands over the block of one processor.
    #[cold]
    fn seal(&mut self, processor: u16) -> Flow {
        self.filled.retain(|&filled| filled != processor);
        self.hand_over(processor)
    }

    #[cold]
    fn begin_anew(&mut self, processor: u16) -> Flow {
        self.seal(processor)?;
        self.builders[usize::from(processor)].note_loss();
        Flow::Continue(())
    }

    fn send(&mut self, block: Block) -> Flow {
        let events = block.entries().len() as u64;
        if self.sender.send(block, events) { Flow::Continue(()) } else { Flow::Break(()) }
    }

    fn count_unreadable(&self, events: u64) {
        self.refused.unreadable.fetch_add(events, Ordering::Relaxed);
    }

    fn hand_over(&mut self, processor: u16) -> Flow {
        let Some((block, _)) = self.builders[usize::from(processor)].take() else {
            return Flow::Continue(());
        };
        self.send(block)
    }

    /// Hands over what there is: Windows has no more events at the moment. Breaks if nobody reads any more.
    pub fn buffer_done(&mut self) -> Flow {
        let mut flow = Flow::Continue(());
        let mut filled = std::mem::take(&mut self.filled);
        for processor in filled.drain(..) {
            if self.hand_over(processor).is_break() {
                flow = Flow::Break(());
            }
        }
        self.filled = filled;
        flow
    }

    /// Takes a whole buffer of the session, header included, as Windows 11 hands it over. Costs one copy of its bytes.
    /// A further copy of a recent buffer is counted and not read.
    pub fn raw_buffer(&mut self, bytes: &[u8]) -> Flow {
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
        let _ = self.buffer_done();
    }
}
