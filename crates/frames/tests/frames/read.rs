//! Reading a trace with everything that enrichment needs, in one pass or two.

use stackhound_stacks::{Correlator, Delivered, StackStats, StackSurvey, Window};
use stackhound_system::System;
use stackhound_trace::{Event, LossMap, OpenTrace};

/// What happens while a trace is read.
pub enum EventView<'a, 'e> {
    /// An event goes into the correlator.
    Pushed(&'a Event<'e>),
    /// No more events come.
    Ended,
    /// An event comes out, with the state of the machine as far as it is known by then.
    Popped(&'a Delivered<'e>, &'a System),
}

/// Hands everything that happens to `handle`.
pub fn read(
    trace: &OpenTrace,
    passes: u32,
    window: Window,
    handle: &mut dyn FnMut(EventView<'_, '_>),
) -> (System, StackStats) {
    let mut system = System::of(trace);
    let mut correlator = if passes == 2 {
        let mut events = trace.selected(System::selection());
        while let Some(event) = events.next() {
            system.observe(&event);
        }
        let (survey, losses) = StackSurvey::of(trace);
        Correlator::two_pass(window, trace.time_bases(), losses, survey)
    } else {
        Correlator::one_pass(window, trace.time_bases(), LossMap::of(trace))
    };
    let mut events = trace.ordered();
    loop {
        let more = match events.next() {
            Some(event) => {
                if passes == 1 {
                    system.observe(&event);
                }
                handle(EventView::Pushed(&event));
                correlator.push(&event);
                true
            }
            None => {
                handle(EventView::Ended);
                correlator.end();
                false
            }
        };
        while let Some(delivered) = correlator.pop() {
            handle(EventView::Popped(&delivered, &system));
        }
        if !more {
            return (system, correlator.stats().clone());
        }
    }
}
