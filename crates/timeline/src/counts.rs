//! What was used and what was not.

/// Counters of a [`Timeline`](crate::Timeline).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Events.
    pub events: u64,
    /// Switches of threads.
    pub switches: u64,
    /// System calls whose beginning was seen.
    pub calls: u64,
    /// Ends of system calls.
    pub returns: u64,
    /// Ends of system calls whose beginning was not seen.
    pub returns_without_call: u64,
    /// System calls that were open when something showed that they were over, though no end was seen.
    pub calls_without_return: u64,
    /// Interrupt routines and deferred calls.
    pub interruptions: u64,
    /// Those whose start could not be placed exactly: it lies too far back, or the stated time cannot be right.
    pub clipped_interruptions: u64,
    /// Events that need a processor and have none.
    pub without_processor: u64,
    /// Events that need a thread, where none is known to run.
    pub without_thread: u64,
    /// Events that state another thread than the one that runs there as far as switches tell.
    pub conflicting_threads: u64,
    /// Places where events of a processor are missing; nothing is claimed across them.
    pub gaps: u64,
    /// Recorded stacks.
    pub snapshots: u64,
    /// Of them, those of which a part was merged.
    pub snapshots_used: u64,
    /// Stacks during system calls or interruptions that do not show the routine.
    pub without_routine: u64,
    /// Stacks that contradict another one of the same stay in the kernel.
    pub contradicting: u64,
    /// User parts whose outermost function is another one than before, so that one of the two is not whole.
    pub unaligned: u64,
    /// Kernel parts that show only how the event itself was logged.
    pub of_the_logging: u64,
}
