//! Which of a provider's events somebody wants.

use std::fmt;

use stackhound_expr::{Error, Filter};
use stackhound_pipeline::{EventView, Predicate};

use crate::consumer::handler::{Handler, IntoOutcome, boxed};

/// Chooses among a provider's events by their ids and by a predicate, and calls its handlers for them.
///
/// Ids are handed to ETW, which then does not even log other events. What ETW delivers is tested again all the same: it
/// knows only the union of all ids that are asked of a provider.
///
/// ```
/// use stackhound::{EventFilter, pred};
///
/// let filter = EventFilter::ids([10, 11]).and(pred::property("PID").is(812_u32));
/// assert_eq!(filter.event_ids(), Some(&[10, 11][..]));
/// ```
pub struct EventFilter {
    ids: Option<Box<[u16]>>,
    /// `None` wants everything.
    filter: Option<Filter>,
    /// The same, compiled.
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
    /// Events that a filter lets pass: one of [`pred`](crate::pred), or text that was [parsed](Filter::parse).
    pub fn new(filter: Filter) -> EventFilter {
        EventFilter { ids: None, filter: None, predicate: Ok(None), handlers: Vec::new() }.and(filter)
    }

    /// Events with one of these ids. Of no ids, none.
    pub fn ids(ids: impl IntoIterator<Item = u16>) -> EventFilter {
        let mut ids: Vec<u16> = ids.into_iter().collect();
        ids.sort_unstable();
        ids.dedup();
        EventFilter { ids: Some(ids.into()), filter: None, predicate: Ok(None), handlers: Vec::new() }
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

    /// The ids that are wanted, each once and in order; `None` where all are.
    pub fn event_ids(&self) -> Option<&[u16]> {
        self.ids.as_deref()
    }

    /// The predicate, if there is one beside the ids.
    ///
    /// # Errors
    /// What makes the filter unusable: a name that no event has, or more depth or length than a filter may have. It wants
    /// no event then, and a trace with it does not begin.
    pub fn predicate(&self) -> Result<Option<&Predicate>, &Error> {
        self.predicate.as_ref().map(Option::as_ref)
    }

    /// Whether an event is wanted. The provider is not tested.
    pub fn wants(&self, view: &EventView<'_>) -> bool {
        self.has_id_of(view)
            && match &self.predicate {
                Ok(predicate) => predicate.as_ref().is_none_or(|predicate| predicate.matches(view)),
                Err(_) => false,
            }
    }

    /// Whether an event is wanted, or that this hangs on fields of an event that nobody describes.
    pub(crate) fn try_wants(&self, view: &EventView<'_>) -> Result<bool, stackhound_schema::Error> {
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

    /// Is called for every event that is wanted.
    pub fn on_event<R: IntoOutcome>(
        mut self,
        handler: impl FnMut(&EventView<'_>) -> R + Send + 'static,
    ) -> EventFilter {
        self.handlers.push(boxed(handler));
        self
    }
}
