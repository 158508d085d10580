//! A provider with those who want its events.

use std::fmt;

use stackhound_live::{EnableProperties, EtwFilter, KernelGroups, KernelProvider, ProviderSettings};
use stackhound_pipeline::EventView;
use stackhound_schema::{SchemaStore, kernel};
use stackhound_types::Guid;

use crate::consumer::handler::{self, Handler, IntoOutcome};
use crate::consumer::{Error, EventFilter};

/// A provider, what is wanted of it, and who is called for its events.
///
/// Without filters, its handlers get every event that its settings ask for. Filters choose among them; each has handlers of
/// its own.
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
    /// By GUID; of a classic provider or a class of the kernel as well.
    pub fn guid(guid: Guid) -> Provider {
        ProviderSettings::new(guid).into()
    }

    /// By the name or GUID under which it is registered, in any case. Asks what is built in, and on Windows the system.
    ///
    /// # Errors
    /// [`Error::UnknownProvider`].
    pub fn named(name: &str) -> Result<Provider, Error> {
        Provider::named_in(name, &SchemaStore::new())
    }

    /// As [`named`](Provider::named), and asks these descriptions too.
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

    /// A part of the kernel: the events that its groups log, and no others of their class. The groups are switched on in
    /// the trace's kernel session.
    pub fn kernel(provider: KernelProvider) -> Provider {
        Provider { kernel: Some(provider), ..Provider::guid(provider.class) }
    }

    /// A provider of the older kinds, MOF and WPP. Their events say the GUID of the class or the message, and nothing of the
    /// provider that logs it: events of such headers that no provider of the trace has the GUID of, and that are none of the
    /// kernel, are given to it. Of several such providers each gets all of them. Only one session at a time can have such a
    /// provider: ours takes it from another.
    pub fn legacy(self) -> Provider {
        Provider { legacy: true, ..self }
    }

    /// Whether it gets events of headers that say no provider.
    pub(crate) fn is_legacy(&self) -> bool {
        self.legacy
    }

    /// What the kernel session has to switch on for it.
    pub(crate) fn groups(&self) -> Option<KernelGroups> {
        self.kernel.map(|kernel| kernel.groups)
    }

    /// What is wanted of it, as a session takes it.
    pub fn settings(&self) -> &ProviderSettings {
        &self.settings
    }

    /// Changes the settings by a function of theirs.
    fn with(self, change: impl FnOnce(ProviderSettings) -> ProviderSettings) -> Provider {
        Provider { settings: change(self.settings), ..self }
    }

    /// Only events with at least one of these keywords, or with none at all. Further calls add keywords.
    pub fn any(self, keywords: u64) -> Provider {
        self.with(|settings| settings.any(keywords))
    }

    /// Of these, only events with all of these keywords, or with none at all.
    pub fn all(self, keywords: u64) -> Provider {
        self.with(|settings| settings.all(keywords))
    }

    /// Only events of at most this level, or of level 0. 0 means every level.
    pub fn level(self, level: u8) -> Provider {
        self.with(|settings| settings.level(level))
    }

    /// Events bring their stacks along.
    pub fn stack_trace(self) -> Provider {
        self.with(ProviderSettings::stack_trace)
    }

    /// What ETW adds to events. Further calls add more.
    pub fn enable_properties(self, properties: EnableProperties) -> Provider {
        self.with(|settings| settings.enable_properties(properties))
    }

    /// The provider logs its state when the session has begun.
    pub fn rundown(self) -> Provider {
        self.with(ProviderSettings::rundown)
    }

    /// A filter for ETW to apply. What headers tell of it is tested here as well.
    ///
    /// # Errors
    /// More values than Windows takes, or a second filter of a kind.
    pub fn only_in_etw(self, filter: EtwFilter) -> Result<Provider, stackhound_live::Error> {
        Ok(Provider { settings: self.settings.only_in_etw(filter)?, ..self })
    }

    /// Is called for every event that the settings ask for.
    pub fn on_event<R: IntoOutcome>(
        mut self,
        handler: impl FnMut(&EventView<'_>) -> R + Send + 'static,
    ) -> Provider {
        self.handlers.push(handler::boxed(handler));
        self
    }

    /// Has the filter choose among the provider's events. Several filters choose independently of each other.
    pub fn filter(mut self, filter: EventFilter) -> Provider {
        self.filters.push(filter);
        self
    }

    /// Whether the settings ask for an event. Reads its header only.
    pub(crate) fn asks_for(&self, view: &EventView<'_>) -> bool {
        let event = view.event();
        let hook_id = || {
            // With a classic header, class and type say what the hook would.
            let of_class = |class| kernel::hook_id_of(class, event.record().opcode());
            event.hook_id().or_else(|| event.guid().and_then(of_class))
        };
        match (&self.kernel, event.hook_id()) {
            (Some(kernel), _) => hook_id().is_some_and(|hook_id| kernel.logs(hook_id)),
            (None, Some(hook_id)) => kernel::class_of_hook_id(hook_id) == Some(self.settings.provider()),
            (None, None) => self.settings.wants(event),
        }
    }

    /// What to ask ETW for: where only filters with ids listen, only these ids.
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
        // More ids than Windows takes, or a filter of this kind is there already: then they are told apart here only.
        settings.clone().only_in_etw(EtwFilter::EventIds(ids)).unwrap_or(settings)
    }
}
