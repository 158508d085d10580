//! All tables. They are read once, in the order in which they are searched.

use std::sync::{Arc, LazyLock};

use stackhound_types::{Guid, PointerSize};

use crate::model::{Field, InType, Length, Map, MapKind, Schema, SchemaSource};
use crate::notation::layout::{Extent, Fit, LayoutError, Maps, alternatives};
use crate::notation::{self, ClassText, EventText, HeaderText, NotationError};

const TABLES: [(&str, &str); 17] = [
    ("maps", include_str!("tables/maps.txt")),
    ("event_trace", include_str!("tables/event_trace.txt")),
    ("disk", include_str!("tables/disk.txt")),
    ("memory", include_str!("tables/memory.txt")),
    ("process", include_str!("tables/process.txt")),
    ("file", include_str!("tables/file.txt")),
    ("thread", include_str!("tables/thread.txt")),
    ("network", include_str!("tables/network.txt")),
    ("registry", include_str!("tables/registry.txt")),
    ("config", include_str!("tables/config.txt")),
    ("heap", include_str!("tables/heap.txt")),
    ("perfinfo", include_str!("tables/perfinfo.txt")),
    ("power", include_str!("tables/power.txt")),
    ("image", include_str!("tables/image.txt")),
    ("stack", include_str!("tables/stack.txt")),
    ("system", include_str!("tables/system.txt")),
    ("control", include_str!("tables/control.txt")),
];

/// The tables. An error in them makes the first look-up panic, which a test detects.
pub(super) static CATALOGUE: LazyLock<Catalogue> = LazyLock::new(|| {
    Catalogue::read(&TABLES).unwrap_or_else(|error| panic!("built-in class table: {error}"))
});

