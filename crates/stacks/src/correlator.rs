//! Joins events to their stacks.
//!
//! Events are pushed in time order and popped in the same order, with a delay: each is held until
//! the stack parts that name its time can have arrived. The window is bounded in trace time and in
//! number of events, so that the same code serves live sessions. An event that leaves the window is
//! delivered with the parts that have arrived, and incomplete stacks are counted. In a live
//! session, all memory is bounded: by the limits below, and by new generations of the stack table.
//!
//! How parts find their event is described in `docs/format/stacks.md`.

use std::collections::VecDeque;
use std::collections::hash_map::RandomState;

use hashbrown::{HashMap, HashSet};
use prefetch_index::prefetch_index;
use stackhound_etl::record::ExtendedItem;
use stackhound_etl::{Entry, Selection};
use stackhound_schema::event_id::kernel_event_tracing;
use stackhound_schema::kernel::hook_id;
use stackhound_schema::provider_guid;
use stackhound_trace::{Event, LossMap, TimeBase, TraceTime};
use stackhound_types::{Pid, PointerSize, RawTime, Tid};

use crate::block_pool::{BlockPool, BlockRef};
use crate::delivered::Delivered;
use crate::keys::{Key, KeyDefinitions, Map};
use crate::part::{EventKey, Frames, StackRecord, is_stack_hook_id};
use crate::partial::{Fragment, Joined, PartMode, Partial, StatedIds};
use crate::roots::{ThreadRoots, has_callers, started_thread};
use crate::state::{StackState, StackStates, StackStats};
use crate::survey::StackSurvey;
use crate::table::{StackId, StackTable};
use crate::trigger::{TriggerKind, can_trigger, sampled_address, thread_of};

/// The limits up to which events are held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// Maximum time, in ticks of the trace's clock. User parts have been observed up to 0.4 s after
    /// their event.
    pub max_hold: i64,
    /// Maximum number of held events.
    pub max_pending: usize,
}

impl Window {
    /// Two seconds of a clock, and 131,072 events.
    pub fn of(clock: &stackhound_etl::Clock) -> Window {
        let max_hold = clock.span_to_raw(2 * stackhound_types::TICKS_PER_SECOND).max(1);
        Window { max_hold, max_pending: 1 << 17 }
    }

    /// No window: events are delivered at once, with only the stacks that they contain.
    pub fn none() -> Window {
        Window { max_hold: 0, max_pending: 0 }
    }
}

/// An event in the window.
#[derive(Clone, Copy, Debug)]
struct Held {
    time: TraceTime,
    entry: Entry,
    slot: BlockRef,
    index: u32,
    /// Index into `partials`, or `NOTHING`.
    partial: u32,
}

impl Held {
    #[inline]
    fn event<'s>(&self, block_pool: &'s BlockPool) -> Event<'s> {
        Event::again(block_pool.block(self.slot), self.entry, self.index, self.time)
    }
}

const NOTHING: u32 = u32::MAX;

/// The number of events before its delivery at which the cache lines of an event are requested.
const DELIVERED_SOON: usize = 16;

/// Kernel parts follow their event on its processor: within 0.2 ms in all traces of the corpus.
/// This fraction of the default window, 10 ms, is more than that.
const KERNEL_REACH: i64 = 200;

/// Maximum number of events that are searched linearly for a part's event if times are out of
/// order.
const DISORDERED_SEARCH_MAX: usize = 1 << 14;

/// Empty lists of waiting events that are kept for their memory.
const IDLE_LISTS_MAX: usize = 1 << 12;

/// Maximum number of distinct groups of orphaned parts that are counted.
const ORPHAN_GROUPS_MAX: usize = 1 << 16;

/// Maximum number of distinct keys of orphaned parts that await their definition; keys beyond that
/// count as unresolved.
const ORPHAN_KEYS_MAX: usize = 1 << 16;

pub(crate) const USER_PART_EVENT: u16 = kernel_event_tracing::STACK_TRACE_USER_MODE_STACK_TRACE;

/// Numbers of events that wait for the same part or key, mostly oldest first.
type Waiting = VecDeque<u64>;

/// Takes events and stack records in time order and delivers events with their stacks.
#[derive(Debug)]
pub struct Correlator {
    window: Window,
    bases: Vec<TimeBase>,
    /// All definitions, if the trace was surveyed.
    definitions: Option<KeyDefinitions>,
    /// Of the whole trace if it was surveyed, else of the events that were delivered so far.
    roots: ThreadRoots,
    table: StackTable,
    joined: Joined,
    queue: VecDeque<Held>,
    /// The number of the queue's first event; numbers go up by one an event.
    first: u64,
    block_pool: BlockPool,
    partials: Vec<Partial>,
    free: Vec<u32>,
    waiting_for_user: Map<(u32, Tid), Waiting>,
    /// The list that is being completed; kept for its memory.
    completed: Waiting,
    waiting_for_key: Map<Key, Waiting>,
    waiting_for_match: Map<(u32, u64), Waiting>,
    /// Definitions that have exactly the current time.
    just_defined: Vec<(Key, StackId)>,
    newest: TraceTime,
    /// Up to which event number the queue may be out of order.
    disorder_until: u64,
    losses: LossMap,
    orphan_groups: HashSet<(u32, RawTime, u32), RandomState>,
    /// The number of orphaned parts that await the definition of a key.
    orphans_awaiting: HashMap<Key, u64, RandomState>,
    handed_out: Option<BlockRef>,
    ended: bool,
    /// Of live sessions: frames of one generation of stacks.
    frames_max: Option<usize>,
    /// Frames in the table's newest generation at which the next one begins.
    next_generation: usize,
    stats: StackStats,
}

