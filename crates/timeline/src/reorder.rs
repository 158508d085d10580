//! Inserts the starts of interruptions in time order.
//!
//! An interrupt routine is logged when it ends, with its start time. All events on its processor in
//! between belong to it, so stack events are held for a while before they are processed.
//!
//! The start is not a transition of its own: transition `n` remains event `n`. A routine that
//! started between two events is active from the context of the second one. That is the first
//! event, on any processor, that is not earlier than the start and comes after all events that the
//! routine's own processor logged up to that time.

use std::collections::VecDeque;

use stackhound_calltree::{ContextId, LocationId};
use stackhound_types::Tid;

use crate::stack_event::{EventKind, Interruption, StackEvent};

/// Maximum number of held stack events.
const HELD_MAX: usize = 1 << 15;

/// Maximum number of events with exactly the time of a start that are examined.
const AT_ONCE_MAX: usize = 64;

/// Maximum number of remembered interruptions of a processor. One that would begin inside an older
/// one has a wrong time.
const ENDED_MAX: usize = 64;

/// An item in processing order.
#[derive(Debug)]
pub(crate) enum Item {
    Event(StackEvent),
    /// From here on, a processor's events are missing.
    Lost(u16),
    /// From here on, a processor's events are complete again.
    Regained(u16),
    /// From here on, another thread has the id.
    Replaced(Tid),
    /// From here on, switches are not recorded; the context before the last recorded event of their session.
    SwitchesEnd(ContextId),
    /// From here on, they are recorded again.
    SwitchesGoOn,
}

#[derive(Debug)]
struct Held {
    /// The number of the event; for other items, that of the next event.
    id: u64,
    /// The latest time so far; never decreases.
    time: i64,
    item: Item,
}

impl Held {
    fn is_of(&self, cpu: u16) -> bool {
        matches!(&self.item, Item::Event(stack_event) if stack_event.cpu.is_some_and(|own| own.0 == cpu))
    }
}

/// The start of an interruption.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    /// The first context at which it was certainly active.
    pub hi: u64,
    /// It was not active before this context.
    pub lo: u64,
    pub cpu: u16,
    pub by: Interruption,
    pub routine: Option<LocationId>,
    /// The event that ends it.
    pub end: u64,
    /// Whether it was already active when the trace began.
    pub is_older: bool,
}

/// The next item.
#[derive(Debug)]
pub(crate) enum Next {
    Start(Start),
    Item(u64, Item),
}

#[derive(Clone, Debug, Default)]
struct Processor {
    /// The context after the latest thread event, and its time.
    thread: Option<(u64, i64)>,
    /// Sequential interruptions that are not inside another one so far.
    ended: Vec<Ended>,
    /// The context from which its events are complete again.
    regained: u64,
}

/// An interruption that has ended.
#[derive(Clone, Copy, Debug)]
struct Ended {
    first: u64,
    /// The context after it.
    after: u64,
    time: i64,
}

/// A buffer of held stack events.
#[derive(Debug)]
pub(crate) struct ReorderBuffer {
    queue: VecDeque<Held>,
    /// In the order of contexts; at equal contexts, outer ones first.
    starts: VecDeque<Start>,
    processors: Vec<Processor>,
    /// The hold time in ticks.
    ticks: i64,
    next: u64,
    newest: i64,
    /// The time of the latest removed item.
    left: Option<i64>,
    ends: bool,
    /// Starts whose context is not exact.
    pub clipped: u64,
}

impl ReorderBuffer {
    pub fn new(ticks: i64) -> ReorderBuffer {
        ReorderBuffer {
            queue: VecDeque::new(),
            starts: VecDeque::new(),
            processors: Vec::new(),
            ticks,
            next: 0,
            newest: i64::MIN,
            left: None,
            ends: false,
            clipped: 0,
        }
    }

    /// Events so far.
    pub fn count(&self) -> u64 {
        self.next
    }

