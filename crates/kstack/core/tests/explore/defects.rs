//! Models with a defect. The exploration must find each, otherwise it would prove nothing.

/// A defect of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Defect {
    /// Every thread counts as the requesting one (1 of the HOWTO).
    TakenForOwn,
    /// An APC whose thread ends is dropped without its rundown routine (4).
    NoRunDown,
    /// The wait has no timeout (5).
    EndlessWait,
    /// The shared data is on the stack of the requesting thread (6).
    OnTheStack,
    /// A request that times out frees the slot, although the APC may run (7).
    FreedOnTimeOut,
    /// The event keeps the state of the last capture (9).
    EventKept,
    /// The frames of the last capture are kept and counted (9).
    FramesKept,
    /// The thread is released when the APC is queued (13).
    ThreadReleasedEarly,
    /// The driver can be unloaded when no request is in progress (13).
    Unloadable,
    /// The APC's reference is counted after the APC was queued.
    ReferredLate,
    /// A thread has several ids, so that one capture of it does not detect the other.
    NumbersRounded,
    /// The APC signals without checking whether the request still waits.
    AbandonmentIgnored,
    /// An APC that was removed from its queue is not cleaned up.
    RemovalForgotten,
    /// The kernel stack is published before its frames are written.
    KernelStackLate,
    /// The user stack is written over the kernel stack.
    UserOverKernel,
    /// The critical region of a thread is ignored.
    RegionIgnored,
}

/// A violation of the invariants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Violation {
    /// A slot was used with the ticket of an earlier capture.
    Stale,
    /// A slot was freed while its APC was queued or running, or while a system call used it.
    FreedInUse,
    /// A system call for a slot that does not belong to the caller, or was not prepared for this
    /// capture.
    NotLive,
    /// An APC or event was initialized again while the system used it.
    InitializedInUse,
    /// A wait was ended by the event of another capture.
    StaleEvent,
    /// A thread was used after its last reference was released.
    ThreadGone,
    /// The reference count of a thread or slot differs from the references that are held.
    Unbalanced,
    /// A slot is claimed, but nothing is left that could free it.
    SlotLost,
    /// A request does not end unless other threads continue.
    EndlessWait,
    /// A thread is captured twice at the same time.
    TwoCaptures,
    /// Frames were written after they had been copied.
    WrittenAfterCopy,
    /// An answer has frames of another thread.
    WrongThread,
    /// The entries of an answer differ from the results of this capture's walks.
    ForeignFrames,
    /// The outcome of an answer is wrong.
    FalseOutcome,
    /// An event was signaled for a request that had abandoned its capture.
    SignaledAbandoned,
    /// An APC ended, but its request still waits.
    NotWoken,
    /// A stack was walked for a request that had already left.
    WalkedAbandoned,
    /// The user stack of a thread in a critical region was walked, although the request does not
    /// allow it.
    PagedInRegion,
    /// Unloaded code ran, or was about to run.
    CodeGone,
}
