//! Facts about an event that its header and payload do not contain: its process and thread, the
//! file or registry key that it is about, and the process and thread that it acts on.
//!
//! A fact is stated only if no event that is known to be missing could have changed it. Ids and
//! addresses of kernel objects are reused, so a statement about one of them applies to an event
//! only if the object certainly is the same.

mod about;
mod missing;
mod process;
mod target;
mod user;

use stackhound_facts::{FactValue, ThreadFact, ThreadFacts};
use stackhound_system::{Evidence, ModuleRef, ProcessRef, System, ThreadRef, ValidityRange};
use stackhound_trace::TraceTime;
use stackhound_types::{Address, FileTime, Pid, RawTime, Tid};

pub use about::RegistrySubject;
pub use missing::{Missing, MissingCounts};
pub use process::ProcessView;
pub use target::Target;

use crate::event_view::EventView;
use crate::trace_state::TraceState;

/// The start of a thread.
#[derive(Clone, Copy, Debug)]
pub struct ThreadStart<'c> {
    /// The function that the thread was created for.
    pub address: Address,
    /// The module that contains it, and the offset in the module.
    pub module: Result<(ModuleRef<'c>, u64), Missing>,
}

impl<'c> ThreadStart<'c> {
    /// A fact of the catalogue.
    ///
    /// # Errors
    /// The reason why it is not known.
    pub fn fact(&self, fact: ThreadFact) -> Result<FactValue<'c>, Missing> {
        Ok(match fact {
            ThreadFact::StartAddress => FactValue::Hex(self.address.0),
            ThreadFact::StartModule => self.module?.0.file_name().into(),
            ThreadFact::StartRva => FactValue::Hex(self.module?.1),
        })
    }

    /// All known facts.
    pub fn facts(&self) -> ThreadFacts<'c> {
        ThreadFacts::new(|fact| self.fact(fact).ok())
    }
}

impl TraceState {
    /// The process that has an id at a time, or had it last.
    ///
    /// # Errors
    /// The reason why it is not known.
    pub fn process_of(&self, pid: Pid, time: TraceTime) -> Result<ProcessRef<'_>, Missing> {
        let process = self.system().process_of_event(pid, time).ok_or(Missing::NoRundown)?;
        if pid.is_kernel_only() {
            return Ok(process);
        }
        let (first, last) = process.observed().ok_or(Missing::NoRundown)?;
        let nearest = time.clamp(first, last);
        if self.system().is_gapless(nearest, time) { Ok(process) } else { Err(Missing::Lost) }
    }

    /// Whether a process had its id at a time too.
    pub(crate) fn is_same_process(&self, process: ProcessRef<'_>, time: TraceTime) -> Result<(), Missing> {
        let then = self.process_of(process.pid(), time)?;
        if then.id() == process.id() { Ok(()) } else { Err(Missing::Lost) }
    }

    /// Whether the statement of Microsoft-Windows-Kernel-Process is about this process.
    fn has_details(&self, process: ProcessRef<'_>) -> Result<(), Missing> {
        let stated = process.details_stated().ok_or(Missing::NotRecorded)?;
        self.is_same_process(process, stated)
    }

    /// See [`ProcessView::start_time`].
    ///
    /// # Errors
    /// The reason why it is not known.
    pub fn start_time_of(&self, process: ProcessRef<'_>) -> Result<FileTime, Missing> {
        if let Some(created) = process.create_time() {
            return self.has_details(process).map(|()| created);
        }
        let span = process.span();
        if span.start == Evidence::Observed { Ok(self.utc(span.from)) } else { Err(Missing::NotRecorded) }
    }

    /// The process of the thread that has an id at a time, or had it last.
    fn process_of_thread(&self, tid: Tid, time: TraceTime) -> Result<ProcessRef<'_>, Missing> {
        let system = self.system();
        if system.is_thread_uncertain(tid, time) {
            return Err(Missing::Contradictory);
        }
        let thread = system.thread_of_event(tid, time).ok_or(Missing::NoRundown)?;
        if tid == Tid(0) {
            return Ok(thread.process());
        }
        let (first, last) = thread.process_observed().ok_or(Missing::NoRundown)?;
        let nearest = time.clamp(first, last);
        if self.system().is_gapless(nearest, time) { Ok(thread.process()) } else { Err(Missing::Lost) }
    }

    /// The thread that has an id at a time, or had it last.
    ///
    /// # Errors
    /// The reason why it is not known.
    pub fn thread_of(&self, tid: Tid, time: TraceTime) -> Result<ThreadRef<'_>, Missing> {
        let thread = self.system().thread_of_event(tid, time).ok_or(Missing::NoRundown)?;
        if tid == Tid(0) {
            return Ok(thread);
        }
        let (first, last) = thread.thread_events().ok_or(Missing::NoRundown)?;
        let is_certain = self.system().is_gapless(first, time) || self.system().is_gapless(time, last);
        if is_certain { Ok(thread) } else { Err(Missing::Lost) }
    }

    /// The start of a thread, with the module at a time.
    ///
    /// # Errors
    /// The reason why it is not known.
    pub fn thread_start<'c>(
        &'c self,
        thread: ThreadRef<'c>,
        time: TraceTime,
    ) -> Result<ThreadStart<'c>, Missing> {
        let address = thread.start_function().ok_or(Missing::NotRecorded)?;
        let module = module_at(self, self.system(), thread.process(), address, time);
        Ok(ThreadStart { address, module })
    }

    /// UTC time of a time in the trace.
    pub fn utc(&self, time: TraceTime) -> FileTime {
        self.clock().to_file_time(RawTime(time.0))
    }
}

