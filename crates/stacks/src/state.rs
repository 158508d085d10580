//! The states of an event's stack, and counters.

use std::collections::BTreeMap;

use crate::trigger::TriggerKind;

/// How complete and how certain an event's stack is. If several states apply, the first one of
/// [`StackState::ALL`] is the event's state.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
#[repr(u8)]
pub enum StackState {
    /// The stack contains an impossible frame address: the walk failed.
    Damaged,
    /// A part of the stack could have been in a lost buffer.
    Lost,
    /// More than one event could have triggered a part; this one was the most likely. Or the user
    /// part belongs to a later event of the thread, and the event's own part could have been in a
    /// lost buffer.
    Ambiguous,
    /// A part is a key, and an earlier definition of the key could have been in a lost buffer. The
    /// frames are likely.
    Unconfirmed,
    /// A part is a key whose definition is not in the trace, or arrived too late.
    UnresolvedKey,
    /// The walk did not reach the outermost function of the thread.
    Truncated,
    /// Only the kernel part; the user part did not arrive.
    KernelOnly,
    /// Only the user part of an event that happened in the kernel; the kernel part did not arrive.
    UserOnly,
    /// No stack: no part arrived.
    #[default]
    None,
    /// The whole stack: kernel and user part, a kernel part of a thread without user mode, or a
    /// user part of an event that happened in user mode.
    Complete,
}

impl StackState {
    /// All states, in order of precedence.
    pub const ALL: [StackState; 10] = [
        StackState::Damaged,
        StackState::Lost,
        StackState::Ambiguous,
        StackState::Unconfirmed,
        StackState::UnresolvedKey,
        StackState::Truncated,
        StackState::KernelOnly,
        StackState::UserOnly,
        StackState::None,
        StackState::Complete,
    ];

    /// The spelling in output.
    pub fn name(self) -> &'static str {
        match self {
            StackState::Damaged => "damaged",
            StackState::Lost => "lost",
            StackState::Ambiguous => "ambiguous",
            StackState::Unconfirmed => "unconfirmed",
            StackState::UnresolvedKey => "unresolved-key",
            StackState::Truncated => "truncated",
            StackState::KernelOnly => "kernel-only",
            StackState::UserOnly => "user-only",
            StackState::None => "none",
            StackState::Complete => "complete",
        }
    }
}

/// The states that apply to an event's stack; never empty.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct StackStates(u16);

impl StackStates {
    /// States in which frames may be wrong or missing.
    const UNCERTAIN: u16 = 1 << StackState::Damaged as u16
        | 1 << StackState::Lost as u16
        | 1 << StackState::Ambiguous as u16
        | 1 << StackState::Unconfirmed as u16
        | 1 << StackState::UnresolvedKey as u16;

    /// An additional bit: walks that show whether this one is truncated could have been in a lost
    /// buffer.
    const DOUBTFUL_END: u16 = 1 << StackState::ALL.len();

    /// One state.
    pub const fn of(state: StackState) -> StackStates {
        StackStates(1 << state as u16)
    }

    /// With another one.
    #[must_use]
    pub const fn with(self, state: StackState) -> StackStates {
        StackStates(self.0 | 1 << state as u16)
    }

    /// With another one if a condition holds.
    #[must_use]
    pub const fn with_if(self, condition: bool, state: StackState) -> StackStates {
        if condition { self.with(state) } else { self }
    }

    /// Whether a state applies.
    pub const fn has(self, state: StackState) -> bool {
        self.0 & 1 << state as u16 != 0
    }

    /// The first state that applies.
    pub fn first(self) -> StackState {
        StackState::ALL[self.0.trailing_zeros() as usize]
    }

    /// All states that apply, in order of precedence.
    pub fn iter(self) -> impl Iterator<Item = StackState> {
        StackState::ALL.into_iter().filter(move |state| self.has(*state))
    }

    /// All states that apply. Without [`StackState::Complete`] if another one does: every part is
    /// there, but a reader would not call a doubtful stack complete.
    pub fn without_contradiction(self) -> impl Iterator<Item = StackState> {
        let is_only = self.iter().count() == 1;
        self.iter().filter(move |state| is_only || *state != StackState::Complete)
    }

    /// The states that apply in addition to the first one.
    pub fn others(self) -> impl Iterator<Item = StackState> {
        self.iter().skip(1)
    }

    /// With the doubt whether the walk is truncated or not.
    #[must_use]
    pub(crate) const fn with_doubtful_end(self, is_doubtful: bool) -> StackStates {
        if is_doubtful { StackStates(self.0 | StackStates::DOUBTFUL_END) } else { self }
    }

    /// The set as a number below 2,048.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Whether no loss, damage or ambiguity that is known could have changed the stack and its
    /// state.
    pub const fn is_certain(self) -> bool {
        self.0 & (StackStates::UNCERTAIN | StackStates::DOUBTFUL_END) == 0
    }

    /// Whether the user part is complete: the first state is [`StackState::Complete`] or
    /// [`StackState::UserOnly`].
    pub fn has_whole_user_part(self) -> bool {
        matches!(self.first(), StackState::Complete | StackState::UserOnly)
    }

    /// Whether the frames are certain, even if the walk may be truncated: like
    /// [`is_certain`](Self::is_certain), except for the doubt about truncation.
    pub const fn has_certain_frames(self) -> bool {
        self.0 & StackStates::UNCERTAIN == 0
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
    /// Events that contain only the user part of an earlier event.
    pub extended_parts: u64,
    /// Distinct pairs of time and thread among the parts.
    pub groups: u64,
    /// Parts that found their event.
    pub attributed_parts: u64,
    /// Parts whose event was not found.
    pub orphaned_parts: u64,
    /// Parts that more than one event could have triggered.
    pub ambiguous_parts: u64,
    /// Parts whose key has no definition.
    pub unresolved_keys: u64,
    /// Stack records too short to be read.
    pub malformed: u64,
    /// Events that left the window before their user part arrived.
    pub left_incomplete: u64,
    /// Parts that were dropped because their event had too many. Only in live correlators.
    pub excess_parts: u64,
    /// The number of new generations of the stack table. Only in live correlators.
    pub generations: u64,
    /// Attributed parts by kind of triggering event. Beyond 65,536 kinds, live sessions count the
    /// rest as [`TriggerKind::Other`].
    pub by_triggering_event: BTreeMap<TriggerKind, u64>,
    /// Delivered events by state of their stack, in the order of [`StackState::ALL`].
    pub by_state: [u64; StackState::ALL.len()],
}

impl StackStats {
    /// Whether stack records, which come after their events, occurred in the trace up to here.
    pub(crate) fn has_records(&self) -> bool {
        self.full + self.keyed > 0
    }
}
