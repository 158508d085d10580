//! The settings of a session for one provider.

use std::collections::HashMap;
use std::ops::{BitAnd, BitOr};

use stackhound_trace::{Event, ProviderFilter};
use stackhound_types::Guid;

use super::etw_filter::{EtwFilter, FilterBytes, Scope};
use crate::Error;

/// The data that ETW adds to the events of a provider, and events that it omits
/// (`EVENT_ENABLE_PROPERTY_*`; Microsoft's page "ENABLE_TRACE_PARAMETERS structure").
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct EnableProperties(u32);

impl EnableProperties {
    /// Adds the security identifier of the user, as an extended data item.
    pub const SID: EnableProperties = EnableProperties(0x001);
    /// Adds the terminal session, as an extended data item.
    pub const TERMINAL_SESSION: EnableProperties = EnableProperties(0x002);
    /// Adds the call stack, as an extended data item.
    pub const STACK_TRACE: EnableProperties = EnableProperties(0x004);
    /// Adds the package and application, as an extended data item.
    pub const PSM_KEY: EnableProperties = EnableProperties(0x008);
    /// Omits events without keywords.
    pub const IGNORE_KEYWORD_0: EnableProperties = EnableProperties(0x010);
    /// The GUID identifies a group of providers.
    pub const PROVIDER_GROUP: EnableProperties = EnableProperties(0x020);
    /// Allows providers to log events without keywords that they would otherwise suppress.
    pub const ENABLE_KEYWORD_0: EnableProperties = EnableProperties(0x040);
    /// Adds a number of the process that is unique until the machine is restarted, as an extended
    /// data item.
    pub const PROCESS_START_KEY: EnableProperties = EnableProperties(0x080);
    /// Adds a number of the event, as an extended data item.
    pub const EVENT_KEY: EnableProperties = EnableProperties(0x100);
    /// Omits events of private browser windows.
    pub const EXCLUDE_IN_PRIVATE: EnableProperties = EnableProperties(0x200);
    /// Includes events from containers.
    pub const ENABLE_SILOS: EnableProperties = EnableProperties(0x400);
    /// Adds the container that an event is from, as an extended data item.
    pub const SOURCE_CONTAINER: EnableProperties = EnableProperties(0x800);

    /// The properties that omit events.
    const RESTRICTING: u32 = 0x210;

    /// Any bits, including those of newer systems.
    pub const fn from_bits(bits: u32) -> EnableProperties {
        EnableProperties(bits)
    }

    /// The value of `EnableProperty`.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Whether all properties of `other` are included.
    pub fn contains(self, other: EnableProperties) -> bool {
        self & other == other
    }

    /// Properties that serve both: all that add data, and those that omit events in both.
    fn serving_both(self, other: EnableProperties) -> EnableProperties {
        let adding = (self.0 | other.0) & !Self::RESTRICTING;
        EnableProperties(adding | (self.0 & other.0 & Self::RESTRICTING))
    }
}

impl BitOr for EnableProperties {
    type Output = EnableProperties;

    fn bitor(self, other: EnableProperties) -> EnableProperties {
        EnableProperties(self.0 | other.0)
    }
}

impl BitAnd for EnableProperties {
    type Output = EnableProperties;

    fn bitand(self, other: EnableProperties) -> EnableProperties {
        EnableProperties(self.0 & other.0)
    }
}

/// One provider and its settings. The same settings can select events of a trace, see
/// [`wants`](ProviderSettings::wants).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProviderSettings {
    filter: ProviderFilter,
    properties: EnableProperties,
    rundown: bool,
    /// At most one of each kind.
    in_etw: Vec<EtwFilter>,
}

/// The arguments of `EnableTraceEx2`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EnableParameters {
    /// The provider.
    pub provider: Guid,
    /// The highest level; 255 for all.
    pub level: u8,
    /// `MatchAnyKeyword`; 0 for all.
    pub any: u64,
    /// `MatchAllKeyword`.
    pub all: u64,
    /// `EnableProperty`.
    pub properties: u32,
    /// Filter descriptors.
    pub filters: Vec<FilterBytes>,
    /// Whether the provider is asked to log its state (`EVENT_CONTROL_CODE_CAPTURE_STATE`) once
    /// events are received.
    pub rundown: bool,
}

impl ProviderSettings {
    /// All events of a provider.
    pub fn new(provider: Guid) -> ProviderSettings {
        ProviderSettings {
            filter: ProviderFilter::new(provider),
            properties: EnableProperties::default(),
            rundown: false,
            in_etw: Vec::new(),
        }
    }

    /// The provider.
    pub fn provider(&self) -> Guid {
        self.filter.provider
    }

    /// Selects only events with at least one of these keywords, or with none at all. Further calls
    /// add keywords.
    pub fn any(self, keywords: u64) -> ProviderSettings {
        ProviderSettings { filter: self.filter.any(keywords), ..self }
    }

    /// Of the selected events, selects only those with all of these keywords, or with none at all.
    pub fn all(self, keywords: u64) -> ProviderSettings {
        ProviderSettings { filter: self.filter.all(keywords), ..self }
    }

    /// Selects only events of at most this level, or of level 0. 0 means every level.
    pub fn level(self, level: u8) -> ProviderSettings {
        ProviderSettings { filter: self.filter.level(level), ..self }
    }

