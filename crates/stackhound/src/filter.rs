//! Which of a provider's events somebody wants.

use crate::consumer::IntoOutcome;
use crate::consumer::{Handler, boxed};
use crate::seen::Seen;

/// Chooses among a provider's events, and calls its handlers for them.
pub struct EventFilter {
    ids: Vec<u16>,
    pub(crate) handlers: Vec<Handler>,
}

impl EventFilter {
    /// Events with one of these ids.
    pub fn ids(ids: impl IntoIterator<Item = u16>) -> EventFilter {
        EventFilter { ids: ids.into_iter().collect(), handlers: Vec::new() }
    }

    /// The ids, if only events with certain ids are wanted.
    pub fn event_ids(&self) -> Option<&[u16]> {
        Some(&self.ids)
    }

    /// Whether an event is wanted.
    pub(crate) fn try_wants(&self, seen: &Seen<'_>) -> Result<bool, stackhound_schema::Error> {
        Ok(self.ids.contains(&seen.id()))
    }

    /// Is called for every event that is wanted.
    pub fn on_event<R: IntoOutcome>(
        mut self,
        handler: impl FnMut(&Seen<'_>) -> R + Send + 'static,
    ) -> EventFilter {
        self.handlers.push(boxed(handler));
        self
    }
}
