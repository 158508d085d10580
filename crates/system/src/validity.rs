//! The times around a time at which a query has the same answer.

use stackhound_trace::TraceTime;
use stackhound_types::{Pid, Tid};

use crate::process::ProcessId;
use crate::span::Span;
use crate::system::System;

/// The times at which a query has the same answer, as long as the
/// [revision](crate::System::revision) is the same. Both ends are inclusive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ValidityRange {
    from: TraceTime,
    to: TraceTime,
}

impl ValidityRange {
    /// All times.
    pub(crate) const ALWAYS: ValidityRange = ValidityRange { from: Span::BEGINNING, to: Span::OPEN };

    /// From the last change, if any, until just before the next one.
    pub(crate) fn between(last: Option<TraceTime>, next: Option<TraceTime>) -> ValidityRange {
        let from = last.unwrap_or(Span::BEGINNING);
        let to = next.map_or(Span::OPEN, |next| TraceTime(next.0.saturating_sub(1)));
        ValidityRange { from, to }
    }

    /// Between two times, inclusive.
    pub(crate) fn of(from: TraceTime, to: TraceTime) -> ValidityRange {
        ValidityRange { from, to }
    }

    /// All times up to a time.
    pub(crate) fn until(time: TraceTime) -> ValidityRange {
        ValidityRange { from: Span::BEGINNING, to: time }
    }

    /// All times after a time.
    pub(crate) fn after(time: TraceTime) -> ValidityRange {
        ValidityRange { from: TraceTime(time.0.saturating_add(1)), to: Span::OPEN }
    }

    /// One time only.
    pub(crate) fn at(time: TraceTime) -> ValidityRange {
        ValidityRange { from: time, to: time }
    }

    /// The intersection of both ranges.
    pub(crate) fn and(self, other: ValidityRange) -> ValidityRange {
        ValidityRange { from: self.from.max(other.from), to: self.to.min(other.to) }
    }

    /// Whether the range contains a time.
    #[inline]
    pub fn has(self, time: TraceTime) -> bool {
        self.from <= time && time <= self.to
    }
}

impl System {
    /// A number that increases with every statement about processes, threads and modules, with
    /// losses, and when state is forgotten.
    #[inline]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The times around a time at which these ids refer to the same process and thread, ended or
    /// not, at which the modules of `process` and of the kernel are the same, and the losses before and
    /// after it. Intended for caches: all other facts about these objects change only with the
    /// [`revision`](System::revision).
    pub fn validity(
        &self,
        (pid, tid): (Option<Pid>, Option<Tid>),
        process: Option<ProcessId>,
        time: TraceTime,
    ) -> ValidityRange {
        let thread = tid.and_then(|tid| self.thread_of_event(tid, time));
        let of_thread = tid.map(|tid| self.threads.validity(tid, time));
        // The process of the thread can differ from the stated one.
        let pids = [pid, thread.map(|thread| thread.pid())].into_iter().flatten();
        let of_processes = pids.clone().map(|pid| self.processes.validity(pid, time));
        let owners = [Some(None), process.map(Some)];
        let of_modules = owners.into_iter().flatten().map(|owner| self.modules.validity(owner, time));
        let all = of_processes.chain(of_thread).chain(of_modules);
        let observed = pids.filter_map(|pid| self.process_of_event(pid, time)?.observed());
        let of_process = thread.and_then(|thread| thread.process_observed());
        let events = thread.and_then(|thread| thread.thread_events());
        let events = events.into_iter().flat_map(|(first, last)| [(first, first), (last, last)]);
        let stated = observed.chain(of_process).chain(events);
        all.fold(self.validity_of_losses(stated, time), ValidityRange::and)
    }
}