    /// Adds data to events. Further calls add more.
    pub fn enable_properties(self, properties: EnableProperties) -> ProviderSettings {
        ProviderSettings { properties: self.properties | properties, ..self }
    }

    /// Requests the stacks of events.
    pub fn stack_trace(self) -> ProviderSettings {
        self.enable_properties(EnableProperties::STACK_TRACE)
    }

    /// Requests that the provider logs its state when the session has begun.
    pub fn rundown(self) -> ProviderSettings {
        ProviderSettings { rundown: true, ..self }
    }

    /// Adds a filter that ETW applies.
    ///
    /// # Errors
    /// More values than Windows accepts, or a second filter of the same kind.
    pub fn only_in_etw(mut self, filter: EtwFilter) -> Result<ProviderSettings, Error> {
        let filter = filter.checked()?;
        if self.in_etw.iter().any(|other| other.kind() == filter.kind()) {
            return Err(Error::SecondFilter(filter.values()));
        }
        self.in_etw.push(filter);
        self.in_etw.sort_by_key(EtwFilter::kind);
        Ok(self)
    }

    /// The filters that ETW applies.
    pub fn filters(&self) -> &[EtwFilter] {
        &self.in_etw
    }

    /// Whether these settings select an event. All conditions on the header are tested, because ETW
    /// does not always apply them, and cannot if other settings of the same provider select more.
    /// Names of programs, packages and events are not in headers and are not tested.
    pub fn wants(&self, event: &Event<'_>) -> bool {
        if !self.filter.wants(event) {
            return false;
        }
        let record = event.record();
        let descriptor = record.descriptor();
        let id = descriptor.map(|descriptor| descriptor.id);
        let by_keyword = !self.properties.contains(EnableProperties::IGNORE_KEYWORD_0)
            || descriptor.is_none_or(|descriptor| descriptor.keyword != 0);
        by_keyword
            && self.in_etw.iter().all(|filter| match filter {
                EtwFilter::EventIds(ids) => id.is_some_and(|id| ids.binary_search(&id).is_ok()),
                EtwFilter::NotEventIds(ids) => id.is_none_or(|id| ids.binary_search(&id).is_err()),
                EtwFilter::Pids(pids) => record.pid().is_none_or(|pid| pids.contains(&pid.0)),
                _ => true,
            })
    }

    /// The settings as ETW accepts them.
    pub fn parameters(&self) -> EnableParameters {
        let ProviderFilter { provider, any, all, level } = self.filter;
        // 0 means all only for providers with manifests; MOF and WPP providers interpret it as no
        // flags. ETW also ignores the second mask in this case.
        let any = if any == 0 { u64::MAX } else { any };
        let level = if level == 0 { u8::MAX } else { level };
        let scope = Scope { any, all, level };
        EnableParameters {
            provider,
            level,
            any,
            all,
            properties: self.properties.bits(),
            filters: self.in_etw.iter().map(|filter| filter.to_bytes(scope)).collect(),
            rundown: self.rundown,
        }
    }

    /// Settings that select all events that one of the two selects, and maybe more. A session has
    /// one set of settings for each provider.
    fn serving_both(&self, other: &ProviderSettings) -> ProviderSettings {
        debug_assert_eq!(self.provider(), other.provider());
        let (a, b) = (&self.filter, &other.filter);
        let filter = ProviderFilter {
            provider: a.provider,
            any: if a.any == 0 || b.any == 0 { 0 } else { a.any | b.any },
            all: a.all & b.all,
            level: if a.level == 0 || b.level == 0 { 0 } else { a.level.max(b.level) },
        };
        let both = [self, other];
        let mut in_etw: Vec<EtwFilter> = Vec::new();
        for one in &self.in_etw {
            let same = other.in_etw.iter().find(|other| other.kind() == one.kind());
            in_etw.extend(same.and_then(|other| one.union(other)));
        }
        // Settings without stacks do not affect which events get stacks.
        for (settings, other) in both.into_iter().zip([other, self]) {
            if settings.wants_stacks() && !other.wants_stacks() {
                in_etw.retain(|filter| !filter.is_about_stacks());
                in_etw.extend(settings.in_etw.iter().filter(|filter| filter.is_about_stacks()).cloned());
            }
        }
        in_etw.sort_by_key(EtwFilter::kind);
        ProviderSettings {
            filter,
            properties: self.properties.serving_both(other.properties),
            rundown: self.rundown || other.rundown,
            in_etw,
        }
    }

    fn wants_stacks(&self) -> bool {
        self.properties.contains(EnableProperties::STACK_TRACE)
    }

    /// One set of settings for each provider, in the order of first occurrence, that serves all:
    /// any keyword of one of them, the highest level, every property that adds data, and only those
    /// filters that all of them have, with the values of all. Each caller's own
    /// [`wants`](ProviderSettings::wants) removes the events that only others selected.
    pub fn merged(settings: &[ProviderSettings]) -> Vec<ProviderSettings> {
        let mut merged: Vec<ProviderSettings> = Vec::new();
        let mut indexes: HashMap<Guid, usize> = HashMap::new();
        for settings in settings {
            let index = *indexes.entry(settings.provider()).or_insert(merged.len());
            match merged.get_mut(index) {
                Some(before) => *before = before.serving_both(settings),
                None => merged.push(settings.clone()),
            }
        }
        merged
    }
}