impl<'c> EventView<'c> {
    /// The process of the event: the one that [`pid`](EventView::pid) refers to.
    ///
    /// # Errors
    /// The reason why it is not known.
    pub fn process(&self) -> Result<ProcessView<'c>, Missing> {
        let (state, time) = (self.trace_state(), self.time());
        let id = self.process_id(|| {
            if !self.is_pid_of_thread() {
                let is_uncertain = self.tid().is_some_and(|tid| self.is_pid_uncertain(tid));
                let missing = if is_uncertain { Missing::Contradictory } else { Missing::NotStated };
                let pid = self.pid().ok_or(missing)?;
                return Ok(state.process_of(pid, time)?.id());
            }
            let tid = self.tid().ok_or(Missing::NotStated)?;
            let process = state.process_of_thread(tid, time)?;
            Ok(state.process_of(process.pid(), time)?.id())
        })?;
        Ok(self.process_view(state.system().process(id)))
    }

    pub(crate) fn process_with(&self, pid: Pid) -> Result<ProcessView<'c>, Missing> {
        Ok(self.process_view(self.trace_state().process_of(pid, self.time())?))
    }

    fn process_view(&self, process: ProcessRef<'c>) -> ProcessView<'c> {
        ProcessView::new(process, self.event(), self.trace_state(), self.enricher())
    }

    /// The times around that of the event at which its [stated ids](EventView::stated_ids) refer to
    /// the same process and thread, and all facts about these are the same: the intersection of the
    /// ranges. `None` if the facts can change from one event to the next, because the state still
    /// grows.
    pub fn owner_validity(&self) -> Option<[ValidityRange; 3]> {
        let (state, time) = (self.trace_state(), self.time());
        if !state.is_final() {
            return None;
        }
        let (system, tid) = (state.system(), self.tid());
        let process = |pid: Option<Pid>| system.process_of_event(pid?, time);
        let of = |ids: (Option<Pid>, Option<Tid>), process: Option<ProcessRef<'_>>| {
            system.validity(ids, process.map(|process| process.id()), time)
        };
        let own = process(self.pid());
        // The process of the thread can be another one.
        let of_thread = tid.and_then(|tid| system.thread_of_event(tid, time)).map(|thread| thread.process());
        let parent = own.and_then(|process| process.parent_pid());
        let ids_of_thread = (of_thread.map(|process| process.pid()), None);
        Some([of((self.pid(), tid), own), of(ids_of_thread, of_thread), of((parent, None), process(parent))])
    }

    /// The start of the event's thread.
    ///
    /// # Errors
    /// The reason why it is not known.
    pub fn thread_start(&self) -> Result<ThreadStart<'c>, Missing> {
        self.start_of(self.tid().ok_or(Missing::NotStated)?)
    }

    pub(crate) fn start_of(&self, tid: Tid) -> Result<ThreadStart<'c>, Missing> {
        let (state, time) = (self.trace_state(), self.time());
        state.thread_start(state.thread_of(tid, time)?, time)
    }
}

fn module_at<'c>(
    state: &TraceState,
    system: &'c System,
    process: ProcessRef<'c>,
    address: Address,
    time: TraceTime,
) -> Result<(ModuleRef<'c>, u64), Missing> {
    state.is_same_process(process, time)?;
    let of_kernel = system.kernel_module_at(address, time);
    // The last events of a process follow its end.
    let in_process = || system.module_in(process.id(), address, time.min(process.span().to));
    let (module, rva) = of_kernel.or_else(in_process).ok_or(Missing::NoRundown)?;
    if system.is_module_certain(module.id(), time) { Ok((module, rva)) } else { Err(Missing::Lost) }
}