/// Live sessions: maximum number of remembered definitions with the current time.
const JUST_DEFINED_MAX: usize = 1 << 12;

/// Live sessions: maximum number of parts of an event. Windows writes two, and a few more with
/// user-mode callbacks.
const PARTS_MAX: usize = 1 << 8;

/// Live sessions: maximum number of kinds of triggering events that are counted separately.
const TRIGGER_KINDS_MAX: usize = 1 << 16;

/// Limits for sessions that run for days: the memory of a live correlator is bounded.
impl Correlator {
    /// Default number of frames of one generation of stacks: about 60 MB, and 32 MB more while the
    /// previous generation is held.
    pub const FRAMES_MAX: usize = 2 << 20;

    /// Reads a session that may run for days, as [`one_pass`](Correlator::one_pass) does but with
    /// bounded memory.
    ///
    /// After `frames_max` new frames, the stack table begins a new generation: the stacks of held
    /// events are copied into it, and the old generation is dropped as soon as no
    /// [`Kept`](crate::Kept) event refers to it. Equal stacks therefore have equal numbers only
    /// within a generation; a number is never reused for another stack.
    /// [`FRAMES_MAX`](Correlator::FRAMES_MAX) is the recommended value. The limit does not change
    /// the stack of any event.
    pub fn live(window: Window, bases: Vec<TimeBase>, frames_max: usize) -> Correlator {
        let table = StackTable::default();
        let frames_max = frames_max.max(1);
        Correlator {
            frames_max: Some(frames_max),
            next_generation: frames_max,
            ..Correlator::new(window, bases, LossMap::live(), None, table)
        }
    }

    /// Begins a new generation of the table, with only the stacks of held events.
    #[cold]
    fn begin_generation(&mut self) {
        let Some(frames_max) = self.frames_max else { return };
        self.stats.generations += 1;
        self.table.begin_generation();
        self.joined.clear();
        let Correlator { table, partials, just_defined, .. } = self;
        let mut renewed: Map<StackId, Option<StackId>> = Map::default();
        let mut renew = |stack| *renewed.entry(stack).or_insert_with(|| table.renew(stack));
        for held in self.queue.iter().filter(|held| held.partial != NOTHING) {
            partials[held.partial as usize].renumber(&mut renew);
        }
        just_defined.retain_mut(|(_, stack)| renew(*stack).map(|new| *stack = new).is_some());
        // Copied frames do not count, otherwise the next generation could begin soon after this
        // one.
        self.next_generation = self.table.generation_len().saturating_add(frames_max);
    }
}

impl Correlator {
    /// Reads a trace in one pass: key definitions are used as they arrive.
    pub fn one_pass(window: Window, bases: Vec<TimeBase>, losses: LossMap) -> Correlator {
        Correlator::new(window, bases, losses, None, StackTable::default())
    }

    /// Reads a trace that was surveyed before.
    pub fn two_pass(
        window: Window,
        bases: Vec<TimeBase>,
        losses: LossMap,
        survey: StackSurvey,
    ) -> Correlator {
        let (mut definitions, roots) = survey.finish(&losses);
        definitions.seal();
        let table = std::mem::take(&mut definitions.table);
        Correlator { roots, ..Correlator::new(window, bases, losses, Some(definitions), table) }
    }

    fn new(
        window: Window,
        bases: Vec<TimeBase>,
        losses: LossMap,
        definitions: Option<KeyDefinitions>,
        table: StackTable,
    ) -> Correlator {
        Correlator {
            losses,
            window,
            bases,
            definitions,
            roots: ThreadRoots::default(),
            table,
            joined: Joined::default(),
            queue: VecDeque::new(),
            first: 0,
            block_pool: BlockPool::new(),
            partials: Vec::new(),
            free: Vec::new(),
            waiting_for_user: Map::default(),
            completed: Waiting::new(),
            waiting_for_key: Map::default(),
            waiting_for_match: Map::default(),
            just_defined: Vec::new(),
            newest: TraceTime(i64::MIN),
            disorder_until: 0,
            orphan_groups: HashSet::default(),
            orphans_awaiting: HashMap::default(),
            handed_out: None,
            ended: false,
            frames_max: None,
            next_generation: usize::MAX,
            stats: StackStats::default(),
        }
    }

