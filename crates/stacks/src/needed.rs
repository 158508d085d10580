//! The stack records that the stacks of some events need.
//!
//! Of a trace from which only some events are kept, [`NeededStacks`] finds the stack records without
//! which these events would have other stacks, or the same stacks with other states:
//!
//! - the parts that name the time of a kept event, and the user parts for which its thread waits;
//! - the first definition of each key after a reference to it;
//! - the evidence of the threads' roots, from which it follows that a walk was truncated (see
//!   [`roots`](crate::roots)): all user walks of the threads of kept events, and of each other thread
//!   one walk for each address at which these end. Of a thread whose walks end at two of them
//!   alternately, all walks are evidence.
//!
//! A part that arrives after its event has left the window is not needed, because it is not joined.
//! As evidence it can be kept nevertheless, and it is then joined if the events in between, which
//! filled the window, are not kept. The stack is then more complete than in the whole trace.
//!
//! Events that have exactly the time of a kept event must be kept too: a part names its event by its
//! time, and could be of any of them.

use std::collections::VecDeque;

use hashbrown::HashSet;
use stackhound_etl::record::ExtendedItem;
use stackhound_schema::provider_guid;
use stackhound_trace::{Event, LossMap, OpenTrace, TraceTime};
use stackhound_types::{Address, Pid, RawTime, Tid};

use crate::correlator::{USER_PART_EVENT, Window, part_mode_of};
use crate::keys::{Key, Map};
use crate::part::{EventKey, StackRecord, is_stack_hook_id};
use crate::partial::PartMode;
use crate::roots::{Thread, ThreadRoots};
use crate::survey::{StackSurvey, ends_in_user_mode};

/// Maximum number of references to a key that wait for its definition as evidence.
const WAITING_MAX: usize = 64;

type Set<T> = HashSet<T, foldhash::fast::RandomState>;

/// Whether an event is consumed as a part of stacks, and is not delivered itself.
pub fn is_stack_record(event: &Event<'_>) -> bool {
    match event.hook_id() {
        Some(hook_id) => is_stack_hook_id(hook_id),
        None => {
            event.has_extended_items()
                && event.entry().tag == USER_PART_EVENT
                && event.guid() == Some(provider_guid::KERNEL_EVENT_TRACING)
        }
    }
}

/// A kept event in the window.
#[derive(Clone, Copy, Debug)]
struct KeptEvent {
    time: TraceTime,
    /// How many events had been delivered to the window.
    number: u64,
    raw: (u32, RawTime),
}

/// Finds the stack records that kept events need, in the order of the trace.
///
/// Pass the events of one time together: first the kept ones to [`keep`](NeededStacks::keep), then the
/// stack records to [`record`](NeededStacks::record). Memory is bounded by the window and the number of
/// threads and keys.
#[derive(Debug)]
pub struct NeededStacks {
    window: Window,
    roots: ThreadRoots,
    /// Threads whose user walks are all evidence.
    threads: Set<Thread>,
    /// The addresses at which walks of the threads of kept events end.
    ends: Set<Address>,
    /// The evidence of other threads that was found.
    found: Set<(Thread, Address)>,
    kept: VecDeque<KeptEvent>,
    /// The raw times of the events in `kept`, by session, and how many have the same.
    times: Map<(u32, RawTime), u32>,
    /// Threads and matches whose user part a kept event awaits, with its time and number.
    by_thread: Map<(u32, Tid), (TraceTime, u64)>,
    by_match: Map<(u32, u64), (TraceTime, u64)>,
    /// Keys with a needed reference since their last definition.
    keys: Set<Key>,
    /// References that become evidence if their key is defined with a needed end.
    perhaps: Map<Key, Vec<(Thread, u64)>>,
    /// The number of events that were delivered to the window.
    delivered: u64,
    /// The time of the events before the current ones.
    newest: TraceTime,
    /// The sessions of which a reference to a key is needed.
    keyed: Set<u32>,
}

