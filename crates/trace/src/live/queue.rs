//! The way of a session's blocks from the callback to the reader.
//!
//! The callback must never wait for long: while it does, Windows has no free buffers and loses events. What happens when
//! the reader is too slow is therefore a choice that has to be made.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use stackhound_etl::{Block, LogfileHeader};

use crate::live::Capture;
use crate::live::ring::{self, Overflow, Received, Receiver};

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
    let refused = Arc::new(Refused::default());
    let capture = Capture::new(session.clone(), sender, refused.clone());
    let disorder = queue.for_flush(Duration::from_secs(1)).disorder.unwrap_or_default();
    (capture, Incoming { session, receiver, refused, disorder })
}

/// The end of the queue: blocks of one session as they arrive.
#[derive(Debug)]
pub struct Incoming {
    session: Arc<LogfileHeader>,
    receiver: Receiver<Block>,
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
        self.receiver.counts().sent
    }

    /// The next block; one behind a dropped one says so.
    pub(crate) fn receive(&mut self) -> Received<Block> {
        match self.receiver.receive() {
            Received::Content { content, after_loss: true } => {
                Received::Content { content: content.after_loss(), after_loss: true }
            }
            other => other,
        }
    }

    /// The calling thread is woken when something comes.
    pub(crate) fn wake_me(&self) {
        self.receiver.wake_me();
    }
}