    /// The table of all stacks so far, except those that a live session has dropped.
    pub fn table(&self) -> &StackTable {
        &self.table
    }

    /// The losses, as far as they are known.
    pub fn losses(&self) -> &LossMap {
        &self.losses
    }

    /// The counters so far.
    pub fn stats(&self) -> &StackStats {
        &self.stats
    }

    /// Adds the events for which [`push_plain`](Correlator::push_plain) is not enough, besides the
    /// first of each block and those with extended items.
    pub fn select(selection: Selection) -> Selection {
        let hook_ids = (0..=u16::MAX).filter(|&hook_id| is_stack_hook_id(hook_id));
        selection.hook_ids(hook_ids).hook_ids([hook_id::THREAD_START])
    }

    /// Adds the next event. Stack records are consumed; every other event is returned by
    /// [`pop`](Correlator::pop).
    pub fn push(&mut self, event: &Event<'_>) {
        self.arrive(event.time());
        if event.index() == 0
            && let Some(base) = self.bases.get(event.session_number() as usize)
        {
            let oldest = self.oldest().unwrap_or(event.time());
            self.losses.enter_block(event, base, oldest.0);
        }
        if self.table.generation_len() >= self.next_generation {
            self.begin_generation();
        }
        if self.table.has_older() {
            self.table.forget_unheld();
        }
        match event.hook_id() {
            Some(hook_id) if is_stack_hook_id(hook_id) => return self.take_stack_record(event, hook_id),
            Some(hook_id::THREAD_START) => self.observe_start(event),
            _ => {}
        }
        let mut partial = NOTHING;
        if event.has_extended_items() {
            if event.entry().tag == USER_PART_EVENT
                && event.guid() == Some(provider_guid::KERNEL_EVENT_TRACING)
            {
                return self.take_user_part(event);
            }
            partial = self.take_extended(event);
        }
        self.hold(event, partial);
    }

    /// Adds the next event, as [`push`](Correlator::push) does, if it is one of the many that say
    /// nothing about stacks.
    #[inline(always)] // As `pop`.
    pub fn push_plain(&mut self, event: &Event<'_>) {
        debug_assert!(
            event.index() != 0
                && !event.has_extended_items()
                && event.hook_id().is_none_or(|id| id != hook_id::THREAD_START && !is_stack_hook_id(id))
        );
        self.arrive(event.time());
        self.hold(event, NOTHING);
    }

    #[inline]
    fn arrive(&mut self, time: TraceTime) {
        if time > self.newest {
            self.newest = time;
            self.just_defined.clear();
        } else if time < self.newest {
            self.disorder_until = self.first + self.queue.len() as u64 + 1;
        }
    }

    #[inline]
    fn hold(&mut self, event: &Event<'_>, partial: u32) {
        let slot = self.block_pool.take(event.block());
        let (time, entry, index) = (event.time(), event.entry(), event.index());
        self.queue.push_back(Held { time, entry, slot, index, partial });
    }

    /// A thread starts. Events that wait for the user part of an earlier thread with the same id get
    /// none any more.
    #[cold]
    fn observe_start(&mut self, event: &Event<'_>) {
        if self.definitions.is_none() {
            self.roots.observe_start(event);
        }
        if let Some((_, tid)) = started_thread(event)
            && let Some(waiting) = self.waiting_for_user.get_mut(&(event.session_number(), tid))
        {
            waiting.clear();
        }
    }

    /// The time of the oldest held event.
    pub fn oldest(&self) -> Option<TraceTime> {
        self.queue.front().map(|held| held.time)
    }

    /// Declares that no event before this time will follow, so that events that have been held long
    /// enough can be delivered. For idle live sessions.
    pub fn advance(&mut self, time: TraceTime) {
        if time > self.newest {
            self.newest = time;
            self.just_defined.clear();
        }
    }

    /// Declares the end of the trace: all held events can be delivered.
    pub fn end(&mut self) {
        self.ended = true;
        self.stats.unresolved_keys += self.orphans_awaiting.drain().map(|(_, parts)| parts).sum::<u64>();
    }

