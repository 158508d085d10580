//! The bounded way from a thread that must not wait to one that reads: a lock-free ring, with a choice of what happens
//! when it is full. Everything that is dropped is counted.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::Duration;

use crossbeam_queue::ArrayQueue;

/// What to do with what there is no room for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Overflow {
    /// Wait for the reader. In a session, Windows then runs out of buffers, drops events itself and counts them; nothing
    /// is lost between it and the reader.
    Block,
    /// Drop what comes.
    DropNewest,
    /// Drop what has waited longest.
    DropOldest,
}

/// One thing on its way, how many events it counts for, and the how manieth it is.
#[derive(Debug)]
struct Parcel<T> {
    content: T,
    events: u64,
    number: u64,
}

#[derive(Debug)]
struct Shared<T> {
    ring: ArrayQueue<Parcel<T>>,
    overflow: Overflow,
    /// Nothing will be sent any more.
    ended: AtomicBool,
    /// Nobody reads any more.
    abandoned: AtomicBool,
    sender_waits: AtomicBool,
    reader: OnceLock<Thread>,
    sender: OnceLock<Thread>,
    /// Events.
    sent: AtomicU64,
    dropped: AtomicU64,
}

/// How long somebody sleeps who was perhaps woken just before.
const NAP: Duration = Duration::from_millis(2);

/// A ring with room for `capacity` things, at least one.
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

/// The beginning of a ring. Dropped, it ends the ring.
#[derive(Debug)]
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
    next: u64,
}

impl<T> Sender<T> {
    /// Sends something that counts for so many events, or drops as much as the overflow says. `false` if nobody reads
    /// any more.
    pub fn send(&mut self, content: T, events: u64) -> bool {
        let shared = &*self.shared;
        let mut parcel = Parcel { content, events, number: self.next };
        self.next += 1;
        shared.sent.fetch_add(events, Ordering::Relaxed);
        match shared.overflow {
            Overflow::DropOldest => {
                if let Some(oldest) = shared.ring.force_push(parcel) {
                    shared.count_dropped(oldest.events);
                }
            }
            Overflow::DropNewest => {
                if let Err(newest) = shared.ring.push(parcel) {
                    shared.count_dropped(newest.events);
                }
            }
            Overflow::Block => {
                while let Err(back) = shared.ring.push(parcel) {
                    if shared.abandoned.load(Ordering::Acquire) {
                        shared.count_dropped(back.events);
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
        if shared.abandoned.load(Ordering::Acquire) {
            shared.drop_all();
            return false;
        }
        true
    }

    /// How many things were sent: the number of the next one.
    pub fn sent(&self) -> u64 {
        self.next
    }

    /// Whether nobody reads any more.
    pub fn is_abandoned(&self) -> bool {
        self.shared.abandoned.load(Ordering::Acquire)
    }

    /// Events that were sent and dropped up to now.
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

/// Counters of a ring. What was sent and not dropped was received, or waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RingCounts {
    /// Events that were sent.
    pub sent: u64,
    /// Of these, how many were dropped.
    pub dropped: u64,
}

impl<T> Shared<T> {
    fn count_dropped(&self, events: u64) {
        self.dropped.fetch_add(events, Ordering::Relaxed);
    }

    fn drop_all(&self) {
        while let Some(parcel) = self.ring.pop() {
            self.count_dropped(parcel.events);
        }
    }

    fn counts(&self) -> RingCounts {
        // What is dropped was sent before.
        let dropped = self.dropped.load(Ordering::Acquire);
        RingCounts { sent: self.sent.load(Ordering::Acquire), dropped }
    }
}

/// What a look into a ring gives.
#[derive(Debug)]
pub enum Received<T> {
    /// The next thing.
    Content {
        /// What was sent.
        content: T,
        /// Whether something before it was dropped.
        after_loss: bool,
    },
    /// Nothing now.
    Nothing,
    /// Nothing any more.
    End,
}

/// The end of a ring. Dropped, it tells the sender so.
#[derive(Debug)]
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    expected: u64,
}

impl<T> Receiver<T> {
    /// Looks without waiting.
    pub fn receive(&mut self) -> Received<T> {
        // Read before the ring: what was sent before the end is there.
        let ended = self.shared.ended.load(Ordering::Acquire);
        match self.shared.ring.pop() {
            Some(Parcel { content, number, .. }) => {
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

    /// The reader has found out, another way, that `sent` things were sent and that the ring is empty. Whether some of them were
    /// dropped that would have come next.
    pub fn has_lost_before(&mut self, sent: u64) -> bool {
        std::mem::replace(&mut self.expected, sent) != sent
    }

    /// Waits for the next thing; `None` at the end.
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

    /// Has the calling thread woken when something comes. One thread reads, from its first wait on.
    pub fn wake_me(&self) {
        self.shared.reader.get_or_init(thread::current);
    }

    /// Events that were sent and dropped up to now.
    pub fn counts(&self) -> RingCounts {
        self.shared.counts()
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.shared.abandoned.store(true, Ordering::Release);
        // Whoever drops things counts them.
        self.shared.drop_all();
        if let Some(sender) = self.shared.sender.get() {
            sender.unpark();
        }
    }
}
