//! Identifies the process and thread of an event's stack, whose address space contains the user
//! frames.
//!
//! A stack belongs to the acting thread. The stack records identify it, otherwise the event's
//! header; the payload identifies the target, for example of the creation of a process or thread,
//! of the mapping of first images, or of an allocation in another process. If a broker creates a
//! process for another process, the acting process is the broker, not the parent in the payload.

use stackhound_stacks::Delivered;
use stackhound_system::{ProcessId, System};
use stackhound_types::{Pid, Tid};

/// The process and thread that a stack was recorded from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StackOwner {
    /// Process id, if it is recorded.
    pub pid: Option<Pid>,
    /// Thread id, if it is recorded.
    pub tid: Option<Tid>,
    /// The process with this id at the time of the event, if it is known. User frames are in its
    /// address space.
    pub process: Option<ProcessId>,
}

impl StackOwner {
    /// The owner of a delivered event's stack.
    pub fn of(delivered: &Delivered<'_>, system: &System) -> StackOwner {
        let time = delivered.event.time();
        let tid = delivered.stack_tid();
        let of_thread = || Some(system.thread_of_event(tid?, time)?.pid());
        let pid = delivered.stack_pid().or_else(of_thread);
        let process = pid.and_then(|pid| system.process_of_event(pid, time)).map(|process| process.id());
        StackOwner { pid, tid, process }
    }
}
