//! All known descriptions of events, and the selection of the description for an event.
//!
//! Descriptions are learned from a trace: in a first pass, because merged traces have them at the
//! end, or as they arrive in a live session. A look-up hashes a key of fixed size or, for
//! TraceLogging, the metadata. Failed look-ups are cached too, until a description is learned. All
//! memory that traces can consume is limited.

mod fallback;
mod learned;
mod plan_cache;
mod provider_names;
mod self_described;

use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::HashSet;
use stackhound_etl::record::{HeaderKind, Record};
use stackhound_etl::{ManifestEvents, Selection};
use stackhound_types::{Guid, Pid, PointerSize, Tid};

use crate::builtin;
use crate::embedded::{EmbeddedEvent, EmbeddedIdentity, parse_map};
use crate::error::Error;
use crate::identity::Identity;
use crate::kernel;
use crate::kernel::class_guid;
use crate::manifest::{MANIFEST_CHUNK, ManifestChunks, is_manifest_chunk, providers_of_manifest};
use crate::model::{Field, InType, Length, OutType, Schema, SchemaSource};
use crate::plan::Plan;
use crate::provider::{EventDescription, Named, OpcodeDescription, ProviderDescription};
use crate::tracelogging::ProviderTraits;
pub use fallback::Fallback;
use fallback::FallbackState;
use learned::Learned;
use plan_cache::PlanCache;
use self_described::SelfDescribed;

/// The class of the events that contain the descriptions in merged traces.
pub(crate) const EVENT_METADATA: Guid = class_guid::EVENT_META_DATA;
const EVENT_INFO: u8 = 32;
const EVENT_MAP_INFO: u8 = 33;

/// The maximum number of different manifests that are read.
const MAX_MANIFESTS: usize = 1 << 16;

/// The schemas of events, by the identity of the events.
#[derive(Clone, Debug, Default)]
pub struct SchemaStore {
    learned: Learned,
    plan_cache: PlanCache,
    self_described: SelfDescribed,
    chunks: ManifestChunks,
    /// Hashes of the manifests that have been read, because every process writes the same ones.
    manifests: HashSet<u64>,
    fallback: Option<FallbackState>,
    misses: u64,
}

/// The key of a description for events that do not describe themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    /// The GUID of the provider or class.
    guid: Guid,
    kind: Kind,
    /// The id or opcode.
    number: u16,
    version: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Classic,
    Manifest,
    /// A chunk of a manifest.
    ManifestChunk,
    /// A text without a further description.
    Text,
}

impl SchemaStore {
    /// Creates a store with only the built-in descriptions.
    pub fn new() -> SchemaStore {
        SchemaStore::default()
    }

    /// Adds a source for manifest events without a description of exactly their version; on
    /// Windows, this is the system. It is queried once for each kind of event.
    pub fn with_fallback(self, fallback: Fallback) -> SchemaStore {
        SchemaStore { fallback: Some(FallbackState::new(fallback)), ..self }
    }

    /// The description of an event, compiled for decoding. `None` if there is none; the payload is
    /// then opaque.
    ///
    /// An event that describes itself is decoded by its own description. For other events, a
    /// description of exactly their id and version is preferred. If there is none, the next lower
    /// version is used: Windows raises versions without registering them again, and versions only
    /// append fields. A built-in description is preferred over a learned one of the same version,
    /// unless the learned one has more fields.
    ///
    /// If several layouts of a kernel class have the same version, the payload and the pointer size
    /// decide between them.
    pub fn lookup(
        &mut self,
        identity: &Identity<'_>,
        payload: &[u8],
        pointer: PointerSize,
    ) -> Option<&Arc<Plan>> {
        let plan = match *identity {
            Identity::Kernel { hook_id, version } => {
                kernel::lookup_for(hook_id, version, pointer, payload).and_then(kernel::plan)
            }
            Identity::Classic { class, opcode, version } => {
                let schema = kernel::lookup_classic_for(class, opcode, version, pointer, payload);
                match schema.filter(|schema| !kernel::is_opaque(schema)) {
                    Some(schema) => kernel::plan(schema),
                    None => {
                        let key = Key { guid: class, kind: Kind::Classic, number: opcode.into(), version };
                        let plan = self.plan_cache.get(key, || find_plan(&self.learned, key));
                        plan.or_else(|| schema.and_then(kernel::plan))
                    }
                }
            }
            Identity::Manifest { provider, id, version, opcode, task } => {
                let key = if is_manifest_chunk(id, task, opcode) {
                    Key { guid: provider, kind: Kind::ManifestChunk, number: 0, version: 0 }
                } else {
                    Key { guid: provider, kind: Kind::Manifest, number: id, version }
                };
                let (learned, fallback) = (&mut self.learned, &mut self.fallback);
                self.plan_cache.get(key, || {
                    if key.kind == Kind::Manifest
                        && let Some(fallback) = fallback
                    {
                        fallback.query(key, identity, learned);
                    }
                    find_plan(learned, key)
                })
            }
            Identity::Text { provider } => {
                let key = Key { guid: provider, kind: Kind::Text, number: 0, version: 0 };
                self.plan_cache.get(key, || find_plan(&self.learned, key))
            }
            Identity::TraceLogging { provider, metadata, opcode } => {
                self.self_described.lookup(provider, metadata, opcode)
            }
            Identity::Message { .. } => None,
        };
        self.misses += u64::from(plan.is_none());
        plan
    }