    /// The next completed event, if there is one.
    #[inline(always)] // A call costs a tenth of the loop over events.
    pub fn pop(&mut self) -> Option<Delivered<'_>> {
        if let Some(slot) = self.handed_out.take() {
            self.block_pool.give_back(slot);
        }
        let held = *self.queue.front()?;
        let held_long = self.newest.0.saturating_sub(held.time.0) > self.window.max_hold;
        if !self.ended && !held_long && self.queue.len() <= self.window.max_pending {
            return None;
        }
        self.queue.pop_front();
        self.first += 1;
        self.request_ahead();
        self.handed_out = Some(held.slot);
        if held.partial == NOTHING {
            let states = self.without_parts(&held);
            return Some(self.delivered(&held, None, states, None));
        }
        let (stack, states, stated) = self.settle(&held);
        Some(self.delivered(&held, stack, states, stated))
    }

    /// Requests the cache lines of the parts of an event that is delivered soon: they were written
    /// up to two seconds ago.
    #[inline]
    fn request_ahead(&self) {
        if let Some(held) = self.queue.get(DELIVERED_SOON)
            && held.partial != NOTHING
        {
            prefetch_index(&self.partials, held.partial as usize);
            prefetch_index(self.block_pool.block(held.slot).bytes(), held.entry.offset());
        }
    }

    /// Makes the event where it is returned: copies of what was just written in other sizes stall
    /// the processor.
    #[inline]
    fn delivered(
        &mut self,
        held: &Held,
        stack: Option<StackId>,
        states: StackStates,
        stated: Option<StatedIds>,
    ) -> Delivered<'_> {
        self.stats.by_state[states.first() as usize] += 1;
        let event = held.event(&self.block_pool);
        Delivered { event, stack, states, stated, table: &self.table, losses: Some(&self.losses) }
    }

    /// The state of an event for which no part arrived.
    #[inline]
    fn without_parts(&self, held: &Held) -> StackStates {
        let is_lost = !self.losses.is_lossless() && self.can_have_lost_all(held);
        StackStates::of(if is_lost { StackState::Lost } else { StackState::None })
    }

    /// Whether all parts of an event's stack could have been in lost buffers.
    #[cold]
    fn can_have_lost_all(&self, held: &Held) -> bool {
        let event = held.event(&self.block_pool);
        // Stacks in extended data are not lost without their event.
        if event.kind().has_descriptor() || !can_trigger(&event) {
            return false;
        }
        // Parts are logged after their event.
        let time = held.time.0.saturating_add(1);
        let kernel_part = || {
            let until = time.saturating_add(self.window.max_hold / KERNEL_REACH);
            self.losses.on_processor(event.source(), event.processor(), time, until)
        };
        // An event in user mode has only a user part.
        let user_part = || {
            let until = time.saturating_add(self.window.max_hold);
            is_in_user_mode(&event) && self.losses.between(event.source(), time, until)
        };
        // The session may have recorded no stacks of such events.
        (kernel_part() || user_part()) && self.stats.has_records()
    }

    /// Joins the parts of an event that leaves the window.
    #[cold]
    fn settle(&mut self, held: &Held) -> (Option<StackId>, StackStates, Option<StatedIds>) {
        let Correlator { partials, block_pool, stats, losses, table, joined, roots, first, .. } = self;
        let partial = &mut partials[held.partial as usize];
        let event = held.event(block_pool);
        let is_unresolved = partial.is_unresolved();
        let pid = event.header_pid().or_else(|| Pid::known(partial.ids?.pid));
        let no_user_mode = pid.is_some_and(Pid::is_kernel_only)
            || partial.ids.is_some_and(|ids| Pid(ids.pid).is_kernel_only());
        let extent = match (partial.has_kernel(), partial.has_user()) {
            (true, true) => StackState::Complete,
            (true, false) if no_user_mode => StackState::Complete,
            (true, false) => StackState::KernelOnly,
            (false, true) if is_in_user_mode(&event) => StackState::Complete,
            (false, true) => StackState::UserOnly,
            (false, false) => StackState::None,
        };
        if !self.ended && (extent == StackState::KernelOnly || is_unresolved) {
            stats.left_incomplete += 1;
        }
        let states = StackStates::of(extent)
            .with_if(is_unresolved, StackState::UnresolvedKey)
            .with_if(partial.ambiguous, StackState::Ambiguous);
        let states = if losses.is_lossless() {
            states
        } else {
            doubted(states, extent, held, &event, partial, (losses, self.window))
        };
        if is_unresolved {
            for key in partial.awaited_keys() {
                stats.unresolved_keys += 1;
                drop_left(&mut self.waiting_for_key, &key, *first);
            }
        }
        if partial.has_kernel() {
            let tid = partial.ids.map(|ids| Tid(ids.tid)).or_else(|| event.header_tid());
            if let Some(waiting) =
                tid.and_then(|tid| self.waiting_for_user.get_mut(&(event.session_number(), tid)))
            {
                drop_front(waiting, *first);
            }
        }
        if event.kind().has_descriptor() && !self.waiting_for_match.is_empty() {
            let inline = |item: &ExtendedItem<'_>| Some(item.stack()?.0);
            let by_key = |item: &ExtendedItem<'_>| Some(item.stack_key()?.0);
            let items = event.record().extended_items();
            for match_id in items.filter_map(|item| inline(&item).or_else(|| by_key(&item))) {
                drop_left(&mut self.waiting_for_match, &(event.session_number(), match_id), *first);
            }
        }
        let is_truncated = partial.user_walk().and_then(|walk| {
            let pid = partial.ids.and_then(|ids| Pid::known(ids.pid)).or_else(|| event.header_pid());
            let tid = partial.ids.and_then(|ids| Tid::known(ids.tid)).or_else(|| event.header_tid());
            let (Pid(pid), Tid(tid)) = pid.zip(tid)?;
            let thread = roots.thread(pid, tid, event.raw_time());
            let session = event.block().session().pointer_size;
            // Stacks inside events are not surveyed.
            if self.definitions.is_none() || !partial.from_records {
                roots.learn(thread, walk, table, (session, event.raw_time()));
            }
            let is_cut = roots.is_cut(thread, walk, table);
            let is_doubtful = match is_cut {
                _ if losses.is_lossless() => false,
                // No loss can make a walk of a single frame a whole one.
                Some(true) => has_callers(table, walk, session),
                Some(false) => roots.is_in_doubt(thread, walk, table),
                // Other walks could show its root.
                None => true,
            };
            Some((is_cut == Some(true), is_doubtful))
        });
        let (is_truncated, is_doubtful) = is_truncated.unwrap_or_default();
        let (stack, ids) = (partial.compose(table, joined), partial.ids);
        let is_damaged = stack.is_some_and(|stack| table.is_damaged(stack));
        let states = states
            .with_if(is_damaged, StackState::Damaged)
            .with_if(is_truncated, StackState::Truncated)
            .with_doubtful_end(is_doubtful);
        partial.reset();
        self.free.push(held.partial);
        (stack, states, ids)
    }

    fn new_partial(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.partials.push(Partial::default());
            self.partials.len() as u32 - 1
        })
    }

    /// The partial of the event with this number, if the event is still held.
    fn partial_of(&mut self, number: u64) -> Option<&mut Partial> {
        let held = self.queue.get(number.checked_sub(self.first)? as usize)?;
        self.partials.get_mut(held.partial as usize)
    }

    #[cold]
    fn take_stack_record(&mut self, event: &Event<'_>, hook_id: u16) {
        match StackRecord::parse(event, hook_id) {
            StackRecord::Part(trigger, frames) => {
                self.stats.full += 1;
                let session = event.block().session().pointer_size;
                let Some(mode) = part_mode_of(&frames, session) else { return self.stats.malformed += 1 };
                let Some(stack) = self.table.extend(None, frames.iter()) else { return };
                self.attribute(event, trigger, Fragment::Frames(stack), mode);
            }
            StackRecord::Reference(trigger, number, kernel) => {
                self.stats.keyed += 1;
                let key = Key { session: event.session_number(), kernel, number };
                let fragment = self.resolve(key, event.time());
                self.attribute(
                    event,
                    trigger,
                    fragment,
                    if kernel { PartMode::Kernel } else { PartMode::User },
                );
            }
            StackRecord::Definition(number, frames) => {
                self.stats.definitions += 1;
                self.define(event, number, &frames);
            }
            StackRecord::Malformed => self.stats.malformed += 1,
        }
    }

    /// The frames of a key that is referred to at `time`, as far as they are known by now.
    fn resolve(&mut self, key: Key, time: TraceTime) -> Fragment {
        if let Some(definitions) = &mut self.definitions {
            let found = definitions.resolve(key, time);
            self.stats.unresolved_keys += u64::from(found.is_none());
            return match found {
                Some((stack, _)) if self.losses.is_lossless() => Fragment::Frames(stack),
                Some((stack, defined)) => Fragment::Resolved(stack, time, defined),
                None => Fragment::Unresolved,
            };
        }
        let known = self.just_defined.iter().find(|(defined, _)| *defined == key);
        known.map_or(Fragment::Awaiting(key, time), |&(_, stack)| Fragment::Resolved(stack, time, time))
    }

    fn define(&mut self, event: &Event<'_>, number: u64, frames: &Frames<'_>) {
        if self.definitions.is_some() {
            return;
        }
        let key = Key::defined(event.session_number(), number, frames, event.block().session().pointer_size);
        let Some(stack) = self.table.extend(None, frames.iter()) else { return };
        if self.frames_max.is_some() && self.just_defined.len() >= JUST_DEFINED_MAX {
            self.just_defined.drain(..JUST_DEFINED_MAX / 2);
        }
        self.just_defined.push((key, stack));
        self.orphans_awaiting.remove(&key);
        for number in self.waiting_for_key.remove(&key).unwrap_or_default() {
            if let Some(partial) = self.partial_of(number) {
                partial.define(key, stack, event.time());
            }
        }
    }

    /// Finds the event that a part was taken for and gives it the part.
    fn attribute(&mut self, record: &Event<'_>, trigger: EventKey, fragment: Fragment, mode: PartMode) {
        let session = record.session_number();
        let found = self.find_trigger(record, trigger, mode);
        let Some((number, first_of_group)) = found else {
            self.stats.orphaned_parts += 1;
            self.await_orphan_key(fragment);
            // A group's parts come one soon after the other.
            if self.frames_max.is_some() && self.orphan_groups.len() >= ORPHAN_GROUPS_MAX {
                self.orphan_groups.clear();
            }
            if self.orphan_groups.len() < ORPHAN_GROUPS_MAX
                && self.orphan_groups.insert((session, trigger.time, trigger.tid))
            {
                self.stats.groups += 1;
            }
            // The thread leaves the kernel nevertheless: events that wait for its user part get it.
            if mode == PartMode::User {
                self.complete_waiting(session, trigger, fragment);
            }
            return;
        };
        self.stats.attributed_parts += 1;
        self.stats.groups += u64::from(first_of_group);
        let ids = StatedIds::new(trigger.pid, trigger.tid);
        match mode {
            PartMode::Kernel => {
                let waits = !self.partial_of(number).is_some_and(|partial| partial.has_user());
                self.give(number, fragment, mode, ids);
                if waits && !Pid(trigger.pid).is_kernel_only() {
                    self.await_user(session, Tid(trigger.tid), number);
                }
            }
            PartMode::User => {
                self.complete_waiting(session, trigger, fragment);
                if !self.partial_of(number).is_some_and(|partial| partial.has_user()) {
                    self.give(number, fragment, mode, ids);
                }
            }
            PartMode::Both => self.give(number, fragment, mode, ids),
        }
    }

    /// An orphaned part needs no frames, but a key without a definition must be counted.
    fn await_orphan_key(&mut self, fragment: Fragment) {
        let Fragment::Awaiting(key, _) = fragment else { return };
        if self.frames_max.is_some() && self.orphans_awaiting.len() >= ORPHAN_KEYS_MAX {
            // Most of these have waited for hours.
            self.stats.unresolved_keys += self.orphans_awaiting.drain().map(|(_, parts)| parts).sum::<u64>();
        }
        if self.orphans_awaiting.len() < ORPHAN_KEYS_MAX || self.orphans_awaiting.contains_key(&key) {
            *self.orphans_awaiting.entry(key).or_default() += 1;
        } else {
            self.stats.unresolved_keys += 1;
        }
    }

    /// Adds a part to a held event.
    fn give(&mut self, number: u64, fragment: Fragment, mode: PartMode, ids: StatedIds) {
        if self.frames_max.is_some() && self.partial_of(number).is_some_and(|p| p.len() >= PARTS_MAX) {
            self.stats.excess_parts += 1;
            return;
        }
        if let Fragment::Awaiting(key, _) = fragment {
            self.waiting_for_key.entry(key).or_default().push_back(number);
        }
        if let Some(partial) = self.partial_of(number) {
            partial.add(fragment, mode);
            partial.ids.get_or_insert(ids).compare(ids);
        }
    }

    /// Notes that an event waits for the user part of its thread.
    fn await_user(&mut self, session: u32, tid: Tid, number: u64) {
        // Empty lists are kept for the thread's next system call, unless there are far more threads
        // than events.
        if self.waiting_for_user.len() > IDLE_LISTS_MAX + self.queue.len() {
            let first = self.first;
            self.waiting_for_user.retain(|_, waiting| {
                drop_front(waiting, first);
                !waiting.is_empty()
            });
        }
        self.waiting_for_user.entry((session, tid)).or_default().push_back(number);
    }

    /// A thread leaves the kernel with the user part of `named`: it belongs to all its events that
    /// have none yet.
    fn complete_waiting(&mut self, session: u32, named: EventKey, fragment: Fragment) {
        let tid = Tid(named.tid);
        let Some(base) = self.bases.get(session as usize) else { return };
        let user_of = Some(base.trace_time(named.time));
        let Some(waiting) = self.waiting_for_user.get_mut(&(session, tid)) else { return };
        let mut completed = std::mem::take(&mut self.completed);
        std::mem::swap(waiting, &mut completed);
        for number in completed.drain(..) {
            let Some(partial) = self.partial_of(number).filter(|partial| !partial.has_user()) else {
                continue;
            };
            // The thread of then has ended, and another has its number.
            let process = partial.ids.and_then(|ids| Pid::known(ids.pid));
            if process.zip(Pid::known(named.pid)).is_some_and(|(then, now)| then != now) {
                continue;
            }
            partial.user_of = user_of;
            let ids = StatedIds::new(u32::MAX, tid.0);
            self.give(number, fragment, PartMode::User, ids);
        }
        self.completed = completed;
    }

    /// Positions in the queue of events that may have exactly this time.
    fn positions_at(&self, time: TraceTime) -> std::ops::Range<usize> {
        if self.disorder_until > self.first {
            return self.queue.len().saturating_sub(DISORDERED_SEARCH_MAX)..self.queue.len();
        }
        // Most parts directly follow their event: gallop from the end before the binary search.
        let len = self.queue.len();
        let mut step = 1;
        while step < len && self.queue[len - step].time >= time {
            step *= 2;
        }
        let (mut low, mut high) = (len.saturating_sub(step), len - step / 2);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.queue[middle].time < time { low = middle + 1 } else { high = middle }
        }
        let from = low;
        let same = self.queue.range(from..).take_while(|held| held.time == time).count();
        from..from + same
    }

    /// The event that a part names, by its number, and whether the part is the first of its group.
    fn find_trigger(&mut self, record: &Event<'_>, trigger: EventKey, mode: PartMode) -> Option<(u64, bool)> {
        let session = record.session_number();
        let time = self.bases.get(session as usize)?.trace_time(trigger.time);
        let mut best: Option<(Rank, usize)> = None;
        let (mut rivals, mut first_of_group) = (0, true);
        for position in self.positions_at(time) {
            let held = self.queue[position];
            if held.time != time {
                continue;
            }
            let event = held.event(&self.block_pool);
            if event.session_number() != session || event.raw_time() != trigger.time || !can_trigger(&event) {
                continue;
            }
            let partial = self.partials.get(held.partial as usize);
            let tid = partial.and_then(|p| p.ids).map(|ids| Tid(ids.tid)).or_else(|| thread_of(&event));
            let taken = partial.is_some_and(|partial| partial.has(mode));
            let awaited = mode == PartMode::User && partial.is_some_and(|p| p.has_kernel() && !p.has_user());
            if partial.is_some_and(|p| p.from_records) && tid == Some(Tid(trigger.tid)) {
                first_of_group = false;
            }
            let same_processor = event.processor() == record.processor();
            let Some(rank) = Rank::of(tid, trigger.tid, same_processor, mode) else { continue };
            let rank = Rank { awaited, lacks: !taken, ..rank };
            match best {
                Some((known, _)) if known > rank => {}
                // A later part of the same mode goes to the first event if all have one.
                Some((known, _)) if known == rank && taken => {}
                Some((known, _)) => {
                    // Events that await the same user part all get it, which is not ambiguous.
                    rivals = if known == rank && !awaited { rivals + 1 } else { 0 };
                    best = Some((rank, position));
                }
                None => best = Some((rank, position)),
            }
        }
        let (_, position) = best?;
        let number = self.first + position as u64;
        if self.queue[position].partial == NOTHING {
            self.queue[position].partial = self.new_partial();
        }
        let held = self.queue[position];
        let event = held.event(&self.block_pool);
        let mut kind = TriggerKind::of(&event);
        let by_triggering_event = &mut self.stats.by_triggering_event;
        if self.frames_max.is_some()
            && by_triggering_event.len() >= TRIGGER_KINDS_MAX
            && !by_triggering_event.contains_key(&kind)
        {
            kind = TriggerKind::Other;
        }
        *by_triggering_event.entry(kind).or_default() += 1;
        let partial = &mut self.partials[held.partial as usize];
        partial.from_records = true;
        if rivals > 0 {
            partial.ambiguous = true;
            self.stats.ambiguous_parts += 1;
        }
        Some((number, first_of_group))
    }

    /// Takes the stacks in an event's extended data; returns the index of its partial.
    #[cold]
    fn take_extended(&mut self, event: &Event<'_>) -> u32 {
        let mut partial = NOTHING;
        for item in event.record().extended_items() {
            let Some((match_id, fragment, mode)) = self.extended_part(event, &item) else { continue };
            if partial == NOTHING {
                partial = self.new_partial();
            }
            self.partials[partial as usize].add(fragment, mode);
            let number = self.first + self.queue.len() as u64;
            if let Fragment::Awaiting(key, _) = fragment {
                self.waiting_for_key.entry(key).or_default().push_back(number);
            }
            let (pid, tid) = (event.header_pid(), event.header_tid());
            if mode == PartMode::Kernel && !pid.is_some_and(Pid::is_kernel_only) {
                if match_id != 0 {
                    self.waiting_for_match
                        .entry((event.session_number(), match_id))
                        .or_default()
                        .push_back(number);
                }
                if let Some(tid) = tid {
                    self.await_user(event.session_number(), tid, number);
                }
            }
        }
        partial
    }

    /// One extended item as a part, with its match id.
    fn extended_part(
        &mut self,
        event: &Event<'_>,
        item: &ExtendedItem<'_>,
    ) -> Option<(u64, Fragment, PartMode)> {
        let pointer = item.stack_pointer_size()?;
        if let Some((match_id, bytes)) = item.stack() {
            self.stats.extended += 1;
            let frames = Frames::new(bytes, pointer);
            let mode = part_mode_of(&frames, event.block().session().pointer_size)?;
            let stack = self.table.extend(None, frames.iter())?;
            return Some((match_id, Fragment::Frames(stack), mode));
        }
        let (match_id, number) = item.stack_key()?;
        self.stats.extended_keys += 1;
        // Only the definition determines the kind of a key. A user key is more likely.
        let key = |kernel| Key { session: event.session_number(), kernel, number };
        let is_user = |all: &mut KeyDefinitions| all.resolve(key(false), event.time()).is_some();
        let mode =
            if self.definitions.as_mut().is_none_or(is_user) { PartMode::User } else { PartMode::Kernel };
        let fragment = match (mode, self.resolve(key(mode == PartMode::Kernel), event.time())) {
            // The definition of a user key could have been lost at any later time.
            (PartMode::Kernel, Fragment::Resolved(stack, referred, _)) => {
                Fragment::Resolved(stack, referred, TraceTime(i64::MAX))
            }
            (_, fragment) => fragment,
        };
        Some((match_id, fragment, mode))
    }

    /// An event that carries nothing but the user part of earlier events of its thread.
    fn take_user_part(&mut self, event: &Event<'_>) {
        self.stats.extended_parts += 1;
        for item in event.record().extended_items() {
            let Some((match_id, fragment, _)) = self.extended_part(event, &item) else { continue };
            let ids = StatedIds::new(
                event.header_pid().map_or(u32::MAX, |pid| pid.0),
                event.header_tid().map_or(u32::MAX, |tid| tid.0),
            );
            let matched =
                self.waiting_for_match.remove(&(event.session_number(), match_id)).unwrap_or_default();
            for number in matched {
                if self.partial_of(number).is_some_and(|partial| !partial.has_user()) {
                    self.give(number, fragment, PartMode::User, ids);
                }
            }
            if event.header_tid().is_some() {
                let named = EventKey { time: event.raw_time(), pid: ids.pid, tid: ids.tid };
                self.complete_waiting(event.session_number(), named, fragment);
            }
        }
    }
}

