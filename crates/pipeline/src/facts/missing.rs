//! The reasons for missing facts.

use std::fmt;

/// The reason why a fact about an event is not known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Missing {
    /// The event is about no such object, or does not state which one.
    NotStated,
    /// No event and no rundown describes the object.
    NoRundown,
    /// Events are missing from the trace that could have changed the fact.
    Lost,
    /// The object is described, but without this fact.
    NotRecorded,
    /// Events contradict each other.
    Contradictory,
}

impl Missing {
    /// All reasons.
    pub const ALL: [Missing; 5] =
        [Missing::NotStated, Missing::NoRundown, Missing::Lost, Missing::NotRecorded, Missing::Contradictory];

    /// The reason in output.
    pub fn name(self) -> &'static str {
        match self {
            Missing::NotStated => "not stated",
            Missing::NoRundown => "no rundown",
            Missing::Lost => "lost",
            Missing::NotRecorded => "not recorded",
            Missing::Contradictory => "contradictory",
        }
    }
}

/// Numbers of missing facts by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MissingCounts([u64; Missing::ALL.len()]);

impl MissingCounts {
    /// Adds a missing fact.
    pub fn add(&mut self, reason: Missing) {
        self.0[reason as usize] += 1;
    }

    /// The number of facts that are missing for a reason.
    pub fn get(&self, reason: Missing) -> u64 {
        self.0[reason as usize]
    }

    /// The number of all missing facts.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// The reasons with their numbers, the most frequent first: `no rundown 12, lost 3`.
impl fmt::Display for MissingCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut reasons = Missing::ALL;
        reasons.sort_by_key(|&reason| std::cmp::Reverse(self.get(reason)));
        for (index, reason) in reasons.into_iter().take_while(|&reason| self.get(reason) > 0).enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{} {}", reason.name(), self.get(reason))?;
        }
        Ok(())
    }
}
