//! Which events a verb shows: one filter out of all options.

use std::ops::ControlFlow;

use anyhow::{Result, anyhow};
use stackhound::enrich::{CreateEnd, Summary};
use stackhound::schema::{OutType, Value as FieldValue};
use stackhound::trace::OpenTrace;
use stackhound::{Label, RawTime, Seen};
use stackhound_expr::{Filter, Matcher, Value, Visitor};

use crate::args::Filters;
use crate::record::final_user;

/// What an expression can name.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Name {
    Time,
    Ts,
    Cpu,
    Pid,
    Tid,
    Process,
    Provider,
    Event,
    Id,
    Opcode,
    Version,
    StackState,
    /// Modules of all frames: file names and paths.
    StackModule,
    /// Names of all frames, as far as they are named, alone and behind `module!`.
    StackSymbol,
    StackSummary,
    ContainsUnbacked,
    FinalUserModule,
    CreateAsked,
    CreateHappened,
    /// A field of the payload.
    Field(String),
}

/// Names outside the payload, in the order of the NDJSON keys.
const NAMES: [(&str, Name); 19] = [
    ("time", Name::Time),
    ("ts", Name::Ts),
    ("cpu", Name::Cpu),
    ("pid", Name::Pid),
    ("tid", Name::Tid),
    ("process", Name::Process),
    ("provider", Name::Provider),
    ("event", Name::Event),
    ("id", Name::Id),
    ("opcode", Name::Opcode),
    ("version", Name::Version),
    ("stack.state", Name::StackState),
    ("stack.module", Name::StackModule),
    ("stack.symbol", Name::StackSymbol),
    ("stack.summary", Name::StackSummary),
    ("stack.contains_unbacked", Name::ContainsUnbacked),
    ("stack.final_user_module", Name::FinalUserModule),
    ("create.asked", Name::CreateAsked),
    ("create.happened", Name::CreateHappened),
];

/// Decides about events.
#[derive(Debug)]
pub struct EventFilter {
    matchers: Vec<Matcher<Name>>,
    /// Whether names of functions are asked for.
    names_functions: bool,
    from: Option<RawTime>,
    to: Option<RawTime>,
}

impl EventFilter {
    /// Puts the short cuts and the expression together.
    pub fn new(filters: &Filters, trace: &OpenTrace) -> Result<EventFilter> {
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
        let mut names_functions = false;
        let texts = texts.iter().filter(|text| !text.is_empty());
        let matchers: Result<Vec<_>> = texts.map(|text| compile(text, &mut names_functions)).collect();
        let session = trace.sources()[0].recording.session();
        let raw = |point: crate::time::Point| point.to_raw(&trace.clock(), session.start_time);
        let (from, to) = (filters.from.map(raw), filters.to.map(raw));
        Ok(EventFilter { matchers: matchers?, names_functions, from, to })
    }

    /// Of all events of a kind, such as `FileIo/*`.
    pub fn of_kind(pattern: &str) -> Result<EventFilter> {
        let mut names_functions = false;
        let matcher = compile(&format!("event i~ {}", quoted(pattern)), &mut names_functions)?;
        Ok(EventFilter { matchers: vec![matcher], names_functions, from: None, to: None })
    }

    /// Whether the names of functions decide.
    pub fn names_functions(&self) -> bool {
        self.names_functions
    }

