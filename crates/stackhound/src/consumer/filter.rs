//! Selection of a provider's events.

use std::fmt;

use stackhound_expr::{Error, Filter};
use stackhound_pipeline::{EventView, Predicate};

use crate::consumer::handler::{Handler, IntoOutcome, boxed};

/// Selects events of a provider by their ids and by a predicate, and calls its handlers for them.
///
/// The ids are passed to ETW, which then does not log other events. Delivered events are tested
/// again, because ETW applies only the union of all ids that are requested from a provider.
///
/// ```
/// use stackhound::{EventFilter, pred};
///
/// let filter = EventFilter::ids([10, 11]).and(pred::property("PID").is(812_u32));
/// assert_eq!(filter.event_ids(), Some(&[10, 11][..]));
/// ```
pub struct EventFilter {
    ids: Option<Box<[u16]>>,
    /// `None` selects all events.
    filter: Option<Filter>,
    /// The compiled `filter`.
    predicate: Result<Option<Predicate>, Error>,
    pub(crate) handlers: Vec<Handler>,
}

impl fmt::Debug for EventFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventFilter")
            .field("ids", &self.ids)
            .field("filter", &self.filter.as_ref().map(Filter::to_string))
            .field("handlers", &self.handlers.len())
            .finish_non_exhaustive()
    }
}

impl EventFilter {
    /// Selects the events that match a filter: one of [`pred`](crate::pred), or text that was
    /// [parsed](Filter::parse).
    pub fn new(filter: Filter) -> EventFilter {
        EventFilter { ids: None, filter: None, predicate: Ok(None), handlers: Vec::new() }.and(filter)
    }

    /// Selects events with one of these ids. Without ids, no event is selected.
    pub fn ids(ids: impl IntoIterator<Item = u16>) -> EventFilter {
        let mut ids: Vec<u16> = ids.into_iter().collect();
        ids.sort_unstable();
        ids.dedup();
        EventFilter { ids: Some(ids.into()), filter: None, predicate: Ok(None), handlers: Vec::new() }
    }

    /// Selects only those events that also match another filter.
    pub fn and(mut self, filter: Filter) -> EventFilter {
        let filter = match self.filter.take() {
            Some(before) => before & filter,
            None => filter,
        };
        self.predicate = Predicate::new(&filter).map(Some);
        self.filter = Some(filter);
        self
    }

    /// The selected ids, without duplicates and in ascending order; `None` for all ids.
    pub fn event_ids(&self) -> Option<&[u16]> {
        self.ids.as_deref()
    }

    /// The predicate, if there is one in addition to the ids.
    ///
    /// # Errors
    /// If the filter is unusable: an unknown field, or a filter that is nested too deeply or too
    /// long. Such a filter selects no event, and a trace with it does not start.
    pub fn predicate(&self) -> Result<Option<&Predicate>, &Error> {
        self.predicate.as_ref().map(Option::as_ref)
    }

    /// Whether an event is selected. The provider is not tested.
    pub fn wants(&self, view: &EventView<'_>) -> bool {
        self.has_id_of(view)
            && match &self.predicate {
                Ok(predicate) => predicate.as_ref().is_none_or(|predicate| predicate.matches(view)),
                Err(_) => false,
            }
    }

    /// Whether an event is selected. Fails if this depends on fields of an event without a known
    /// schema.
    pub(crate) fn try_selects(&self, view: &EventView<'_>) -> Result<bool, stackhound_schema::Error> {
        if !self.has_id_of(view) {
            return Ok(false);
        }
        match &self.predicate {
            Ok(None) => Ok(true),
            Ok(Some(predicate)) => predicate.try_matches(view),
            Err(_) => Ok(false),
        }
    }

    fn has_id_of(&self, view: &EventView<'_>) -> bool {
        self.ids.as_ref().is_none_or(|ids| ids.binary_search(&view.id()).is_ok())
    }

    /// Adds a handler that is called for each selected event.
    pub fn on_event<R: IntoOutcome>(
        mut self,
        handler: impl FnMut(&EventView<'_>) -> R + Send + 'static,
    ) -> EventFilter {
        self.handlers.push(boxed(handler));
        self
    }
}
