//! Reading a trace with everything that enrichment needs, in one pass or two.

use stackhound_etl::Selection;
use stackhound_stacks::{Correlator, Delivered, KeyDefinitions, Window};
use stackhound_system::System;
use stackhound_trace::OpenTrace;

/// Hands every event with its stack to `handle`, and the state of the machine as far as it is known by then.
pub fn read(trace: &OpenTrace, passes: u32, mut handle: impl FnMut(&Delivered<'_>, &System)) -> System {
    let mut system = System::of(trace);
    let window = Window::of(&trace.clock());
    let mut correlator = if passes == 2 {
        let mut definitions = KeyDefinitions::default();
        let mut events = trace.selected(System::selection());
        while let Some(event) = events.next() {
            system.observe(&event);
        }
        let mut events = trace.selected(Selection::none().hooks(KeyDefinitions::HOOKS));
        while let Some(event) = events.next() {
            definitions.observe(&event);
        }
        Correlator::two_pass(window, trace.time_bases(), definitions)
    } else {
        Correlator::one_pass(window, trace.time_bases())
    };
    let mut events = trace.ordered();
    loop {
        let more = match events.next() {
            Some(event) => {
                if passes == 1 {
                    system.observe(&event);
                }
                correlator.push(&event);
                true
            }
            None => {
                correlator.end();
                false
            }
        };
        while let Some(delivered) = correlator.pop() {
            handle(&delivered, &system);
        }
        if !more {
            return system;
        }
    }
}
