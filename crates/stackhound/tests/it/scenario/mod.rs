//! Readers find the ground truth of a scenario.

mod attacks;
pub(crate) mod calls;
mod execution;
mod meaning;
mod records;
mod stacks;
mod timeline;

use std::collections::HashMap;
use std::io::Cursor;

use stackhound_etl::EtlFile;
use stackhound_etl::record::HeaderKind;
use stackhound_scenario::{EventKind, Mix, Scenario, State, Truth};
use stackhound_trace::{Event, OpenTrace, Source};
use stackhound_types::{Address, RawTime, Tid};

/// An event by its time and processor.
type RecordKey = (RawTime, u16);

/// The expected result for an event with a stack.
struct Expected {
    event: EventKind,
    tid: Tid,
    state: State,
    frames: Vec<Address>,
}

/// A scenario, its ground truth, and its trace.
struct Written {
    scenario: Scenario,
    truth: Truth,
    expected: HashMap<RecordKey, Expected>,
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
    let etl_file = EtlFile::open(file.into_inner().into()).unwrap();
    let trace = OpenTrace::new(vec![Source::new("", etl_file)], 1).unwrap();
    Written { scenario, truth, expected, trace }
}

fn kind_of(event: &Event<'_>) -> EventKind {
    let tag = event.entry().tag;
    match event.kind() {
        kind if kind.has_hook_id() => EventKind::Kernel(tag),
        kind if kind.is_classic() => EventKind::Classic(event.guid().unwrap(), tag as u8),
        HeaderKind::Event32 | HeaderKind::Event64 => EventKind::Provider(event.guid().unwrap(), tag),
        kind => panic!("{kind:?}"),
    }
}

/// The key of an event.
fn record_key(event: &Event<'_>) -> RecordKey {
    (event.raw_time(), event.processor().unwrap_or_default())
}
