//! What is known about an event's stack, and what was counted.

use std::collections::BTreeMap;

use crate::owner::OwnerKind;

/// How much of an event's stack there is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub enum StackState {
    /// All of it: kernel and user part, a kernel part of a thread without user mode, or a user part of an event that
    /// happened in user mode.
    Complete,
    /// The kernel part; the user part never came.
    KernelOnly,
    /// The user part of an event that happened in the kernel; the kernel part never came.
    UserOnly,
    /// A part is a key whose definition is not in the recording, or came too late.
    UnresolvedKey,
    /// More than one event could have owned a part; this one was the most likely. Or the user part is that of a later
    /// event of the thread, and the event's own could have been in a buffer that is missing.
    Ambiguous,
    /// None, and buffers were lost where it could have been.
    Lost,
    /// None.
    #[default]
    None,
}

impl StackState {
    /// All states.
    pub const ALL: [StackState; 7] = [
        StackState::Complete,
        StackState::KernelOnly,
        StackState::UserOnly,
        StackState::UnresolvedKey,
        StackState::Ambiguous,
        StackState::Lost,
        StackState::None,
    ];

    /// The spelling in reports.
    pub fn name(self) -> &'static str {
        match self {
            StackState::Complete => "complete",
            StackState::KernelOnly => "kernel-only",
            StackState::UserOnly => "user-only",
            StackState::UnresolvedKey => "unresolved-key",
            StackState::Ambiguous => "ambiguous",
            StackState::Lost => "lost",
            StackState::None => "none",
        }
    }
}

/// Counters of the correlator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StackStats {
    /// Parts with frames inline.
    pub full: u64,
    /// Parts by key.
    pub keyed: u64,
    /// Key definitions.
    pub definitions: u64,
    /// Stacks in extended items.
    pub extended: u64,
    /// Stack keys in extended items.
    pub extended_keys: u64,
    /// Events that carry nothing but the user part of an earlier event.
    pub extended_halves: u64,
    /// Distinct pairs of time and thread among the parts.
    pub groups: u64,
    /// Parts that found their event.
    pub attributed_parts: u64,
    /// Parts whose event is not there.
    pub orphaned_parts: u64,
    /// Parts that more than one event could have owned.
    pub ambiguous_parts: u64,
    /// Parts whose key has no definition.
    pub unresolved_keys: u64,
    /// Stack records too short to be read.
    pub malformed: u64,
    /// Events that left the window before their user part came.
    pub left_incomplete: u64,
    /// Parts that were left out because their event had too many. Only where old stacks are forgotten.
    pub excess_parts: u64,
    /// How often the table of stacks was begun anew. Only where old stacks are forgotten.
    pub generations: u64,
    /// Attributed parts by kind of owner. Beyond 65,536 kinds, live sessions count the rest as [`OwnerKind::Other`].
    pub by_owner: BTreeMap<OwnerKind, u64>,
    /// Delivered events by state of their stack, in the order of [`StackState::ALL`].
    pub by_state: [u64; StackState::ALL.len()],
}
