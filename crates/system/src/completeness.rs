//! Which statements about the machine can be missing because records were lost.
//!
//! A loss hides only what could have changed in its interval. The modules of a process are all known
//! at a time if they were all known at another time, and no record between the two is missing: the
//! start of the process or its end, the rundown at the start of the trace, or the one at its end. A single
//! statement, about a module, a process or a thread, is certain at a time if no record between the two
//! times is missing.

use std::fmt;

use stackhound_trace::{Event, LossMap, TimeBase, TraceTime};
use stackhound_types::Pid;

use crate::module::{ModuleId, Owner, Statements};
use crate::process::ProcessId;
use crate::span::{Evidence, Span};
use crate::system::System;
use crate::validity::ValidityRange;

/// Whether every module of a process at a time is known.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Completeness {
    /// An address that no module covers is in no module.
    Complete,
    /// An address that no module covers may be in an unknown module.
    Incomplete(Gap),
}

/// The reason why a module map is incomplete.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Gap {
    /// No process is known to have the id at the time.
    UnknownProcess,
    /// The start of the process, with its image loads, was not observed, and no rundown listed its
    /// modules.
    NoRundown,
    /// The modules were forgotten because a [limit](crate::System::limited) was exceeded.
    Forgotten,
    /// Events about the modules may be among the records that are missing between these times
    /// (inclusive). [`Span::BEGINNING`] and [`Span::OPEN`] if the bounds are not known.
    Lost {
        /// The begin of the loss interval.
        from: TraceTime,
        /// The end of the loss interval.
        until: TraceTime,
    },
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Gap::UnknownProcess => "the process is not known",
            Gap::NoRundown => {
                "neither all module loads of the process nor a rundown of its modules was recorded"
            }
            Gap::Forgotten => "its modules were forgotten because a limit was exceeded",
            Gap::Lost { .. } => "events are missing from the trace",
        })
    }
}

impl System {
    /// Where records are missing, as far as is known.
    pub fn losses(&self) -> &LossMap {
        &self.losses
    }

    /// Sets the losses of the trace.
    pub fn set_losses(&mut self, losses: LossMap) {
        self.revision += 1;
        self.losses = losses;
    }

    /// Enters the block that begins with this event, and the losses before it.
    pub fn enter_block(&mut self, event: &Event<'_>, base: &TimeBase) {
        // All intervals are kept: a process can be older than any of them.
        self.losses.enter_block(event, base, i64::MIN);
        self.revision += u64::from(!self.losses.is_lossless());
    }

    /// Whether no record between two times, in any order, can be missing.
    #[inline]
    pub fn is_gapless(&self, one: TraceTime, other: TraceTime) -> bool {
        self.losses.is_lossless()
            || one == other
            || !self.losses.anywhere_between(one.min(other).0, one.max(other).0)
    }

    /// Whether no record up to a time can be missing since the start of a process, or since the
    /// beginning of the trace if the process is older or not known.
    pub fn is_gapless_since_start(&self, process: Option<ProcessId>, time: TraceTime) -> bool {
        let span = process.and_then(|process| self.processes.span(process));
        self.is_gapless(span.map_or(Span::BEGINNING, |span| span.from), time)
    }

    /// The times around a time at which the answers about losses are the same, for objects with these
    /// times of their first and last statements.
    pub(crate) fn validity_of_losses(
        &self,
        stated: impl IntoIterator<Item = (TraceTime, TraceTime)>,
        time: TraceTime,
    ) -> ValidityRange {
        if self.losses.is_lossless() {
            return ValidityRange::ALWAYS;
        }
        let (from, until) = self.losses.around(time.0);
        let around = ValidityRange::of(TraceTime(from), TraceTime(until));
        let of_object = |(first, last)| match (time < first, time > last) {
            (true, _) => ValidityRange::until(TraceTime(first.0 - 1)),
            (_, true) => ValidityRange::after(last),
            _ => ValidityRange::of(first, last),
        };
        stated.into_iter().map(of_object).fold(around, ValidityRange::and)
    }

    /// Whether all modules of a process at a time are known, so that an address outside of them is
    /// in no module.
    ///
    /// They are known if the start of the process was observed while loads were recorded, its end was,
    /// with which all modules were unloaded, or a rundown listed its modules, and no event between then
    /// and the time is missing. For the idle process and System, this refers to the kernel modules. In
    /// one pass, a rundown at the end of the trace is known only after it.
    pub fn map_complete(&self, pid: Pid, time: TraceTime) -> Completeness {
        match self.processes.at(pid, time) {
            Some(process) => self.map_complete_in(process, time),
            None => Completeness::Incomplete(Gap::UnknownProcess),
        }
    }