impl NeededStacks {
    /// Reads the stack records of a trace once to find the evidence. `threads` are the ids of the
    /// processes and threads whose stacks are kept.
    pub fn of(
        trace: &OpenTrace,
        losses: &LossMap,
        window: Window,
        threads: &std::collections::HashSet<(Pid, Tid)>,
    ) -> NeededStacks {
        let roots = match threads.is_empty() {
            true => ThreadRoots::default(),
            false => StackSurvey::of(trace).0.finish(losses).1,
        };
        let is_kept = |thread: &Thread| threads.contains(&(Pid(thread.pid), Tid(thread.tid)));
        let (own, others): (Vec<_>, Vec<_>) = roots.ends().partition(|(thread, _)| is_kept(thread));
        let ends: Set<Address> = own.iter().flat_map(|(_, ends)| ends.iter().copied()).collect();
        let alternate =
            |ends_of: &[Address]| ends_of.iter().filter(|end| ends.contains(*end)).nth(1).is_some();
        let others = others.into_iter().filter(|(_, ends)| alternate(ends));
        NeededStacks {
            threads: own.iter().map(|&(thread, _)| thread).chain(others.map(|(thread, _)| thread)).collect(),
            ends,
            roots,
            window,
            found: Set::default(),
            kept: VecDeque::new(),
            times: Map::default(),
            by_thread: Map::default(),
            by_match: Map::default(),
            keys: Set::default(),
            perhaps: Map::default(),
            delivered: 0,
            newest: TraceTime(i64::MIN),
            keyed: Set::default(),
        }
    }

    /// Advances to the events of the next time, `events` of which are not stack records.
    pub fn advance(&mut self, time: TraceTime, events: u64) {
        while self.kept.front().is_some_and(|first| !self.is_held(first.time, first.number)) {
            let Some(KeptEvent { raw, .. }) = self.kept.pop_front() else { break };
            if let Some(count) = self.times.get_mut(&raw) {
                *count -= 1;
                if *count == 0 {
                    self.times.remove(&raw);
                }
            }
        }
        if self.by_thread.len() + self.by_match.len() > 2 * self.kept.len() + WAITING_MAX {
            let (newest, delivered, window) = (self.newest, self.delivered, self.window);
            let is_held = |time, number| is_held(window, (newest, delivered), (time, number));
            self.by_thread.retain(|_, (time, number)| is_held(*time, *number));
            self.by_match.retain(|_, (time, number)| is_held(*time, *number));
        }
        self.delivered += events;
        self.newest = self.newest.max(time);
    }

    fn is_held(&self, time: TraceTime, number: u64) -> bool {
        is_held(self.window, (self.newest, self.delivered), (time, number))
    }

    /// Adds a kept event of the current time.
    pub fn keep(&mut self, event: &Event<'_>) {
        let (time, session) = (event.time(), event.session_number());
        let raw = (session, event.raw_time());
        self.kept.push_back(KeptEvent { time, number: self.delivered, raw });
        *self.times.entry(raw).or_default() += 1;
        if !event.has_extended_items() {
            return;
        }
        for item in event.record().extended_items() {
            let Some(match_id) = self.extended(event, &item) else { continue };
            if match_id != 0 {
                self.by_match.insert((session, match_id), (time, self.delivered));
            }
            if let Some(tid) = event.header_tid() {
                self.by_thread.insert((session, tid), (time, self.delivered));
            }
        }
    }

    /// Notes the key of an extended item. Returns the match id if the item is of a stack.
    fn extended(&mut self, event: &Event<'_>, item: &ExtendedItem<'_>) -> Option<u64> {
        item.stack_pointer_size()?;
        if let Some((match_id, _)) = item.stack() {
            return Some(match_id);
        }
        let (match_id, number) = item.stack_key()?;
        // Only the definition determines the kind of a key.
        for kernel in [false, true] {
            self.want(Key { session: event.session_number(), kernel, number });
        }
        Some(match_id)
    }

    fn want(&mut self, key: Key) {
        self.keys.insert(key);
        self.keyed.insert(key.session);
    }