    pub fn push(&mut self, stack_event: StackEvent) {
        let (id, time) = (self.next, stack_event.time);
        self.next += 1;
        self.newest = self.newest.max(time);
        if let Some(cpu) = stack_event.cpu {
            match stack_event.what {
                EventKind::Interrupted { by, since, routine } => {
                    self.start(id, cpu.0, by, (since, time), routine);
                }
                EventKind::Switch { .. } | EventKind::SystemCallEnter { .. } | EventKind::SystemCallExit => {
                    self.processor(cpu.0).thread = Some((id + 1, time));
                }
                _ => {}
            }
        }
        self.queue.push_back(Held { id, time: self.newest, item: Item::Event(stack_event) });
    }

    pub fn mark(&mut self, item: Item) {
        if let Item::Regained(cpu) = item {
            self.processor(cpu).regained = self.next;
        }
        self.queue.push_back(Held { id: self.next, time: self.newest, item });
    }

    fn processor(&mut self, cpu: u16) -> &mut Processor {
        let index = usize::from(cpu);
        if self.processors.len() <= index {
            self.processors.resize(index + 1, Processor::default());
        }
        &mut self.processors[index]
    }

    /// Inserts the start of an interruption.
    fn start(
        &mut self,
        end: u64,
        cpu: u16,
        by: Interruption,
        (since, time): (i64, i64),
        routine: Option<LocationId>,
    ) {
        let is_before = self.left.is_some_and(|left| since <= left);
        let location = self.queue.partition_point(|held| held.time < since);
        let stated = self.queue.get(location).map_or(end, |held| held.id);
        // Events that its processor logged at exactly the start time came before it.
        let at_once =
            self.queue.iter().skip(location).take_while(|held| held.time == since).take(AT_ONCE_MAX);
        let own = at_once.filter(|held| held.is_of(cpu)).map(|held| held.id + 1);
        let exact = own.fold(stated, u64::max);
        let Processor { thread, ended, regained } = self.processor(cpu);
        let logged = ended.iter().map(|ended| (ended.after, ended.time)).chain(*thread);
        let exact = logged.filter(|&(_, at)| at <= since).map(|(after, _)| after).fold(exact, u64::max);
        // A thread logs nothing during an interruption, and two interruptions are nested or
        // sequential. Otherwise the stated time cannot be correct.
        let hi = exact.max(*regained).max(thread.map_or(0, |(after, _)| after));
        let before = ended.iter().rposition(|ended| ended.first < hi);
        let hi = before.map_or(hi, |before| hi.max(ended[before].after)).min(end);
        ended.truncate(before.map_or(0, |before| before + 1));
        if ended.len() == ENDED_MAX {
            ended.remove(0);
        }
        ended.push(Ended { first: hi, after: end + 1, time });
        let is_clipped = is_before || hi > exact;
        self.clipped += u64::from(is_clipped);
        let lo = if is_before { 0 } else { exact.min(hi) };
        let is_older = hi == 0 && !is_clipped;
        // Among several at one context, the one that ends last is the outermost.
        let at = self.starts.partition_point(|other| other.hi < hi);
        self.starts.insert(at, Start { hi, lo, cpu, by, routine, end, is_older });
    }

    /// No more events follow.
    pub fn end(&mut self) {
        self.ends = true;
    }

    /// The next item that has been held long enough.
    pub fn pop(&mut self) -> Option<Next> {
        let front = self.queue.front()?;
        let is_due =
            self.ends || self.queue.len() > HELD_MAX || self.newest.saturating_sub(front.time) > self.ticks;
        if !is_due {
            return None;
        }
        let is_event = matches!(front.item, Item::Event(_));
        if is_event && self.starts.front().is_some_and(|start| start.hi <= front.id) {
            return self.starts.pop_front().map(Next::Start);
        }
        let held = self.queue.pop_front()?;
        self.left = Some(held.time);
        Some(Next::Item(held.id, held.item))
    }
}
