//! Determines the buffers that a session delivers, and their times: generation at a rate, a limited
//! number of buffers, losses.
//!
//! The caller supplies the time, so that the rules can be tested without waiting. The session
//! continues between two calls: events that were generated in the meantime occupy free buffers, and
//! are lost if there are none.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use crate::replay::{Replay, Slice};

/// Rate and losses of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Events per second. 0 for as fast as the consumer reads them, without losses.
    pub rate: u64,
    /// Number of buffers of the session. If this many buffers are pending, further ones are lost.
    pub buffers: usize,
    /// One in this many buffers is lost; 0 for none.
    pub lose_every: u64,
    /// Number of events after which the session is stopped; 0 for never.
    pub stop_after: u64,
    /// Whether whole buffers are delivered instead of events.
    pub raw: bool,
}

/// Counters of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Events that providers wrote.
    pub generated: u64,
    /// Events that were lost with their buffers.
    pub events_lost: u64,
    /// Buffers that were lost.
    pub buffers_lost: u64,
    /// Buffers that were delivered.
    pub buffers: u64,
    /// Events that were delivered.
    pub delivered: u64,
    /// Delivered buffers that report a loss directly before them.
    pub notices: u64,
}

/// The source of a session's buffers.
#[derive(Debug)]
pub struct Feed {
    replay: Replay,
    limits: Limits,
    /// The next buffer to be generated, with the number of its events.
    coming: Option<(Slice, u64)>,
    ready: VecDeque<(Slice, u64)>,
    /// Streams that lost a buffer and have not reported it yet.
    losing: BTreeSet<usize>,
    made: u64,
    counters: Counters,
}

/// The next step of a session.
#[derive(Debug)]
pub enum Next {
    /// A buffer is delivered; with the number of its events.
    Slice(Slice, u64),
    /// The next buffer is due at this time since the start.
    Wait(Duration),
    /// No more buffers follow.
    End,
}

impl Feed {
    /// A session that starts now.
    pub fn new(replay: Replay, limits: Limits) -> Feed {
        let mut feed = Feed {
            replay,
            limits,
            coming: None,
            ready: VecDeque::new(),
            losing: BTreeSet::new(),
            made: 0,
            counters: Counters::default(),
        };
        feed.fetch();
        feed
    }

    /// The counters so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Reads the next buffer of the trace, up to the event after which the session is stopped.
    fn fetch(&mut self) {
        let left = match self.limits.stop_after {
            0 => u64::MAX,
            stop_after => stop_after.saturating_sub(self.counters.generated),
        };
        self.coming = None;
        if left == 0 {
            return;
        }
        let Some(mut slice) = self.replay.next() else { return };
        let mut events = slice.events(self.limits.raw);
        while events > left {
            slice.entries.end -= 1;
            events = slice.events(self.limits.raw);
        }
        self.coming = Some((slice, events));
    }

    /// Time at which the next buffer is complete.
    fn due(&self) -> Option<Duration> {
        let (_, events) = self.coming.as_ref()?;
        let nanoseconds = match self.limits.rate {
            0 => 0,
            rate => u128::from(self.counters.generated + events) * 1_000_000_000 / u128::from(rate),
        };
        Some(Duration::from_nanos(nanoseconds as u64))
    }

    /// Generates the next buffer, or loses it.
    fn generate(&mut self) {
        let Some((mut slice, events)) = self.coming.take() else { return };
        self.counters.generated += events;
        self.made += 1;
        let full = self.limits.rate != 0 && self.ready.len() >= self.limits.buffers;
        let chosen = self.limits.lose_every != 0 && self.made.is_multiple_of(self.limits.lose_every);
        if full || chosen {
            self.counters.buffers_lost += 1;
            self.counters.events_lost += events;
            self.losing.insert(slice.stream);
        } else {
            slice.after_loss |= self.losing.remove(&slice.stream);
            self.ready.push_back((slice, events));
        }
        self.fetch();
    }

    /// The next step at the time `now` since the start of the session. A stopped session generates
    /// no more events, but delivers pending buffers.
    pub fn next(&mut self, now: Duration, stopped: bool) -> Next {
        while !stopped && self.due().is_some_and(|due| due <= now) {
            // Without a rate, events are generated on demand.
            if self.limits.rate == 0 && !self.ready.is_empty() {
                break;
            }
            self.generate();
        }
        if let Some((slice, events)) = self.ready.pop_front() {
            self.counters.buffers += 1;
            self.counters.delivered += events;
            self.counters.notices += u64::from(slice.after_loss);
            return Next::Slice(slice, events);
        }
        match self.due() {
            Some(due) if !stopped => Next::Wait(due),
            _ => Next::End,
        }
    }
}
