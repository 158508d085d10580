//! The events on a processor belong to the thread that is running on it.

use std::collections::{HashMap, HashSet};

use stackhound_etl::{BufferRef, Index};
use stackhound_scenario::Mix;
use stackhound_trace::Event;
use stackhound_types::Tid;

use super::{Written, record_key, written};

const CONTEXT_SWITCH: u16 = 0x0524;
const SAMPLE: u16 = 0x0f2e;
const SYSTEM_CALL_ENTER: u16 = 0x0f33;
const RUNDOWN_COMPLETE: u16 = 0x0008;
/// Process and thread rundown, which is logged on behalf of other threads, and the events that the
/// session's controller logs at the start: no processor switches to its thread.
const ON_BEHALF_OF_OTHERS: [u16; 8] = [0x0000, 0x0005, 0x0050, 0x0503, 0x0504, 0x0b0a, 0x1403, 0x1404];

fn tid_at(event: &Event<'_>, at: usize) -> Tid {
    Tid(u32::from_le_bytes(event.payload()[at..at + 4].try_into().unwrap()))
}

/// Offsets of the buffers before which a buffer of their processor may be missing.
fn after_gaps(index: &Index) -> HashSet<u64> {
    let missing = index.missing();
    let is_gap = |pair: &&[BufferRef]| {
        missing.iter().any(|missing| (pair[0].sequence..pair[1].sequence).contains(&missing.first))
    };
    index
        .streams()
        .iter()
        .flat_map(|stream| stream.windows(2).filter(is_gap))
        .map(|pair| pair[1].offset)
        .collect()
}

#[test]
fn switches_samples_and_system_calls_agree() {
    for seed in [1, 2, 3] {
        let Written { trace, expected, .. } = written(40_000, seed, Mix::Default);
        // The thread of each processor; `None` after a lost buffer.
        let mut running: HashMap<u16, Option<Tid>> = (0..4).map(|on| (on, Some(Tid(0)))).collect();
        let mut started = false;
        let (mut switches, mut calls, mut samples) = (0, 0, 0);
        let after_gaps = after_gaps(&trace.indexes()[0]);
        let mut events = trace.ordered();
        while let Some(event) = events.next() {
            let on = event.processor().unwrap_or_default();
            if event.index() == 0 && after_gaps.contains(&event.block().origin().file_offset) {
                running.insert(on, None);
            }
            started |= event.hook_id() == Some(RUNDOWN_COMPLETE);
            let current = running[&on];
            let Some(hook_id) = event.hook_id() else {
                let issuer = event.header_tid().filter(|_| started);
                assert!(current.is_none() || issuer.is_none_or(|tid| Some(tid) == current), "{issuer:?}");
                continue;
            };
            let thread = match hook_id {
                CONTEXT_SWITCH => {
                    switches += 1;
                    running.insert(on, Some(tid_at(&event, 0)));
                    Some(tid_at(&event, 4))
                }
                SAMPLE => {
                    samples += 1;
                    Some(tid_at(&event, 8))
                }
                SYSTEM_CALL_ENTER => {
                    calls += 1;
                    expected.get(&record_key(&event)).map(|expected| expected.tid)
                }
                hook_id if ON_BEHALF_OF_OTHERS.contains(&hook_id) => None,
                _ => event.header_tid(),
            };
            if let (Some(thread), Some(current)) = (thread, current) {
                assert_eq!(thread, current, "{hook_id:#06x} at {:?}", record_key(&event));
            }
        }
        assert!(switches > 500 && calls > 1000 && samples > 500, "{switches} {calls} {samples}");
    }
}

#[test]
fn each_processor_is_sampled_a_thousand_times_a_second() {
    let Written { trace, truth, .. } = written(100_000, 9, Mix::Default);
    let mut counts = [0u64; 4];
    let (mut first, mut last) = (i64::MAX, 0);
    let mut events = trace.ordered();
    while let Some(event) = events.next() {
        if event.hook_id() == Some(SAMPLE) {
            counts[usize::from(event.processor().unwrap())] += 1;
            first = first.min(event.raw_time().0);
            last = last.max(event.raw_time().0);
        }
    }
    let milliseconds = (last - first) as u64 / 10_000;
    for count in counts {
        // A processor may lack the samples in the lost buffer.
        let lost = truth.lost.records;
        assert!(count <= milliseconds * 103 / 100 && count + lost >= milliseconds * 97 / 100, "{counts:?}");
    }
}
