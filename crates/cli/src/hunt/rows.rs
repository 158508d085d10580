//! The filter for Sysmon events, with the same options as for traces.

use std::cell::{Cell, OnceCell};
use std::ops::ControlFlow;
use std::sync::LazyLock;

use anyhow::{Result, bail};
use stackhound::detect::report::EventContext;
use stackhound::expr::{Filter, Matcher, Value, Visitor};
use stackhound::facts::ProcessFact;
use stackhound::types::{Rfc3339, file_name};
use stackhound::{Fact, FactSubject, FileTime, visit_fact};
use stackhound_sysmon::Evaluated;
use stackhound_sysmon::rules::WindowsEvent;

use crate::filter::{self, Filters};
use crate::output::counted;
use crate::time::Point;

/// A field of a Sysmon event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Time,
    Host,
    Pid,
    Tid,
    Process,
    Provider,
    Event,
    Id,
    SourceImage,
    TargetImage,
    TargetPid,
    Access,
    StartModule,
    StartFunction,
    CallTrace,
    StackModule,
    StackSummary,
    FinalUserModule,
    /// A fact about the acting process, or about the target.
    Fact(Fact),
    TargetTid,
}

const FIELDS: [(&str, Field); 21] = [
    ("time", Field::Time),
    ("host", Field::Host),
    ("pid", Field::Pid),
    ("tid", Field::Tid),
    ("process", Field::Process),
    ("process.name", Field::Process),
    ("provider", Field::Provider),
    ("event", Field::Event),
    ("id", Field::Id),
    ("fields.SourceImage", Field::SourceImage),
    ("fields.TargetImage", Field::TargetImage),
    ("fields.TargetProcessId", Field::TargetPid),
    ("target.pid", Field::TargetPid),
    ("target.tid", Field::TargetTid),
    ("fields.GrantedAccess", Field::Access),
    ("fields.StartModule", Field::StartModule),
    ("fields.StartFunction", Field::StartFunction),
    ("fields.CallTrace", Field::CallTrace),
    ("stack.module", Field::StackModule),
    ("stack.summary", Field::StackSummary),
    ("stack.final_user_module", Field::FinalUserModule),
];

/// All fields with their names, those of the catalogue of facts with the names that they have for traces.
static NAMES: LazyLock<Vec<(&str, Field)>> = LazyLock::new(|| {
    let is_of_process = |fact: &Fact| match fact {
        // A field of its own, for which no stack is read.
        Fact::Process(FactSubject::Own, ProcessFact::Name) => false,
        Fact::Process(..) | Fact::User(_) => true,
        Fact::Thread(..) | Fact::Event(_) => false,
    };
    let facts = Fact::all().filter(is_of_process).map(|fact| (fact.name(), Field::Fact(fact)));
    FIELDS.into_iter().chain(facts).collect()
});

const PROVIDER: &str = "Microsoft-Windows-Sysmon";

/// Selects Sysmon events.
#[derive(Debug, Default)]
pub struct RowFilter {
    /// All of these must be true.
    matchers: Vec<Matcher<Field>>,
    from: Option<FileTime>,
    to: Option<FileTime>,
    undecided: Cell<u64>,
}

impl RowFilter {
    pub fn new(filters: &Filters) -> Result<RowFilter> {
        let names: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
        let field = |name: &str| NAMES.iter().find(|(known, _)| *known == name).map(|(_, field)| *field);
        let matcher = |text: String| {
            let parsed = Filter::parse(&text).and_then(|filter| filter.compile(&names, field));
            parsed.map_err(|error| filter::rendered(&error, &text))
        };
        Ok(RowFilter {
            matchers: filter::texts(filters).into_iter().map(matcher).collect::<Result<_>>()?,
            from: filters.from.map(absolute).transpose()?,
            to: filters.to.map(absolute).transpose()?,
            undecided: Cell::new(0),
        })
    }

