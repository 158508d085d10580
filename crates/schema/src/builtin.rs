//! Built-in descriptions of events of well-known providers, for traces without descriptions of
//! them.
//!
//! Fields and versions are those of the providers' manifests. Events of the .NET runtime have the
//! names that PerfView and its library use, instead of the longer ones of the manifest. The tables
//! are in the notation of [`crate::notation`] (`builtin/*.txt`) and are read once.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use stackhound_types::{Guid, PointerSize};

use crate::kernel;
use crate::model::{Map, MapKind, Schema, SchemaSource};
use crate::notation::layout::{LayoutError, Maps, alternatives};
use crate::notation::{self, ClassText, EventText, MapText, NotationError};
use crate::plan::Plan;
use crate::provider::{EventDescription, Named, ProviderDescription};

const TABLES: [(&str, &str); 7] = [
    ("clr_maps", include_str!("builtin/clr_maps.txt")),
    ("clr_runtime", include_str!("builtin/clr_runtime.txt")),
    ("clr_rundown", include_str!("builtin/clr_rundown.txt")),
    ("clr_private", include_str!("builtin/clr_private.txt")),
    ("kernel_providers", include_str!("builtin/kernel_providers.txt")),
    ("dns_client", include_str!("builtin/dns_client.txt")),
    ("other_providers", include_str!("builtin/other_providers.txt")),
];

/// The maps that these tables share with the tables of the kernel logger.
const KERNEL_MAPS: [&str; 5] =
    ["CreateOptions", "FileAttributes", "ShareAccess", "IrpFlags", "FileInformationClass"];

/// The tables. An error in them makes the first look-up panic, which a test detects.
static PROVIDERS: LazyLock<Providers> = LazyLock::new(|| {
    Providers::read(&TABLES).unwrap_or_else(|error| panic!("built-in provider table: {error}"))
});

#[derive(Debug, thiserror::Error)]
enum TableError {
    #[error("{0}.txt: {1}")]
    Notation(&'static str, NotationError),
    #[error("{0}: {1}")]
    Layout(String, LayoutError),
    #[error("{0} is defined twice, or its versions are not in ascending order")]
    Order(String),
}

/// The description of an event in the tables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BuiltIn {
    pub plan: &'static Arc<Plan>,
    /// The first version that has this layout. It may be lower than the requested version.
    pub version: u8,
}

/// The description of an event with the highest version up to the given one.
pub(crate) fn lookup(provider: Guid, id: u16, version: u8) -> Option<BuiltIn> {
    let versions = PROVIDERS.events.get(&(provider, id))?;
    let (version, plan) = versions.iter().rev().find(|(from, _)| *from <= version)?;
    Some(BuiltIn { plan, version: *version })
}

pub(crate) fn provider_name(provider: Guid) -> Option<&'static str> {
    self::provider(provider).map(|provider| &*provider.name)
}

pub(crate) fn provider(guid: Guid) -> Option<&'static ProviderDescription> {
    PROVIDERS.index_of.get(&guid).map(|&index| &PROVIDERS.descriptions[index])
}

/// All providers of the tables, in their order. Properties that traces do not contain, such as
/// levels, are unknown.
pub(crate) fn providers() -> impl Iterator<Item = &'static ProviderDescription> {
    PROVIDERS.descriptions.iter()
}

/// Versions in ascending order.
type Versions = Vec<(u8, Arc<Plan>)>;

#[derive(Debug, Default)]
struct Providers {
    events: HashMap<(Guid, u16), Versions>,
    descriptions: Vec<ProviderDescription>,
    index_of: HashMap<Guid, usize>,
}

impl Providers {
    fn read(tables: &[(&'static str, &str)]) -> Result<Providers, TableError> {
        let mut maps = Maps::new();
        for name in KERNEL_MAPS {
            maps.extend(kernel::map(name).map(|map| (name, map.clone())));
        }
        let mut providers = Providers::default();
        for &(name, text) in tables {
            let table = notation::parse(text).map_err(|error| TableError::Notation(name, error))?;
            for text in table.maps {
                let map = Arc::new(map(&text));
                if maps.insert(text.name, map).is_some() {
                    return Err(TableError::Order(text.name.to_owned()));
                }
            }
            for provider in &table.providers {
                if providers.index_of.insert(provider.guid, providers.descriptions.len()).is_some() {
                    return Err(TableError::Order(provider.name.to_owned()));
                }
                providers.descriptions.push(description(provider));
                for event in &provider.events {
                    providers.add(provider, event, &maps)?;
                }
            }
        }
        Ok(providers)
    }

    fn add(
        &mut self,
        provider: &ClassText<'_>,
        text: &EventText<'_>,
        maps: &Maps<'_>,
    ) -> Result<(), TableError> {
        for &(id, event_name) in &text.names {
            let label = format!("{} {id} {event_name}", provider.name);
            let mut versions: Versions = Vec::new();
            for layout in &text.layouts {
                // These layouts are packed, and their plans apply to both pointer sizes.
                let layouts = alternatives(layout, PointerSize::Eight, maps);
                let layouts = layouts.map_err(|error| TableError::Layout(label.clone(), error))?;
                if versions.last().is_some_and(|(last, _)| *last >= layout.from_version) {
                    return Err(TableError::Order(label));
                }
                let fields = layouts.into_iter().next().map(|layout| layout.fields).unwrap_or_default();
                let schema = Schema {
                    source: SchemaSource::BuiltIn,
                    provider: provider.guid,
                    provider_name: provider.name.into(),
                    event_name: event_name.into(),
                    message: None,
                    fields,
                };
                let (version, schema) = (layout.from_version, Arc::new(schema));
                if let Some(description) = self.descriptions.last_mut() {
                    description.events.push(EventDescription::new(id, version, schema.clone()));
                }
                versions.push((version, Arc::new(Plan::new(schema))));
            }
            if self.events.insert((provider.guid, id), versions).is_some() {
                return Err(TableError::Order(label));
            }
        }
        Ok(())
    }
}

fn description(provider: &ClassText<'_>) -> ProviderDescription {
    let keywords = provider.keywords.iter();
    ProviderDescription {
        guid: provider.guid,
        name: provider.name.into(),
        keywords: keywords.map(|&(value, name)| Named { value, name: name.into(), message: None }).collect(),
        ..ProviderDescription::default()
    }
}

fn map(text: &MapText<'_>) -> Map {
    Map {
        name: text.name.into(),
        kind: if text.bits { MapKind::Bits } else { MapKind::Values },
        entries: text.entries.iter().map(|&(value, name)| (value, name.into())).collect(),
    }
}

#[cfg(test)]
mod tests;