    /// Processes a stack record of the current time, whose number is `number`. Passes the numbers of
    /// needed records to `need`: this one, or earlier ones of which only this one shows that they are.
    pub fn record(&mut self, event: &Event<'_>, number: u64, mut need: impl FnMut(u64)) {
        let Some(hook_id) = event.hook_id() else {
            if self.is_needed_user_part(event) {
                need(number);
            }
            return;
        };
        let (session, pointer) = (event.session_number(), event.block().session().pointer_size);
        match StackRecord::parse(event, hook_id) {
            StackRecord::Part(trigger, frames) => {
                let Some(mode) = part_mode_of(&frames, pointer) else { return };
                let is_part = self.is_part(session, trigger, mode);
                let end = frames.last().filter(|_| ends_in_user_mode(&frames, pointer));
                let is_evidence = end.is_some_and(|end| {
                    let thread = self.roots.thread(trigger.pid, trigger.tid, trigger.time);
                    self.threads.contains(&thread) || self.is_first(thread, end)
                });
                if is_part || is_evidence {
                    need(number);
                }
            }
            StackRecord::Reference(trigger, key, kernel) => {
                let mode = if kernel { PartMode::Kernel } else { PartMode::User };
                let is_part = self.is_part(session, trigger, mode);
                let thread = self.roots.thread(trigger.pid, trigger.tid, trigger.time);
                if is_part || self.threads.contains(&thread) {
                    self.want(Key { session, kernel, number: key });
                    need(number);
                } else if !self.ends.is_empty() {
                    // The survey of roots has no other kind.
                    let uses = self.perhaps.entry(Key { session, kernel: false, number: key }).or_default();
                    let is_known = uses.iter().any(|(by, _)| *by == thread);
                    if !is_known && uses.len() < WAITING_MAX {
                        uses.push((thread, number));
                    }
                }
            }
            StackRecord::Definition(key, frames) => {
                let key = Key::defined(session, key, &frames, pointer);
                if self.keys.remove(&key) {
                    need(number);
                }
                let Some(uses) = self.perhaps.remove(&key) else { return };
                let Some(end) = frames.last().filter(|_| ends_in_user_mode(&frames, pointer)) else { return };
                for (thread, reference) in uses {
                    if self.is_first(thread, end) {
                        self.keyed.insert(session);
                        need(reference);
                        need(number);
                    }
                }
            }
            StackRecord::Malformed => {}
        }
    }

    /// Whether a part is joined to a kept event.
    fn is_part(&mut self, session: u32, trigger: EventKey, mode: PartMode) -> bool {
        let is_named = self.times.contains_key(&(session, trigger.time));
        let thread = (session, Tid(trigger.tid));
        match mode {
            PartMode::Kernel if is_named && !Pid(trigger.pid).is_kernel_only() => {
                self.by_thread.insert(thread, (self.newest, self.delivered));
                true
            }
            PartMode::User => {
                let awaiting = self.by_thread.remove(&thread);
                is_named || awaiting.is_some_and(|(time, number)| self.is_held(time, number))
            }
            _ => is_named,
        }
    }

    /// Whether a walk of another thread is the first one that ends at a needed address.
    fn is_first(&mut self, thread: Thread, end: Address) -> bool {
        self.ends.contains(&end) && self.found.insert((thread, end))
    }

    fn is_needed_user_part(&mut self, event: &Event<'_>) -> bool {
        let session = event.session_number();
        let mut is_needed = false;
        for item in event.record().extended_items() {
            let match_id = match (item.stack(), item.stack_key()) {
                (Some((match_id, _)), _) | (None, Some((match_id, _))) => match_id,
                (None, None) => continue,
            };
            let by_match = self.by_match.remove(&(session, match_id));
            let by_thread = event.header_tid().and_then(|tid| self.by_thread.remove(&(session, tid)));
            let mut awaiting = by_match.into_iter().chain(by_thread);
            is_needed |= awaiting.any(|(time, number)| self.is_held(time, number));
        }
        if is_needed {
            for item in event.record().extended_items() {
                self.extended(event, &item);
            }
        }
        is_needed
    }

    /// Whether keys of several sessions are needed. They have a meaning only within their session.
    pub fn has_keys_of_several_sessions(&self) -> bool {
        self.keyed.len() > 1
    }
}

/// Whether an event is still in the window: `now` is the newest time and the number of all events.
fn is_held(window: Window, now: (TraceTime, u64), (time, number): (TraceTime, u64)) -> bool {
    now.0.0.saturating_sub(time.0) <= window.max_hold
        && now.1.saturating_sub(number) <= window.max_pending as u64
}
