//! The queue of blocks from the callback of a session to the reader.
//!
//! The callback must never wait for long: while it waits, Windows has no free buffers and loses
//! events. The behavior for a reader that is too slow must therefore be selected.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use stackhound_etl::{Block, LogfileHeader};

use crate::Capture;
use crate::capture::{Pending, SLICE};
use crate::ring::{self, Overflow, Received, Receiver};

/// The size of a queue, and its behavior when it is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Queue {
    /// The number of blocks. A block holds the events that Windows delivers at once, up to the size
    /// of a buffer of the session.
    pub blocks: usize,
    /// The behavior when the queue is full.
    pub overflow: Overflow,
    /// The maximum delay between the events of different processors when they arrive. An event is
    /// delivered when no older event can arrive any more. A buffer that is not full arrives when
    /// the flush timer of the session expires; the default is therefore twice the flush timer plus
    /// half a second.
    pub disorder: Option<Duration>,
}

impl Queue {
    /// A queue of 1,024 blocks, as many as a session with 64 MiB of buffers delivers at once.
    pub fn new(overflow: Overflow) -> Queue {
        Queue { blocks: 1024, overflow, disorder: None }
    }

    /// The same queue for a session with this flush timer, unless the disorder is set already.
    pub fn for_flush(self, timer: Duration) -> Queue {
        Queue { disorder: self.disorder.or(Some(2 * timer + Duration::from_millis(500))), ..self }
    }
}

/// Events that never reached the reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Dropped {
    /// Events that were dropped because the queue was full.
    pub events: u64,
    /// Events that could not be written: they are larger than a record, or in a buffer whose end
    /// cannot be read.
    pub unreadable: u64,
    /// Whole buffers that were received before.
    pub repeated: u64,
}

/// Counters of events that the capture does not pass on.
#[derive(Debug, Default)]
pub(crate) struct Refused {
    pub unreadable: AtomicU64,
    pub repeated: AtomicU64,
}

/// A queue for the blocks of one session, with the capture at its sending end.
pub fn channel(session: Arc<LogfileHeader>, queue: Queue) -> (Capture, Incoming) {
    let (sender, receiver) = ring::ring(queue.blocks, queue.overflow);
    let (refused, pending) = (Arc::new(Refused::default()), Arc::new(Pending::default()));
    let capture = Capture::new(session.clone(), sender, refused.clone(), pending.clone());
    let disorder = queue.for_flush(Duration::from_secs(1)).disorder.unwrap_or_default();
    let (taken, looked, events_taken) = (VecDeque::new(), None, 0);
    (capture, Incoming { session, receiver, pending, taken, looked, events_taken, refused, disorder })
}

/// The receiving end of the queue: the blocks of one session as they arrive.
#[derive(Debug)]
pub struct Incoming {
    session: Arc<LogfileHeader>,
    receiver: Receiver<Block>,
    pending: Arc<Pending>,
    /// Partly filled blocks that were taken from the capture, each with whether earlier blocks were
    /// dropped.
    taken: VecDeque<(Block, bool)>,
    /// The time at which partly filled blocks were last taken.
    looked: Option<Instant>,
    events_taken: u64,
    refused: Arc<Refused>,
    disorder: Duration,
}

impl Incoming {
    /// The header of the session.
    pub fn session(&self) -> &Arc<LogfileHeader> {
        &self.session
    }

    /// See [`Queue::disorder`].
    pub fn disorder(&self) -> Duration {
        self.disorder
    }

    /// The events that were dropped so far.
    pub fn dropped(&self) -> Dropped {
        let events = self.receiver.counts().dropped;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Dropped {
            events,
            unreadable: count(&self.refused.unreadable),
            repeated: count(&self.refused.repeated),
        }
    }

    /// The number of events that were captured so far, including dropped ones.
    pub fn captured(&self) -> u64 {
        self.receiver.counts().sent + self.events_taken
    }

    /// The next block. A block that follows a dropped one is marked.
    pub(crate) fn receive(&mut self) -> Received<Block> {
        if self.taken.is_empty() {
            match self.receiver.receive() {
                Received::Nothing => {}
                Received::Content { content, after_loss: true } => {
                    return Received::Content { content: content.after_loss(), after_loss: true };
                }
                other => return other,
            }
            if self.looked.is_some_and(|looked| looked.elapsed() < SLICE) {
                return Received::Nothing;
            }
            if let Some(arrived) = self.take_pending() {
                return arrived;
            }
        }
        match self.taken.pop_front() {
            Some((block, false)) => Received::Content { content: block, after_loss: false },
            Some((block, true)) => Received::Content { content: block.after_loss(), after_loss: true },
            None => Received::Nothing,
        }
    }

    /// Takes partly filled blocks, unless a full block has arrived meanwhile, which is older.
    fn take_pending(&mut self) -> Option<Received<Block>> {
        self.looked = Some(Instant::now());
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        // No block is sent while the lock is held.
        let filling = pending.as_mut()?;
        match self.receiver.receive() {
            Received::Nothing => {}
            Received::Content { content, after_loss: true } => {
                return Some(Received::Content { content: content.after_loss(), after_loss: true });
            }
            other => return Some(other),
        }
        let sent = filling.sent;
        for block in filling.take() {
            self.events_taken += block.entries().len() as u64;
            // Only the first block can follow a loss: all earlier blocks are accounted for.
            self.taken.push_back((block, self.receiver.has_lost_before(sent)));
        }
        None
    }

    /// Registers the calling thread to be woken when a block arrives.
    pub(crate) fn wake_me(&self) {
        self.receiver.wake_me();
    }
}
