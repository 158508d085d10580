//! Who is called for an event.

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

/// All that want events.
#[derive(Default)]
pub(crate) struct Dispatch {
    providers: Vec<Provider>,
    /// For events that no provider wants.
    pub unclaimed: Vec<Handler>,
    pub publisher: Option<Publisher>,
    errors: Errors,
    /// Wanted events.
    pub delivered: u64,
    /// Others that unclaimed handlers got.
    pub left: u64,
}

/// Who hears of errors, and how many there were.
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
    /// Calls a handler and, if it gives an error, those who want to hear of it.
    fn call(&mut self, handler: &mut dyn FnMut(&EventView<'_>) -> Outcome, view: &EventView<'_>) -> Flow {
        match handler(view) {
            Ok(flow) => flow,
            Err(error) => self.tell(view, &error),
        }
    }

    #[cold]
    fn tell(&mut self, event: &EventView<'_>, error: &stackhound_schema::Error) -> Flow {
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

    /// Whether all filters can be used.
    pub fn check(&self) -> Result<(), Error> {
        let mut filters = self.providers.iter().flat_map(|provider| &provider.filters);
        filters.try_for_each(|filter| filter.predicate().map(|_| ()).map_err(|error| error.clone().into()))
    }

    /// How many errors there were.
    pub fn errors(&self) -> u64 {
        self.errors.count
    }

    /// What a session has to ask its providers for.
    pub fn for_etw(&self) -> Vec<ProviderSettings> {
        let wanted = self.providers.iter().filter(|provider| provider.groups().is_none());
        wanted.map(Provider::for_etw).collect()
    }

    /// What the kernel session has to switch on.
    pub fn groups(&self) -> Option<KernelGroups> {
        self.providers.iter().filter_map(Provider::groups).reduce(|a, b| a | b)
    }

    /// Whether anybody is called for an event, as far as its header tells.
    #[inline]
    pub fn wants(&self, view: &EventView<'_>) -> bool {
        self.providers.is_empty()
            || !self.unclaimed.is_empty()
            || self.providers.iter().any(|provider| provider.asks_for(view))
            || (self.providers.iter().any(Provider::is_legacy) && self.says_no_provider(view))
    }

    /// Whether an event is of a class or a message that none of the providers is, nor the kernel.
    fn says_no_provider(&self, view: &EventView<'_>) -> bool {
        let record = view.event().record();
        let kind = record.kind();
        let Some(guid) = record.guid().filter(|_| kind.is_classic() || kind == HeaderKind::Message) else {
            return false;
        };
        let is_of_system = guid == LOST_EVENTS || kernel::hook_id_of(guid, record.opcode()).is_some();
        !is_of_system && self.providers.iter().all(|provider| provider.settings.provider() != guid)
    }

    /// Calls all who want an event, and `all` if anybody does. Everyone is called, even if one of them breaks.
    pub fn call(&mut self, view: &EventView<'_>, all: &mut dyn FnMut(&EventView<'_>) -> Outcome) -> Flow {
        let mut claimed = self.providers.is_empty();
        let mut flow = ControlFlow::Continue(());
        let mut note = |outcome: Flow| {
            if outcome.is_break() {
                flow = ControlFlow::Break(());
            }
        };
        let legacy = self.providers.iter().any(Provider::is_legacy) && self.says_no_provider(view);
        for provider in &mut self.providers {
            let is_asked_for = provider.asks_for(view) || legacy && provider.is_legacy();
            if !is_asked_for {
                continue;
            }
            claimed |= provider.filters.is_empty() || !provider.handlers.is_empty();
            for handler in &mut provider.handlers {
                note(self.errors.call(handler, view));
            }
            for filter in &mut provider.filters {
                match filter.try_wants(view) {
                    Ok(false) => {}
                    Ok(true) => {
                        claimed = true;
                        for handler in &mut filter.handlers {
                            note(self.errors.call(handler, view));
                        }
                    }
                    Err(error) => note(self.errors.tell(view, &error)),
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
            self.left += 1;
            for handler in &mut self.unclaimed {
                note(self.errors.call(handler, view));
            }
        }
        flow
    }
}
