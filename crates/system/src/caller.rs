//! The thread for which the kernel wrote an event.

use stackhound_types::{Pid, Tid};

/// A thread as named in the header of an event, such as the creator of a process or thread, or the
/// thread that allocates memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Caller {
    /// The process id.
    pub pid: Pid,
    /// The thread id.
    pub tid: Tid,
}
