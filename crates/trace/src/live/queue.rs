//! The bounded way from a callback to the reader: a lock-free ring of blocks.
//!
//! The callback must never wait for long: while it does, Windows has no free buffers and loses events. What happens when
//! the reader is too slow is therefore a choice that has to be made, and everything that is dropped is counted.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::Duration;

use crossbeam_queue::ArrayQueue;
use stackhound_etl::{Block, LogfileHeader};

use crate::live::Capture;

/// What to do with events for which there is no room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Overflow {
    /// Wait for the reader. Windows then runs out of buffers, drops events itself and counts them; nothing is lost
    /// between it and the reader.
    Block,
    /// Drop what comes.
    DropNewest,
    /// Drop what has waited longest.
    DropOldest,
}

/// How much may wait for the reader, and what if more does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Queue {
    /// Blocks. One holds what Windows hands over at once: up to the size of a session's buffer.
    pub blocks: usize,
    /// What if there are more.
    pub overflow: Overflow,
    /// How far the processors' events may be apart when they arrive: an event is handed on when nothing older than it can
    /// come any more. A buffer that is not full comes when the session's flush timer runs out.
    pub disorder: Duration,
}

impl Queue {
    /// 1,024 blocks, which is as much as a session with 64 MiB of buffers hands over at once, and two and a half seconds
    /// for a flush timer of one second.
    pub fn new(overflow: Overflow) -> Queue {
        Queue { blocks: 1024, overflow, disorder: Duration::from_millis(2500) }
    }
}

/// What never reached the reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Dropped {
    /// Events for which the queue had no room.
    pub events: u64,
    /// Events that could not be written down: larger than a record, or in a buffer whose end cannot be read.
    pub unreadable: u64,
}

/// A block on its way.
#[derive(Debug)]
struct Parcel {
    block: Block,
    /// Counts the blocks of all processors. A gap says that one was dropped.
    number: u64,
}

#[derive(Debug)]
pub(crate) struct Shared {
    ring: ArrayQueue<Parcel>,
    overflow: Overflow,
    /// Nothing will be sent any more.
    ended: AtomicBool,
    /// Nobody reads any more.
    abandoned: AtomicBool,
    sender_waits: AtomicBool,
    reader: OnceLock<Thread>,
    sender: OnceLock<Thread>,
    dropped: AtomicU64,
    unreadable: AtomicU64,
    sent: AtomicU64,
}

/// How long somebody sleeps who was perhaps woken before he slept.
const NAP: Duration = Duration::from_millis(2);

/// A queue for the blocks of one session, with a capture at its beginning.
pub fn channel(session: Arc<LogfileHeader>, queue: Queue) -> (Capture, Incoming) {
    let shared = Arc::new(Shared {
        ring: ArrayQueue::new(queue.blocks.max(1)),
        overflow: queue.overflow,
        ended: AtomicBool::new(false),
        abandoned: AtomicBool::new(false),
        sender_waits: AtomicBool::new(false),
        reader: OnceLock::new(),
        sender: OnceLock::new(),
        dropped: AtomicU64::new(0),
        unreadable: AtomicU64::new(0),
        sent: AtomicU64::new(0),
    });
    let sender = Sender { shared: shared.clone(), next: 0 };
    (
        Capture::new(session.clone(), sender),
        Incoming { session, shared, disorder: queue.disorder, expected: 0 },
    )
}

/// The beginning of the queue.
#[derive(Debug)]
pub(crate) struct Sender {
    shared: Arc<Shared>,
    next: u64,
}

impl Sender {
    /// Sends a block, or drops one and counts its events. `false` if nobody reads any more.
    pub fn send(&mut self, block: Block) -> bool {
        let shared = &*self.shared;
        let mut parcel = Parcel { block, number: self.next };
        self.next += 1;
        shared.sent.fetch_add(parcel.block.entries().len() as u64, Ordering::Relaxed);
        match shared.overflow {
            Overflow::DropOldest => {
                if let Some(oldest) = shared.ring.force_push(parcel) {
                    shared.count_dropped(&oldest.block);
                }
            }
            Overflow::DropNewest => {
                if let Err(newest) = shared.ring.push(parcel) {
                    shared.count_dropped(&newest.block);
                }
            }
            Overflow::Block => {
                while let Err(back) = shared.ring.push(parcel) {
                    if shared.abandoned.load(Ordering::Acquire) {
                        shared.count_dropped(&back.block);
                        return false;
                    }
                    parcel = back;
                    shared.sender.get_or_init(thread::current);
                    shared.sender_waits.store(true, Ordering::SeqCst);
                    thread::park_timeout(NAP);
                }
            }
        }
        if let Some(reader) = shared.reader.get() {
            reader.unpark();
        }
        !shared.abandoned.load(Ordering::Acquire)
    }

    pub fn count_unreadable(&self, events: u64) {
        self.shared.unreadable.fetch_add(events, Ordering::Relaxed);
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
        if let Some(reader) = self.shared.reader.get() {
            reader.unpark();
        }
    }
}

impl Shared {
    #[cold]
    fn count_dropped(&self, block: &Block) {
        self.dropped.fetch_add(block.entries().len() as u64, Ordering::Relaxed);
    }
}

/// The end of the queue: blocks of one session as they arrive.
#[derive(Debug)]
pub struct Incoming {
    session: Arc<LogfileHeader>,
    shared: Arc<Shared>,
    disorder: Duration,
    expected: u64,
}

/// What a look into the queue gives.
#[derive(Debug)]
pub(crate) enum Received {
    Block(Block),
    /// Nothing now.
    Nothing,
    /// Nothing any more.
    End,
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
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Dropped { events: read(&self.shared.dropped), unreadable: read(&self.shared.unreadable) }
    }

    /// Events that were captured up to now, dropped ones included.
    pub fn captured(&self) -> u64 {
        self.shared.sent.load(Ordering::Relaxed)
    }

    pub(crate) fn receive(&mut self) -> Received {
        // Read before the ring: what was sent before the end is there.
        let ended = self.shared.ended.load(Ordering::Acquire);
        match self.shared.ring.pop() {
            Some(Parcel { block, number }) => {
                if self.shared.sender_waits.swap(false, Ordering::SeqCst)
                    && let Some(sender) = self.shared.sender.get()
                {
                    sender.unpark();
                }
                let gap = number != self.expected;
                self.expected = number + 1;
                Received::Block(if gap { block.after_loss() } else { block })
            }
            None if ended => Received::End,
            None => Received::Nothing,
        }
    }

    /// The calling thread is woken when something comes.
    pub(crate) fn wake_me(&self) {
        self.shared.reader.get_or_init(thread::current);
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        self.shared.abandoned.store(true, Ordering::Release);
        // Whoever drops blocks counts them.
        while let Some(parcel) = self.shared.ring.pop() {
            self.shared.count_dropped(&parcel.block);
        }
        if let Some(sender) = self.shared.sender.get() {
            sender.unpark();
        }
    }
}
