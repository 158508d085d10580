//! Why a part of a stack is missing.

/// Why a part of a thread's stack is not there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum Absent {
    /// The recording has no context switches.
    NoSwitches,
    /// The recording has its context switches in batches, which carry no stacks.
    BatchedSwitches,
    /// No context switch of the recording has a stack.
    WithoutStacks,
    /// The thread was not switched to up to the time in question.
    NeverSwitched,
    /// Buffers were lost where the stack could have been.
    Lost,
    /// The switches to the thread carry no stack, though others' do.
    NotTaken,
    /// The stack is a key whose definition is not in the recording.
    UnresolvedKey,
    /// There were more threads than are followed.
    TooMany,
    /// The thread has no user part: it is of the system.
    SystemThread,
    /// The user part is taken when a thread returns to user mode, which it did not while anybody looked.
    NotReturned,
    /// There is no such thread any more.
    Gone,
    /// The thread is ending.
    Terminating,
    /// The thread did not answer in time.
    TimedOut,
    /// Idle threads cannot be asked.
    Idle,
    /// As many captures are under way as there can be.
    Busy,
    /// The walk gave no frame: unwind data are not in memory, or there are none, or the innermost user page cannot be read.
    NothingWalked,
    /// Reading the user stack failed with an exception.
    Faulted,
    /// The thread looks at another process's memory at the moment, where its own stack is not.
    Attached,
    /// The process is protected: of it, only the kernel part is given.
    Protected,
    /// The buffer was full before the part began.
    NoRoom,
    /// Too little of the thread's kernel stack was left for the walk.
    NotNow,
    /// The thread is in a critical region, and may hold a lock that reading in a page would wait for.
    CriticalRegion,
    /// The walk had not ended when the time was up.
    Unfinished,
    /// The system refuses to tell.
    Refused,
    /// The thread was running, in user mode or on another processor, where the system does not look.
    Running,
    /// The source tells of kernel parts only.
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

    /// For people: what is the matter.
    pub fn describe(self) -> &'static str {
        match self {
            Absent::NoSwitches => "the recording has no context switches",
            Absent::BatchedSwitches => "context switches were recorded in batches, which carry no stacks",
            Absent::WithoutStacks => "context switches were recorded without stacks",
            Absent::NeverSwitched => "the thread was not switched to up to then",
            Absent::Lost => "buffers were lost where the stack could have been",
            Absent::NotTaken => "no stack was taken as the thread was switched to",
            Absent::UnresolvedKey => "the stack's key is not explained in the recording",
            Absent::TooMany => "there are more threads than are followed",
            Absent::SystemThread => "the thread is of the system and has no user part",
            Absent::NotReturned => "the user part was not taken: the thread did not return to user mode",
            Absent::Gone => "there is no such thread any more",
            Absent::Terminating => "the thread is ending",
            Absent::TimedOut => "the thread did not answer in time",
            Absent::Idle => "idle threads cannot be asked",
            Absent::Busy => "too many captures are under way",
            Absent::NothingWalked => {
                "the walk gave no frame: unwind data, or a page of the stack, are not in memory"
            }
            Absent::Faulted => "reading the user stack failed",
            Absent::Attached => "the thread is attached to another process, where its user stack is not",
            Absent::Protected => "the process is protected",
            Absent::NoRoom => "there was no room for more frames",
            Absent::NotNow => "too little of the thread's kernel stack was left to walk it",
            Absent::CriticalRegion => {
                "the thread is in a critical region, where reading in a page of its stack could deadlock"
            }
            Absent::Unfinished => "reading the user stack did not end in time",
            Absent::Refused => "the system refuses to tell",
            Absent::Running => "the thread was running",
            Absent::KernelOnly => "this source tells of kernel parts only",
        }
    }
}
