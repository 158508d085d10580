//! Reasons for missing stacks.

/// The reason why the kernel stack or the user stack of a thread is missing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum Absent {
    /// The trace has no context switches.
    NoSwitches,
    /// The trace has its context switches in batches, which carry no stacks.
    BatchedSwitches,
    /// No context switch of the trace has a stack.
    WithoutStacks,
    /// No switch to the thread occurs up to the requested time.
    NeverSwitched,
    /// Buffers were lost that could have contained the stack.
    Lost,
    /// The switches to the thread have no stack, although switches to other threads do.
    NotTaken,
    /// The trace does not define the key of the stack.
    UnresolvedKey,
    /// There were more threads than can be tracked.
    TooMany,
    /// The thread is a system thread and has no user stack.
    SystemThread,
    /// The user stack is captured when the thread returns to user mode, which it did not do while
    /// the session ran.
    NotReturned,
    /// The thread no longer exists.
    Gone,
    /// The thread is terminating.
    Terminating,
    /// The thread did not answer in time.
    TimedOut,
    /// Stacks of idle threads cannot be captured.
    Idle,
    /// The maximum number of captures is in progress.
    Busy,
    /// The stack walk found no frames: unwind data is not in memory or does not exist, or the
    /// innermost page of the user stack cannot be read.
    NothingWalked,
    /// Reading the user stack raised an exception.
    Faulted,
    /// The thread is attached to another process, where its own user stack is not mapped.
    Attached,
    /// The process is protected: only the kernel stack is available.
    Protected,
    /// The buffer was full before this stack began.
    NoRoom,
    /// Too little of the thread's kernel stack was left for the walk.
    NotNow,
    /// The thread is in a critical region and may hold a lock that paging in its stack would wait
    /// for.
    CriticalRegion,
    /// The stack walk did not finish in time.
    Unfinished,
    /// The system denied access.
    Refused,
    /// The thread was running, in user mode or on another processor, where the system does not read
    /// stacks.
    Running,
    /// The source provides kernel stacks only.
    KernelOnly,
}

impl Absent {
    /// The spelling in output for programs.
    pub fn name(self) -> &'static str {
        match self {
            Absent::NoSwitches => "no-switches",
            Absent::BatchedSwitches => "batched-switches",
            Absent::WithoutStacks => "without-stacks",
            Absent::NeverSwitched => "never-switched",
            Absent::Lost => "lost",
            Absent::NotTaken => "not-taken",
            Absent::UnresolvedKey => "unresolved-key",
            Absent::TooMany => "too-many",
            Absent::SystemThread => "system-thread",
            Absent::NotReturned => "not-returned",
            Absent::Gone => "gone",
            Absent::Terminating => "terminating",
            Absent::TimedOut => "timed-out",
            Absent::Idle => "idle",
            Absent::Busy => "busy",
            Absent::NothingWalked => "nothing-walked",
            Absent::Faulted => "faulted",
            Absent::Attached => "attached",
            Absent::Protected => "protected",
            Absent::NoRoom => "no-room",
            Absent::NotNow => "not-now",
            Absent::CriticalRegion => "critical-region",
            Absent::Unfinished => "unfinished",
            Absent::Refused => "refused",
            Absent::Running => "running",
            Absent::KernelOnly => "kernel-only",
        }
    }

    /// A description for display, without a full stop.
    pub fn describe(self) -> &'static str {
        match self {
            Absent::NoSwitches => "the trace has no context switches",
            Absent::BatchedSwitches => "context switches were logged in batches, which carry no stacks",
            Absent::WithoutStacks => "context switches were logged without stacks",
            Absent::NeverSwitched => "the trace has no earlier switch to the thread",
            Absent::Lost => "buffers were lost that could have contained the stack",
            Absent::NotTaken => "no stack was captured when the thread was switched to",
            Absent::UnresolvedKey => "the trace does not define the stack's key",
            Absent::TooMany => "there are more threads than can be tracked",
            Absent::SystemThread => "the thread is a system thread and has no user stack",
            Absent::NotReturned => "the user stack was not captured: the thread did not return to user mode",
            Absent::Gone => "the thread no longer exists",
            Absent::Terminating => "the thread is terminating",
            Absent::TimedOut => "the thread did not answer in time",
            Absent::Idle => "stacks of idle threads cannot be captured",
            Absent::Busy => "too many captures are in progress",
            Absent::NothingWalked => {
                "the stack walk found no frames: unwind data or a page of the stack is not in memory"
            }
            Absent::Faulted => "reading the user stack raised an exception",
            Absent::Attached => {
                "the thread is attached to another process, where its user stack is not mapped"
            }
            Absent::Protected => "the process is protected",
            Absent::NoRoom => "the buffer had no space for more frames",
            Absent::NotNow => "too little of the thread's kernel stack was left for the walk",
            Absent::CriticalRegion => {
                "the thread is in a critical region, where paging in its stack could deadlock"
            }
            Absent::Unfinished => "reading the user stack did not finish in time",
            Absent::Refused => "the system denied access",
            Absent::Running => "the thread was running",
            Absent::KernelOnly => "this source provides kernel stacks only",
        }
    }
}
