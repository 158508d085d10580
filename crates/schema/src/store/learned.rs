//! Descriptions that recordings carry.

use std::sync::Arc;

use foldhash::HashMap;
use stackhound_etl::Guid;

use super::Key;
use crate::model::{Map, Schema, SchemaSource};
use crate::plan::Plan;

/// How many bytes everything learned may take, roughly.
const MAX_BYTES: usize = 256 << 20;

/// Maps go by name within a provider.
type MapName = (Guid, Box<str>);

/// Schemas, maps and provider names.
#[derive(Clone, Debug, Default)]
pub(super) struct Learned {
    descriptions: HashMap<Key, Description>,
    maps: HashMap<MapName, Arc<Map>>,
    /// The descriptions that wait for a map.
    waiting: HashMap<MapName, Vec<Key>>,
    names: HashMap<Guid, Box<str>>,
    bytes: usize,
    refused: u64,
}

#[derive(Clone, Debug)]
struct Description {
    plan: Arc<Plan>,
    /// The fields that have a map, by index, with the name of the map.
    map_names: Vec<(usize, Box<str>)>,
}

impl Learned {
    pub fn get(&self, key: &Key) -> Option<&Arc<Plan>> {
        self.descriptions.get(key).map(|description| &description.plan)
    }

    pub fn provider_name(&self, provider: Guid) -> Option<&str> {
        self.names.get(&provider).map(|name| &**name)
    }

    /// How many descriptions found no room.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Takes a description. Where there is one already, the better one stays.
    pub fn add(&mut self, key: Key, mut schema: Schema, map_names: Vec<(usize, Box<str>)>) {
        if self.get(&key).is_some_and(|plan| !is_better(&schema, plan.schema())) {
            return;
        }
        let names: usize = map_names.iter().map(|(_, name)| 2 * name.len() + size_of::<(Key, Key)>()).sum();
        if !self.reserve(schema.approximate_bytes() + names) {
            return;
        }
        self.add_provider(schema.provider, &schema.provider_name);
        for (index, name) in &map_names {
            let name = (schema.provider, name.clone());
            match self.maps.get(&name) {
                Some(map) => schema.fields[*index].map = Some(map.clone()),
                None => {
                    let waiting = self.waiting.entry(name).or_default();
                    if waiting.last() != Some(&key) {
                        waiting.push(key);
                    }
                }
            }
        }
        let plan = Arc::new(Plan::new(Arc::new(schema)));
        self.descriptions.insert(key, Description { plan, map_names });
    }

    /// Takes a map and gives it to the fields that wait for it. The first map of a name stays.
    pub fn add_map(&mut self, provider: Guid, map: Map) {
        let entries: usize =
            map.entries.iter().map(|(_, name)| size_of::<(u32, Box<str>)>() + name.len()).sum();
        let name = (provider, map.name.clone());
        if self.maps.contains_key(&name) || !self.reserve(size_of::<Map>() + map.name.len() + entries) {
            return;
        }
        let map = Arc::new(map);
        for key in self.waiting.remove(&name).unwrap_or_default() {
            let Some(description) = self.descriptions.get_mut(&key) else { continue };
            let mut schema = Schema::clone(description.plan.schema());
            for (index, _) in description.map_names.iter().filter(|(_, wanted)| *wanted == name.1) {
                schema.fields[*index].map = Some(map.clone());
            }
            description.plan = Arc::new(Plan::new(Arc::new(schema)));
        }
        self.maps.insert(name, map);
    }

    /// Takes the name of a provider, unless it has one.
    pub fn add_provider(&mut self, provider: Guid, name: &str) {
        if !name.is_empty() && !self.names.contains_key(&provider) && self.reserve(name.len()) {
            self.names.insert(provider, name.into());
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

/// Blocks of the merge tool know more than manifests, in which fields may be added without a new version.
fn is_better(new: &Schema, old: &Schema) -> bool {
    let rank = |schema: &Schema| (schema.source == SchemaSource::Embedded, schema.fields.len());
    rank(new) > rank(old)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Kind;
    use crate::testing::schema;

    #[test]
    fn the_size_of_all_descriptions_is_limited() {
        let mut learned = Learned::default();
        let large = Schema { message: Some("x".repeat(1 << 20).into()), ..schema(Vec::new()) };
        for number in 0..300 {
            let key = Key { guid: Guid::ZERO, kind: Kind::Manifest, number, version: 0 };
            learned.add(key, large.clone(), Vec::new());
        }
        assert_eq!((learned.descriptions.len(), learned.refused()), (255, 45));
    }
}
