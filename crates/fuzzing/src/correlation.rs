//! Invariants of the stacks of any trace.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};

use stackhound_schema::provider_guid;
use stackhound_stacks::{Correlator, Delivered, StackState, StackStates, StackStats, StackSurvey, Window};
use stackhound_trace::{Event, LossMap, OpenTrace, TraceTime};
use stackhound_types::{Guid, Pid, Tid};

/// The provider and event id of events that contain only the user stack of an earlier event.
pub(crate) const KERNEL_EVENT_TRACING: Guid = provider_guid::KERNEL_EVENT_TRACING;
pub(crate) const USER_STACK: u16 = 18;

/// A window from which no event is delivered before the end.
const UNLIMITED: Window = Window { max_hold: i64::MAX, max_pending: usize::MAX };

/// The location of an event: source, buffer and index in the buffer; and its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct RecordKey(u16, u64, u32, TraceTime);

impl RecordKey {
    fn of(event: &Event<'_>) -> RecordKey {
        RecordKey(event.source(), event.block().origin().file_offset, event.index(), event.time())
    }
}

/// The facts of a delivered event.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Outcome {
    record: RecordKey,
    states: StackStates,
    /// A hash of all addresses.
    frames: u64,
    pid: Option<Pid>,
    tid: Option<Tid>,
}

impl Outcome {
    fn of(delivered: &Delivered<'_>) -> Outcome {
        let mut hasher = DefaultHasher::new();
        delivered.frames().for_each(|address| address.hash(&mut hasher));
        Outcome {
            record: RecordKey::of(&delivered.event),
            states: delivered.states,
            frames: hasher.finish(),
            pid: delivered.pid(),
            tid: delivered.tid(),
        }
    }
}

/// The content of a trace, counted without the correlator.
#[derive(Default)]
struct Content {
    /// All events that the correlator does not consume, in order.
    events: Vec<RecordKey>,
    /// Records with a part of a stack, with frames or by key.
    parts: u64,
    /// Whether events contain stack keys in extended data items. Whether such a key is that of a
    /// kernel stack or a user stack is known only when all definitions are known.
    has_item_keys: bool,
    records: u64,
    in_order: bool,
}

impl Content {
    fn of(trace: &OpenTrace) -> Content {
        let mut content = Content::default();
        let mut ordered = trace.ordered();
        while let Some(event) = ordered.next() {
            let record = event.record();
            let pointer = record.pointer_size().bytes();
            // The frames or the key follow the time, process and thread of the triggering event.
            let stack_size = record.payload().len().saturating_sub(16);
            content.has_item_keys |= record.extended_items().any(|item| item.stack_key().is_some());
            match event.hook_id() {
                Some(0x1820 | 0x1825 | 0x1826) => content.parts += u64::from(stack_size >= pointer),
                Some(0x1822..=0x1824) => {}
                _ if is_user_part(&event) => {}
                _ => content.events.push(RecordKey::of(&event)),
            }
        }
        let stats = ordered.into_stats();
        (content.records, content.in_order) = (stats.events, stats.out_of_order == 0);
        content
    }
}

fn is_user_part(event: &Event<'_>) -> bool {
    let record = event.record();
    record.descriptor().is_some_and(|descriptor| descriptor.id == USER_STACK)
        && record.event_flags().is_some_and(|(flags, _)| flags & 1 != 0)
        && event.guid() == Some(KERNEL_EVENT_TRACING)
}

impl Outcome {
    /// Whether two ways of reading have the same result, except for states that depend on the known
    /// losses and stack walks: two passes know all of them, one pass those of the file so far, and
    /// a live session those that its buffers report.
    fn agrees_with(&self, other: &Outcome) -> bool {
        let comparable = |states: StackStates| {
            let ignored = [
                StackState::Lost,
                StackState::Ambiguous,
                StackState::Unconfirmed,
                StackState::Truncated,
                StackState::None,
            ];
            states.iter().filter(|state| !ignored.contains(state)).collect::<Vec<_>>()
        };
        let rest = |of: &Outcome| (of.record, of.frames, of.pid, of.tid);
        rest(self) == rest(other) && comparable(self.states) == comparable(other.states)
    }
}