    /// The number of look-ups that found no description.
    pub fn misses(&self) -> u64 {
        self.misses
    }

    /// A number that changes whenever descriptions are learned: until then, equal look-ups find the
    /// same description.
    pub fn generation(&self) -> u64 {
        self.plan_cache.generation()
    }

    /// The number of descriptions that were not learned because of the limits or because parts of
    /// them were missing.
    pub fn refused(&self) -> u64 {
        self.learned.refused() + self.chunks.dropped()
    }

    /// The name of a provider or class: the one of the built-in tables, else the first one that a
    /// description or the traits of an event state. All events with this GUID have this name.
    pub fn provider_name(&self, provider: Guid) -> Option<&Arc<str>> {
        self.learned.names().get(provider)
    }

    /// Adds the records that can contain descriptions or names of providers to a selection.
    pub fn select(selection: Selection) -> Selection {
        selection.classic().manifest_events(ManifestEvents::Id(MANIFEST_CHUNK)).provider_traits()
    }

    /// Learns the descriptions that a record contains, as [`learn`](SchemaStore::learn) does, and the
    /// name of its provider. Returns whether the record contains any description.
    /// `number` is the opcode of a classic event, or the id of a manifest event; most records need
    /// not be read because of it.
    ///
    /// # Errors
    /// The errors of [`learn`](SchemaStore::learn).
    #[inline]
    pub fn learn_record(&mut self, number: u16, record: &Record<'_>) -> Result<bool, Error> {
        if let Some((provider, name)) = ProviderTraits::name_in(record) {
            self.learned.add_name(provider, &name);
        }
        if !SchemaStore::can_learn(record.kind(), number) {
            return Ok(false);
        }
        let Some(identity) = Identity::of(record) else { return Ok(false) };
        let (pid, tid) = (record.pid().unwrap_or(Pid::IDLE), record.tid().unwrap_or(Tid(0)));
        self.learn(&identity, pid, tid, record.payload())
    }

    /// Whether a record contains a description. `number` is as for
    /// [`learn_record`](SchemaStore::learn_record).
    #[inline]
    pub fn describes(number: u16, record: &Record<'_>) -> bool {
        SchemaStore::can_learn(record.kind(), number)
            && Identity::of(record).is_some_and(|identity| match identity {
                Identity::Classic { class, .. } => class == EVENT_METADATA,
                Identity::Manifest { id, opcode, task, .. } => is_manifest_chunk(id, task, opcode),
                _ => false,
            })
    }

    /// Whether records of a kind can contain descriptions, by the number that their header begins
    /// with.
    #[inline]
    fn can_learn(kind: HeaderKind, number: u16) -> bool {
        if kind.is_classic() {
            number == EVENT_INFO.into() || number == EVENT_MAP_INFO.into()
        } else {
            number == MANIFEST_CHUNK && kind.has_descriptor()
        }
    }

