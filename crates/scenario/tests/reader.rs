//! What a reader finds in a scenario is what the truth says.

use std::collections::{BTreeMap, HashMap};
use std::io::Cursor;

use stackhound_etl::record::HeaderKind;
use stackhound_etl::{Address, RawTime, Recording, Selection, Tid};
use stackhound_scenario::{EventKind, Mix, Scenario, State, Truth};
use stackhound_stacks::{Correlator, KeyDefinitions, StackState, StackStats, Window};
use stackhound_trace::{Event, OpenTrace, Source};

/// An event by its time and processor.
type Place = (RawTime, u16);

struct Expected {
    event: EventKind,
    tid: Tid,
    state: State,
    frames: Vec<Address>,
}

struct Written {
    scenario: Scenario,
    truth: Truth,
    expected: HashMap<Place, Expected>,
    trace: OpenTrace,
}

fn written(events: u64, seed: u64, mix: Mix) -> Written {
    let scenario = Scenario { events, seed, mix };
    let mut file = Cursor::new(Vec::new());
    let mut expected = HashMap::new();
    let truth = scenario
        .write_with(&mut file, &mut |stack| {
            let frames = stack.frames.to_vec();
            let value = Expected { event: stack.event, tid: stack.tid, state: stack.state, frames };
            let before = expected.insert((stack.time, stack.processor), value);
            assert!(before.is_none(), "two events at {} on processor {}", stack.time.0, stack.processor);
        })
        .unwrap();
    let recording = Recording::open(file.into_inner().into()).unwrap();
    let trace = OpenTrace::new(vec![Source { name: String::new(), recording }], 1).unwrap();
    Written { scenario, truth, expected, trace }
}

fn kind_of(event: &Event<'_>) -> EventKind {
    let tag = event.entry().tag;
    match event.kind() {
        kind if kind.has_hook() => EventKind::Kernel(tag),
        kind if kind.is_classic() => EventKind::Classic(event.guid().unwrap(), tag as u8),
        HeaderKind::Event32 | HeaderKind::Event64 => EventKind::Provider(event.guid().unwrap(), tag),
        kind => panic!("{kind:?}"),
    }
}

/// How the recording is read.
#[derive(Clone, Copy, Debug)]
enum Reading {
    /// In two passes.
    TwoPasses,
    /// In one pass that forgets nothing.
    OnePass,
}

/// What the stages for stacks deliver, event by event.
fn deliver(
    trace: &OpenTrace,
    reading: Reading,
    mut each: impl FnMut(EventKind, Place, Option<Tid>, StackState, Vec<Address>),
) -> StackStats {
    let mut correlator = match reading {
        Reading::TwoPasses => {
            let mut definitions = KeyDefinitions::default();
            let mut events = trace.selected(Selection::none().hooks(KeyDefinitions::HOOKS));
            while let Some(event) = events.next() {
                definitions.observe(&event);
            }
            Correlator::two_pass(Window::of(&trace.clock()), trace.time_bases(), definitions)
        }
        Reading::OnePass => {
            let everything = Window { max_hold: i64::MAX, max_pending: usize::MAX };
            Correlator::one_pass(everything, trace.time_bases())
        }
    };
    let mut events = trace.ordered();
    loop {
        let more = events.next().map(|event| correlator.push(&event)).is_some();
        if !more {
            correlator.end();
        }
        while let Some(delivered) = correlator.pop() {
            let event = &delivered.event;
            let place = (event.raw_time(), event.processor().unwrap_or_default());
            each(kind_of(event), place, delivered.tid(), delivered.state, delivered.frames().collect());
        }
        if !more {
            return correlator.stats().clone();
        }
    }
}

