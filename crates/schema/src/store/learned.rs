//! Descriptions from traces and from files that users supply.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use foldhash::HashMap;
use stackhound_types::Guid;

use super::provider_names::ProviderNames;
use super::{Key, Kind};
use crate::model::{Map, Schema, SchemaSource};
use crate::plan::Plan;
use crate::provider::{EventDescription, ProviderDescription};

/// The approximate limit, in bytes, of all learned descriptions.
const MAX_BYTES: usize = 256 << 20;

/// The maximum number of names of one kind that a provider can have if several descriptions contain
/// names. Each new name is compared with all others.
const MAX_MERGED_NAMES: usize = 4096;

/// Maps are identified by their name and provider.
type MapName = (Guid, Box<str>);

#[derive(Clone, Debug, Default)]
pub(super) struct Learned {
    descriptions: HashMap<Key, Description>,
    maps: HashMap<MapName, Arc<Map>>,
    /// The descriptions that refer to a missing map.
    referring: HashMap<MapName, Vec<Key>>,
    names: ProviderNames,
    /// The names of each provider's numbers, without events.
    providers: HashMap<Guid, ProviderDescription>,
    bytes: usize,
    refused: u64,
}

#[derive(Clone, Debug)]
struct Description {
    plan: Arc<Plan>,
    event: EventDescription,
    /// The fields that have a map, by index, with the name of the map.
    map_names: Vec<(usize, Box<str>)>,
}

impl Learned {
    pub fn get(&self, key: &Key) -> Option<&Arc<Plan>> {
        self.descriptions.get(key).map(|description| &description.plan)
    }

    /// The names of all providers.
    pub fn names(&self) -> &ProviderNames {
        &self.names
    }

    /// The names of a provider's numbers.
    pub fn provider(&self, provider: Guid) -> Option<&ProviderDescription> {
        self.providers.get(&provider)
    }

    /// All providers of manifest events, sorted by name, with their events sorted by id and
    /// version.
    pub fn providers(&self) -> Vec<ProviderDescription> {
        let mut providers = self.providers.clone();
        for (key, description) in self.descriptions.iter().filter(|(key, _)| key.kind == Kind::Manifest) {
            let provider = providers
                .entry(key.guid)
                .or_insert_with(|| ProviderDescription { guid: key.guid, ..ProviderDescription::default() });
            provider.events.push(description.event.clone());
        }
        for ((guid, _), map) in &self.maps {
            providers.get_mut(guid).into_iter().for_each(|provider| provider.maps.push(map.clone()));
        }
        let mut providers: Vec<_> = providers.into_values().collect();
        for provider in &mut providers {
            provider.name = self.names.get(provider.guid).map(|name| (**name).into()).unwrap_or_default();
            provider.events.sort_by_key(|event| (event.id, event.version));
            provider.maps.sort_by(|a, b| a.name.cmp(&b.name));
        }
        providers.sort_by(|a, b| (&a.name, a.guid).cmp(&(&b.name, b.guid)));
        providers
    }

    /// The number of descriptions that exceeded the limit.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Adds a description. If there is one already, the better one is kept.
    pub fn add(&mut self, key: Key, mut event: EventDescription, map_names: Vec<(usize, Box<str>)>) {
        if self.get(&key).is_some_and(|plan| !is_better(&event.schema, plan.schema())) {
            return;
        }
        let names: usize = map_names.iter().map(|(_, name)| 2 * name.len() + size_of::<(Key, Key)>()).sum();
        if !self.reserve(size_of::<Description>() + event.schema.approximate_bytes() + names) {
            return;
        }
        for (index, name) in &map_names {
            let name = (event.schema.provider, name.clone());
            match self.maps.get(&name) {
                Some(map) => Arc::make_mut(&mut event.schema).fields[*index].map = Some(map.clone()),
                None => {
                    let referring = self.referring.entry(name).or_default();
                    if referring.last() != Some(&key) {
                        referring.push(key);
                    }
                }
            }
        }
        let plan = Arc::new(Plan::new(event.schema.clone()));
        self.descriptions.insert(key, Description { plan, event, map_names });
    }

