//! Joins the entries of system calls with their exits.
//!
//! Neither event identifies its thread, and the exit does not identify its call. [`CallJoin`] finds
//! the thread by the context switches of the processor, and the call by the order of the thread's
//! events: an exit belongs to the innermost call that the thread has entered and not left. One
//! service breaks this rule. `NtCallbackReturn` ends a call of user code by the kernel and never
//! returns, so that the next exit belongs to the call around it. A call is therefore joined only if
//! its service is known to be another one.
//!
//! Like [`CreateJoin`](crate::CreateJoin), the join does not hold back events: it observes them
//! when they enter the correlator, and has seen the exit of a call by the time its entry leaves.

mod join;
mod threads;

use std::time::Duration;

use stackhound_trace::TraceTime;
use stackhound_types::{Address, Tid};

pub use join::CallJoin;

/// Whether a service can end without an exit so that the next exit of its thread belongs to another
/// call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ServiceKind {
    /// A service of the window manager, the only part of the kernel that calls user code back.
    Graphics,
    /// Another service; not `NtCallbackReturn`.
    Other,
    /// `NtCallbackReturn`.
    CallbackReturn,
    /// It is not known which service it is.
    Unknown,
}

/// How a call ended. Each value except the first states why the call has no duration and status.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CallEnd {
    /// Its exit was recorded.
    Completed {
        /// NTSTATUS.
        status: u32,
        /// Time of the entry.
        from: TraceTime,
        /// Time of the exit.
        until: TraceTime,
        /// The time between them.
        duration: Duration,
    },
    /// It did not end within the window.
    Late,
    /// Its thread ended in the call.
    ThreadEnded,
    /// The service does not return, or the thread has left it without an exit event.
    NotReturned,
    /// The trace ends before the call does.
    Unfinished,
    /// Records that decide it are missing, or were given up because of a limit.
    Lost,
    /// No context switch shows which thread was running on the processor. The stack of an entry can
    /// state the thread, but not which exit is its own.
    UnknownThread,
    /// An exit follows that can belong to this call or to one around it, because it is not known
    /// whether the service returns.
    Unconfirmed,
    /// Of an exit: no entry is known. It was before the trace, or before the first context switch of
    /// its processor.
    NotEntered,
}

impl CallEnd {
    /// The spelling in output.
    pub fn name(self) -> &'static str {
        match self {
            CallEnd::Completed { .. } => "completed",
            CallEnd::Late => "late",
            CallEnd::ThreadEnded => "thread-ended",
            CallEnd::NotReturned => "not-returned",
            CallEnd::Unfinished => "unfinished",
            CallEnd::Lost => "lost",
            CallEnd::UnknownThread => "unknown-thread",
            CallEnd::Unconfirmed => "unconfirmed",
            CallEnd::NotEntered => "not-entered",
        }
    }
}

/// A system call, as its entry and its exit report it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CallOutcome {
    /// The thread that made the call. `None` if it is not known.
    pub tid: Option<Tid>,
    /// Address of the service's routine. `None` if it was not recorded; for exits, also if the call
    /// is not known.
    pub routine: Option<Address>,
    /// How the call ended.
    pub end: CallEnd,
}

impl CallOutcome {
    /// The NTSTATUS, and the time from entry to exit in nanoseconds, at most [`u64::MAX`]; `None`
    /// unless completed.
    pub fn completed(self) -> Option<(u32, u64)> {
        match self.end {
            CallEnd::Completed { status, duration, .. } => {
                Some((status, u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
            }
            _ => None,
        }
    }
}

/// Counters of a [`CallJoin`]. Each entry counts once, in all fields but the last two.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct CallStats {
    /// Calls whose exit was recorded.
    pub joined: u64,
    /// See [`CallEnd::Late`].
    pub late: u64,
    /// See [`CallEnd::ThreadEnded`].
    pub thread_ended: u64,
    /// See [`CallEnd::NotReturned`].
    pub not_returned: u64,
    /// See [`CallEnd::Unfinished`].
    pub unfinished: u64,
    /// See [`CallEnd::Lost`].
    pub lost: u64,
    /// See [`CallEnd::UnknownThread`].
    pub unknown_thread: u64,
    /// See [`CallEnd::Unconfirmed`].
    pub unconfirmed: u64,
    /// Exits that belong to no recorded entry, or to one that is not known.
    pub other_exits: u64,
    /// Events of system calls, threads and context switches whose payload could not be read.
    pub malformed: u64,
}

impl CallStats {
    /// Number of entries.
    pub fn entries(&self) -> u64 {
        self.reasons().iter().map(|(count, _)| count).sum::<u64>() + self.joined
    }

    /// Number of entries without a status and a duration, by reason.
    pub fn reasons(&self) -> [(u64, CallEnd); 7] {
        [
            (self.late, CallEnd::Late),
            (self.thread_ended, CallEnd::ThreadEnded),
            (self.not_returned, CallEnd::NotReturned),
            (self.unfinished, CallEnd::Unfinished),
            (self.lost, CallEnd::Lost),
            (self.unknown_thread, CallEnd::UnknownThread),
            (self.unconfirmed, CallEnd::Unconfirmed),
        ]
    }

    fn count(&mut self, end: CallEnd) {
        let counter = match end {
            CallEnd::Completed { .. } => &mut self.joined,
            CallEnd::Late => &mut self.late,
            CallEnd::ThreadEnded => &mut self.thread_ended,
            CallEnd::NotReturned => &mut self.not_returned,
            CallEnd::Unfinished => &mut self.unfinished,
            CallEnd::Lost => &mut self.lost,
            CallEnd::UnknownThread => &mut self.unknown_thread,
            CallEnd::Unconfirmed => &mut self.unconfirmed,
            CallEnd::NotEntered => &mut self.other_exits,
        };
        *counter += 1;
    }
}
