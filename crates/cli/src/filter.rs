//! The filter of a verb, built from all its filter options.

use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;

use anyhow::Result;
use clap::Args;
use rustc_hash::FxHashMap;
use stackhound::analysis::Window;
use stackhound::analysis::needed::Choice;
use stackhound::cut::CutNote;
use stackhound::expr::Undecided;
use stackhound::stacks::TriggerKind;
use stackhound::system::System;
use stackhound::trace::{OpenTrace, TraceTime};
use stackhound::{Clock, EventView, FileTime, MissingCounts, Predicate, RawTime};

use crate::output::{RefusedFilter, counted, grouped};
use crate::time::Point;

#[derive(Args, Clone, Debug)]
pub struct Filters {
    /// Show only events for which this expression is true, such as "pid = 4 and event ~ 'Image/*'"
    #[arg(long = "where", value_name = "EXPR", help_heading = "Filters")]
    pub expression: Option<String>,
    /// Show only events of these processes
    #[arg(long, value_name = "ID", help_heading = "Filters")]
    pub pid: Vec<u32>,
    /// Show only events of processes with these image names (* and ? match any text)
    #[arg(long, value_name = "NAME", help_heading = "Filters")]
    pub process: Vec<String>,
    /// Show only events of these providers (name or GUID)
    #[arg(long, value_name = "NAME", help_heading = "Filters")]
    pub provider: Vec<String>,
    /// Show only these kinds of events, such as Process/Start (* and ? match any text)
    #[arg(long, value_name = "NAME", help_heading = "Filters")]
    pub event: Vec<String>,
    /// Show only events at or after this time: RFC 3339, or +5s since the start
    #[arg(long, value_name = "TIME", help_heading = "Filters")]
    pub from: Option<Point>,
    /// Show only events before this time
    #[arg(long, value_name = "TIME", help_heading = "Filters")]
    pub to: Option<Point>,
}

/// Selects events.
#[derive(Debug)]
pub struct EventFilter {
    /// All of these must be true.
    predicates: Vec<Predicate>,
    from: Option<RawTime>,
    to: Option<RawTime>,
    /// The times to which the trace was cut.
    cut: Window,
    /// Number of undecided events by predicate and missing field, and how many of them lack it for
    /// which reason, if a reason is known.
    undecided: RefCell<Vec<Vec<(u64, MissingCounts)>>>,
    evaluated: Cell<u64>,
    selected: Cell<u64>,
    /// Number of events by kind, until the first event is selected.
    kinds: RefCell<Option<Kinds>>,
}

type Kinds = FxHashMap<TriggerKind, (u64, String)>;

/// The limit of names in the message that no event matches.
const LISTED_MAX: usize = 8;

impl EventFilter {
    /// Builds the filter for a trace, with times relative to the start of its first file.
    pub fn new(filters: &Filters, trace: &OpenTrace) -> Result<EventFilter> {
        let start = trace.sources()[0].etl_file.session().start_time;
        let filter = EventFilter::parse(filters)?.between(filters, &trace.clock(), start);
        Ok(EventFilter { cut: cut_window(&CutNote::of(trace)), ..filter })
    }

    /// Combines the short options and the expression, without times.
    pub fn parse(filters: &Filters) -> Result<EventFilter> {
        let predicates: Result<Vec<_>> = texts(filters).iter().map(|text| parse(text)).collect();
        Ok(EventFilter::of(predicates?))
    }

    /// Adds the time limits. Relative times count from `start`.
    pub fn between(self, filters: &Filters, clock: &Clock, start: FileTime) -> EventFilter {
        let raw = |point: Point| point.to_raw(clock, start);
        EventFilter { from: filters.from.map(raw), to: filters.to.map(raw), ..self }
    }

    fn of(predicates: Vec<Predicate>) -> EventFilter {
        let none = (0, MissingCounts::default());
        let undecided = predicates.iter().map(|predicate| vec![none; predicate.names().count()]).collect();
        EventFilter {
            predicates,
            from: None,
            to: None,
            cut: Window::default(),
            undecided: RefCell::new(undecided),
            evaluated: Cell::new(0),
            selected: Cell::new(0),
            kinds: RefCell::new(Some(Kinds::default())),
        }
    }

