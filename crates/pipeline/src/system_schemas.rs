//! Schemas of providers and events that this Windows system knows.

use stackhound_etl::record::Descriptor;
use stackhound_schema::{
    Fallback, Identity, Named, OpcodeDescription, ProviderDescription, SchemaStore, system,
};
use stackhound_types::Guid;
use stackhound_windows::tdh::{self, FieldKind};

/// Makes a store query Windows for events that it has no schema for. For live sessions only: traces
/// may come from another machine, on which the same events can have different schemas.
pub(crate) fn with_system_fallback(schemas: SchemaStore) -> SchemaStore {
    schemas.with_fallback(Fallback::new(event, map))
}

/// The registered providers, sorted by name, with names and GUIDs only.
pub fn providers_of_the_system() -> Vec<ProviderDescription> {
    let answer = tdh::providers();
    let mut providers = answer.and_then(|answer| system::parse_providers(&answer).ok()).unwrap_or_default();
    providers.sort_by(|a, b| (&a.name, a.guid).cmp(&(&b.name, b.guid)));
    providers
}

/// The GUID of a registered provider by its name, ignoring ASCII case.
pub fn find_provider_of_the_system(name: &str) -> Option<Guid> {
    let providers = providers_of_the_system();
    providers.iter().find(|provider| provider.name.eq_ignore_ascii_case(name)).map(|provider| provider.guid)
}

/// Adds the events and names that Windows knows for a provider. Makes one call to Windows per
/// event.
pub fn describe_provider_of_the_system(provider: &mut ProviderDescription) {
    let guid = provider.guid;
    let named = |kind| {
        let answer = tdh::provider_fields(guid.0, kind);
        answer.and_then(|answer| system::parse_provider_fields(&answer).ok()).unwrap_or_default()
    };
    provider.keywords = named(FieldKind::Keyword);
    provider.levels =
        named(FieldKind::Level).into_iter().map(|level| cut(level, |value| value as u8)).collect();
    provider.channels =
        named(FieldKind::Channel).into_iter().map(|channel| cut(channel, |value| value as u8)).collect();
    provider.tasks = named(FieldKind::Task).into_iter().map(|task| cut(task, |value| value as u16)).collect();
    let opcode = |opcode: Named<u64>| {
        let task = opcode.value as u16;
        OpcodeDescription {
            task: (task != 0).then_some(task),
            named: cut(opcode, |value| (value >> 16) as u8),
        }
    };
    provider.opcodes = named(FieldKind::Opcode).into_iter().map(opcode).collect();
    let answer = tdh::manifest_events(guid.0);
    let events = answer.and_then(|answer| system::parse_event_descriptors(&answer).ok()).unwrap_or_default();
    let mut store = SchemaStore::new();
    for descriptor in events {
        let (guid, descriptor) = system::event_key(guid, &descriptor);
        let info = tdh::manifest_event(guid, descriptor);
        let Some(maps) = info.and_then(|info| store.learn_event_info(&info).ok()) else {
            provider.skipped += 1;
            continue;
        };
        for name in maps {
            let info = tdh::event_map(guid, descriptor, &name);
            // Without the map, values are shown as numbers.
            info.map(|info| store.learn_map_info(provider.guid, &info));
        }
    }
    let described = store.learned_providers().into_iter().find(|described| described.guid == guid);
    if let Some(described) = described {
        (provider.events, provider.maps) = (described.events, described.maps);
    }
}

fn cut<V>(named: Named<u64>, value: impl Fn(u64) -> V) -> Named<V> {
    Named { value: value(named.value), name: named.name, message: named.message }
}

fn event(identity: &Identity<'_>) -> Option<Vec<u8>> {
    let (provider, descriptor) = key(identity)?;
    tdh::manifest_event(provider, descriptor)
}

fn map(provider: Guid, identity: &Identity<'_>, name: &str) -> Option<Vec<u8>> {
    let (_, descriptor) = key(identity)?;
    tdh::event_map(provider.0, descriptor, name)
}

/// The key by which Windows finds a manifest event: the provider and a descriptor, of which the ID
/// and the version matter.
fn key(identity: &Identity<'_>) -> Option<([u8; 16], [u8; 16])> {
    let Identity::Manifest { provider, id, version, opcode, task } = *identity else { return None };
    let descriptor = Descriptor { id, version, channel: 0, level: 0, opcode, task, keyword: 0 };
    Some(system::event_key(provider, &descriptor))
}
