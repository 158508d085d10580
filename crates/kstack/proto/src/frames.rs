//! Addresses of frames, sentinels for missing stacks, and the hash of the entries.

/// An entry after the header of an answer: an address or a sentinel.
pub type Entry = zerocopy::little_endian::U64;

/// The reason why a requested stack is missing. In an answer, it is a sentinel that replaces the
/// frames. No processor accepts the sentinel as an address: bits 63 to 56 of an address are all
/// equal, also with 57-bit addresses; those of a sentinel are `0x5d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Missing {
    /// The walk returned no frames: unwind data is not in memory or does not exist, the innermost
    /// page of the user stack cannot be read, or all frames were omitted.
    Nothing = 1,
    /// The thread is a system thread and has no user stack.
    System,
    /// Reading the user stack raised an exception. The walk of the system itself is known to catch
    /// exceptions of pages that cannot be read.
    Faulted,
    /// The thread is attached to another process, whose memory does not contain its stack.
    Attached,
    /// The process is protected: only its kernel stacks are available.
    Protected,
    /// The buffer was full before this stack began.
    NoRoom,
    /// Too little of the thread's kernel stack was left for the walk.
    NotNow,
    /// The thread is in a critical region, and may hold a lock for which reading in a page would
    /// wait.
    CriticalRegion,
    /// The walk was still running when the timeout expired.
    Unfinished,
}

impl Missing {
    /// All reasons, by number.
    pub const ALL: [Missing; 9] = [
        Missing::Nothing,
        Missing::System,
        Missing::Faulted,
        Missing::Attached,
        Missing::Protected,
        Missing::NoRoom,
        Missing::NotNow,
        Missing::CriticalRegion,
        Missing::Unfinished,
    ];
    const SENTINEL: u64 = 0x5d00_0bad_0000_0000;

    /// The entry that replaces the frames.
    pub const fn sentinel(self) -> u64 {
        Self::SENTINEL | self as u64
    }

    /// The reason that an entry stands for, or `None` if the entry is not a sentinel.
    pub fn from_sentinel(address: u64) -> Option<Missing> {
        Missing::ALL.into_iter().find(|missing| missing.sentinel() == address)
    }
}

/// The hash of entries in their order, sentinels included: 64-bit FNV-1a over the eight bytes of
/// each entry in little-endian order. Two stacks with different hashes are different. The hash does
/// not resist deliberate collisions.
pub fn hash(frames: impl IntoIterator<Item = u64>) -> u64 {
    frames.into_iter().flat_map(u64::to_le_bytes).fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
