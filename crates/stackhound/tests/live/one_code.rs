//! The same code gives the same results for a trace file and for the session that delivers its
//! events.

use std::ops::ControlFlow;

use stackhound::live::{Delivery, Session};
use stackhound::{EventView, Trace};
use stackhound_etw_fake::deliver::LOST_EVENT;
use stackhound_etw_fake::harness::Harness;

use crate::shown::shown;
use crate::trace_files;

/// All events as text, except those that only one of the sources has: the first record of a file,
/// and the notices of losses of a session.
fn all(trace: Trace) -> Vec<String> {
    let mut lines = Vec::new();
    let take = |view: &EventView<'_>| {
        if view.name() != "EventTrace/Header" && view.provider_guid() != Some(LOST_EVENT) {
            lines.push(shown(view));
        }
        ControlFlow::Continue(())
    };
    trace.run(take).expect("a whole trace");
    lines
}

#[track_caller]
fn check(test: &str, seed: u64, delivery: Delivery) {
    let settings = format!("[*]\ntrace = TRACE\nseed = {seed}\n");
    let Some(harness) = Harness::run(test, &settings, trace_files::scenario) else { return };
    let expected = all(Trace::file(harness.path("trace.etl")).one_pass());
    let live = all(Trace::live(Session::user("one code").delivery(delivery)));
    assert!(expected.len() > 5_000, "stacks are part of the events that caused them");
    if let Some(at) = expected.iter().zip(&live).position(|(file, live)| file != live) {
        panic!("event {at} of {}:\nfile: {}\nlive: {}", expected.len(), expected[at], live[at]);
    }
    assert_eq!(expected.len(), live.len());
    // Only the requested function was used.
    let opened =
        if delivery == Delivery::WholeBuffers { "OpenTraceFromRealTimeLogger" } else { "OpenTraceW" };
    assert_eq!(harness.log(opened).len(), 1);
}

#[test]
fn event_by_event() {
    check("one_code::event_by_event", 1, Delivery::Events);
}

#[test]
fn event_by_event_in_another_order() {
    check("one_code::event_by_event_in_another_order", 2, Delivery::Events);
}

#[test]
fn by_whole_buffers() {
    check("one_code::by_whole_buffers", 3, Delivery::WholeBuffers);
}
