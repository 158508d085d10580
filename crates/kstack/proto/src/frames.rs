//! Addresses of frames, what stands where they are missing, and their hash.

/// An address, or a sentinel, behind the header of an answer.
pub type Entry = zerocopy::little_endian::U64;

/// Why a part of a stack is not there. It stands in the place of the part's frames, as an address that no
/// processor takes for one: bits 63 to 56 of an address are all equal, with 57-bit addresses too; here they
/// are `0x5d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Missing {
    /// The walk gave no frame: unwind data of the kernel are not in memory, or there are none, or the innermost user page cannot be read.
    Nothing = 1,
    /// The thread has no user part: it is of the system.
    System,
    /// Reading the user stack failed with an exception. The system's walk is known to catch those of pages that cannot be read.
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
}

impl Missing {
    /// All of them.
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

    /// What stands in the place of the frames.
    pub const fn sentinel(self) -> u64 {
        Self::SENTINEL | self as u64
    }

    /// What an address says, if it is such a one.
    pub fn from_sentinel(address: u64) -> Option<Missing> {
        Missing::ALL.into_iter().find(|missing| missing.sentinel() == address)
    }
}

/// The hash of frames in their order, sentinels included: FNV-1a, 64 bits, over each address's eight bytes in
/// little-endian order. It tells stacks apart; it does not withstand somebody who wants two to be equal.
pub fn hash(frames: impl IntoIterator<Item = u64>) -> u64 {
    frames.into_iter().flat_map(u64::to_le_bytes).fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