#[derive(Debug, thiserror::Error)]
enum TableError {
    #[error("{0}.txt: {1}")]
    Notation(&'static str, NotationError),
    #[error("{0}: {1}")]
    Layout(Box<str>, LayoutError),
    #[error("{0} is defined twice")]
    Duplicate(Box<str>),
}

/// Groups are numbered from 0 to 0x1E.
const N_GROUPS: usize = 0x1F;

/// Marks a hook id or type that no table contains.
const NONE: u16 = u16::MAX;

/// All classes and events.
#[derive(Debug)]
pub(super) struct Catalogue {
    events: Vec<Event>,
    /// For each hook id, an index into `events`.
    by_hook_id: Box<[u16]>,
    /// The class GUID of each group.
    groups: [Option<Guid>; N_GROUPS],
    /// The class GUIDs as numbers, 0 for none, because live sessions look up the group of every
    /// event.
    group_keys: [u128; N_GROUPS],
    /// The name of each class.
    classes: Vec<(Guid, Box<str>)>,
    /// Classes without a group, with an index into `events` for each type.
    ungrouped: Vec<(Guid, Box<[u16]>)>,
    maps: Vec<Arc<Map>>,
}

#[derive(Debug)]
pub(super) struct Event {
    pub name: Box<str>,
    pub class: Guid,
    pub hook_id: Option<u16>,
    /// For each version up to the highest known one, an index into `layouts`.
    by_version: Box<[u8]>,
    layouts: Vec<Layouts>,
}

/// The alternatives of one version range, by pointer size.
#[derive(Debug)]
struct Layouts {
    four: Vec<Alternative>,
    eight: Vec<Alternative>,
}

#[derive(Debug)]
struct Alternative {
    schema: Arc<Schema>,
    extent: Extent,
}

impl Catalogue {
    fn read(tables: &[(&'static str, &str)]) -> Result<Catalogue, TableError> {
        let mut classes = Vec::new();
        let mut map_texts = Vec::new();
        for &(name, text) in tables {
            let table = notation::parse(text).map_err(|error| TableError::Notation(name, error))?;
            classes.extend(table.classes);
            map_texts.extend(table.maps);
        }
        let mut maps = Maps::new();
        for text in map_texts {
            let kind = if text.bits { MapKind::Bits } else { MapKind::Values };
            let entries = text.entries.iter().map(|&(value, name)| (value, name.into())).collect();
            let map = Arc::new(Map { name: text.name.into(), kind, entries });
            if maps.insert(text.name, map).is_some() {
                return Err(TableError::Duplicate(text.name.into()));
            }
        }
        let mut catalogue = Catalogue {
            events: Vec::new(),
            by_hook_id: vec![NONE; N_GROUPS << 8].into_boxed_slice(),
            groups: [None; N_GROUPS],
            group_keys: [0; N_GROUPS],
            classes: Vec::new(),
            ungrouped: Vec::new(),
            maps: maps.values().cloned().collect(),
        };
        for class in &classes {
            catalogue.add_class(class, &maps)?;
        }
        Ok(catalogue)
    }

    fn add_class(&mut self, class: &ClassText<'_>, maps: &Maps<'_>) -> Result<(), TableError> {
        let duplicate = |name: &str| TableError::Duplicate(name.into());
        if let Some(group) = class.group {
            let slot = self.groups.get_mut(usize::from(group)).ok_or_else(|| duplicate(class.name))?;
            if slot.replace(class.guid).is_some() {
                return Err(duplicate(class.name));
            }
            self.group_keys[usize::from(group)] = u128::from_le_bytes(class.guid.0);
        }
        let mut by_type = vec![NONE; 256].into_boxed_slice();
        for text in &class.events {
            for &HeaderText { id: number, name, .. } in &text.headers {
                let hook_id = class.group.map(|group| match number {
                    ..=0xFF => u16::from(group) << 8 | number,
                    _ => number,
                });
                let event = Event::read(class, name, hook_id, text, maps)?;
                let slot = match hook_id {
                    Some(hook_id) => self.by_hook_id.get_mut(usize::from(hook_id)),
                    None => by_type.get_mut(usize::from(number)),
                };
                let slot = slot.filter(|slot| **slot == NONE).ok_or_else(|| duplicate(&event.name))?;
                *slot = self.events.len() as u16;
                self.events.push(event);
            }
        }
        if class.group.is_none() {
            self.ungrouped.push((class.guid, by_type));
        }
        self.classes.push((class.guid, class.name.into()));
        Ok(())
    }

    #[inline]
    pub(super) fn by_hook_id(&self, hook_id: u16) -> Option<&Event> {
        self.events.get(usize::from(*self.by_hook_id.get(usize::from(hook_id))?))
    }

    /// The event of a class without a group. `None` also for classes with a group.
    pub(super) fn by_type(&self, class: Guid, opcode: u8) -> Option<&Event> {
        let (_, by_type) = self.ungrouped.iter().find(|(guid, _)| *guid == class)?;
        self.events.get(usize::from(by_type[usize::from(opcode)]))
    }

    pub(super) fn class_guid(&self, group: u8) -> Option<Guid> {
        *self.groups.get(usize::from(group))?
    }

    pub(super) fn group_of(&self, class: Guid) -> Option<u8> {
        let key = u128::from_le_bytes(class.0);
        let group = self.group_keys.iter().position(|&group| group == key)?;
        (key != 0).then_some(group as u8)
    }

    pub(super) fn classes(&self) -> &[(Guid, Box<str>)] {
        &self.classes
    }

    pub(super) fn events(&self) -> &[Event] {
        &self.events
    }

    pub(super) fn schemas(&self) -> impl Iterator<Item = &Arc<Schema>> {
        let layouts = self.events.iter().flat_map(|event| &event.layouts);
        layouts.flat_map(|layouts| layouts.four.iter().chain(&layouts.eight)).map(|one| &one.schema)
    }

    pub(super) fn map(&self, name: &str) -> Option<&Arc<Map>> {
        self.maps.iter().find(|map| &*map.name == name)
    }
}

impl Event {
    fn read(
        class: &ClassText<'_>,
        name: &str,
        hook_id: Option<u16>,
        text: &EventText<'_>,
        maps: &Maps<'_>,
    ) -> Result<Event, TableError> {
        let event_name: Box<str> = format!("{}/{name}", class.name).into();
        let schema = |fields| Schema {
            source: SchemaSource::Kernel,
            provider: class.guid,
            event_name: event_name.clone(),
            message: None,
            fields,
        };
        let mut by_version = Vec::new();
        let mut layouts: Vec<Layouts> = Vec::new();
        let mut last = None;
        for layout in &text.layouts {
            let read = |pointer| -> Result<Vec<Alternative>, TableError> {
                let found = alternatives(layout, pointer, maps);
                let found = found.map_err(|error| TableError::Layout(event_name.clone(), error))?;
                Ok(found
                    .into_iter()
                    .map(|l| Alternative { schema: Arc::new(schema(l.fields)), extent: l.extent })
                    .collect())
            };
            let (four, eight) = (read(PointerSize::Four)?, read(PointerSize::Eight)?);
            if last == Some(layout.from_version) {
                let known = layouts.last_mut().expect("a layout of this version was added before");
                known.four.extend(four);
                known.eight.extend(eight);
                continue;
            }
            if last.is_some_and(|last| last > layout.from_version) {
                return Err(TableError::Duplicate(event_name));
            }
            // Versions below the lowest known one have its layout.
            by_version.resize(usize::from(layout.from_version), layouts.len().saturating_sub(1) as u8);
            by_version.push(layouts.len() as u8);
            last = Some(layout.from_version);
            layouts.push(Layouts { four, eight });
        }
        if layouts.is_empty() {
            let raw = || {
                let data = Field { length: Length::Rest, ..Field::new("Data", InType::Binary) };
                vec![Alternative { schema: Arc::new(schema(vec![data])), extent: Extent::default() }]
            };
            by_version.push(0);
            layouts.push(Layouts { four: raw(), eight: raw() });
        }
        Ok(Event { name: event_name, class: class.guid, hook_id, by_version: by_version.into(), layouts })
    }

    #[inline]
    fn alternatives(&self, version: u8, pointer: PointerSize) -> &[Alternative] {
        let newest = self.by_version.len() - 1;
        let layouts = &self.layouts[usize::from(self.by_version[usize::from(version).min(newest)])];
        match pointer {
            PointerSize::Four => &layouts.four,
            PointerSize::Eight => &layouts.eight,
        }
    }

    /// The layout to use if the payload is unknown.
    #[inline]
    pub(super) fn schema(&self, version: u8, pointer: PointerSize) -> &Schema {
        &self.alternatives(version, pointer)[0].schema
    }

    /// The layout that fits the payload best.
    #[inline]
    pub(super) fn schema_for(&self, version: u8, pointer: PointerSize, payload: &[u8]) -> &Schema {
        match self.alternatives(version, pointer) {
            [only] => &only.schema,
            several => {
                let fit =
                    |wanted| several.iter().find(|alternative| alternative.extent.fit(payload) == wanted);
                let best =
                    fit(Fit::Exact).or_else(|| fit(Fit::Sufficient)).unwrap_or(&several[several.len() - 1]);
                &best.schema
            }
        }
    }

    /// The versions at which a layout begins.
    pub(super) fn versions(&self) -> impl Iterator<Item = u8> {
        let starts =
            |version: usize| version == 0 || self.by_version[version] != self.by_version[version - 1];
        (0..self.by_version.len()).filter(move |&version| starts(version)).map(|version| version as u8)
    }
}
