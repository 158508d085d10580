//! Intervals in which a thread ran or waited, from context switches.

use fxprof_processed_profile::{
    CategoryHandle, Marker, MarkerFieldFlags, MarkerFieldFormat, MarkerLocations, MarkerTypeHandle,
    Profile as Output, RuntimeSchemaMarkerField, RuntimeSchemaMarkerSchema, StringHandle,
};

use stackhound_profile::Profile;
use stackhound_profile::{Nanos, StackId, ThreadId};

/// The state of a thread during an interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Ran on a processor.
    Runs(u16),
    /// Waited since the context switch with this index.
    Waits(usize),
}

/// An interval of one thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    pub start: Nanos,
    pub end: Nanos,
    pub state: State,
    pub stack: Option<StackId>,
}

/// The intervals of all threads. Intervals that began before the first switch or end after the last
/// one are omitted.
pub struct Spans(Vec<Vec<Span>>);

impl Spans {
    pub fn of(profile: &Profile) -> Spans {
        let mut spans = vec![Vec::new(); profile.threads().len()];
        let mut since: Vec<Option<(Nanos, State)>> = vec![None; profile.threads().len()];
        for (index, switch) in profile.switches().iter().enumerate() {
            let mut change = |thread: ThreadId, state: State, stack: Option<StackId>| {
                let thread = thread.index();
                if let Some((start, before)) = since[thread]
                    // Two consecutive switches to or from a thread: a switch between them was lost,
                    // at an unknown time.
                    && matches!(before, State::Runs(_)) != matches!(state, State::Runs(_))
                {
                    spans[thread].push(Span { start, end: switch.time, state: before, stack });
                }
                since[thread] = Some((switch.time, state));
            };
            change(switch.from, State::Waits(index), None);
            change(switch.to, State::Runs(switch.cpu), switch.stack);
        }
        Spans(spans)
    }

    pub fn take(&mut self, thread: ThreadId) -> Vec<Span> {
        std::mem::take(&mut self.0[thread.index()])
    }
}

/// The marker types for intervals.
pub struct Schemas {
    runs: MarkerTypeHandle,
    waits: MarkerTypeHandle,
}

impl Schemas {
    pub fn new(output: &mut Output) -> Schemas {
        let mut register = |name: &str, key: &str, label: &str, format| {
            output.register_marker_type(RuntimeSchemaMarkerSchema {
                type_name: name.to_owned(),
                description: None,
                locations: MarkerLocations::MARKER_CHART | MarkerLocations::MARKER_TABLE,
                chart_label: Some(format!("{{marker.data.{key}}}")),
                tooltip_label: None,
                table_label: Some(format!("{{marker.name}} - {{marker.data.{key}}}")),
                fields: vec![RuntimeSchemaMarkerField {
                    key: key.to_owned(),
                    label: label.to_owned(),
                    format,
                    flags: MarkerFieldFlags::SEARCHABLE,
                }],
                graphs: Vec::new(),
            })
        };
        Schemas {
            runs: register("Running", "processor", "Processor", MarkerFieldFormat::Integer),
            waits: register("Waiting", "reason", "Reason", MarkerFieldFormat::String),
        }
    }

    pub fn marker(
        &self,
        profile: &Profile,
        span: &Span,
        output: &mut Output,
        category: CategoryHandle,
    ) -> impl Marker + use<> {
        let (kind, name, reason, processor) = match span.state {
            State::Runs(cpu) => (self.runs, "Running", String::new(), cpu),
            State::Waits(switch) => (self.waits, "Waiting", profile.why(&profile.switches()[switch]), 0),
        };
        SpanMarker {
            kind,
            category,
            name: output.intern_string(name),
            reason: output.intern_string(&reason),
            processor: processor.into(),
        }
    }
}

struct SpanMarker {
    kind: MarkerTypeHandle,
    category: CategoryHandle,
    name: StringHandle,
    reason: StringHandle,
    processor: f64,
}

impl Marker for SpanMarker {
    fn marker_type(&self, _: &mut Output) -> MarkerTypeHandle {
        self.kind
    }

    fn name(&self, _: &mut Output) -> StringHandle {
        self.name
    }

    fn category(&self, _: &mut Output) -> CategoryHandle {
        self.category
    }

    fn string_field_value(&self, _: u32) -> StringHandle {
        self.reason
    }

    fn number_field_value(&self, _: u32) -> f64 {
        self.processor
    }
}
