//! Counters of used and ignored events.

/// Counters of a [`Timeline`](crate::Timeline).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Events.
    pub events: u64,
    /// Context switches.
    pub switches: u64,
    /// System call enter events.
    pub calls: u64,
    /// System call exit events.
    pub returns: u64,
    /// System call exit events without an enter event.
    pub returns_without_call: u64,
    /// System calls that were ended by other evidence, without an exit event.
    pub calls_without_return: u64,
    /// Interrupt routines and deferred calls.
    pub interruptions: u64,
    /// Interruptions whose start context is not exact: it is too far back, or the stated time
    /// cannot be correct.
    pub clipped_interruptions: u64,
    /// Events that require a processor number and have none.
    pub without_processor: u64,
    /// Events that require a thread, on processors whose running thread is unknown.
    pub without_thread: u64,
    /// Events that state a different thread than the running one according to context switches.
    pub conflicting_threads: u64,
    /// Gaps in the events of a processor; no frame continues across them.
    pub gaps: u64,
    /// Recorded stacks.
    pub snapshots: u64,
    /// Recorded stacks of which at least a part was merged.
    pub snapshots_used: u64,
    /// Stacks during system calls or interruptions that do not contain the routine.
    pub without_routine: u64,
    /// Stacks that contradict another one of the same system call.
    pub contradicting: u64,
    /// User parts with a different outermost function than before, so that one of the two is
    /// incomplete.
    pub unaligned: u64,
    /// Kernel parts that show only how the event itself was logged.
    pub of_the_logging: u64,
}