/// Every stack of the scenario comes with exactly its frames, and no other event gets one.
#[track_caller]
fn check_stacks(written: &Written, reading: Reading) {
    let Written { scenario, truth, expected, trace } = written;
    let mut found: BTreeMap<&str, u64> = BTreeMap::new();
    let (mut seen, mut doubtful) = (0, 0);
    let stats = deliver(trace, reading, |kind, place, tid, state, frames| {
        let Some(expected) = expected.get(&place) else {
            assert!(frames.is_empty(), "{scenario:?}, {reading:?}: {kind:?} at {place:?} has {frames:?}");
            assert!(matches!(state, StackState::None | StackState::Lost), "{kind:?} at {place:?}");
            return;
        };
        seen += 1;
        let context = || format!("{scenario:?}, {reading:?}: {kind:?} at {place:?}");
        assert_eq!(kind, expected.event, "{}", context());
        let expected_state = match expected.state {
            State::Complete => StackState::Complete,
            State::KernelOnly => StackState::KernelOnly,
            State::Damaged => {
                // What is left may look whole: where the lost buffer was the last of its processor, nothing in the file
                // tells when it was filled. A later user part of the thread may stand in for the lost one.
                assert!(frames.starts_with(&expected.frames), "{}: {frames:?}", context());
                return;
            }
            State::Lost => {
                assert!(frames.is_empty(), "{}: {frames:?}", context());
                return;
            }
        };
        assert_eq!((&frames, tid), (&expected.frames, Some(expected.tid)), "{}", context());
        *found.entry(expected_state.name()).or_default() += 1;
        if state != expected_state {
            assert_eq!(state, StackState::Ambiguous, "{}", context());
            doubtful += 1;
        }
    });
    assert_eq!(seen, expected.len(), "{scenario:?}: some events were not delivered");
    assert_eq!(found.get("complete").copied().unwrap_or_default(), truth.states.complete);
    assert_eq!(found.get("kernel-only").copied().unwrap_or_default(), truth.states.kernel_only);
    // A thread that is in the kernel while a buffer is lost could have left it meanwhile: doubt is right there.
    assert!(doubtful * 20 <= seen, "{scenario:?}: {doubtful} of {seen} events");
    let stacks = truth.stacks;
    assert_eq!((stats.full, stats.keyed), (stacks.inline, stacks.keyed), "{scenario:?}");
    assert_eq!(stats.definitions, stacks.definitions, "{scenario:?}");
    assert_eq!(stats.extended, stacks.extended + stacks.extended_halves, "{scenario:?}");
    assert_eq!(stats.extended_halves, stacks.extended_halves, "{scenario:?}");
    assert_eq!((stats.unresolved_keys, stats.malformed, stats.ambiguous_parts), (0, 0, 0), "{scenario:?}");
    assert_eq!(stats.orphaned_parts, stacks.orphaned, "{scenario:?}");
}

#[test]
fn every_stack_is_delivered_with_exactly_its_frames() {
    for seed in 0..12 {
        let written = written(Scenario::EVENTS_MIN, seed, Mix::Default);
        check_stacks(&written, Reading::TwoPasses);
        check_stacks(&written, Reading::OnePass);
    }
}

#[test]
fn a_longer_recording_is_read_as_well() {
    let written = written(150_000, 77, Mix::Default);
    check_stacks(&written, Reading::TwoPasses);
    check_stacks(&written, Reading::OnePass);
}

#[test]
fn records_are_counted_and_sorted() {
    for (events, seed) in [(Scenario::EVENTS_MIN, 3), (20_000, 4), (100_000, 5)] {
        let Written { truth, trace, .. } = written(events, seed, Mix::Default);
        let mut counts: BTreeMap<EventKind, u64> = BTreeMap::new();
        let mut last: HashMap<u16, RawTime> = HashMap::new();
        let mut ordered = trace.ordered();
        while let Some(event) = ordered.next() {
            *counts.entry(kind_of(&event)).or_default() += 1;
            let processor = event.processor().unwrap_or_default();
            let before = last.insert(processor, event.raw_time());
            assert!(before.is_none_or(|before| before <= event.raw_time()));
        }
        let stats = ordered.into_stats();
        assert_eq!(counts, truth.events);
        assert!(counts.keys().all(|kind| kind.name() != "?"));
        assert!(truth.records().abs_diff(events) * 100 <= events, "{} of {events}", truth.records());
        assert_eq!((stats.events, stats.bytes), (truth.records(), truth.bytes));
        assert_eq!((stats.out_of_order, stats.damage.len()), (0, 0));
        assert_eq!((stats.buffers_lost, stats.buffers_missing), (truth.lost.buffers, truth.lost.buffers));
    }
}

#[test]
fn the_same_scenario_gives_the_same_bytes() {
    let bytes = |seed| {
        let mut file = Cursor::new(Vec::new());
        let truth = Scenario { events: 9_000, seed, mix: Mix::Default }.write(&mut file).unwrap();
        (file.into_inner(), truth)
    };
    assert!(bytes(7) == bytes(7));
    assert!(bytes(7) != bytes(8));
}
