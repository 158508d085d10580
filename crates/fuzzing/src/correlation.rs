//! What must hold for the stacks of any trace.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};

use stackhound_schema::provider_guid;
use stackhound_stacks::{Correlator, Delivered, StackState, StackStates, StackStats, StackSurvey, Window};
use stackhound_trace::{Event, LossMap, OpenTrace, TraceTime};
use stackhound_types::{Guid, Pid, Tid};

/// The provider and event that carry nothing but the user half of an earlier event's stack.
pub(crate) const KERNEL_EVENT_TRACING: Guid = provider_guid::KERNEL_EVENT_TRACING;
pub(crate) const USER_HALF: u16 = 18;

/// Nothing leaves it before the end.
const WIDE: Window = Window { max_hold: i64::MAX, max_pending: usize::MAX };

/// Where an event stands: source, buffer, place in the buffer; and its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct RecordKey(u16, u64, u32, TraceTime);

impl RecordKey {
    fn of(event: &Event<'_>) -> RecordKey {
        RecordKey(event.source(), event.block().origin().file_offset, event.index(), event.time())
    }
}

/// What is said of an event when it is delivered.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Outcome {
    location: RecordKey,
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
            location: RecordKey::of(&delivered.event),
            states: delivered.states,
            frames: hasher.finish(),
            pid: delivered.pid(),
            tid: delivered.tid(),
        }
    }
}

/// What a trace holds, counted without the correlator.
#[derive(Default)]
struct Content {
    /// All events that are not used up for stacks, in order.
    events: Vec<RecordKey>,
    /// Records that hold a part of a stack, by itself or by key.
    parts: u64,
    /// Whether events name keys. Which half those mean is known only when all definitions are.
    names_keys: bool,
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
            let behind_owner = record.payload().len().saturating_sub(16);
            content.names_keys |= record.extended_items().any(|item| item.stack_key().is_some());
            match event.hook_id() {
                Some(0x1820 | 0x1825 | 0x1826) => content.parts += u64::from(behind_owner >= pointer),
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
    record.descriptor().is_some_and(|descriptor| descriptor.id == USER_HALF)
        && record.event_flags().is_some_and(|(flags, _)| flags & 1 != 0)
        && event.guid() == Some(KERNEL_EVENT_TRACING)
}

impl Outcome {
    /// Whether two ways of reading say the same, but for what each knows of losses and of other walks: two passes know all, one pass those of
    /// the file up to now, a live session those that its buffers mark.
    fn agrees_with(&self, other: &Outcome) -> bool {
        let without = |states: StackStates| {
            let by_others = [
                StackState::Lost,
                StackState::Ambiguous,
                StackState::Unconfirmed,
                StackState::Truncated,
                StackState::None,
            ];
            states.iter().filter(|state| !by_others.contains(state)).collect::<Vec<_>>()
        };
        let rest = |of: &Outcome| (of.location, of.frames, of.pid, of.tid);
        rest(self) == rest(other) && without(self.states) == without(other.states)
    }
}

fn assert_same(left: &[Outcome], right: &[Outcome], why: &str) {
    assert_eq!(left.len(), right.len(), "{why}");
    for (left, right) in left.iter().zip(right) {
        assert!(left.agrees_with(right), "{why}: {left:?}, {right:?}");
    }
}

/// How a trace is read.
#[derive(Clone, Copy)]
enum Way {
    OnePass,
    TwoPasses,
    /// In one pass, and with little memory for stacks.
    Live,
}

/// Correlates a trace in one pass and in two, within a window and without, and checks what comes out.
///
/// Gives the number of its records.
pub(crate) fn check(trace: &OpenTrace, window: Window) -> u64 {
    let content = Content::of(trace);
    let (one, one_stats) = correlate(trace, &content, window, Way::OnePass);
    let (two, two_stats) = correlate(trace, &content, window, Way::TwoPasses);
    let (live, mut live_stats) = correlate(trace, &content, window, Way::Live);
    if live_stats.excess_parts == 0 {
        assert_same(&live, &one, "what is forgotten was not needed");
        live_stats.generations = 0;
        live_stats.by_state = one_stats.by_state;
        assert_eq!(live_stats, one_stats);
    }
    if content.names_keys || !content.in_order {
        return content.records;
    }
    let attribution = |stats: &StackStats| {
        let parts = (stats.full, stats.keyed, stats.attributed_parts, stats.orphaned_parts);
        (parts, stats.ambiguous_parts, stats.groups, stats.malformed, stats.by_triggering_event.clone())
    };
    assert_eq!(attribution(&one_stats), attribution(&two_stats));
    for (one, two) in one.iter().zip(&two) {
        // In one pass an event may leave before its key is defined.
        let is_same = one.agrees_with(two);
        assert!(is_same || one.states.has(StackState::UnresolvedKey), "{one:?} in one pass, {two:?} in two");
    }
    let (one, _) = correlate(trace, &content, WIDE, Way::OnePass);
    let (two, _) = correlate(trace, &content, WIDE, Way::TwoPasses);
    assert_same(&one, &two, "where all definitions come in time, passes do not matter");
    content.records
}

/// Correlates a trace and checks all that holds for a single run.
fn correlate(trace: &OpenTrace, content: &Content, window: Window, way: Way) -> (Vec<Outcome>, StackStats) {
    let mut correlator = match way {
        Way::TwoPasses => {
            let (survey, losses) = StackSurvey::of(trace);
            Correlator::two_pass(window, trace.time_bases(), losses, survey)
        }
        Way::OnePass => Correlator::one_pass(window, trace.time_bases(), LossMap::of(trace)),
        Way::Live => Correlator::live(window, trace.time_bases(), 20),
    };
    let mut outcomes = Vec::new();
    let mut coming = content.events.iter();
    let mut held: VecDeque<RecordKey> = VecDeque::new();
    let mut newest = TraceTime(i64::MIN);
    let mut events = trace.ordered();
    loop {
        let event = events.next();
        if let Some(event) = &event {
            correlator.push(event);
            newest = newest.max(event.time());
            // Only what is not used up comes out again.
            if coming.as_slice().first() == Some(&RecordKey::of(event)) {
                held.extend(coming.next());
            }
        } else {
            correlator.end();
        }
        let expired = |location: &RecordKey| newest.0.saturating_sub(location.3.0) > window.max_hold;
        while let Some(delivered) = correlator.pop() {
            let outcome = Outcome::of(&delivered);
            let is_due = held.front().is_some_and(expired) || held.len() > window.max_pending;
            assert!(event.is_none() || is_due, "an event leaves only when it has to");
            assert_eq!(
                held.pop_front(),
                Some(outcome.location),
                "events leave in the order in which they came"
            );
            outcomes.push(outcome);
        }
        assert!(held.len() <= window.max_pending && !held.front().is_some_and(expired), "held back too long");
        if event.is_none() {
            break;
        }
    }
    assert!(held.is_empty() && outcomes.len() == content.events.len(), "all events come out");
    let stats = correlator.stats().clone();
    assert_eq!(stats.by_state.iter().sum::<u64>(), outcomes.len() as u64);
    assert_eq!(stats.attributed_parts + stats.orphaned_parts, content.parts, "every part is accounted for");
    assert_eq!(stats.by_triggering_event.values().sum::<u64>(), stats.attributed_parts);
    (outcomes, stats)
}
