//! Built-in descriptions of events of well-known providers, for traces without descriptions of
//! them.
//!
//! Fields and versions are those of the providers' manifests, the newest one and older versions of
//! events as far as they are known. Events of the .NET runtime have the names that PerfView and its
//! library use, instead of the longer ones of the manifest. The tables are in the notation of
//! [`crate::notation`] (`builtin/*.txt`), one for each provider. A table is read when the provider
//! is first needed, which takes up to a few milliseconds for the largest ones.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, LazyLock, OnceLock};

use stackhound_types::{Guid, PointerSize};

use crate::kernel;
use crate::model::{Map, MapKind, Schema, SchemaSource};
use crate::naming::event_name;
use crate::notation::layout::{LayoutError, Maps, alternatives};
use crate::notation::{self, ClassText, EventText, HeaderText, MapText, NotationError};
use crate::plan::Plan;
use crate::provider::{EventDescription, Named, OpcodeDescription, ProviderDescription};

mod tables;
#[cfg(test)]
mod tests;

use tables::{CLR_MAPS, TABLES};

/// The maps of .NET's tables, and those that are shared with the tables of the kernel logger.
static SHARED_MAPS: LazyLock<Maps<'static>> = LazyLock::new(|| {
    let read = || {
        let kernel = KERNEL_MAPS.into_iter().filter_map(|name| Some((name, kernel::map(name)?.clone())));
        let mut maps = kernel.collect();
        let table = notation::parse(CLR_MAPS).map_err(|error| TableError::Notation("clr_maps", error))?;
        add_maps(&mut maps, &table.maps).map(|()| maps)
    };
    read().unwrap_or_else(|error| panic!("built-in maps: {error}"))
});

/// The maps that these tables share with the tables of the kernel logger.
const KERNEL_MAPS: [&str; 5] =
    ["CreateOptions", "FileAttributes", "ShareAccess", "IrpFlags", "FileInformationClass"];

/// All providers by name and GUID, with the tables that were read. An error in a table makes the
/// first look-up panic, which a test detects.
static INDEX: LazyLock<Index> = LazyLock::new(|| Index::new(&TABLES));

#[derive(Debug, thiserror::Error)]
enum TableError {
    #[error("{0}.txt: {1}")]
    Notation(&'static str, NotationError),
    #[error("{0}: {1}")]
    Layout(String, LayoutError),
    #[error("{0} is defined twice, or its versions are not in ascending order")]
    Order(String),
    #[error("{0}.txt: expected one provider")]
    Provider(&'static str),
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
    let provider = INDEX.entry(provider)?.provider();
    let events = &provider.description.events;
    let after = events.partition_point(|event| (event.id, event.version) <= (id, version));
    let index = after.checked_sub(1).filter(|&index| events[index].id == id)?;
    let plan = || Arc::new(Plan::new(events[index].schema.clone()));
    Some(BuiltIn { plan: provider.plans[index].get_or_init(plan), version: events[index].version })
}

/// The names of all providers. Reads no table.
pub(crate) fn names() -> impl Iterator<Item = (Guid, &'static str)> {
    INDEX.entries.iter().map(|entry| (entry.guid, entry.name))
}

/// The GUID of the provider with this name, ignoring the case of ASCII letters. Reads no table.
pub(crate) fn find(name: &str) -> Option<Guid> {
    let named = INDEX.entries.iter().filter(|entry| entry.name.eq_ignore_ascii_case(name));
    named.map(|entry| entry.guid).min()
}

pub(crate) fn provider(guid: Guid) -> Option<&'static ProviderDescription> {
    INDEX.entry(guid).map(|entry| &entry.provider().description)
}

/// All providers of the tables, in their order. Reads all tables.
pub(crate) fn providers() -> impl Iterator<Item = &'static ProviderDescription> {
    INDEX.entries.iter().map(|entry| &entry.provider().description)
}

#[derive(Debug)]
struct Index {
    entries: Vec<IndexEntry>,
    index_of: HashMap<Guid, usize>,
}

#[derive(Debug)]
struct IndexEntry {
    name: &'static str,
    guid: Guid,
    /// The name of the file and its text.
    table: (&'static str, &'static str),
    provider: OnceLock<Provider>,
}

impl Index {
    /// Finds the name and GUID in each table, which are in the first line except for comments.
    fn new(tables: &[(&'static str, &'static str)]) -> Index {
        let entry = |&(file, text): &(&'static str, &'static str)| {
            let mut lines = text.lines();
            let mut words = lines.find_map(|line| line.strip_prefix("provider "))?.split(' ');
            let (name, guid) = (words.next()?, words.next()?.parse().ok()?);
            Some(IndexEntry { name, guid, table: (file, text), provider: OnceLock::new() })
        };
        let entries: Vec<IndexEntry> = tables.iter().filter_map(entry).collect();
        let index_of = entries.iter().enumerate().map(|(index, entry)| (entry.guid, index)).collect();
        Index { entries, index_of }
    }