    /// Adds a map and assigns it to the fields that refer to it. The first map with a name is kept.
    pub fn add_map(&mut self, provider: Guid, map: Map) {
        let entries: usize =
            map.entries.iter().map(|(_, name)| size_of::<(u32, Box<str>)>() + name.len()).sum();
        let name = (provider, map.name.clone());
        if self.maps.contains_key(&name) || !self.reserve(size_of::<Map>() + map.name.len() + entries) {
            return;
        }
        let map = Arc::new(map);
        for key in self.referring.remove(&name).unwrap_or_default() {
            let Some(description) = self.descriptions.get_mut(&key) else { continue };
            let mut schema = Schema::clone(description.plan.schema());
            for (index, _) in description.map_names.iter().filter(|(_, wanted)| *wanted == name.1) {
                schema.fields[*index].map = Some(map.clone());
            }
            description.event.schema = Arc::new(schema);
            description.plan = Arc::new(Plan::new(description.event.schema.clone()));
        }
        self.maps.insert(name, map);
    }

    /// The maps of a description that are still missing.
    pub fn missing_maps(&self, key: &Key) -> Vec<Box<str>> {
        let names = self.descriptions.get(key).map_or(&[][..], |description| &description.map_names);
        let missing = names.iter().filter(|(_, name)| !self.maps.contains_key(&(key.guid, name.clone())));
        missing.map(|(_, name)| name.clone()).collect()
    }

    /// Adds the name of a provider, unless it has one.
    pub fn add_name(&mut self, provider: Guid, name: &str) {
        let is_new = !name.is_empty() && self.names.get(provider).is_none();
        if is_new && self.reserve(ProviderNames::approximate_bytes(name)) {
            self.names.insert(provider, name);
        }
    }

    /// Adds the names of a provider's numbers. If a number has a name already, that name is kept.
    pub fn add_names(&mut self, new: ProviderDescription) {
        fn merge<N: PartialEq<N>>(known: &mut Vec<N>, new: Vec<N>, is_same: impl Fn(&N, &N) -> bool) {
            for named in new {
                if known.len() < MAX_MERGED_NAMES && !known.iter().any(|known| is_same(known, &named)) {
                    known.push(named);
                }
            }
        }
        self.add_name(new.guid, &new.name);
        if !self.reserve(new.approximate_bytes()) {
            return;
        }
        match self.providers.entry(new.guid) {
            Entry::Vacant(entry) => {
                entry.insert(ProviderDescription { events: Vec::new(), maps: Vec::new(), ..new });
            }
            Entry::Occupied(entry) => {
                let known = entry.into_mut();
                merge(&mut known.channels, new.channels, |a, b| a.value == b.value);
                merge(&mut known.levels, new.levels, |a, b| a.value == b.value);
                merge(&mut known.tasks, new.tasks, |a, b| a.value == b.value);
                merge(&mut known.keywords, new.keywords, |a, b| a.value == b.value);
                merge(&mut known.opcodes, new.opcodes, |a, b| {
                    (a.task, a.named.value) == (b.task, b.named.value)
                });
            }
        }
    }

    fn reserve(&mut self, bytes: usize) -> bool {
        let fits = bytes <= MAX_BYTES - self.bytes;
        if fits {
            self.bytes += bytes;
        } else {
            self.refused += 1;
        }
        fits
    }
}

/// Embedded blocks are preferred over manifests, because they can contain fields that were added
/// without a new version.
fn is_better(new: &Schema, old: &Schema) -> bool {
    let rank = |schema: &Schema| (schema.source == SchemaSource::Embedded, schema.fields.len());
    rank(new) > rank(old)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{event, schema};

    #[test]
    fn the_size_of_all_descriptions_is_limited() {
        let mut learned = Learned::default();
        let large = Schema { message: Some("x".repeat(1 << 20).into()), ..schema(Vec::new()) };
        for number in 0..300 {
            let key = Key { guid: Guid::ZERO, kind: Kind::Manifest, number, version: 0 };
            learned.add(key, event(large.clone()), Vec::new());
        }
        assert_eq!((learned.descriptions.len(), learned.refused()), (255, 45));
    }
}
