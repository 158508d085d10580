//! The facts of the state as fields, for filters and for counts of missing values.

use std::ops::ControlFlow;

use stackhound_expr::{Value, Visitor};
use stackhound_system::ModuleRef;
use stackhound_types::{Rfc3339, file_name};

use super::shown::{guid, shown};
use crate::event_view::EventView;
use crate::facts::{Missing, ProcessView, ThreadStart};
use crate::label::stem;

/// A field that the state of the trace provides for an event.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Fact(Subject, Part);

/// The object that a fact is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Subject {
    Event,
    Process,
    Parent,
    Target,
    TargetProcess,
    Thread,
    TargetThread,
}

/// A property of an object.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Part {
    FilePath,
    FileName,
    KeyPath,
    KeyValue,
    Pid,
    Tid,
    Name,
    Path,
    CommandLine,
    User,
    UserSid,
    UserName,
    Session,
    Integrity,
    StartTime,
    Entity,
    TimeDateStamp,
    ImageSize,
    PdbName,
    PdbGuid,
    StartAddress,
    StartModule,
    StartRva,
}

/// All facts with their names in filters, which are the paths of their keys in NDJSON.
const FACTS: [(&str, Fact); 40] = [
    ("process.name", Fact(Subject::Process, Part::Name)),
    ("process.path", Fact(Subject::Process, Part::Path)),
    ("process.command_line", Fact(Subject::Process, Part::CommandLine)),
    ("process.parent.pid", Fact(Subject::Parent, Part::Pid)),
    ("process.parent.name", Fact(Subject::Parent, Part::Name)),
    ("process.parent.path", Fact(Subject::Parent, Part::Path)),
    ("process.user", Fact(Subject::Process, Part::User)),
    ("process.user.sid", Fact(Subject::Process, Part::UserSid)),
    ("process.user.name", Fact(Subject::Process, Part::UserName)),
    ("process.session", Fact(Subject::Process, Part::Session)),
    ("process.integrity", Fact(Subject::Process, Part::Integrity)),
    ("process.start_time", Fact(Subject::Process, Part::StartTime)),
    ("process.entity", Fact(Subject::Process, Part::Entity)),
    ("process.image.time_date_stamp", Fact(Subject::Process, Part::TimeDateStamp)),
    ("process.image.size", Fact(Subject::Process, Part::ImageSize)),
    ("process.image.pdb.name", Fact(Subject::Process, Part::PdbName)),
    ("process.image.pdb.guid", Fact(Subject::Process, Part::PdbGuid)),
    ("thread.start_address", Fact(Subject::Thread, Part::StartAddress)),
    ("thread.start_module", Fact(Subject::Thread, Part::StartModule)),
    ("thread.start_rva", Fact(Subject::Thread, Part::StartRva)),
    ("file.path", Fact(Subject::Event, Part::FilePath)),
    ("file.name", Fact(Subject::Event, Part::FileName)),
    ("registry.path", Fact(Subject::Event, Part::KeyPath)),
    ("registry.value", Fact(Subject::Event, Part::KeyValue)),
    ("target.pid", Fact(Subject::Target, Part::Pid)),
    ("target.tid", Fact(Subject::Target, Part::Tid)),
    ("target.process.name", Fact(Subject::TargetProcess, Part::Name)),
    ("target.process.path", Fact(Subject::TargetProcess, Part::Path)),
    ("target.process.command_line", Fact(Subject::TargetProcess, Part::CommandLine)),
    ("target.process.user", Fact(Subject::TargetProcess, Part::User)),
    ("target.process.user.sid", Fact(Subject::TargetProcess, Part::UserSid)),
    ("target.process.user.name", Fact(Subject::TargetProcess, Part::UserName)),
    ("target.process.session", Fact(Subject::TargetProcess, Part::Session)),
    ("target.process.integrity", Fact(Subject::TargetProcess, Part::Integrity)),
    ("target.process.start_time", Fact(Subject::TargetProcess, Part::StartTime)),
    ("target.process.entity", Fact(Subject::TargetProcess, Part::Entity)),
    ("target.thread.start_address", Fact(Subject::TargetThread, Part::StartAddress)),
    ("target.thread.start_module", Fact(Subject::TargetThread, Part::StartModule)),
    ("target.thread.start_rva", Fact(Subject::TargetThread, Part::StartRva)),
    ("process.parent_pid", Fact(Subject::Parent, Part::Pid)),
];

