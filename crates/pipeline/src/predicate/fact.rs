//! The facts of the catalogue as fields, for filters and for counts of missing values.

use std::ops::ControlFlow;
use std::sync::LazyLock;

use stackhound_expr::{Value, Visitor};
use stackhound_facts::{EventFact, FactId, FactValue, ProcessFact, ThreadFact};
use stackhound_types::file_name;

use super::shown::{guid, shown};
use crate::event_view::EventView;
use crate::facts::{Missing, ProcessView, ThreadStart};
use crate::label::stem;

/// A field that the state of the trace provides for an event.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fact {
    /// A fact about a process.
    Process(FactSubject, ProcessFact),
    /// The user of a process: its name and its security identifier.
    User(FactSubject),
    /// A fact about a thread.
    Thread(FactSubject, ThreadFact),
    /// A fact about an object of the event.
    Event(EventFact),
}

/// The process and thread that a fact is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FactSubject {
    /// Those of the event.
    Own,
    /// Those that the event acts on.
    Target,
}

/// All facts with their names in filters, which are the paths of their keys in NDJSON.
static FACTS: LazyLock<Vec<(String, Fact)>> = LazyLock::new(|| {
    let mut facts = Vec::new();
    for (subject, prefix) in [(FactSubject::Own, ""), (FactSubject::Target, "target.")] {
        if subject == FactSubject::Target {
            facts.extend(EventFact::ALL.iter().map(|&fact| (fact.row().path.to_owned(), Fact::Event(fact))));
        }
        for &fact in ProcessFact::ALL {
            if fact == ProcessFact::UserSid {
                facts.push((format!("{prefix}process.user"), Fact::User(subject)));
            }
            facts.push((format!("{prefix}process.{}", fact.row().path), Fact::Process(subject, fact)));
        }
        let threads = ThreadFact::ALL.iter();
        facts.extend(
            threads.map(|&fact| (format!("{prefix}thread.{}", fact.row().path), Fact::Thread(subject, fact))),
        );
    }
    facts
});

impl Fact {
    /// All facts.
    pub fn all() -> impl Iterator<Item = Fact> {
        FACTS.iter().map(|(_, fact)| *fact)
    }

    /// All names.
    pub(super) fn names() -> impl Iterator<Item = &'static str> {
        FACTS.iter().map(|(name, _)| name.as_str())
    }

    /// The fact with a name in filters.
    pub fn of(name: &str) -> Option<Fact> {
        FACTS.iter().find(|(known, _)| *known == name).map(|(_, fact)| *fact)
    }

    /// The name in filters.
    pub fn name(self) -> &'static str {
        FACTS.iter().find(|(_, fact)| *fact == self).map_or("", |(name, _)| name)
    }

    /// The value for an event as text; of several, the first.
    ///
    /// # Errors
    /// The reason why it is not known.
    pub fn value(self, view: &EventView<'_>) -> Result<String, Missing> {
        let mut text = String::new();
        let _ = self.visit(view, &mut |value| {
            text = match value {
                Value::Text(shown) => shown.to_owned(),
                Value::Unsigned(number) => number.to_string(),
                _ => return ControlFlow::Continue(()),
            };
            ControlFlow::Break(())
        })?;
        Ok(text)
    }

    /// The reason why the value for an event is not known; `None` if it is.
    pub fn missing(self, view: &EventView<'_>) -> Option<Missing> {
        self.visit(view, &mut |_| ControlFlow::Break(())).err()
    }

    /// Visits the values for an event.
    pub(super) fn visit(
        self,
        view: &EventView<'_>,
        visit: &mut Visitor<'_>,
    ) -> Result<ControlFlow<()>, Missing> {
        match self {
            Fact::Process(subject, fact) => Ok(visit_fact(&process(view, subject)?.fact(fact)?, visit)),
            Fact::User(subject) => {
                let process = process(view, subject)?;
                let sid = process.user_sid()?;
                if let Ok(name) = process.user_name()
                    && visit(Value::Text(name)).is_break()
                {
                    return Ok(ControlFlow::Break(()));
                }
                Ok(shown(sid, visit))
            }
            // The module has the names of those of frames: the file name with and without its extension, and the path.
            Fact::Thread(subject, ThreadFact::StartModule) => {
                let (module, _) = start(view, subject)?.module?;
                let names = [Some(module.file_name()), stem(module.file_name()), Some(module.path())];
                Ok(names.into_iter().flatten().try_for_each(|name| visit(Value::Text(name))))
            }
            Fact::Thread(subject, fact) => Ok(visit_fact(&start(view, subject)?.fact(fact)?, visit)),
            Fact::Event(fact) => event(view, fact, visit),
        }
    }
}

fn process<'c>(view: &EventView<'c>, subject: FactSubject) -> Result<ProcessView<'c>, Missing> {
    match subject {
        FactSubject::Own => view.process(),
        FactSubject::Target => view.target().ok_or(Missing::NotStated)?.process(),
    }
}

fn start<'c>(view: &EventView<'c>, subject: FactSubject) -> Result<ThreadStart<'c>, Missing> {
    match subject {
        FactSubject::Own => view.thread_start(),
        FactSubject::Target => view.target().ok_or(Missing::NotStated)?.thread_start(),
    }
}

/// Visits a value of the catalogue. Does not allocate, unless a text is long.
pub fn visit_fact(value: &FactValue<'_>, visit: &mut Visitor<'_>) -> ControlFlow<()> {
    match value {
        FactValue::Text(text) => visit(Value::Text(text)),
        FactValue::Number(number) => visit(Value::Unsigned((*number).into())),
        FactValue::Hex(number) => visit(Value::Unsigned(*number)),
        FactValue::Guid(id) => guid(*id, visit),
        FactValue::Sid(_) | FactValue::Entity(..) | FactValue::Time(_) => shown(value, visit),
    }
}

/// Visits a fact about an object of the event.
fn event(view: &EventView<'_>, fact: EventFact, visit: &mut Visitor<'_>) -> Result<ControlFlow<()>, Missing> {
    let registry = || view.registry().ok_or(Missing::NotStated);
    let id = |id: Option<u32>, visit: &mut Visitor<'_>| {
        Ok(visit(Value::Unsigned(id.ok_or(Missing::NotStated)?.into())))
    };
    match fact {
        EventFact::FilePath => Ok(visit(Value::Text(&view.file_path()?))),
        EventFact::FileName => Ok(visit(Value::Text(last_component(&view.file_path()?)))),
        EventFact::RegistryPath => Ok(visit(Value::Text(&registry()?.path?))),
        EventFact::RegistryValue => Ok(visit(Value::Text(&registry()?.value?))),
        EventFact::TargetPid => id(view.target().and_then(|target| target.pid()).map(|pid| pid.0), visit),
        EventFact::TargetTid => id(view.target().and_then(|target| target.tid()).map(|tid| tid.0), visit),
    }
}

/// The last component of a path; of a folder, the folder's name.
fn last_component(path: &str) -> &str {
    file_name(path.trim_end_matches('\\'))
}
