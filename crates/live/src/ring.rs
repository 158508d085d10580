//! A bounded lock-free ring between a thread that must not wait and a reader, with a selectable
//! behavior when it is full. All dropped events are counted.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::Duration;

use crossbeam_queue::ArrayQueue;

/// The behavior when the ring is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Overflow {
    /// Wait for the reader. In a session, Windows then runs out of buffers, and drops and counts
    /// events itself. No event is lost between Windows and the reader.
    Block,
    /// Drop the new entry.
    DropNewest,
    /// Drop the oldest entry.
    DropOldest,
}

/// One entry, with the number of events that it counts for and its sequence number.
#[derive(Debug)]
struct Entry<T> {
    content: T,
    events: u64,
    number: u64,
}

#[derive(Debug)]
struct Shared<T> {
    ring: ArrayQueue<Entry<T>>,
    overflow: Overflow,
    /// Nothing more will be sent.
    ended: AtomicBool,
    /// The reader is gone.
    abandoned: AtomicBool,
    sender_waits: AtomicBool,
    reader: OnceLock<Thread>,
    sender: OnceLock<Thread>,
    /// In events.
    sent: AtomicU64,
    dropped: AtomicU64,
}

/// The longest sleep of a thread that may have missed its wake-up.
const NAP: Duration = Duration::from_millis(2);

/// A ring for `capacity` entries, at least one.
pub fn ring<T>(capacity: usize, overflow: Overflow) -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(Shared {
        ring: ArrayQueue::new(capacity.max(1)),
        overflow,
        ended: AtomicBool::new(false),
        abandoned: AtomicBool::new(false),
        sender_waits: AtomicBool::new(false),
        reader: OnceLock::new(),
        sender: OnceLock::new(),
        sent: AtomicU64::new(0),
        dropped: AtomicU64::new(0),
    });
    (Sender { shared: shared.clone(), next: 0 }, Receiver { shared, expected: 0 })
}

/// The sending end of a ring. Dropping it ends the ring.
#[derive(Debug)]
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
    next: u64,
}

impl<T> Sender<T> {
    /// Sends an entry that counts for `events` events, or drops events according to [`Overflow`].
    /// Returns false if the reader is gone.
    pub fn send(&mut self, content: T, events: u64) -> bool {
        let shared = &*self.shared;
        let mut entry = Entry { content, events, number: self.next };
        self.next += 1;
        shared.sent.fetch_add(events, Ordering::Relaxed);
        match shared.overflow {
            Overflow::DropOldest => {
                if let Some(oldest) = shared.ring.force_push(entry) {
                    shared.count_dropped(oldest.events);
                }
            }
            Overflow::DropNewest => {
                if let Err(newest) = shared.ring.push(entry) {
                    shared.count_dropped(newest.events);
                }
            }
            Overflow::Block => {
                while let Err(back) = shared.ring.push(entry) {
                    if shared.abandoned.load(Ordering::Acquire) {
                        shared.count_dropped(back.events);
                        return false;
                    }
                    entry = back;
                    shared.sender.get_or_init(thread::current);
                    shared.sender_waits.store(true, Ordering::SeqCst);
                    thread::park_timeout(NAP);
                }
            }
        }
        if let Some(reader) = shared.reader.get() {
            reader.unpark();
        }
        if shared.abandoned.load(Ordering::Acquire) {
            shared.drop_all();
            return false;
        }
        true
    }

    /// The number of entries that were sent, which is the sequence number of the next one.
    pub fn sent(&self) -> u64 {
        self.next
    }

    /// Whether the reader is gone.
    pub fn is_abandoned(&self) -> bool {
        self.shared.abandoned.load(Ordering::Acquire)
    }

    /// The events that were sent and dropped so far.
    pub fn counts(&self) -> RingCounts {
        self.shared.counts()
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
        if let Some(reader) = self.shared.reader.get() {
            reader.unpark();
        }
    }
}

/// Counters of a ring. Events that were sent and not dropped were received or are waiting.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RingCounts {
    /// The number of events that were sent.
    pub sent: u64,
    /// The number of sent events that were dropped.
    pub dropped: u64,
}

impl<T> Shared<T> {
    fn count_dropped(&self, events: u64) {
        self.dropped.fetch_add(events, Ordering::Relaxed);
    }

    fn drop_all(&self) {
        while let Some(entry) = self.ring.pop() {
            self.count_dropped(entry.events);
        }
    }

    fn counts(&self) -> RingCounts {
        // Events are counted as sent before they are counted as dropped.
        let dropped = self.dropped.load(Ordering::Acquire);
        RingCounts { sent: self.sent.load(Ordering::Acquire), dropped }
    }
}

/// The result of [`Receiver::receive`].
#[derive(Debug)]
pub enum Received<T> {
    /// The next entry.
    Content {
        /// The content that was sent.
        content: T,
        /// Whether entries before this one were dropped.
        after_loss: bool,
    },
    /// No entry is available now.
    Nothing,
    /// No entry will follow.
    End,
}

/// The receiving end of a ring. Dropping it stops the sender.
#[derive(Debug)]
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    expected: u64,
}

impl<T> Receiver<T> {
    /// Receives an entry without waiting.
    pub fn receive(&mut self) -> Received<T> {
        // Read before the ring, so that all entries that were sent before the end are found.
        let ended = self.shared.ended.load(Ordering::Acquire);
        match self.shared.ring.pop() {
            Some(Entry { content, number, .. }) => {
                if self.shared.sender_waits.swap(false, Ordering::SeqCst)
                    && let Some(sender) = self.shared.sender.get()
                {
                    sender.unpark();
                }
                let after_loss = number != self.expected;
                self.expected = number + 1;
                Received::Content { content, after_loss }
            }
            None if ended => Received::End,
            None => Received::Nothing,
        }
    }

    /// Called by a reader that knows that `sent` entries were sent and that the ring is empty.
    /// Returns whether entries that would have come next were dropped.
    pub fn has_lost_before(&mut self, sent: u64) -> bool {
        std::mem::replace(&mut self.expected, sent) != sent
    }

    /// Waits for the next entry. Returns `None` at the end.
    pub fn wait(&mut self) -> Option<T> {
        loop {
            match self.receive() {
                Received::Content { content, .. } => return Some(content),
                Received::End => return None,
                Received::Nothing => {
                    self.wake_me();
                    thread::park_timeout(5 * NAP);
                }
            }
        }
    }

    /// Registers the calling thread to be woken when an entry arrives. Only one thread can read,
    /// from its first wait on.
    pub fn wake_me(&self) {
        self.shared.reader.get_or_init(thread::current);
    }

    /// The events that were sent and dropped so far.
    pub fn counts(&self) -> RingCounts {
        self.shared.counts()
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.shared.abandoned.store(true, Ordering::Release);
        // The thread that drops entries counts them.
        self.shared.drop_all();
        if let Some(sender) = self.shared.sender.get() {
            sender.unpark();
        }
    }
}
