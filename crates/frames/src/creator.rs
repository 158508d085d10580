//! Whose stack an event's is, and so in whose address space its user frames lie.
//!
//! A stack belongs to the thread that acts. Who creates a process or a thread in another process, maps its first
//! images or allocates its memory is told by the stack records, else by the event's header; the payload names whom it
//! is done to. Where a broker creates a process for another one, the acting process is the broker, whatever the new
//! process' parent is said to be.

use stackhound_stacks::Delivered;
use stackhound_system::{ProcessId, System};
use stackhound_types::{Pid, Tid};

/// The one whose stack it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StackOwner {
    /// Its process id, if anything tells.
    pub pid: Option<Pid>,
    /// Its thread id, if anything tells.
    pub tid: Option<Tid>,
    /// The process that the id means at the time, if one is known: user frames lie in its address space.
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