/// The states of a stack whose parts arrived, with the uncertainty that losses cause.
#[cold]
fn doubted(
    states: StackStates,
    extent: StackState,
    held: &Held,
    event: &Event<'_>,
    partial: &Partial,
    (losses, window): (&LossMap, Window),
) -> StackStates {
    // Parts are logged after their event.
    let (source, time) = (event.source(), held.time.0.saturating_add(1));
    let is_part_lost = match extent {
        StackState::KernelOnly => losses.between(source, time, time.saturating_add(window.max_hold)),
        StackState::UserOnly => {
            let until = time.saturating_add(window.max_hold / KERNEL_REACH);
            losses.on_processor(source, event.processor(), time, until)
        }
        _ => false,
    };
    // The event's own user part may be missing, and this one may belong to a later system call.
    let is_later =
        partial.user_of.is_some_and(|named| named > held.time && losses.between(source, time, named.0));
    let mut resolved = partial.resolved.iter();
    let is_unconfirmed = resolved.any(|(referred, defined)| losses.between(source, referred.0, defined.0));
    states
        .with_if(is_part_lost, StackState::Lost)
        .with_if(is_later, StackState::Ambiguous)
        .with_if(is_unconfirmed, StackState::Unconfirmed)
}

/// Forgets events that left the window in the list of those that wait for `key`.
fn drop_left<K: std::hash::Hash + Eq>(waiting: &mut Map<K, Waiting>, key: &K, first: u64) {
    let Some(list) = waiting.get_mut(key) else { return };
    drop_front(list, first);
    if list.is_empty() {
        waiting.remove(key);
    }
}