    fn entry(&self, guid: Guid) -> Option<&IndexEntry> {
        self.index_of.get(&guid).map(|&index| &self.entries[index])
    }
}

impl IndexEntry {
    fn provider(&self) -> &Provider {
        self.provider.get_or_init(|| {
            let (file, text) = self.table;
            Provider::read(file, text).unwrap_or_else(|error| panic!("built-in provider table: {error}"))
        })
    }
}

#[derive(Debug)]
struct Provider {
    /// Its events are in ascending order of ids and versions.
    description: ProviderDescription,
    /// The plan of each event.
    plans: Box<[OnceLock<Arc<Plan>>]>,
}

impl Provider {
    fn read(file: &'static str, text: &str) -> Result<Provider, TableError> {
        let table = notation::parse(text).map_err(|error| TableError::Notation(file, error))?;
        let mut maps: Maps<'_> = SHARED_MAPS.clone();
        add_maps(&mut maps, &table.maps)?;
        let [text] = &table.providers[..] else { return Err(TableError::Provider(file)) };
        let mut description = description(text);
        let mut ids = HashSet::new();
        for event in &text.events {
            add_event(&mut description, &mut ids, event, &maps)?;
        }
        description.events.sort_by_key(|event| (event.id, event.version));
        let fields = description.events.iter().flat_map(|event| &event.schema.fields);
        let used = fields.filter_map(|field| field.map.as_ref()).map(|map| (&*map.name, map));
        description.maps = used.collect::<BTreeMap<_, _>>().into_values().cloned().collect();
        let plans = description.events.iter().map(|_| OnceLock::new()).collect();
        Ok(Provider { description, plans })
    }
}

/// `ids` are those of the events that were added.
fn add_event(
    provider: &mut ProviderDescription,
    ids: &mut HashSet<u16>,
    text: &EventText<'_>,
    maps: &Maps<'_>,
) -> Result<(), TableError> {
    for header in &text.headers {
        let event_name = full_name(provider, header);
        let label = format!("{} {} {event_name}", provider.name, header.id);
        let mut last = None;
        for layout in &text.layouts {
            // These layouts are packed, and their plans apply to both pointer sizes.
            let layouts = alternatives(layout, PointerSize::Eight, maps);
            let layouts = layouts.map_err(|error| TableError::Layout(label.clone(), error))?;
            if last.replace(layout.from_version).is_some_and(|last| last >= layout.from_version) {
                return Err(TableError::Order(label));
            }
            let fields = layouts.into_iter().next().map(|layout| layout.fields).unwrap_or_default();
            let schema = Schema {
                source: SchemaSource::BuiltIn,
                provider: provider.guid,
                event_name: event_name.clone(),
                message: None,
                fields,
            };
            provider.events.push(EventDescription {
                level: header.level,
                opcode: header.opcode,
                task: header.task,
                keywords: header.keywords,
                ..EventDescription::new(header.id, layout.from_version, Arc::new(schema))
            });
        }
        if !ids.insert(header.id) {
            return Err(TableError::Order(label));
        }
    }
    Ok(())
}

fn full_name(provider: &ProviderDescription, header: &HeaderText<'_>) -> Box<str> {
    if header.name != "-" {
        return header.name.into();
    }
    let (task, opcode) = (header.task.unwrap_or(0), header.opcode.unwrap_or(0));
    let opcode = provider.opcode_name(task, opcode).unwrap_or_default();
    match event_name(provider.task_name(task).unwrap_or_default(), opcode) {
        name if name.is_empty() => format!("EventID({})", header.id).into(),
        name => name.into(),
    }
}

fn description(provider: &ClassText<'_>) -> ProviderDescription {
    fn named<V: Copy>(&(value, name): &(V, &str)) -> Named<V> {
        Named { value, name: name.into(), message: None }
    }
    let opcode = |&(value, task, name): &(u8, Option<u16>, &str)| OpcodeDescription {
        task,
        named: named(&(value, name)),
    };
    ProviderDescription {
        guid: provider.guid,
        name: provider.name.into(),
        keywords: provider.keywords.iter().map(named).collect(),
        tasks: provider.tasks.iter().map(named).collect(),
        opcodes: provider.opcodes.iter().map(opcode).collect(),
        ..ProviderDescription::default()
    }
}

fn add_maps<'t>(maps: &mut Maps<'t>, texts: &[MapText<'t>]) -> Result<(), TableError> {
    for text in texts {
        let map = Map {
            name: text.name.into(),
            kind: if text.bits { MapKind::Bits } else { MapKind::Values },
            entries: text.entries.iter().map(|&(value, name)| (value, name.into())).collect(),
        };
        if maps.insert(text.name, Arc::new(map)).is_some() {
            return Err(TableError::Order(text.name.to_owned()));
        }
    }
    Ok(())
}