    /// Whether an event is selected.
    pub fn wants(&self, evaluated: &Evaluated<'_>) -> bool {
        let event_context = OnceCell::new();
        let look_up =
            |field: &Field, visit: &mut Visitor<'_>| look_up(evaluated, *field, &event_context, visit);
        self.decide(evaluated.row.time, look_up)
    }

    /// Whether an event for which a rule was evaluated is selected.
    pub fn wants_event(&self, event: &WindowsEvent, event_context: &EventContext) -> bool {
        let look_up =
            |field: &Field, visit: &mut Visitor<'_>| look_up_event(event, event_context, *field, visit);
        self.decide(event.time, look_up)
    }

    fn decide(
        &self,
        time: Option<u64>,
        look_up: impl Fn(&Field, &mut Visitor<'_>) -> ControlFlow<()>,
    ) -> bool {
        let time = time.and_then(|time| i64::try_from(time).ok()).map(FileTime);
        let is_between = match time {
            Some(time) => {
                self.from.is_none_or(|from| time.0 >= from.0) && self.to.is_none_or(|to| time.0 < to.0)
            }
            None => self.from.is_none() && self.to.is_none(),
        };
        if !is_between {
            return false;
        }
        let mut is_open = false;
        for matcher in &self.matchers {
            match matcher.decide(&look_up) {
                Ok(true) => {}
                Ok(false) => return false,
                Err(_) => is_open = true,
            }
        }
        self.undecided.set(self.undecided.get() + u64::from(is_open));
        !is_open
    }

    /// The number of undecided rows, for the closing line.
    pub fn undecided(&self) -> String {
        match self.undecided.get() {
            0 => String::new(),
            count => format!(", {} undecided", counted(count, "row", "rows")),
        }
    }
}

fn absolute(point: Point) -> Result<FileTime> {
    match point {
        Point::Absolute(time) => Ok(time),
        Point::SinceStart(_) => {
            bail!(
                "Sysmon events have no start time for a relative time; write an absolute time such as 2026-01-31T12:00:00Z"
            )
        }
    }
}

/// Looks up a field of an event of any log. Stacks are missing.
fn look_up_event(
    event: &WindowsEvent,
    event_context: &EventContext,
    field: Field,
    visit: &mut Visitor<'_>,
) -> ControlFlow<()> {
    let missing = ControlFlow::Continue(());
    let mut text = |text: &str| if text.is_empty() { missing } else { visit(Value::Text(text)) };
    let mut data = |name: &str| text(event.get(name).unwrap_or_default());
    let number = match field {
        Field::Pid => event_context.process.pid,
        Field::Tid => event_context.process.tid,
        Field::Id => event.id,
        Field::TargetPid => event_context.event.target_pid(),
        Field::Time => {
            let time = event.time.and_then(|time| i64::try_from(time).ok());
            return time.map_or(missing, |time| text(&Rfc3339(FileTime(time)).to_string()));
        }
        Field::Host => return text(&event.host),
        Field::Process => return text(event_context.process.name()),
        Field::Provider => return text(&event_context.event.provider),
        Field::Event => {
            let name = match event.id {
                Some(8) if event.is_of_sysmon() => "CreateRemoteThread",
                Some(10) if event.is_of_sysmon() => "ProcessAccess",
                Some(25) if event.is_of_sysmon() => "ProcessTampering",
                _ => return text(&event_context.event.name),
            };
            text(name)?;
            return text(&format!("Sysmon/{name}"));
        }
        Field::SourceImage => return data("SourceImage"),
        Field::TargetImage => return data("TargetImage"),
        Field::Access => return data("GrantedAccess"),
        Field::StartModule => return data("StartModule"),
        Field::StartFunction => return data("StartFunction"),
        Field::CallTrace => return data("CallTrace"),
        Field::StackModule | Field::StackSummary | Field::FinalUserModule => return missing,
        Field::TargetTid => event_context.event.target.as_ref().and_then(|target| target.tid),
        Field::Fact(fact) => return visit_facts(event_context, fact, visit),
    };
    number.map_or(missing, |number| visit(Value::Unsigned(number.into())))
}

/// Visits the values of a fact about the acting process or the target.
fn visit_facts(event_context: &EventContext, fact: Fact, visit: &mut Visitor<'_>) -> ControlFlow<()> {
    let (subject, facts) = match &fact {
        Fact::Process(subject, fact) => (*subject, std::slice::from_ref(fact)),
        Fact::User(subject) => (*subject, &[ProcessFact::UserName, ProcessFact::UserSid][..]),
        Fact::Thread(..) | Fact::Event(_) => return ControlFlow::Continue(()),
    };
    let process = match subject {
        FactSubject::Own => Some(&event_context.process),
        FactSubject::Target => event_context.event.target.as_ref(),
    };
    let Some(process) = process else { return ControlFlow::Continue(()) };
    facts.iter().filter_map(|fact| process.facts.get(*fact)).try_for_each(|value| visit_fact(value, visit))
}

fn look_up(
    evaluated: &Evaluated<'_>,
    field: Field,
    event_context: &OnceCell<EventContext>,
    visit: &mut Visitor<'_>,
) -> ControlFlow<()> {
    use stackhound_sysmon::row::Action;
    let (row, missing) = (evaluated.row, ControlFlow::Continue(()));
    let mut text = |text: &str| if text.is_empty() { missing } else { visit(Value::Text(text)) };
    let target = match row.action {
        Action::ProcessAccess { target, .. } | Action::RemoteThread { target, .. } => Some(target),
        _ => None,
    };
    let number = match field {
        Field::Pid => row.actor.pid,
        Field::Tid => row.actor.tid,
        Field::Id => Some(row.action.event_id()),
        Field::TargetPid => target.and_then(|target| target.pid),
        Field::Access => match row.action {
            Action::ProcessAccess { access, .. } => access,
            _ => None,
        },
        Field::Time => {
            let time = row.time.and_then(|time| i64::try_from(time).ok());
            return time.map_or(missing, |time| text(&Rfc3339(FileTime(time)).to_string()));
        }
        Field::Host => return text(row.host),
        Field::Process => return text(file_name(row.actor.image)),
        Field::Provider => return text(PROVIDER),
        Field::Event => {
            text(row.action.event_name())?;
            return text(&format!("Sysmon/{}", row.action.event_name()));
        }
        Field::SourceImage => return text(row.actor.image),
        Field::TargetImage => return text(target.map_or("", |target| target.image)),
        Field::StartModule | Field::StartFunction => match row.action {
            Action::RemoteThread { module, function, .. } => {
                return text(if field == Field::StartModule { module } else { function });
            }
            _ => return missing,
        },
        Field::CallTrace => match row.action {
            Action::ProcessAccess { call_trace, .. } => return text(call_trace),
            _ => return missing,
        },
        Field::TargetTid => match row.action {
            Action::RemoteThread { tid, .. } => tid,
            _ => None,
        },
        Field::Fact(fact) => {
            return visit_facts(event_context.get_or_init(|| evaluated.event_context()), fact, visit);
        }
        Field::StackModule | Field::StackSummary | Field::FinalUserModule => {
            let event_context = event_context.get_or_init(|| evaluated.event_context());
            if event_context.stack.is_empty() {
                return missing;
            }
            return match field {
                Field::StackSummary => text(&event_context.summary),
                Field::FinalUserModule => {
                    text(event_context.final_user_module.as_deref().unwrap_or_default())
                }
                _ => event_context.stack.iter().try_for_each(|frame| {
                    text(frame.module_name())?;
                    text(&frame.module)
                }),
            };
        }
    };
    number.map_or(missing, |number| visit(Value::Unsigned(number.into())))
}