/// Drops events that left the window. A few may follow later ones; they are dropped together with
/// these.
fn drop_front(waiting: &mut Waiting, first: u64) {
    while waiting.front().is_some_and(|&number| number < first) {
        waiting.pop_front();
    }
}

/// Whether an event happened in user mode, so that its stack has no kernel part.
fn is_in_user_mode(event: &Event<'_>) -> bool {
    event.kind().has_descriptor()
        || sampled_address(event).is_some_and(|at| !at.is_kernel(event.block().session().pointer_size))
}

/// Whether a part is a kernel part, a user part or both, by its innermost and outermost frames.
/// `None` if it has no frames.
pub(crate) fn part_mode_of(frames: &Frames<'_>, pointer_size: PointerSize) -> Option<PartMode> {
    let (first, last) = (frames.first()?, frames.last()?);
    Some(match (first.is_kernel(pointer_size), last.is_kernel(pointer_size)) {
        (_, true) => PartMode::Kernel,
        (true, false) => PartMode::Both,
        (false, false) => PartMode::User,
    })
}

/// How well an event fits a part: first by thread and processor, then by whether it is waiting for
/// it, and by whether it still lacks this part.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Rank {
    fit: u8,
    awaited: bool,
    lacks: bool,
}

impl Rank {
    fn of(tid: Option<Tid>, part_tid: u32, same_processor: bool, mode: PartMode) -> Option<Rank> {
        let fit = match tid {
            Some(tid) if tid.0 == part_tid => 3,
            Some(_) => return None,
            None if same_processor => 2,
            // A user part may be logged on another processor; a kernel part never is.
            None if mode == PartMode::User => 1,
            None => return None,
        };
        // If several events fit by thread, the processor identifies the event of a kernel part.
        let on_processor = u8::from(same_processor && mode != PartMode::User && fit == 3);
        Some(Rank { fit: fit + on_processor, awaited: false, lacks: false })
    }
}

#[cfg(test)]
mod tests;
