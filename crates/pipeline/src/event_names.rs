//! Numbers the names of events, so that programs count events by number and not by text.
//!
//! The name of a kind of event is looked up once, except where it depends on more than the kind:
//! in self-describing events, and in events without a known schema.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashTable};
use stackhound_schema::Identity;
use stackhound_types::Guid;

use crate::event_view::EventView;

/// The number of a name: events with equal names have equal numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct EventNameId(u32);

impl EventNameId {
    /// The index, smaller than the number of names.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// An [`Identity`] that determines the name of an event.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Kind {
    /// The class or provider.
    guid: Guid,
    is_classic: bool,
    number: u16,
    version: u8,
    opcode: u8,
    task: u16,
}

/// The maximum number of kinds whose names are kept.
const KINDS_MAX: usize = 1 << 16;

/// The names of the events of one trace.
#[derive(Debug)]
pub struct EventNumbers {
    names: Vec<Box<str>>,
    by_name: HashTable<EventNameId>,
    by_hook_id: Vec<Option<EventNameId>>,
    by_kind: HashMap<Kind, EventNameId, RandomState>,
    /// The generation of the schemas when `by_kind` was filled.
    generation: u64,
    hasher: RandomState,
}

impl Default for EventNumbers {
    fn default() -> EventNumbers {
        EventNumbers {
            names: Vec::new(),
            by_name: HashTable::new(),
            by_hook_id: vec![None; 1 << 16],
            by_kind: HashMap::default(),
            generation: 0,
            hasher: RandomState::default(),
        }
    }
}

impl EventNumbers {
    /// The number of the event's [name](EventView::name). Costs one look-up by the kind of the
    /// event, without its schema, if the kind is known.
    #[inline]
    pub fn of(&mut self, view: &EventView<'_>) -> EventNameId {
        match view.event().hook_id() {
            // The names of kernel events do not depend on their version.
            Some(hook_id) => match self.by_hook_id[usize::from(hook_id)] {
                Some(known) => known,
                None => {
                    let id = self.number(&view.name());
                    self.by_hook_id[usize::from(hook_id)] = Some(id);
                    id
                }
            },
            None => self.of_other(view),
        }
    }

    fn of_other(&mut self, view: &EventView<'_>) -> EventNameId {
        let kind = Identity::of(&view.event().record()).and_then(|identity| kind(&identity));
        let Some(kind) = kind else { return self.number(&view.name()) };
        let generation = view.trace_state().schema_generation();
        if self.generation != generation {
            self.by_kind.clear();
            self.generation = generation;
        }
        if let Some(&known) = self.by_kind.get(&kind) {
            return known;
        }
        let id = self.number(&view.name());
        if view.schema().is_some() && self.by_kind.len() < KINDS_MAX {
            self.by_kind.insert(kind, id);
        }
        id
    }

    /// A name.
    pub fn name(&self, id: EventNameId) -> &str {
        &self.names[id.index()]
    }

    /// All names, by index.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|name| &**name)
    }

    fn number(&mut self, name: &str) -> EventNameId {
        let EventNumbers { names, by_name, hasher, .. } = self;
        let hash = hasher.hash_one(name);
        if let Some(&known) = by_name.find(hash, |id| &*names[id.index()] == name) {
            return known;
        }
        let id = EventNameId(names.len() as u32);
        names.push(name.into());
        by_name.insert_unique(hash, id, |id| hasher.hash_one(&*names[id.index()]));
        id
    }
}

/// The kind of an event whose name depends on nothing else.
fn kind(identity: &Identity<'_>) -> Option<Kind> {
    match *identity {
        Identity::Classic { class, opcode, version } => {
            Some(Kind { guid: class, is_classic: true, number: 0, version, opcode, task: 0 })
        }
        Identity::Manifest { provider, id, version, opcode, task } => {
            Some(Kind { guid: provider, is_classic: false, number: id, version, opcode, task })
        }
        _ => None,
    }
}
