//! A provider with its settings, filters and handlers.

use std::fmt;

use stackhound_live::{EnableProperties, EtwFilter, KernelGroups, KernelProvider, ProviderSettings};
use stackhound_pipeline::EventView;
use stackhound_schema::{SchemaStore, kernel};
use stackhound_types::Guid;

use crate::consumer::handler::{self, Handler, IntoOutcome};
use crate::consumer::{Error, EventFilter};

/// A provider, its settings, and the handlers of its events.
///
/// Without filters, its handlers receive every event that its settings select. Each filter selects
/// among these events and has its own handlers.
pub struct Provider {
    pub(crate) settings: ProviderSettings,
    kernel: Option<KernelProvider>,
    legacy: bool,
    pub(crate) handlers: Vec<Handler>,
    pub(crate) filters: Vec<EventFilter>,
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provider")
            .field("settings", &self.settings)
            .field("handlers", &self.handlers.len())
            .field("filters", &self.filters.len())
            .finish()
    }
}

impl From<ProviderSettings> for Provider {
    fn from(settings: ProviderSettings) -> Provider {
        Provider { settings, kernel: None, legacy: false, handlers: Vec::new(), filters: Vec::new() }
    }
}

impl Provider {
    /// The provider with this GUID, which may also be that of a classic provider or of a kernel
    /// class.
    pub fn guid(guid: Guid) -> Provider {
        ProviderSettings::new(guid).into()
    }

    /// The provider with this name or GUID, which is not case-sensitive. Built-in providers are
    /// searched and, on Windows, the registered ones.
    ///
    /// # Errors
    /// [`Error::UnknownProvider`].
    pub fn named(name: &str) -> Result<Provider, Error> {
        Provider::named_in(name, &SchemaStore::new())
    }

    /// As [`named`](Provider::named), but also searches the given schemas.
    ///
    /// # Errors
    /// [`Error::UnknownProvider`].
    pub fn named_in(name: &str, schemas: &SchemaStore) -> Result<Provider, Error> {
        if let Ok(guid) = name.parse() {
            return Ok(Provider::guid(guid));
        }
        let found = schemas.find_provider(name);
        #[cfg(all(windows, feature = "windows"))]
        let found = found.or_else(|| crate::find_provider_of_the_system(name));
        found.map(Provider::guid).ok_or_else(|| Error::UnknownProvider(name.to_owned()))
    }

    /// A kernel provider: the events that its groups log, and no other events of their class. The
    /// groups are enabled in the trace's kernel session.
    pub fn kernel(provider: KernelProvider) -> Provider {
        Provider { kernel: Some(provider), ..Provider::guid(provider.class) }
    }

    /// Marks a provider of the older kinds, MOF and WPP. Their events contain the GUID of the class
    /// or the message, not that of the provider. The provider therefore receives all events with
    /// such headers whose GUID belongs neither to another provider of the trace nor to the kernel.
    /// Several such providers each receive all of them. Only one session at a time can enable such
    /// a provider: the trace's session takes it from another.
    pub fn legacy(self) -> Provider {
        Provider { legacy: true, ..self }
    }

    /// Whether it receives events whose headers do not identify a provider.
    pub(crate) fn is_legacy(&self) -> bool {
        self.legacy
    }

    /// The groups that the kernel session must enable for it.
    pub(crate) fn groups(&self) -> Option<KernelGroups> {
        self.kernel.map(|kernel| kernel.groups)
    }

    /// The settings, in the form that a session uses.
    pub fn settings(&self) -> &ProviderSettings {
        &self.settings
    }

    /// Applies a function to the settings.
    fn with(self, change: impl FnOnce(ProviderSettings) -> ProviderSettings) -> Provider {
        Provider { settings: change(self.settings), ..self }
    }

    /// Selects only events with at least one of these keywords, or without keywords. Further calls
    /// add keywords.
    pub fn any(self, keywords: u64) -> Provider {
        self.with(|settings| settings.any(keywords))
    }

    /// Selects only events that also have all of these keywords, or no keywords.
    pub fn all(self, keywords: u64) -> Provider {
        self.with(|settings| settings.all(keywords))
    }

    /// Selects only events of at most this level, or of level 0. 0 selects every level.
    pub fn level(self, level: u8) -> Provider {
        self.with(|settings| settings.level(level))
    }

    /// Requests a stack with each event.
    pub fn stack_trace(self) -> Provider {
        self.with(ProviderSettings::stack_trace)
    }

    /// Requests additional data with each event. Further calls add properties.
    pub fn enable_properties(self, properties: EnableProperties) -> Provider {
        self.with(|settings| settings.enable_properties(properties))
    }

    /// Requests a rundown: the provider logs its state after the session has started.
    pub fn rundown(self) -> Provider {
        self.with(ProviderSettings::rundown)
    }

    /// Adds a filter that ETW applies. Conditions on headers are also tested here.
    ///
    /// # Errors
    /// If the filter has more values than Windows accepts, or is the second one of its kind.
    pub fn only_in_etw(self, filter: EtwFilter) -> Result<Provider, stackhound_live::Error> {
        Ok(Provider { settings: self.settings.only_in_etw(filter)?, ..self })
    }

    /// Adds a handler that is called for each event that the settings select.
    pub fn on_event<R: IntoOutcome>(
        mut self,
        handler: impl FnMut(&EventView<'_>) -> R + Send + 'static,
    ) -> Provider {
        self.handlers.push(handler::boxed(handler));
        self
    }

    /// Adds a filter among the provider's events. Several filters are independent of each other.
    pub fn filter(mut self, filter: EventFilter) -> Provider {
        self.filters.push(filter);
        self
    }

    /// Whether the settings select an event. Reads only its header.
    pub(crate) fn selects(&self, view: &EventView<'_>) -> bool {
        let event = view.event();
        let hook_id = || {
            // In classic headers, class and type correspond to the hook id.
            let of_class = |class| kernel::hook_id_of(class, event.record().opcode());
            event.hook_id().or_else(|| event.guid().and_then(of_class))
        };
        match (&self.kernel, event.hook_id()) {
            (Some(kernel), _) => hook_id().is_some_and(|hook_id| kernel.logs(hook_id)),
            (None, Some(hook_id)) => kernel::class_of_hook_id(hook_id) == Some(self.settings.provider()),
            (None, None) => self.settings.wants(event),
        }
    }

    /// The settings for ETW. If all handlers belong to filters with ids, only these ids are
    /// requested.
    pub(crate) fn for_etw(&self) -> ProviderSettings {
        let settings = self.settings.clone();
        if !self.handlers.is_empty() || self.filters.is_empty() {
            return settings;
        }
        let mut ids = Vec::new();
        for filter in &self.filters {
            match filter.event_ids() {
                Some(wanted) => ids.extend_from_slice(wanted),
                None => return settings,
            }
        }
        // If there are too many ids for Windows, or if a filter of this kind exists, ids are tested
        // only here.
        settings.clone().only_in_etw(EtwFilter::EventIds(ids)).unwrap_or(settings)
    }
}
