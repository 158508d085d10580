//! Converts an ETW trace into the stack model: for each event, the running functions with their
//! callers and callees.
//!
//! This module derives the input of a [`Timeline`] from the pipeline's events, and
//! builds a [`calltree::Trace`](Trace) of its output.

mod events;
mod functions;

use std::ops::ControlFlow;

use stackhound_calltree::{Builder, Cpu, Error, StackInfo, StackKind, Trace};
use stackhound_frames::{KernelSymbols, Origin, PolicyText};
use stackhound_pipeline::{Depth, Enrichment, EventView, Outcome, Passes, Pipeline};
use stackhound_stacks::{Before, Gaps};
use stackhound_system::System;
use stackhound_trace::{OpenTrace, TraceTime};
use stackhound_types::{Address, TICKS_PER_SECOND, Tid};

use crate::{Counts, Options, StackEvent, Step, Timeline};
use functions::Functions;

/// The information of a trace that the model uses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Stacks {
    /// Only exact information: context switches, system calls and interrupt routines.
    Exact,
    /// Also recorded call stacks; the calls between them are inferred.
    #[default]
    Recorded,
}

/// Counters and the outcome of the conversion.
#[derive(Clone, Debug)]
pub struct TimelineReport {
    /// Counters of used and ignored events.
    pub counts: Counts,
    /// The outcome of reading the trace.
    pub outcome: Outcome,
}

/// Events are held for one second divided by this number; interrupt routines up to this duration
/// start at their exact context.
const HOLD_PER_SECOND: i64 = 50;

/// Converts a trace into the stack model. Event `n` of the pipeline is transition `n`.
///
/// Function names come from the enrichment's symbolizer. Functions are distinguished only by name,
/// so all frames are named, including those of the kernel, regardless of the enrichment's policy.
/// The trace is read twice, and the model is built in memory: about 20 bytes for each event, and 6
/// for each frame.
///
/// # Errors
/// The trace has more frames or stacks than the model's index can hold.
pub fn timeline(
    trace: &OpenTrace,
    enrichment: Enrichment,
    stacks: Stacks,
) -> Result<(Trace, TimelineReport), Error> {
    let mut enrichment = enrichment;
    enrichment.depth = Some(Depth::Function);
    let all = PolicyText { kernel_symbols: Some(KernelSymbols::Full), ..PolicyText::default() };
    enrichment.policy.put(all, Origin::Default);
    let mut pipeline = Pipeline::new(trace, Passes::Two).with(enrichment);
    let clock = trace.clock();
    let second = clock.to_raw(stackhound_types::FileTime(
        clock.to_file_time(stackhound_types::RawTime(0)).0 + TICKS_PER_SECOND,
    ));
    let options =
        Options { reorder: (second.0 / HOLD_PER_SECOND).max(1), snapshots: stacks == Stacks::Recorded };
    let mut build = TimelineBuild {
        builder: Builder::new(),
        timeline: Timeline::new(options),
        functions: Functions::default(),
        gaps: Gaps::of(trace),
        events: events::Events::new(trace, stacks == Stacks::Recorded),
        error: None,
    };
    if stacks == Stacks::Recorded {
        build.builder.sampled();
    }
    let wanted = |_: &EventView<'_>| ControlFlow::Continue(true);
    let outcome = pipeline.run_chosen(wanted, |view| match build.event(view) {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => {
            build.error = Some(error);
            ControlFlow::Break(())
        }
    });
    if let Some(error) = build.error {
        return Err(error);
    }
    let transitions = build.timeline.end();
    build.apply(pipeline.trace_state().system())?;
    let counts = build.timeline.counts();
    // Writing the index needs memory, and nothing of these.
    drop((pipeline, build.timeline, build.functions, build.events));
    Ok((build.builder.finish(transitions)?, TimelineReport { counts, outcome }))
}

/// The model while it is built.
struct TimelineBuild {
    builder: Builder,
    timeline: Timeline,
    functions: Functions,
    gaps: Gaps,
    events: events::Events,
    error: Option<Error>,
}

impl TimelineBuild {
    fn event(&mut self, view: &EventView<'_>) -> Result<(), Error> {
        let cpu = view.processor().map(Cpu);
        if let Some(cpu) = cpu {
            let before = self.gaps.before(view.event());
            if before == Before::Gap {
                self.timeline.lose(cpu);
            }
            if before != Before::Nothing {
                self.timeline.regain(cpu);
            }
        }
        let label = self.events.label(view, &mut self.builder);
        self.builder.transition(view.utc().0.max(0) as u64, cpu.unwrap_or_default(), label);
        self.timeline.push(StackEvent {
            time: view.time().0,
            cpu,
            thread: self.events.thread(view),
            what: self.events.what(view, &mut self.functions, &mut self.builder),
            stack: self.events.stack(view, &mut self.functions, &mut self.builder),
        });
        if let Some(cpu) = cpu
            && self.gaps.begins_after(view.event())
        {
            self.timeline.lose(cpu);
        }
        self.apply(view.trace_state().system())
    }

    /// Applies the pending steps to the model.
    fn apply(&mut self, system: &System) -> Result<(), Error> {
        for step in self.timeline.steps() {
            match step {
                Step::Stack { kind, thread, cpu, time, .. } => {
                    self.builder.stack(stack_info(kind, thread, cpu, time, system));
                }
                Step::Change(change) => self.builder.apply(change)?,
                Step::Enter { cpu, stack, lo, hi } => self.builder.enter_between(cpu, stack, lo, hi)?,
                Step::Open { stack, lo, hi, start, location, evidence } => {
                    self.builder.open_between(stack, (lo, hi), start, location, evidence)?;
                }
                Step::Close { stack, lo, hi, end } => self.builder.close_between(stack, (lo, hi), end)?,
            }
        }
        Ok(())
    }
}

fn stack_info(kind: StackKind, tid: Option<Tid>, cpu: Option<Cpu>, time: i64, system: &System) -> StackInfo {
    let process = tid.and_then(|tid| Some(system.thread_of_event(tid, TraceTime(time))?.process()));
    let name = process.map(|process| process.image_name()).filter(|name| !name.is_empty());
    StackInfo {
        kind,
        process: process.map(|process| process.pid().0),
        thread: tid.map(|tid| tid.0),
        cpu,
        name: name.map(str::to_owned),
        region: None::<(Address, Address)>,
    }
}
