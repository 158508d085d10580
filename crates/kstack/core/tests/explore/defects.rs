//! Models with a defect: what the exploration must find, or it shows nothing.

/// A rule that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Defect {
    /// Every thread is taken for the one that asks (1 of the HOWTO).
    TakenForOwn,
    /// An APC whose thread ends goes without a word (4).
    NoRunDown,
    /// The wait has no limit (5).
    EndlessWait,
    /// What is shared lies on the stack of the one who asks (6).
    OnTheStack,
    /// Who gives up frees, though the APC may run (7).
    FreedOnTimeOut,
    /// The event is left as the last capture left it (9).
    EventKept,
    /// What the last capture found is left, and counted (9).
    FramesKept,
    /// The thread is let go when the APC is queued (13).
    ThreadReleasedEarly,
    /// The driver can be unloaded when nobody is inside (13).
    Unloadable,
    /// The APC gets its reference after it was queued.
    ReferredLate,
    /// A thread has several numbers, so that one capture of it does not know of the other.
    NumbersRounded,
    /// The APC signals without asking whether anybody waits.
    AbandonmentIgnored,
    /// An APC that was taken out of its queue is not cleaned up after.
    RemovalForgotten,
    /// The kernel part is said to be there before its frames are.
    KernelPartLate,
    /// The user part is walked into the memory of the kernel part.
    UserOverKernel,
    /// That a thread is in a critical region is not noticed.
    RegionIgnored,
}

/// What must never be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Violation {
    /// A slot was used with the ticket of an earlier capture.
    Stale,
    /// A slot was freed while an APC lay in it, queued or running, or a call of the system used it.
    FreedInUse,
    /// A call of the system for a slot that is not the caller's, or not made ready for this capture.
    NotLive,
    /// An APC or event was made anew while the system held it.
    MadeAnewInUse,
    /// A wait ended by the event of another capture.
    StaleEvent,
    /// A thread was used after the last reference to it.
    ThreadGone,
    /// References to a thread or a slot that are not those that are held.
    Unbalanced,
    /// A slot is taken though nobody is left that could free it.
    SlotLost,
    /// A request that does not come to its end unless others go on.
    EndlessWait,
    /// Two captures of one thread.
    TwoCaptures,
    /// Frames were written after they had been copied.
    WrittenAfterCopy,
    /// An answer has frames of another thread.
    WrongThread,
    /// An answer has other entries than this capture's walks gave.
    ForeignFrames,
    /// An answer says what is not so.
    FalseOutcome,
    /// An event was signalled for one that had said it waits no more.
    SignalledNobody,
    /// An APC came to its end, and the one who waits for it waits on.
    NotWoken,
    /// A stack was walked for one who had gone before.
    WalkedForNobody,
    /// The user part of a thread in a critical region was walked, though the request does not say so.
    PagedInRegion,
    /// Code ran, or was to run, that is not there any more.
    CodeGone,
}