    /// Learns the descriptions that an event contains: embedded descriptions and chunks of
    /// manifests. Returns whether the event contains any. This is fast for all other events.
    ///
    /// # Errors
    /// [`Error::Metadata`] if the event contains a description that cannot be read.
    pub fn learn(
        &mut self,
        identity: &Identity<'_>,
        pid: Pid,
        tid: Tid,
        payload: &[u8],
    ) -> Result<bool, Error> {
        match *identity {
            Identity::Classic { class: EVENT_METADATA, opcode: EVENT_INFO, .. } => {
                learn_embedded(&mut self.learned, EmbeddedEvent::parse(payload)?);
            }
            Identity::Classic { class: EVENT_METADATA, opcode: EVENT_MAP_INFO, .. } => {
                let (provider, map) = parse_map(payload)?;
                self.learned.add_map(provider, map);
            }
            Identity::Manifest { provider, id, opcode, task, .. } if is_manifest_chunk(id, task, opcode) => {
                if let Some(xml) = self.chunks.push(provider, pid, tid, payload)? {
                    self.learn_manifest(&xml)?;
                }
            }
            _ => return Ok(false),
        }
        self.plan_cache.invalidate();
        Ok(true)
    }

    /// Learns a complete manifest, unless it was learned before.
    ///
    /// # Errors
    /// As [`providers_of_manifest`].
    pub fn learn_manifest(&mut self, xml: &[u8]) -> Result<(), Error> {
        let hash = self.manifests.hasher().hash_one(xml);
        if self.manifests.len() >= MAX_MANIFESTS || !self.manifests.insert(hash) {
            return Ok(());
        }
        providers_of_manifest(xml, None)?.into_iter().for_each(|provider| self.learn_description(provider));
        Ok(())
    }

    /// Learns the description of a provider from a manifest or an image. If an event already has a
    /// description, the one with more fields is kept.
    pub fn learn_description(&mut self, mut provider: ProviderDescription) {
        for event in std::mem::take(&mut provider.events) {
            let (number, version) = (event.id, event.version);
            self.learned.add(
                Key { guid: provider.guid, kind: Kind::Manifest, number, version },
                event,
                Vec::new(),
            );
        }
        for map in std::mem::take(&mut provider.maps) {
            self.learned.add_map(provider.guid, Arc::unwrap_or_clone(map));
        }
        self.learned.add_names(provider);
        self.plan_cache.invalidate();
    }

    /// Learns the `TRACE_EVENT_INFO` of an event, as Windows returns it. Returns the names of the
    /// maps that it refers to and that are not known yet.
    ///
    /// # Errors
    /// As [`EmbeddedEvent::parse`].
    pub fn learn_event_info(&mut self, info: &[u8]) -> Result<Vec<Box<str>>, Error> {
        let event = EmbeddedEvent::parse(info)?;
        let key = Key::of_embedded(event.identity);
        learn_embedded(&mut self.learned, event);
        self.plan_cache.invalidate();
        Ok(self.learned.missing_maps(&key))
    }

    /// Learns the `EVENT_MAP_INFO` of a provider's map.
    ///
    /// # Errors
    /// As [`parse_map`].
    pub fn learn_map_info(&mut self, provider: Guid, info: &[u8]) -> Result<(), Error> {
        let (provider, map) = parse_map(&[&provider.0[..], info].concat())?;
        self.learned.add_map(provider, map);
        self.plan_cache.invalidate();
        Ok(())
    }

    /// The GUID of the provider with this name, ignoring the case of ASCII letters. Learned names
    /// take precedence over built-in names. If several providers have the name, the lowest GUID is
    /// returned.
    pub fn find_provider(&self, name: &str) -> Option<Guid> {
        self.learned.names().find_learned(name).or_else(|| builtin::find(name))
    }

    /// The names of a provider's levels, tasks, opcodes, keywords and channels, without its events.
    pub fn provider(&self, provider: Guid) -> Option<&ProviderDescription> {
        self.learned.provider(provider).or_else(|| builtin::provider(provider))
    }

    /// All learned providers of manifest events, sorted by name, with their events sorted by id and
    /// version. The descriptions are copied.
    pub fn learned_providers(&self) -> Vec<ProviderDescription> {
        self.learned.providers()
    }

    /// The built-in providers with their built-in events.
    pub fn built_in_providers() -> impl Iterator<Item = &'static ProviderDescription> {
        builtin::providers()
    }
}

