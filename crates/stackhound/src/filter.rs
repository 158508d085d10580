//! Which events of a provider are wanted.

use stackhound_expr::{Error, Filter};

use crate::predicate::Predicate;
use crate::seen::Seen;

/// The events of a provider that somebody wants: by their ids, and by a predicate.
///
/// Ids can be handed to ETW, which then does not even log other events. What ETW delivers is tested again all the same:
/// it knows only the union of all ids that sessions ask of a provider.
#[derive(Clone, Debug)]
pub struct EventFilter {
    ids: Option<Box<[u16]>>,
    /// `None` wants everything.
    filter: Option<Filter>,
    /// The same, compiled.
    predicate: Result<Option<Predicate>, Error>,
}

impl EventFilter {
    /// Events that a filter lets pass: one of [`pred`](crate::pred), or text that was [parsed](Filter::parse).
    pub fn new(filter: Filter) -> EventFilter {
        EventFilter { ids: None, filter: None, predicate: Ok(None) }.and(filter)
    }

    /// Events with one of these ids. Of no ids, none.
    pub fn ids(ids: impl IntoIterator<Item = u16>) -> EventFilter {
        let mut ids: Vec<u16> = ids.into_iter().collect();
        ids.sort_unstable();
        ids.dedup();
        EventFilter { ids: Some(ids.into()), filter: None, predicate: Ok(None) }
    }

    /// Of these, the events that another filter lets pass too.
    pub fn and(mut self, filter: Filter) -> EventFilter {
        let filter = match self.filter.take() {
            Some(before) => before & filter,
            None => filter,
        };
        self.predicate = Predicate::new(&filter).map(Some);
        self.filter = Some(filter);
        self
    }

    /// The ids that are wanted, each once and in order, for a filter of ETW; `None` where all are.
    pub fn event_ids(&self) -> Option<&[u16]> {
        self.ids.as_deref()
    }

    /// The predicate, if there is one beside the ids.
    ///
    /// # Errors
    /// What makes the filter unusable: a name that no event has, or more depth or length than a filter may have. Who takes
    /// the filter must refuse it then; it wants no event.
    pub fn predicate(&self) -> Result<Option<&Predicate>, &Error> {
        self.predicate.as_ref().map(Option::as_ref)
    }

    /// Whether the event is wanted. Of a provider's events; the provider is not tested.
    pub fn wants(&self, seen: &Seen<'_>) -> bool {
        let by_id = self.ids.as_ref().is_none_or(|ids| ids.binary_search(&seen.id()).is_ok());
        by_id
            && match &self.predicate {
                Ok(predicate) => predicate.as_ref().is_none_or(|predicate| predicate.matches(seen)),
                Err(_) => false,
            }
    }
}
