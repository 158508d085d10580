//! Calls the handlers of an event.

use std::fmt;
use std::ops::ControlFlow;

use stackhound_etl::record::HeaderKind;
use stackhound_live::{KernelGroups, LOST_EVENTS, ProviderSettings};
use stackhound_pipeline::EventView;
use stackhound_schema::kernel;
use stackhound_trace::Flow;

use crate::consumer::error::Error;
use crate::consumer::handler::{ErrorHandler, EventError, Handler, Outcome};
use crate::consumer::provider::Provider;
use crate::consumer::subscription::Publisher;

/// All receivers of events.
#[derive(Default)]
pub(crate) struct Dispatch {
    providers: Vec<Provider>,
    /// Handlers of events that no provider selects.
    pub unclaimed: Vec<Handler>,
    pub publisher: Option<Publisher>,
    errors: Errors,
    /// Number of events that were passed to handlers.
    pub delivered: u64,
    /// Number of other events, which the unclaimed handlers received.
    pub unclaimed_events: u64,
}

/// Handlers of errors, and the number of errors.
#[derive(Default)]
pub(crate) struct Errors {
    handlers: Vec<ErrorHandler>,
    pub count: u64,
}

impl fmt::Debug for Dispatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dispatch").field("providers", &self.providers).finish_non_exhaustive()
    }
}

impl Errors {
    /// Calls a handler and reports its error, if any, to the error handlers.
    fn call(&mut self, handler: &mut dyn FnMut(&EventView<'_>) -> Outcome, view: &EventView<'_>) -> Flow {
        match handler(view) {
            Ok(flow) => flow,
            Err(error) => self.report(view, &error),
        }
    }

    #[cold]
    fn report(&mut self, event: &EventView<'_>, error: &stackhound_schema::Error) -> Flow {
        self.count += 1;
        let mut flow = ControlFlow::Continue(());
        for handler in &mut self.handlers {
            let outcome: Outcome = handler(&EventError { event, error });
            if matches!(outcome, Ok(ControlFlow::Break(()))) {
                flow = ControlFlow::Break(());
            }
        }
        flow
    }
}

impl Dispatch {
    pub fn enable(&mut self, provider: Provider) {
        self.providers.push(provider);
    }

    pub fn on_error(&mut self, handler: ErrorHandler) {
        self.errors.handlers.push(handler);
    }

    /// Whether all filters are usable.
    pub fn check(&self) -> Result<(), Error> {
        let mut filters = self.providers.iter().flat_map(|provider| &provider.filters);
        filters.try_for_each(|filter| filter.predicate().map(|_| ()).map_err(|error| error.clone().into()))
    }

    /// Number of errors.
    pub fn errors(&self) -> u64 {
        self.errors.count
    }

    /// The settings that a session must request from providers.
    pub fn for_etw(&self) -> Vec<ProviderSettings> {
        let in_etw = self.providers.iter().filter(|provider| provider.groups().is_none());
        in_etw.map(Provider::for_etw).collect()
    }

    /// The groups that the kernel session must enable.
    pub fn groups(&self) -> Option<KernelGroups> {
        self.providers.iter().filter_map(Provider::groups).reduce(|a, b| a | b)
    }

    /// Whether any handler may be called for an event, according to its header.
    #[inline]
    pub fn wants(&self, view: &EventView<'_>) -> bool {
        self.providers.is_empty()
            || !self.unclaimed.is_empty()
            || self.providers.iter().any(|provider| provider.selects(view))
            || (self.providers.iter().any(Provider::is_legacy) && self.has_unknown_provider(view))
    }

    /// Whether an event has the GUID of a class or message that belongs neither to a provider of
    /// the trace nor to the kernel.
    fn has_unknown_provider(&self, view: &EventView<'_>) -> bool {
        let record = view.event().record();
        let kind = record.kind();
        let Some(guid) = record.guid().filter(|_| kind.is_classic() || kind == HeaderKind::Message) else {
            return false;
        };
        let is_of_system = guid == LOST_EVENTS || kernel::hook_id_of(guid, record.opcode()).is_some();
        !is_of_system && self.providers.iter().all(|provider| provider.settings.provider() != guid)
    }

    /// Calls all handlers that selected an event, and `all` if there are any. All of them are
    /// called, even if one breaks.
    pub fn call(&mut self, view: &EventView<'_>, all: &mut dyn FnMut(&EventView<'_>) -> Outcome) -> Flow {
        let mut claimed = self.providers.is_empty();
        let mut flow = ControlFlow::Continue(());
        let mut note = |outcome: Flow| {
            if outcome.is_break() {
                flow = ControlFlow::Break(());
            }
        };
        let legacy = self.providers.iter().any(Provider::is_legacy) && self.has_unknown_provider(view);
        for provider in &mut self.providers {
            let is_selected = provider.selects(view) || legacy && provider.is_legacy();
            if !is_selected {
                continue;
            }
            claimed |= provider.filters.is_empty() || !provider.handlers.is_empty();
            for handler in &mut provider.handlers {
                note(self.errors.call(handler, view));
            }
            for filter in &mut provider.filters {
                match filter.try_selects(view) {
                    Ok(false) => {}
                    Ok(true) => {
                        claimed = true;
                        for handler in &mut filter.handlers {
                            note(self.errors.call(handler, view));
                        }
                    }
                    Err(error) => note(self.errors.report(view, &error)),
                }
            }
        }
        if claimed {
            self.delivered += 1;
            note(self.errors.call(all, view));
            if let Some(publisher) = &mut self.publisher {
                note(publisher.publish(view));
            }
        } else if !self.unclaimed.is_empty() {
            self.unclaimed_events += 1;
            for handler in &mut self.unclaimed {
                note(self.errors.call(handler, view));
            }
        }
        flow
    }
}