fn assert_same(left: &[Outcome], right: &[Outcome], reason: &str) {
    assert_eq!(left.len(), right.len(), "{reason}");
    for (left, right) in left.iter().zip(right) {
        assert!(left.agrees_with(right), "{reason}: {left:?}, {right:?}");
    }
}

/// The way in which a trace is read.
#[derive(Clone, Copy)]
enum Mode {
    OnePass,
    TwoPasses,
    /// In one pass, and with little memory for stacks.
    Live,
}

/// Correlates a trace in one pass and in two, with and without a window, and checks the result.
///
/// Returns the number of its records.
pub(crate) fn check(trace: &OpenTrace, window: Window) -> u64 {
    let content = Content::of(trace);
    let (one, one_stats) = correlate(trace, &content, window, Mode::OnePass);
    let (two, two_stats) = correlate(trace, &content, window, Mode::TwoPasses);
    let (live, mut live_stats) = correlate(trace, &content, window, Mode::Live);
    if live_stats.excess_parts == 0 {
        assert_same(&live, &one, "dropped state is not needed");
        live_stats.generations = 0;
        live_stats.by_state = one_stats.by_state;
        assert_eq!(live_stats, one_stats);
    }
    if content.has_item_keys || !content.in_order {
        return content.records;
    }
    let attribution = |stats: &StackStats| {
        let parts = (stats.full, stats.keyed, stats.attributed_parts, stats.orphaned_parts);
        (parts, stats.ambiguous_parts, stats.groups, stats.malformed, stats.by_triggering_event.clone())
    };
    assert_eq!(attribution(&one_stats), attribution(&two_stats));
    for (one, two) in one.iter().zip(&two) {
        // In one pass, an event can be delivered before its key is defined.
        let is_same = one.agrees_with(two);
        assert!(is_same || one.states.has(StackState::UnresolvedKey), "{one:?} in one pass, {two:?} in two");
    }
    let (one, _) = correlate(trace, &content, UNLIMITED, Mode::OnePass);
    let (two, _) = correlate(trace, &content, UNLIMITED, Mode::TwoPasses);
    assert_same(&one, &two, "without a limit, one pass and two passes have the same results");
    content.records
}

/// Correlates a trace and checks the invariants of a single run.
fn correlate(trace: &OpenTrace, content: &Content, window: Window, mode: Mode) -> (Vec<Outcome>, StackStats) {
    let mut correlator = match mode {
        Mode::TwoPasses => {
            let (survey, losses) = StackSurvey::of(trace);
            Correlator::two_pass(window, trace.time_bases(), losses, survey)
        }
        Mode::OnePass => Correlator::one_pass(window, trace.time_bases(), LossMap::of(trace)),
        Mode::Live => Correlator::live(window, trace.time_bases(), 20),
    };
    let mut outcomes = Vec::new();
    let mut expected = content.events.iter();
    let mut held: VecDeque<RecordKey> = VecDeque::new();
    let mut newest = TraceTime(i64::MIN);
    let mut events = trace.ordered();
    loop {
        let event = events.next();
        if let Some(event) = &event {
            correlator.push(event);
            newest = newest.max(event.time());
            // Exactly the events that are not consumed are delivered.
            if expected.as_slice().first() == Some(&RecordKey::of(event)) {
                held.extend(expected.next());
            }
        } else {
            correlator.end();
        }
        let expired = |record: &RecordKey| newest.0.saturating_sub(record.3.0) > window.max_hold;
        while let Some(delivered) = correlator.pop() {
            let outcome = Outcome::of(&delivered);
            let is_due = held.front().is_some_and(expired) || held.len() > window.max_pending;
            assert!(event.is_none() || is_due, "an event is delivered only when it is due");
            assert_eq!(held.pop_front(), Some(outcome.record), "the order of events does not change");
            outcomes.push(outcome);
        }
        assert!(held.len() <= window.max_pending && !held.front().is_some_and(expired), "not held too long");
        if event.is_none() {
            break;
        }
    }
    assert!(held.is_empty() && outcomes.len() == content.events.len(), "all events are delivered");
    let stats = correlator.stats().clone();
    assert_eq!(stats.by_state.iter().sum::<u64>(), outcomes.len() as u64);
    assert_eq!(stats.attributed_parts + stats.orphaned_parts, content.parts, "every part is counted");
    assert_eq!(stats.by_triggering_event.values().sum::<u64>(), stats.attributed_parts);
    (outcomes, stats)
}