impl Fact {
    /// All facts.
    pub fn all() -> impl Iterator<Item = Fact> {
        // The last entry is the name of a key in findings.
        FACTS[..FACTS.len() - 1].iter().map(|(_, fact)| *fact)
    }

    /// All names, also those that several facts have.
    pub(super) fn names() -> impl Iterator<Item = &'static str> {
        FACTS.iter().map(|(name, _)| *name)
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
        let Fact(subject, part) = self;
        let target = || view.target().ok_or(Missing::NotStated);
        match subject {
            Subject::Event => of_event(view, part, visit),
            Subject::Process => of_process(view.process()?, part, visit),
            // The id is known even if the process is not.
            Subject::Parent if part == Part::Pid => number(view.process()?.parent_pid()?.0, visit),
            Subject::Parent => of_process(view.process()?.parent()?, part, visit),
            Subject::Target if part == Part::Pid => {
                number(target()?.pid().ok_or(Missing::NotStated)?.0, visit)
            }
            Subject::Target => number(target()?.tid().ok_or(Missing::NotStated)?.0, visit),
            Subject::TargetProcess => of_process(target()?.process()?, part, visit),
            Subject::Thread => of_start(view.thread_start()?, part, visit),
            Subject::TargetThread => of_start(target()?.thread_start()?, part, visit),
        }
    }
}

fn number(number: impl Into<u64>, visit: &mut Visitor<'_>) -> Result<ControlFlow<()>, Missing> {
    Ok(visit(Value::Unsigned(number.into())))
}

fn text(text: &str, visit: &mut Visitor<'_>) -> Result<ControlFlow<()>, Missing> {
    Ok(visit(Value::Text(text)))
}

fn of_event(view: &EventView<'_>, part: Part, visit: &mut Visitor<'_>) -> Result<ControlFlow<()>, Missing> {
    let registry = || view.registry().ok_or(Missing::NotStated);
    match part {
        Part::FilePath => text(&view.file_path()?, visit),
        Part::FileName => text(last_component(&view.file_path()?), visit),
        Part::KeyPath => text(&registry()?.path?, visit),
        Part::KeyValue => text(&registry()?.value?, visit),
        _ => Err(Missing::NotStated),
    }
}

/// The last component of a path; of a folder, the folder's name.
fn last_component(path: &str) -> &str {
    file_name(path.trim_end_matches('\\'))
}

fn of_process(
    process: ProcessView<'_>,
    part: Part,
    visit: &mut Visitor<'_>,
) -> Result<ControlFlow<()>, Missing> {
    match part {
        Part::Pid => number(process.pid().0, visit),
        Part::Name => text(process.name()?, visit),
        Part::Path => text(&process.path()?, visit),
        Part::CommandLine => text(process.command_line()?, visit),
        Part::User => {
            let sid = process.user_sid()?;
            if let Ok(name) = process.user_name()
                && visit(Value::Text(name)).is_break()
            {
                return Ok(ControlFlow::Break(()));
            }
            Ok(shown(sid, visit))
        }
        Part::UserSid => Ok(shown(process.user_sid()?, visit)),
        Part::UserName => text(process.user_name()?, visit),
        Part::Session => number(process.session()?, visit),
        Part::Integrity => text(process.integrity()?, visit),
        Part::StartTime => Ok(shown(Rfc3339(process.start_time()?), visit)),
        Part::Entity => Ok(shown(process.entity(), visit)),
        Part::TimeDateStamp => number(process.image()?.time_date_stamp, visit),
        Part::ImageSize => number(process.image()?.size, visit),
        Part::PdbName => text(process.pdb()?.file_name(), visit),
        Part::PdbGuid => Ok(guid(process.pdb()?.guid, visit)),
        _ => Err(Missing::NotStated),
    }
}

fn of_start(start: ThreadStart<'_>, part: Part, visit: &mut Visitor<'_>) -> Result<ControlFlow<()>, Missing> {
    match part {
        Part::StartAddress => number(start.address.0, visit),
        Part::StartModule => Ok(of_module(start.module?.0, visit)),
        Part::StartRva => number(start.module?.1, visit),
        _ => Err(Missing::NotStated),
    }
}

/// Visits the names of a module, as for frames: the file name with and without its extension, and
/// the path.
fn of_module(module: ModuleRef<'_>, visit: &mut Visitor<'_>) -> ControlFlow<()> {
    visit(Value::Text(module.file_name()))?;
    if let Some(stem) = stem(module.file_name()) {
        visit(Value::Text(stem))?;
    }
    visit(Value::Text(module.path()))
}