    /// As [`map_complete`](System::map_complete), for a known process.
    pub fn map_complete_in(&self, process: ProcessId, time: TraceTime) -> Completeness {
        let Some(span) = self.processes.span(process) else {
            return Completeness::Incomplete(Gap::UnknownProcess);
        };
        if self.processes.was_shed(process) {
            return Completeness::Incomplete(Gap::Forgotten);
        }
        let owner = (!self.process(process).pid().is_kernel_only()).then_some(process);
        let was_listed_at_start = self.modules.space(owner).is_some_and(|space| space.was_listed_at_start);
        let was_started = span.start == Evidence::Observed && self.modules.loads_are_recorded;
        let since = match (was_started, was_listed_at_start) {
            (true, _) => Some(span.from),
            (false, true) => Some(Span::BEGINNING),
            (false, false) => None,
        };
        if since.is_some_and(|since| self.is_gapless(since, time))
            || self.are_stated_later(owner, span, was_started, time)
        {
            return Completeness::Complete;
        }
        let lost = self.losses.last_between(since.unwrap_or(Span::BEGINNING).0, time.0);
        let lost = lost.or_else(|| self.losses.first_between(time.0, i64::MAX));
        Completeness::Incomplete(match lost {
            Some((from, until)) => Gap::Lost { from: TraceTime(from), until: TraceTime(until) },
            None => Gap::NoRundown,
        })
    }

    /// Whether statements after a time, of which none is missing, show all modules of an address space
    /// at the time: the rundown at the end, or the end of the process, with which all are unloaded.
    fn are_stated_later(&self, owner: Owner, span: Span, was_started: bool, time: TraceTime) -> bool {
        let Some(space) = self.modules.space(owner) else { return false };
        let until = if space.was_listed_at_end {
            Some(Span::OPEN)
        } else if span.end == Evidence::Observed {
            space.all_unloaded_at().filter(|last| time <= *last)
        } else {
            None
        };
        if !until.is_some_and(|until| self.is_gapless(time, until)) {
            return false;
        }
        // A module that is stated later may have been loaded later, too. Statements about a process
        // whose start is missing can be among those about the one that had its id before.
        let had_other = owner.filter(|_| span.from != Span::BEGINNING && !was_started);
        let first = had_other.and_then(|process| self.process(process).observed());
        self.losses.is_lossless()
            || (first.is_none_or(|(first, _)| first < time)
                && space.loaded_since(time).all(|since| self.is_gapless(since, time)))
    }

    /// Whether all JIT-compiled methods of a process at a time are known, as far as methods are recorded:
    /// no event about them since the start of the process or of the trace is missing, or a rundown
    /// lists them at the end of the trace and none is missing up to there.
    pub fn methods_complete_in(&self, process: ProcessId, time: TraceTime) -> bool {
        let Some(span) = self.processes.span(process) else { return false };
        self.losses.is_lossless()
            || self.methods.len() == 0
            || self.is_gapless_since_start(Some(process), time)
            || (self.methods.were_listed_at_end(process)
                && span.end == Evidence::RundownAtEnd
                && self.is_gapless(time, Span::OPEN))
    }

    /// Whether records are missing around a time.
    pub fn is_in_loss(&self, time: TraceTime) -> bool {
        self.losses.anywhere_between(time.0, time.0)
    }

    /// Whether a module that a look-up found at a time was certainly there: no record that is missing
    /// can have replaced it. After a loss, a module counts as still there unless the rundown at the end
    /// does not list it, or another one has its place.
    pub fn is_module_certain(&self, module: ModuleId, time: TraceTime) -> bool {
        if self.losses.is_lossless() {
            return true;
        }
        let module = self.module(module);
        let Statements { first, last, reload } = module.statements();
        let is_whole = |from: TraceTime, until: TraceTime| !self.losses.anywhere_between(from.0, until.0);
        // Before it is loaded again, only what was stated earlier shows that it was there.
        let is_before_reload = reload.is_some_and(|reload| time < reload);
        let mut before = [Some(last), reload, Some(first)].into_iter().flatten();
        let before = before.find(|stated| *stated <= time);
        let mut after = [first, last].into_iter().filter(|_| !is_before_reload);
        let after = after.find(|stated| time <= *stated);
        if before.is_some_and(|before| is_whole(before, time))
            || after.is_some_and(|after| is_whole(time, after))
        {
            return true;
        }
        if time < first || is_before_reload || self.is_in_loss(time) {
            return false;
        }
        let owner = module.process().map(|process| process.id());
        let was_listed = self.modules.space(owner).is_some_and(|space| space.was_listed_at_end);
        let is_refuted = was_listed && is_whole(time, Span::OPEN);
        time <= last || (module.span().to == Span::OPEN && !is_refuted)
    }
}
