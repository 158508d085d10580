//! Times around a time in which answers stay as they are.

use stackhound_trace::TraceTime;
use stackhound_types::{Pid, Tid};

use crate::process::ProcessId;
use crate::span::Span;
use crate::system::System;

/// Times in which an answer is the same, both ends included; as long as the [revision](crate::System::revision) is the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ValidityRange {
    from: TraceTime,
    to: TraceTime,
}

impl ValidityRange {
    /// At all times.
    pub(crate) const ALWAYS: ValidityRange = ValidityRange { from: Span::BEGINNING, to: Span::OPEN };

    /// From a change on, if there is one, until just before the next one.
    pub(crate) fn between(last: Option<TraceTime>, next: Option<TraceTime>) -> ValidityRange {
        let from = last.unwrap_or(Span::BEGINNING);
        let to = next.map_or(Span::OPEN, |next| TraceTime(next.0.saturating_sub(1)));
        ValidityRange { from, to }
    }

    /// At one time alone.
    pub(crate) fn at(time: TraceTime) -> ValidityRange {
        ValidityRange { from: time, to: time }
    }

    /// Times in both.
    pub(crate) fn and(self, other: ValidityRange) -> ValidityRange {
        ValidityRange { from: self.from.max(other.from), to: self.to.min(other.to) }
    }

    /// Whether a time is one of them.
    #[inline]
    pub fn has(self, time: TraceTime) -> bool {
        self.from <= time && time <= self.to
    }
}

impl System {
    /// A number that goes up with all that is taken in about processes, threads and modules, with losses, and with what is
    /// forgotten.
    #[inline]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Times around a time at which these ids mean the same process and thread, over or not, and the modules of `process`
    /// and of the kernel stay as they are. For caches; what else is known of all these changes with the
    /// [`revision`](System::revision) alone.
    pub fn validity(
        &self,
        (pid, tid): (Option<Pid>, Option<Tid>),
        process: Option<ProcessId>,
        time: TraceTime,
    ) -> ValidityRange {
        let thread = tid.and_then(|tid| self.thread_of_event(tid, time));
        let of_thread = tid.map(|tid| self.threads.validity(tid, time));
        // The thread's process can be another one than is stated.
        let pids = [pid, thread.map(|thread| thread.pid())].into_iter().flatten();
        let of_processes = pids.map(|pid| self.processes.validity(pid, time));
        let owners = [Some(None), process.map(Some)];
        let of_modules = owners.into_iter().flatten().map(|owner| self.modules.validity(owner, time));
        of_processes.chain(of_thread).chain(of_modules).fold(ValidityRange::ALWAYS, ValidityRange::and)
    }
}
