//! The facts about a process.

use std::borrow::Cow;
use std::cell::OnceCell;

use stackhound_facts::{FactValue, ProcessFact, ProcessFacts};
use stackhound_frames::{CHANGES_MAX, ModuleIndex};
use stackhound_schema::Sid;
use stackhound_system::{Completeness, Evidence, ModuleRef, ProcessRef, Span};
use stackhound_trace::{Event, TraceTime};
use stackhound_types::{FileTime, ImageIdentity, PdbIdentity, Pid, PointerSize, last_component};

use super::missing::Missing;
use super::user::{integrity_name, well_known_name};
use crate::enrichment::Enricher;
use crate::trace_state::TraceState;

/// A process at the time of an event. Everything is computed on request.
#[derive(Clone, Copy, Debug)]
pub struct ProcessView<'c> {
    process: ProcessRef<'c>,
    time: TraceTime,
    /// Whether the program is asked for at any time: a process that has ended has unloaded its modules.
    is_at_any_time: bool,
    pointer_size: PointerSize,
    state: &'c TraceState,
    enricher: &'c Enricher,
}

impl<'c> ProcessView<'c> {
    pub(super) fn new(
        process: ProcessRef<'c>,
        event: &Event<'_>,
        state: &'c TraceState,
        enricher: &'c Enricher,
    ) -> ProcessView<'c> {
        let pointer_size = event.block().session().pointer_size;
        ProcessView { process, time: event.time(), is_at_any_time: false, pointer_size, state, enricher }
    }

    /// A process at a time, with the program that it has at any time.
    pub(crate) fn at(
        process: ProcessRef<'c>,
        time: TraceTime,
        state: &'c TraceState,
        enricher: &'c Enricher,
    ) -> ProcessView<'c> {
        let pointer_size = state.system().pointer_size();
        ProcessView { process, time, is_at_any_time: true, pointer_size, state, enricher }
    }

    /// The process in the state of the trace.
    pub fn process(&self) -> ProcessRef<'c> {
        self.process
    }

    /// The process id.
    pub fn pid(&self) -> Pid {
        self.process.pid()
    }

    /// The file name of the program.
    ///
    /// # Errors
    /// The reason why it is not known, as for all facts.
    pub fn name(&self) -> Result<&'c str, Missing> {
        known(self.process.image_name())
    }

    /// The path of the program, with a drive if the trace states the drives.
    ///
    /// # Errors
    /// See [`name`](ProcessView::name).
    pub fn path(&self) -> Result<Cow<'c, str>, Missing> {
        Related::new(self).path()
    }

    /// The module of the program.
    ///
    /// # Errors
    /// See [`name`](ProcessView::name).
    pub fn program(&self) -> Result<ModuleRef<'c>, Missing> {
        if self.pid().is_kernel_only() {
            return Err(Missing::NotRecorded);
        }
        let mut frames = self.enricher.frames.borrow_mut();
        let (system, id) = (self.state.system(), self.process.id());
        let program = frames.program(system, self.pointer_size, id, self.time);
        let program = program.map(|program| system.module(program));
        let at_any_time = || {
            if self.is_at_any_time { self.process.program_at_any_time(CHANGES_MAX) } else { None }
        };
        let program = program.or_else(at_any_time).ok_or(Missing::NoRundown)?;
        self.state.is_same_process(self.process, program.stated())?;
        Ok(program)
    }

    /// The command line, as given to the process.
    ///
    /// # Errors
    /// See [`name`](ProcessView::name).
    pub fn command_line(&self) -> Result<&'c str, Missing> {
        known(self.process.command_line())
    }

    /// The id of the process that this one inherits from.
    ///
    /// # Errors
    /// See [`name`](ProcessView::name).
    pub fn parent_pid(&self) -> Result<Pid, Missing> {
        self.process.parent_pid().ok_or(Missing::NotRecorded)
    }

    /// The process that this one inherits from. It is known if this process was started during the
    /// trace, or if the start times of both are recorded: before the trace, the id can have
    /// belonged to another process.
    ///
    /// # Errors
    /// See [`name`](ProcessView::name).
    pub fn parent(&self) -> Result<ProcessView<'c>, Missing> {
        let pid = self.parent_pid()?;
        let span = self.process.span();
        if span.start == Evidence::Observed {
            let parent = self.state.process_of(pid, span.from)?;
            return Ok(ProcessView { process: parent, time: span.from, ..*self });
        }
        let parent = self.state.process_of(pid, self.time)?;
        let is_older = match (parent.create_time(), self.process.create_time()) {
            (Some(parent), Some(own)) => parent <= own,
            _ => false,
        };
        if pid.is_kernel_only() || is_older {
            return Ok(ProcessView { process: parent, ..*self });
        }
        Err(Missing::NotRecorded)
    }

    /// The security identifier of the user.
    ///
    /// # Errors
    /// See [`name`](ProcessView::name).
    pub fn user_sid(&self) -> Result<Sid<'c>, Missing> {
        self.process.sid().map(Sid).ok_or(Missing::NotRecorded)
    }

    /// The English name of the user, if its security identifier is the same on all machines.
    ///
    /// # Errors
    /// See [`name`](ProcessView::name).
    pub fn user_name(&self) -> Result<&'static str, Missing> {
        well_known_name(&self.user_sid()?.to_string()).ok_or(Missing::NotRecorded)
    }

    /// The terminal session.
    ///
    /// # Errors
    /// See [`name`](ProcessView::name).
    pub fn session(&self) -> Result<u32, Missing> {
        self.process.session().filter(|&session| session != u32::MAX).ok_or(Missing::NotRecorded)
    }

    /// The integrity level: `untrusted`, `low`, `medium`, `medium-plus`, `high`, `system` or
    /// `protected`.
    ///
    /// # Errors
    /// See [`name`](ProcessView::name).
    pub fn integrity(&self) -> Result<&'static str, Missing> {
        let level = self.process.integrity().ok_or(Missing::NotRecorded)?;
        self.state.has_details(self.process)?;
        integrity_name(level).ok_or(Missing::NotRecorded)
    }

    /// The start time as Microsoft-Windows-Kernel-Process states it, otherwise the time of the event
    /// that reports the start.
    ///
    /// # Errors
    /// See [`name`](ProcessView::name).
    pub fn start_time(&self) -> Result<FileTime, Missing> {
        self.state.start_time_of(self.process)
    }

    /// The program's image file, for facts about it.
    ///
    /// # Errors
    /// See [`name`](ProcessView::name).
    pub fn image_file(&self) -> Result<ModuleIndex, Missing> {
        let id = self.program()?.id();
        Ok(self.enricher.frames.borrow_mut().loaded(self.state.system(), id).index)
    }

    /// The modules of the process at the time of the event; `None` if there are too many.
    pub fn modules(&self) -> Option<impl Iterator<Item = ModuleRef<'c>>> {
        self.state.system().modules_in(self.process.id(), self.time, CHANGES_MAX)
    }

    /// Whether all modules of the process are known.
    pub fn has_all_modules(&self) -> bool {
        self.state.system().map_complete_in(self.process.id(), self.time) == Completeness::Complete
    }

    /// Identifies the process among all that had its id: the id, and the start time, or `0` if it
    /// was started before the trace.
    pub fn entity(&self) -> FactValue<'c> {
        let from = self.process.span().from;
        FactValue::Entity(self.pid(), (from != Span::BEGINNING).then(|| self.state.utc(from)))
    }

    /// A fact of the catalogue.
    ///
    /// # Errors
    /// See [`name`](ProcessView::name).
    pub fn fact(&self, fact: ProcessFact) -> Result<FactValue<'c>, Missing> {
        Related::new(self).fact(fact)
    }

    /// All known facts.
    pub fn facts(&self) -> ProcessFacts<'c> {
        let related = Related::new(self);
        ProcessFacts::new(|fact| related.fact(fact).ok())
    }
}