impl Key {
    fn of_embedded(identity: EmbeddedIdentity) -> Key {
        match identity {
            EmbeddedIdentity::Manifest { provider, id, version } => {
                Key { guid: provider, kind: Kind::Manifest, number: id, version }
            }
            EmbeddedIdentity::Classic { class, opcode, version } => {
                Key { guid: class, kind: Kind::Classic, number: opcode.into(), version }
            }
        }
    }
}

/// Learns a description from a trace or from Windows.
fn learn_embedded(learned: &mut Learned, event: EmbeddedEvent) {
    let EmbeddedEvent { identity, provider_name, schema, map_names, descriptor, names } = event;
    let provider = schema.provider;
    let described = EventDescription {
        id: descriptor.id,
        version: descriptor.version,
        channel: Some(descriptor.channel),
        level: Some(descriptor.level),
        opcode: Some(descriptor.opcode),
        task: Some(descriptor.task),
        keywords: Some(descriptor.keyword),
        symbol: None,
        schema: Arc::new(schema),
    };
    let key = Key::of_embedded(identity);
    learned.add_name(key.guid, &provider_name);
    learned.add(key, described, map_names);
    if matches!(identity, EmbeddedIdentity::Manifest { .. }) {
        fn named<V>(value: V, name: Box<str>) -> Option<Named<V>> {
            (!name.is_empty()).then_some(Named { value, name, message: None })
        }
        let task = Some(descriptor.task);
        let opcode = named(descriptor.opcode, names.opcode).map(|named| OpcodeDescription { task, named });
        learned.add_names(ProviderDescription {
            guid: provider,
            levels: named(descriptor.level, names.level).into_iter().collect(),
            channels: named(descriptor.channel, names.channel).into_iter().collect(),
            tasks: named(descriptor.task, names.task).into_iter().collect(),
            opcodes: opcode.into_iter().collect(),
            ..ProviderDescription::default()
        });
    }
}

/// Finds the preferred description.
fn find_plan(learned: &Learned, key: Key) -> Option<Arc<Plan>> {
    let described = |event_name: &str, fields| {
        let schema = Schema {
            source: SchemaSource::BuiltIn,
            provider: key.guid,
            event_name: event_name.into(),
            message: None,
            fields,
        };
        Some(Arc::new(Plan::new(Arc::new(schema))))
    };
    match key.kind {
        Kind::Classic => highest(learned, key).map(|(_, plan)| plan.clone()),
        Kind::Manifest => find_manifest_plan(learned, key),
        Kind::ManifestChunk => described("ManifestData", manifest_chunk_fields()),
        Kind::Text => described("EventWriteString", vec![Field::new("Message", InType::Utf16)]),
    }
}

/// The description with the highest version up to that of the key, and its version.
fn highest(learned: &Learned, key: Key) -> Option<(u8, &Arc<Plan>)> {
    (0..=key.version).rev().find_map(|version| Some((version, learned.get(&Key { version, ..key })?)))
}

/// Selects between a learned and a built-in description: the higher version, then the one with more
/// fields, then the built-in one, so that an event has the same name in every trace.
fn find_manifest_plan(learned: &Learned, key: Key) -> Option<Arc<Plan>> {
    let rank = |version: u8, plan: &Plan| (version, plan.schema().fields.len());
    let learned = highest(learned, key);
    let built_in =
        builtin::lookup(key.guid, key.number, key.version).map(|found| (found.version, found.plan));
    let plan = match (learned, built_in) {
        (Some((learned_version, learned)), Some((built_in_version, built_in))) => {
            if rank(learned_version, learned) > rank(built_in_version, built_in) { learned } else { built_in }
        }
        (learned, built_in) => learned.or(built_in)?.1,
    };
    Some(plan.clone())
}

fn manifest_chunk_fields() -> Vec<Field> {
    let manifest =
        Field { out_type: OutType::Xml, length: Length::Rest, ..Field::new("Manifest", InType::Ansi) };
    vec![
        Field::new("Format", InType::U8),
        Field::new("MajorVersion", InType::U8),
        Field::new("MinorVersion", InType::U8),
        Field::new("Magic", InType::U8),
        Field::new("TotalChunks", InType::U16),
        Field::new("ChunkNumber", InType::U16),
        manifest,
    ]
}

#[cfg(test)]
mod tests;
