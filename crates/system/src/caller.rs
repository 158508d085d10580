//! The thread on whose behalf the kernel wrote an event.

use stackhound_types::{Pid, Tid};

/// A thread as an event's header names it: the creator of a process or thread, the one who allocates memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Caller {
    /// Its process.
    pub pid: Pid,
    /// The thread.
    pub tid: Tid,
}