/// A process with what several facts ask for.
struct Related<'c> {
    view: ProcessView<'c>,
    parent: OnceCell<Result<ProcessView<'c>, Missing>>,
    program: OnceCell<Result<ModuleRef<'c>, Missing>>,
}

impl<'c> Related<'c> {
    fn new(view: &ProcessView<'c>) -> Related<'c> {
        Related { view: *view, parent: OnceCell::new(), program: OnceCell::new() }
    }

    fn parent(&self) -> Result<ProcessView<'c>, Missing> {
        *self.parent.get_or_init(|| self.view.parent())
    }

    fn program(&self) -> Result<ModuleRef<'c>, Missing> {
        *self.program.get_or_init(|| self.view.program())
    }

    /// See [`ProcessView::path`].
    fn path(&self) -> Result<Cow<'c, str>, Missing> {
        let ProcessView { process, state, .. } = self.view;
        let stated = process.stated_path().zip(process.details_stated());
        if let Some((path, stated)) = stated
            && path.contains('\\')
            && state.is_same_process(process, stated).is_ok()
        {
            return Ok(state.system().dos_path(path));
        }
        let path = self.program()?.path();
        if !path.contains('\\') {
            return Err(Missing::NotRecorded);
        }
        Ok(state.system().dos_path(path))
    }

    /// The getters of the catalogue.
    fn fact(&self, fact: ProcessFact) -> Result<FactValue<'c>, Missing> {
        let view = &self.view;
        Ok(match fact {
            ProcessFact::Name => view.name()?.into(),
            ProcessFact::Path => FactValue::Text(self.path()?),
            ProcessFact::CommandLine => view.command_line()?.into(),
            ProcessFact::ParentPid => FactValue::Number(view.parent_pid()?.0),
            ProcessFact::ParentName => self.parent()?.name()?.into(),
            ProcessFact::ParentPath => FactValue::Text(self.parent()?.path()?),
            ProcessFact::UserSid => FactValue::Sid(view.user_sid()?),
            ProcessFact::UserName => view.user_name()?.into(),
            ProcessFact::Session => FactValue::Number(view.session()?),
            ProcessFact::Integrity => view.integrity()?.into(),
            ProcessFact::StartTime => FactValue::Time(view.start_time()?),
            ProcessFact::Entity => view.entity(),
            ProcessFact::TimeDateStamp => FactValue::Number(identity(self.program()?)?.time_date_stamp),
            ProcessFact::ImageSize => FactValue::Number(identity(self.program()?)?.size),
            ProcessFact::PdbName => last_component(self.pdb()?.name).into(),
            ProcessFact::PdbGuid => FactValue::Guid(self.pdb()?.guid),
            ProcessFact::PdbAge => FactValue::Number(self.pdb()?.age),
        })
    }

    fn pdb(&self) -> Result<PdbIdentity<&'c str>, Missing> {
        self.program()?.pdb().ok_or(Missing::NotRecorded)
    }
}

/// The identity of an image file.
fn identity(program: ModuleRef<'_>) -> Result<ImageIdentity, Missing> {
    let size = u32::try_from(program.size()).map_err(|_| Missing::NotRecorded)?;
    let time_date_stamp = program.time_date_stamp().ok_or(Missing::NotRecorded)?;
    Ok(ImageIdentity { time_date_stamp, size })
}

fn known(text: &str) -> Result<&str, Missing> {
    if text.is_empty() { Err(Missing::NotRecorded) } else { Ok(text) }
}
