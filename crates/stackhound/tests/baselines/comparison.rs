//! Finds the event of each line of one trace, and compares them.

use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;
use std::path::Path;

use stackhound::schema::kernel;
use stackhound::system::System;
use stackhound::trace::TraceFiles;
use stackhound::{EventView, Guid, Passes, Pipeline};

use crate::baseline::{Baseline, Line};
use crate::explanations::{Explanations, Figures};
use crate::fields::{self, Fields};
use crate::notation;

/// The comparison of one trace.
pub struct Comparison {
    pub figures: Figures,
    /// Lines whose event has no schema, by event.
    pub unknown: BTreeMap<String, u64>,
    /// Differences without an explanation.
    pub complaints: Vec<String>,
}

/// Identifies the line of an event: microseconds since the first event, processor, payload length.
type RecordKey = (i64, u16, usize);

impl Comparison {
    /// Reads a trace and compares it with the text for it.
    pub fn of(name: &str, baseline: &Baseline, path: &Path, explanations: &mut Explanations) -> Comparison {
        let trace = TraceFiles::file(path).open().expect("a trace that can be opened");
        let ticks_per_second = i128::from(trace.clock().ticks_per_second());
        let mut open = OpenLines::of(baseline, explanations);
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        let mut comparison = Comparison {
            figures: Figures { lines: baseline.lines.len() as u64, ..Figures::default() },
            unknown: BTreeMap::new(),
            complaints: Vec::new(),
        };
        let mut start = None;
        // A separate pipeline, whose first pass provides the state of the system at all times.
        let first_pass = Pipeline::new(&trace, Passes::Two);
        let system = first_pass.trace_state().system();
        // The names of kernel events begin with their class.
        let classes: HashSet<Guid> = kernel::events().map(|event| event.class).collect();
        Pipeline::new(&trace, Passes::Two).run(|view| {
            let event = match view.provider_guid().is_some_and(|class| classes.contains(&class)) {
                true => view.name().into_owned(),
                false => format!("{}/{}", view.provider(), view.name()),
            };
            let ticks = i128::from(view.raw_time().0 - *start.get_or_insert(view.raw_time().0));
            // Rounded to the nearest, as in the text.
            let time = (ticks * 2_000_000 / ticks_per_second + 1) / 2;
            let key = (time as i64, view.processor().unwrap_or(0), view.payload().len());
            if let Some(line) = open.take(key, &event) {
                comparison.compare(line, view, system, explanations);
            }
            *counts.entry(event).or_default() += 1;
            ControlFlow::Continue(())
        });
        let not_found =
            open.rest().map(|line| format!("{name}: no event for {} at {} µs", line.event, line.time));
        comparison.complaints.extend(not_found);
        comparison.compare_counts(name, baseline, counts, explanations);
        if !explanations.states(name, &comparison.figures) {
            comparison
                .complaints
                .push(format!("{name}: the page has other figures than {}", comparison.figures));
        }
        comparison
    }

    fn compare(
        &mut self,
        line: &Line,
        view: &EventView<'_>,
        system: &System,
        explanations: &mut Explanations,
    ) {
        self.figures.found += 1;
        for (name, theirs) in line.header() {
            if let Some(ours) = fields::of_header(view, name) {
                self.evaluate(&line.event, (name, theirs), Some(vec![ours]), explanations);
            }
        }
        let Some(fields) = Fields::of(view, system) else {
            *self.unknown.entry(line.event.clone()).or_default() += 1;
            return;
        };
        self.figures.decoded += 1;
        for (name, theirs) in line.payload() {
            let ours = match explanations.derivation(&line.event, name) {
                Some(derivation) => fields.derive(&derivation),
                None => fields.get(name).map(|(field, item)| notation::of(field, item)),
            };
            if !theirs.is_empty() || ours.is_some() {
                self.evaluate(&line.event, (name, theirs), ours, explanations);
            }
        }
    }

    /// `ours` are the notations of our value, our own notation last.
    fn evaluate(
        &mut self,
        event: &str,
        (name, theirs): (&str, &str),
        ours: Option<Vec<String>>,
        explanations: &mut Explanations,
    ) {
        self.figures.values += 1;
        if notation::shows(theirs, ours.as_deref().unwrap_or_default()) {
            self.figures.equal += 1;
            return;
        }
        self.figures.different += 1;
        let ours = ours.as_ref().and_then(|ours| ours.last()).map_or("(none)", |ours| ours);
        if !explanations.explains(event, name, theirs, ours) {
            self.complaints.push(format!("not explained: {event} | {name} | {theirs} | {ours}"));
        }
    }

    /// `ours` are the numbers of events by our names.
    fn compare_counts(
        &mut self,
        etl_file: &str,
        baseline: &Baseline,
        mut ours: BTreeMap<String, u64>,
        explanations: &mut Explanations,
    ) {
        let theirs = baseline.counts.iter().map(|(event, &count)| (explanations.our_event(event), count));
        let theirs: Vec<_> = theirs.collect();
        let mut check = |event: &str, theirs, ours| {
            if theirs != ours && !explanations.explains_count(etl_file, event, theirs, ours) {
                self.complaints.push(format!("not explained: {etl_file} | {event} | {theirs} | {ours}"));
            }
        };
        for (event, theirs) in theirs {
            let ours = ours.remove(&event).unwrap_or(0);
            check(&event, theirs, ours);
        }
        for (event, &ours) in &ours {
            check(event, 0, ours);
        }
    }
}

/// The lines whose event has not been found yet.
struct OpenLines<'b> {
    by_key: BTreeMap<RecordKey, Vec<(String, &'b Line)>>,
}

impl<'b> OpenLines<'b> {
    fn of(baseline: &'b Baseline, explanations: &mut Explanations) -> OpenLines<'b> {
        let mut by_key: BTreeMap<RecordKey, Vec<(String, &Line)>> = BTreeMap::new();
        for line in &baseline.lines {
            let key = (line.time, line.processor, line.length);
            by_key.entry(key).or_default().push((explanations.our_event(&line.event), line));
        }
        OpenLines { by_key }
    }

    /// The first line with this key and event.
    fn take(&mut self, key: RecordKey, event: &str) -> Option<&'b Line> {
        let lines = self.by_key.get_mut(&key)?;
        let index = lines.iter().position(|(name, _)| name == event)?;
        Some(lines.remove(index).1)
    }

    fn rest(&self) -> impl Iterator<Item = &'b Line> {
        self.by_key.values().flatten().map(|(_, line)| *line)
    }
}
