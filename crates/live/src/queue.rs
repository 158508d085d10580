//! The way of a session's blocks from the callback to the reader.
//!
//! The callback must never wait for long: while it does, Windows has no free buffers and loses events. What happens when
//! the reader is too slow is therefore a choice that has to be made.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use stackhound_etl::{Block, LogfileHeader};

use crate::Capture;
use crate::capture::{Resting, SLICE};
use crate::ring::{self, Overflow, Received, Receiver};

/// How much may wait for the reader, and what if more does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Queue {
    /// Blocks. One holds what Windows hands over at once: up to the size of a session's buffer.
    pub blocks: usize,
    /// What if there are more.
    pub overflow: Overflow,
    /// How far the processors' events may be apart when they arrive: an event is handed on when nothing older than it can
    /// come any more. A buffer that is not full comes when the session's flush timer runs out: by default, twice as long
    /// and half a second more.
    pub disorder: Option<Duration>,
}

impl Queue {
    /// 1,024 blocks, which is as much as a session with 64 MiB of buffers hands over at once.
    pub fn new(overflow: Overflow) -> Queue {
        Queue { blocks: 1024, overflow, disorder: None }
    }

    /// The same for a session with this flush timer, unless the disorder was chosen.
    pub fn for_flush(self, timer: Duration) -> Queue {
        Queue { disorder: self.disorder.or(Some(2 * timer + Duration::from_millis(500))), ..self }
    }
}

/// What never reached the reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Dropped {
    /// Events for which the queue had no room.
    pub events: u64,
    /// Events that could not be written down: larger than a record, or in a buffer whose end cannot be read.
    pub unreadable: u64,
    /// Whole buffers that had come before.
    pub repeated: u64,
}

/// Counters of what the capture does not pass on.
#[derive(Debug, Default)]
pub(crate) struct Refused {
    pub unreadable: AtomicU64,
    pub repeated: AtomicU64,
}

/// A queue for the blocks of one session, with a capture at its beginning.
pub fn channel(session: Arc<LogfileHeader>, queue: Queue) -> (Capture, Incoming) {
    let (sender, receiver) = ring::ring(queue.blocks, queue.overflow);
    let (refused, resting) = (Arc::new(Refused::default()), Arc::new(Resting::default()));
    let capture = Capture::new(session.clone(), sender, refused.clone(), resting.clone());
    let disorder = queue.for_flush(Duration::from_secs(1)).disorder.unwrap_or_default();
    let (taken, looked, events_taken) = (VecDeque::new(), None, 0);
    (capture, Incoming { session, receiver, resting, taken, looked, events_taken, refused, disorder })
}

/// The end of the queue: blocks of one session as they arrive.
#[derive(Debug)]
pub struct Incoming {
    session: Arc<LogfileHeader>,
    receiver: Receiver<Block>,
    resting: Arc<Resting>,
    /// Blocks that were not full and were taken from where they rested, each with whether something before it was dropped.
    taken: VecDeque<(Block, bool)>,
    /// When that was done last.
    looked: Option<Instant>,
    events_taken: u64,
    refused: Arc<Refused>,
    disorder: Duration,
}

impl Incoming {
    /// What the session says of itself.
    pub fn session(&self) -> &Arc<LogfileHeader> {
        &self.session
    }

    /// See [`Queue::disorder`].
    pub fn disorder(&self) -> Duration {
        self.disorder
    }

    /// What was dropped up to now.
    pub fn dropped(&self) -> Dropped {
        let events = self.receiver.counts().dropped;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Dropped {
            events,
            unreadable: count(&self.refused.unreadable),
            repeated: count(&self.refused.repeated),
        }
    }

    /// Events that were captured up to now, dropped ones included.
    pub fn captured(&self) -> u64 {
        self.receiver.counts().sent + self.events_taken
    }

    /// The next block; one behind a dropped one says so.
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
            if let Some(arrived) = self.take_resting() {
                return arrived;
            }
        }
        match self.taken.pop_front() {
            Some((block, false)) => Received::Content { content: block, after_loss: false },
            Some((block, true)) => Received::Content { content: block.after_loss(), after_loss: true },
            None => Received::Nothing,
        }
    }

    /// Takes blocks that are not full, unless a full one has arrived meanwhile: that is older.
    fn take_resting(&mut self) -> Option<Received<Block>> {
        self.looked = Some(Instant::now());
        let mut resting = self.resting.lock().unwrap_or_else(PoisonError::into_inner);
        // Nothing is sent while they rest.
        let filling = resting.as_mut()?;
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
            // Only the first can be: by then all that were sent are known of.
            self.taken.push_back((block, self.receiver.has_lost_before(sent)));
        }
        None
    }

    /// The calling thread is woken when something comes.
    pub(crate) fn wake_me(&self) {
        self.receiver.wake_me();
    }
}
