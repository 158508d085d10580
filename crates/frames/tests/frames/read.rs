//! Reads a trace with the state and the stacks that enrichment needs, in one pass or two.

use stackhound_stacks::{Correlator, Delivered, StackStats, StackSurvey, Window};
use stackhound_system::System;
use stackhound_trace::{Event, LossMap, OpenTrace};

/// A step of reading a trace.
pub enum ReadStep<'a, 'e> {
    /// An event has entered the correlator, which knows these losses.
    Pushed(&'a Event<'e>, &'a LossMap),
    /// No more events follow.
    Ended,
    /// An event leaves the correlator, with the state of the machine as known so far.
    Popped(&'a Delivered<'e>, &'a System),
}

/// Passes each step to `handle`.
pub fn read(
    trace: &OpenTrace,
    passes: u32,
    window: Window,
    handle: &mut dyn FnMut(ReadStep<'_, '_>),
) -> (System, StackStats) {
    let mut system = System::of(trace);
    let mut correlator = if passes == 2 {
        let mut events = trace.selected(System::selection());
        while let Some(event) = events.next() {
            system.observe(&event);
        }
        let (survey, losses) = StackSurvey::of(trace);
        system.set_losses(losses.clone());
        Correlator::two_pass(window, trace.time_bases(), losses, survey)
    } else {
        system.set_losses(LossMap::of(trace));
        Correlator::one_pass(window, trace.time_bases(), LossMap::of(trace))
    };
    let bases = trace.time_bases();
    let mut events = trace.ordered();
    loop {
        let more = match events.next() {
            Some(event) => {
                if passes == 1 {
                    if event.index() == 0 {
                        system.enter_block(&event, &bases[event.session_number() as usize]);
                    }
                    system.observe(&event);
                }
                correlator.push(&event);
                handle(ReadStep::Pushed(&event, correlator.losses()));
                true
            }
            None => {
                handle(ReadStep::Ended);
                correlator.end();
                false
            }
        };
        while let Some(delivered) = correlator.pop() {
            handle(ReadStep::Popped(&delivered, &system));
        }
        if !more {
            return (system, correlator.stats().clone());
        }
    }
}
