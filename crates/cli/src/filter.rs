//! Which events a verb shows: one filter out of all options.

use std::ops::ControlFlow;

use anyhow::{Result, anyhow};
use stackhound::trace::OpenTrace;
use stackhound::{Clock, FileTime, Predicate, RawTime, Seen};

use crate::args::Filters;
use crate::time::Point;

/// Decides about events.
#[derive(Debug)]
pub struct EventFilter {
    /// All must hold.
    predicates: Vec<Predicate>,
    from: Option<RawTime>,
    to: Option<RawTime>,
}

impl EventFilter {
    /// For recordings.
    pub fn new(filters: &Filters, trace: &OpenTrace) -> Result<EventFilter> {
        let start = trace.sources()[0].recording.session().start_time;
        Ok(EventFilter::parse(filters)?.between(filters, &trace.clock(), start))
    }

    /// Puts the short cuts and the expression together, without times.
    pub fn parse(filters: &Filters) -> Result<EventFilter> {
        let mut texts = Vec::new();
        let any = |field: &str, operator: &str, values: Vec<String>| {
            let terms = values.into_iter().map(|value| format!("{field} {operator} {}", quoted(&value)));
            terms.collect::<Vec<_>>().join(" or ")
        };
        let ids: Vec<_> = filters.pid.iter().map(|pid| format!("pid = {pid}")).collect();
        texts.push(ids.join(" or "));
        texts.push(any("process", "i~", filters.process.clone()));
        texts.push(any("provider", "i~", filters.provider.clone()));
        texts.push(any("event", "i~", filters.event.clone()));
        texts.extend(filters.expression.clone());
        let texts = texts.iter().filter(|text| !text.is_empty());
        let predicates: Result<Vec<_>> = texts.map(|text| parse(text)).collect();
        Ok(EventFilter { predicates: predicates?, from: None, to: None })
    }

    /// Of these, those within the times, on a clock that began with the trace.
    pub fn between(self, filters: &Filters, clock: &Clock, start: FileTime) -> EventFilter {
        let raw = |point: Point| point.to_raw(clock, start);
        EventFilter { from: filters.from.map(raw), to: filters.to.map(raw), ..self }
    }

    /// Of all events of a kind, such as `FileIo/*`.
    pub fn of_kind(pattern: &str) -> Result<EventFilter> {
        let predicate = parse(&format!("event i~ {}", quoted(pattern)))?;
        Ok(EventFilter { predicates: vec![predicate], from: None, to: None })
    }

    /// Whether the names of functions decide.
    pub fn names_functions(&self) -> bool {
        self.predicates.iter().any(Predicate::names_functions)
    }

    /// Whether the event is wanted.
    pub fn wants(&self, seen: &Seen<'_>) -> bool {
        let time = RawTime(seen.time().0);
        self.from.is_none_or(|from| time >= from)
            && self.to.is_none_or(|to| time < to)
            && self.predicates.iter().all(|predicate| predicate.matches(seen))
    }

    /// Whether the event is wanted; breaks where no more can be.
    pub fn choose(&self, seen: &Seen<'_>) -> ControlFlow<(), bool> {
        if self.is_past(seen) { ControlFlow::Break(()) } else { ControlFlow::Continue(self.wants(seen)) }
    }

    /// Whether no event from here on can be wanted, since time has passed the end.
    pub fn is_past(&self, seen: &Seen<'_>) -> bool {
        self.to.is_some_and(|to| RawTime(seen.time().0) >= to)
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn parse(text: &str) -> Result<Predicate> {
    // The program says "error: " itself.
    Predicate::parse(text).map_err(|error| {
        let told = error.render(text);
        anyhow!("{}", told.strip_prefix("error: ").unwrap_or(&told).to_owned())
    })
}
