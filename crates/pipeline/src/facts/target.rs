//! The process and thread that an event acts on.

use stackhound_etl::record::Record;
use stackhound_schema::event_id::kernel_process;
use stackhound_schema::kernel::{hook_id, view};
use stackhound_schema::provider_guid;
use stackhound_types::{Guid, Pid, Tid};

use super::ThreadStart;
use super::missing::Missing;
use super::process::ProcessView;
use crate::event_view::EventView;

/// The process and thread that an event acts on, if they are not those of the event.
#[derive(Clone, Copy, Debug)]
pub struct Target<'v, 'c> {
    view: &'v EventView<'c>,
    pid: Option<Pid>,
    tid: Option<Tid>,
}

impl<'c> Target<'_, 'c> {
    /// The id of the process, if it is another one than the event's.
    pub fn pid(&self) -> Option<Pid> {
        self.pid
    }

    /// The id of the thread, if it is another one than the event's.
    pub fn tid(&self) -> Option<Tid> {
        self.tid
    }

    /// The process, if it is another one than the event's.
    ///
    /// # Errors
    /// The reason why it is not known.
    pub fn process(&self) -> Result<ProcessView<'c>, Missing> {
        self.view.process_with(self.pid.ok_or(Missing::NotStated)?)
    }

    /// The start of the thread.
    ///
    /// # Errors
    /// The reason why it is not known.
    pub fn thread_start(&self) -> Result<ThreadStart<'c>, Missing> {
        self.view.start_of(self.tid.ok_or(Missing::NotStated)?)
    }
}

/// The ids that an event states for its target.
type Ids = (Option<Pid>, Option<Tid>);

impl<'c> EventView<'c> {
    /// The process and thread that the event acts on: of a start, the new ones; of an open or an
    /// operation on memory, the owner. `None` if the event acts on its own process and thread, or
    /// on none.
    pub fn target(&self) -> Option<Target<'_, 'c>> {
        let (pid, tid) = self.stated_target()?;
        let of_thread = || Some(self.trace_state().thread_of(tid?, self.time()).ok()?.pid());
        let pid = pid.or_else(of_thread).filter(|pid| {
            let is_own_known = !self.is_pid_of_thread() || self.process().is_ok();
            is_own_known && self.pid() != Some(*pid)
        });
        let tid = tid.filter(|tid| self.tid() != Some(*tid));
        (pid.is_some() || tid.is_some()).then_some(Target { view: self, pid, tid })
    }

    fn stated_target(&self) -> Option<Ids> {
        let event = self.event();
        if let Some(hook_id) = self.kernel_id() {
            return of_kernel(hook_id, &event.record());
        }
        if !event.kind().has_descriptor() {
            return None;
        }
        let (pid, tid) = fields_of(event.guid()?, event.entry().tag)?;
        let number = |name: &&str| u32::try_from(self.field(name)?.1.as_u64()?).ok();
        let pid = pid.iter().find_map(number).and_then(Pid::known);
        Some((pid, tid.iter().find_map(number).and_then(Tid::known)))
    }
}

fn of_kernel(hook_id: u16, record: &Record<'_>) -> Option<Ids> {
    let (payload, version, pointer) = (record.payload(), record.version(), record.pointer_size());
    match hook_id {
        hook_id::PROCESS_START | hook_id::PROCESS_END => {
            let process = view::Process::parse(payload, version, pointer).ok()?;
            Some((Pid::known(process.process_id.0), None))
        }
        hook_id::THREAD_START | hook_id::THREAD_END => {
            let thread = view::Thread::parse(payload, version, pointer).ok()?;
            Some((Pid::known(thread.process_id.0), Tid::known(thread.thread_id.0)))
        }
        hook_id::THREAD_SET_NAME => {
            let thread = view::ThreadSetName::parse(payload, version, pointer).ok()?;
            Some((Pid::known(thread.process_id.0), Tid::known(thread.thread_id.0)))
        }
        hook_id::THREAD_READY_THREAD => {
            let thread = view::ReadyThread::parse(payload, version, pointer).ok()?;
            Some((None, Tid::known(thread.thread_id.0)))
        }
        hook_id::PAGE_FAULT_VIRTUAL_ALLOC | hook_id::PAGE_FAULT_VIRTUAL_FREE => {
            let memory = view::VirtualAllocation::parse(payload, version, pointer).ok()?;
            Some((Pid::known(memory.process_id.0), None))
        }
        _ => None,
    }
}

/// The fields with the ids of the target, in the spellings of the manifests.
const TARGETS: (&[&str], &[&str]) =
    (&["TargetProcessId", "TargetProcessID"], &["TargetThreadId", "TargetThreatId", "TargetThreadID"]);

fn fields_of(provider: Guid, id: u16) -> Option<(&'static [&'static str], &'static [&'static str])> {
    match provider {
        provider_guid::KERNEL_PROCESS => match id {
            kernel_process::PROCESS_START | kernel_process::PROCESS_STOP => Some((&["ProcessID"], &[])),
            kernel_process::THREAD_START
            | kernel_process::THREAD_STOP
            | kernel_process::CPU_BASE_PRIORITY_CHANGE..=kernel_process::IO_PRIORITY_CHANGE => {
                Some((&["ProcessID"], &["ThreadID"]))
            }
            kernel_process::PROCESS_FREEZE_START | kernel_process::PROCESS_FREEZE_STOP => {
                Some((&["FrozenProcessID"], &[]))
            }
            _ => None,
        },
        provider_guid::KERNEL_AUDIT_API_CALLS | provider_guid::THREAT_INTELLIGENCE => Some(TARGETS),
        _ => None,
    }
}