    /// The times that are selected, within those to which the trace was cut: events of other times are
    /// not complete in it.
    pub fn window(&self) -> Window {
        let time = |raw: RawTime| TraceTime(raw.0);
        Window {
            from: self.from.map(time).max(self.cut.from),
            to: self.to.map(time).into_iter().chain(self.cut.to).min(),
        }
    }

    /// The number of selected events, if there is a condition.
    pub fn selected(&self) -> Option<u64> {
        let has_condition = !self.predicates.is_empty() || self.from.is_some() || self.to.is_some();
        has_condition.then(|| self.selected.get())
    }

    /// The number of undecided events and the missing fields, for the closing line.
    pub fn undecided(&self) -> String {
        let counts = self.undecided.borrow();
        let mut missing: Vec<(u64, String)> = Vec::new();
        for (predicate, counts) in self.predicates.iter().zip(&*counts) {
            for ((count, reasons), name) in counts.iter().zip(predicate.names()) {
                let text = match reasons.total() {
                    0 => format!("{name} {}", grouped(*count)),
                    _ => format!("{name} {} ({reasons})", grouped(*count)),
                };
                missing.extend((*count > 0).then_some((*count, text)));
            }
        }
        missing.sort_by(|(a, _), (b, _)| b.cmp(a));
        let total: u64 = missing.iter().map(|(count, _)| count).sum();
        let missing: Vec<String> = missing.into_iter().map(|(_, text)| text).collect();
        match total {
            0 => String::new(),
            _ => {
                let events = counted(total, "event", "events");
                format!(", {events} undecided (missing: {})", missing.join(", "))
            }
        }
    }

    /// Whether a predicate uses names of functions.
    pub fn names_functions(&self) -> bool {
        self.predicates.iter().any(Predicate::names_functions)
    }

    /// Whether a predicate uses the code of images.
    pub fn reads_code(&self) -> bool {
        self.predicates.iter().any(Predicate::reads_code)
    }

    /// Whether the event is selected.
    pub fn wants(&self, view: &EventView<'_>) -> bool {
        self.choice(view, false) == Choice::Selected
    }

    /// Whether the event is selected. `is_at_any_time` asks for the other conditions too if it is not in
    /// the selected time.
    pub fn choice(&self, view: &EventView<'_>, is_at_any_time: bool) -> Choice {
        let time = RawTime(view.time().0);
        let is_within = self.from.is_none_or(|from| time >= from) && self.to.is_none_or(|to| time < to);
        let is_wanted = is_within && self.holds(view);
        self.count(view, is_wanted);
        match is_wanted {
            true => Choice::Selected,
            false if is_at_any_time && !is_within && self.decide(view).is_ok_and(|holds| holds) => {
                Choice::AtOtherTime
            }
            false => Choice::No,
        }
    }

    /// Counts an evaluated event.
    fn count(&self, view: &EventView<'_>, is_wanted: bool) {
        self.evaluated.set(self.evaluated.get() + 1);
        if is_wanted {
            self.selected.set(self.selected.get() + 1);
            self.kinds.replace(None);
        } else if let Some(kinds) = &mut *self.kinds.borrow_mut() {
            let new = || (0, view.name().to_string());
            kinds.entry(TriggerKind::of(view.event())).or_insert_with(new).0 += 1;
        }
    }

    /// Whether the event is selected if its time does not matter: for intervals that end with it.
    pub fn holds_at_any_time(&self, view: &EventView<'_>) -> bool {
        let holds = self.holds(view);
        self.count(view, holds);
        holds
    }

