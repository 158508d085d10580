//! What is known of a thread.

use stackhound_calltree::Cpu;

use crate::happening::Tid;
use crate::side::Side;

/// Where a thread runs when it runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    User,
    Kernel,
}

/// A thread.
#[derive(Debug)]
pub(crate) struct Thread {
    pub tid: Tid,
    /// Of idle threads, their processor.
    pub idle_on: Option<Cpu>,
    pub user: Option<Side>,
    pub kernel: Option<Side>,
    /// By the latest evidence.
    pub mode: Option<Mode>,
    /// The processor that it runs on.
    pub on: Option<usize>,
    /// Since this context it does not run, and nothing on its stacks changes.
    pub frozen: Option<u64>,
    /// Since this context it is in a system call, and its user stack does not change.
    pub entered: Option<u64>,
    /// Whether its user stack was seen since then.
    pub user_is_seen: bool,
    /// The latest context at which it surely was where it is in the kernel.
    pub alive: u64,
    /// The context before which it did not exist.
    pub born: u64,
    /// Whether its start is in the recording.
    pub is_started: bool,
    /// Whether nothing of it is missing since its start. Of others, the kernel may have called back into user mode before
    /// anything was known of them, so that they have kernel frames even when they are in user mode.
    pub is_clean: bool,
    /// Whether it ends when it is switched away from.
    pub is_ending: bool,
}

impl Thread {
    pub fn new(tid: Tid, born: Option<u64>) -> Thread {
        Thread {
            tid,
            idle_on: None,
            user: None,
            kernel: None,
            mode: None,
            on: None,
            frozen: None,
            entered: None,
            user_is_seen: false,
            alive: born.unwrap_or(0),
            born: born.unwrap_or(0),
            is_started: born.is_some(),
            is_clean: born.is_some(),
            is_ending: false,
        }
    }

    /// How many system calls are open.
    pub fn calls(&self) -> usize {
        self.kernel.as_ref().map_or(0, Side::exact)
    }
}