    /// Whether the event is wanted.
    pub fn wants(&self, seen: &Seen<'_>) -> bool {
        let time = RawTime(seen.time().0);
        self.from.is_none_or(|from| time >= from)
            && self.to.is_none_or(|to| time < to)
            && self.matchers.iter().all(|matcher| matcher.matches(|name, visit| look_up(seen, name, visit)))
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

/// Sets `names_functions` if the filter asks for names of functions.
fn compile(text: &str, names_functions: &mut bool) -> Result<Matcher<Name>> {
    // The program says "error: " itself.
    let explain = |error: stackhound_expr::Error| {
        let told = error.render(text).to_string();
        anyhow!("{}", told.strip_prefix("error: ").unwrap_or(&told).to_owned())
    };
    let filter = Filter::parse(text).map_err(explain)?;
    let names: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
    let resolve = |name: &str| {
        let known = NAMES.iter().find(|(known, _)| *known == name).map(|(_, name)| name.clone());
        *names_functions |= known == Some(Name::StackSymbol);
        known.or_else(|| name.strip_prefix("fields.").map(|field| Name::Field(field.to_owned())))
    };
    filter.compile(&names, resolve).map_err(explain)
}

fn look_up(seen: &Seen<'_>, name: &Name, visit: &mut Visitor<'_>) -> ControlFlow<()> {
    let unsigned = |number: Option<u64>, visit: &mut Visitor<'_>| match number {
        Some(number) => visit(Value::Unsigned(number)),
        None => ControlFlow::Continue(()),
    };
    match name {
        Name::Time => visit(Value::Text(&crate::render::utc(seen.utc()))),
        Name::Ts => visit(Value::Signed(seen.raw_time().0)),
        Name::Cpu => unsigned(seen.processor().map(u64::from), visit),
        Name::Pid => unsigned(seen.pid().map(|pid| pid.0.into()), visit),
        Name::Tid => unsigned(seen.tid().map(|tid| tid.0.into()), visit),
        Name::Process => match seen.process_name() {
            Some(process) => visit(Value::Text(process)),
            None => ControlFlow::Continue(()),
        },
        Name::Provider => {
            visit(Value::Text(&seen.provider()))?;
            match seen.provider_guid() {
                Some(guid) => visit(Value::Text(&guid.to_string())),
                None => ControlFlow::Continue(()),
            }
        }
        Name::Event => visit(Value::Text(&seen.name())),
        Name::Id => visit(Value::Unsigned(seen.id().into())),
        Name::Opcode => visit(Value::Unsigned(seen.opcode().into())),
        Name::Version => visit(Value::Unsigned(seen.version().into())),
        Name::StackState => visit(Value::Text(seen.state().name())),
        Name::StackModule => look_up_modules(seen, visit),
        Name::StackSymbol => look_up_symbols(seen, visit),
        Name::StackSummary => with_summary(seen, |summary| visit(Value::Text(summary.user()))),
        Name::ContainsUnbacked => {
            with_summary(seen, |summary| visit(Value::Text(summary.contains_unbacked().name())))
        }
        Name::FinalUserModule => {
            with_summary(seen, |summary| match final_user(seen.knowledge().system(), summary.final_user()) {
                Some(module) => visit(Value::Text(&module)),
                None => ControlFlow::Continue(()),
            })
        }
        Name::CreateAsked => match seen.create() {
            Some(create) => visit(Value::Text(create.asked.name())),
            None => ControlFlow::Continue(()),
        },
        Name::CreateHappened => match seen.create().map(|create| create.end) {
            Some(CreateEnd::Told { happened, .. }) => visit(Value::Text(happened.name())),
            _ => ControlFlow::Continue(()),
        },
        Name::Field(field) => match seen.field(field) {
            Some((field, value)) => visit_field(field, value, visit),
            None => ControlFlow::Continue(()),
        },
    }
}

fn look_up_modules(seen: &Seen<'_>, visit: &mut Visitor<'_>) -> ControlFlow<()> {
    for frame in seen.frames() {
        if let Some(module) = (Label { frame: &frame, names: None }).module() {
            visit(Value::Text(&module))?;
        }
        if let Some(module) = frame.module() {
            visit(Value::Text(module.path()))?;
        }
    }
    ControlFlow::Continue(())
}

fn look_up_symbols(seen: &Seen<'_>, visit: &mut Visitor<'_>) -> ControlFlow<()> {
    for frame in seen.frames() {
        let names = seen.names(&frame);
        let label = Label { frame: &frame, names: names.as_deref() };
        if let Some((module, name)) = label.module().zip(label.name()) {
            visit(Value::Text(&name.text))?;
            visit(Value::Text(&format!("{module}!{}", name.text)))?;
        }
    }
    ControlFlow::Continue(())
}

/// Only of events with a stack.
fn with_summary(seen: &Seen<'_>, visit: impl FnOnce(&Summary) -> ControlFlow<()>) -> ControlFlow<()> {
    if seen.stack().is_none() {
        return ControlFlow::Continue(());
    }
    let mut summary = Summary::default();
    seen.summarize(&mut summary);
    visit(&summary)
}

/// Numbers compare as numbers; where a field is shown as something else, as that too.
fn visit_field(
    field: &stackhound::schema::Field,
    value: FieldValue<'_>,
    visit: &mut Visitor<'_>,
) -> ControlFlow<()> {
    match value {
        FieldValue::Null => return ControlFlow::Continue(()),
        FieldValue::Bool(truth) => return visit(Value::Bool(truth)),
        FieldValue::Float(number) => return visit(Value::Float(number)),
        FieldValue::Unsigned(number) if field.out_type == OutType::Port => {
            return visit(Value::Unsigned((number as u16).swap_bytes().into()));
        }
        FieldValue::Unsigned(number) | FieldValue::Hex(number) | FieldValue::Pointer(number) => {
            visit(Value::Unsigned(number))?;
            if field.map.is_none() && field.out_type == OutType::Default {
                return ControlFlow::Continue(());
            }
        }
        FieldValue::Signed(number) => {
            visit(Value::Signed(number))?;
            if field.map.is_none() {
                return ControlFlow::Continue(());
            }
        }
        FieldValue::RawTime(time) => return visit(Value::Signed(time.0)),
        _ => {}
    }
    visit(Value::Text(&field.render(value).to_string()))
}