    /// If no event was selected: the number of events, and the events and processes of the trace.
    pub fn no_match(&self, system: &System) -> Option<String> {
        let kinds = self.kinds.borrow();
        let kinds = kinds.as_ref().filter(|kinds| !kinds.is_empty())?;
        let mut events: Vec<(u64, &str)> = kinds.values().map(|(count, name)| (*count, &**name)).collect();
        events.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(b.1)));
        let events = events.into_iter().map(|(_, name)| name).collect();
        let mut processes: Vec<&str> = system.processes().map(|process| process.image_name()).collect();
        processes.sort_unstable();
        processes.dedup();
        processes.retain(|name| !name.is_empty());
        let (events, processes) = (listed("events", events), listed("processes", processes));
        Some(format!("0 of {} events match{events}{processes}", grouped(self.evaluated.get())))
    }

    /// The modules in the expression that the trace does not contain.
    pub fn unknown_modules(&self, system: &System) -> Vec<String> {
        self.predicates.iter().flat_map(|predicate| predicate.unknown_modules(system)).collect()
    }

    fn holds(&self, view: &EventView<'_>) -> bool {
        match self.decide(view) {
            Ok(holds) => holds,
            Err((number, field)) => {
                let (count, reasons) = &mut self.undecided.borrow_mut()[number][field];
                *count += 1;
                if let Some(reason) = self.predicates[number].missing(view, field) {
                    reasons.add(reason);
                }
                false
            }
        }
    }

    /// Whether all predicates hold; if that is undecided, the predicate and its field.
    fn decide(&self, view: &EventView<'_>) -> Result<bool, (usize, usize)> {
        let mut undecided = None;
        for (number, predicate) in self.predicates.iter().enumerate() {
            match predicate.decide(view) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(Undecided(field)) => undecided = undecided.or(Some((number, field))),
            }
        }
        undecided.map_or(Ok(true), Err)
    }

    /// Whether the event is selected. Breaks if no later event can be.
    pub fn choose(&self, view: &EventView<'_>) -> ControlFlow<(), bool> {
        if self.is_past(view) { ControlFlow::Break(()) } else { ControlFlow::Continue(self.wants(view)) }
    }

    /// Whether the event is after the end of the selected time, so that no later event is selected.
    pub fn is_past(&self, view: &EventView<'_>) -> bool {
        self.to.is_some_and(|to| RawTime(view.time().0) >= to)
    }
}

/// Selects all events of a kind, such as `FileIo/*`.
pub fn of_kind(pattern: &str) -> Result<Predicate> {
    parse(&format!("event i~ {}", quoted(pattern)))
}

/// The short options and the expression, each as an expression. All must be true.
pub fn texts(filters: &Filters) -> Vec<String> {
    let any = |field: &str, operator: &str, values: &[String]| {
        let terms = values.iter().map(|value| format!("{field} {operator} {}", quoted(value)));
        terms.collect::<Vec<_>>().join(" or ")
    };
    let ids: Vec<_> = filters.pid.iter().map(|pid| format!("pid = {pid}")).collect();
    let mut texts = vec![
        ids.join(" or "),
        any("process", "i~", &filters.process),
        any("provider", "i~", &filters.provider),
        any("event", "i~", &filters.event),
    ];
    texts.extend(filters.expression.clone());
    texts.retain(|text| !text.is_empty());
    texts
}

/// The times to which a trace was cut.
pub fn cut_window(notes: &[CutNote]) -> Window {
    notes.iter().fold(Window::default(), |cut, note| Window {
        from: cut.from.max(note.from),
        to: cut.to.into_iter().chain(note.to).min(),
    })
}

/// The conditions, as a text for people. Empty without any.
pub fn described(filters: &Filters) -> String {
    let times = [("from", filters.from), ("to", filters.to)];
    let times = times.into_iter().filter_map(|(name, point)| Some(format!("{name} {}", point?)));
    texts(filters).into_iter().chain(times).collect::<Vec<_>>().join(", ")
}

/// Converts an error in an expression to the error that the program reports.
pub fn rendered(error: &stackhound::expr::Error, text: &str) -> anyhow::Error {
    // The program adds "error: " itself.
    let message = error.render(text);
    RefusedFilter(message.strip_prefix("error: ").unwrap_or(&message).to_owned()).into()
}

fn listed(kind: &str, names: Vec<&str>) -> String {
    match (names.split_at_checked(LISTED_MAX), names.is_empty()) {
        (_, true) => String::new(),
        (Some((first, rest)), _) if !rest.is_empty() => {
            format!("; {kind}: {} and {} more", first.join(", "), grouped(rest.len() as u64))
        }
        _ => format!("; {kind}: {}", names.join(", ")),
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn parse(text: &str) -> Result<Predicate> {
    Predicate::parse(text).map_err(|error| rendered(&error, text))
}
