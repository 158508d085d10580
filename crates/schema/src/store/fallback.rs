//! A source of descriptions outside of the trace, which is queried only for events without a
//! description.

use std::fmt;
use std::sync::Arc;

use foldhash::HashSet;
use stackhound_types::Guid;

use super::{Key, learn_embedded, learned::Learned};
use crate::builtin;
use crate::embedded::{EmbeddedEvent, parse_map};
use crate::identity::Identity;

/// The maximum number of event kinds whose query is remembered.
const MAX_QUERIES: usize = 1 << 16;

type OfEvent = dyn Fn(&Identity<'_>) -> Option<Vec<u8>> + Send + Sync;
type OfMap = dyn Fn(Guid, &Identity<'_>, &str) -> Option<Vec<u8>> + Send + Sync;

/// A source of descriptions. It is called while events are read, so it should be fast.
#[derive(Clone)]
pub struct Fallback {
    event: Arc<OfEvent>,
    map: Arc<OfMap>,
}

impl Fallback {
    /// `event` returns the `TRACE_EVENT_INFO` of a kind of event. `map` returns the
    /// `EVENT_MAP_INFO` of a provider's map by its name; its identity is that of an event that uses
    /// the map.
    pub fn new(
        event: impl Fn(&Identity<'_>) -> Option<Vec<u8>> + Send + Sync + 'static,
        map: impl Fn(Guid, &Identity<'_>, &str) -> Option<Vec<u8>> + Send + Sync + 'static,
    ) -> Fallback {
        Fallback { event: Arc::new(event), map: Arc::new(map) }
    }
}

impl fmt::Debug for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fallback").finish_non_exhaustive()
    }
}

/// A fallback, and the keys that it was queried for.
#[derive(Clone, Debug)]
pub(super) struct FallbackState {
    fallback: Fallback,
    keys: HashSet<Key>,
}

impl FallbackState {
    pub fn new(fallback: Fallback) -> FallbackState {
        FallbackState { fallback, keys: HashSet::default() }
    }

    /// Queries the fallback for an event, unless a description of exactly its version is known or
    /// it was queried before.
    pub fn query(&mut self, key: Key, identity: &Identity<'_>, learned: &mut Learned) {
        let built_in = builtin::lookup(key.guid, key.number, key.version);
        let is_known =
            learned.get(&key).is_some() || built_in.is_some_and(|found| found.version == key.version);
        if is_known || self.keys.len() >= MAX_QUERIES || !self.keys.insert(key) {
            return;
        }
        let Some(event) = (self.fallback.event)(identity).and_then(|info| EmbeddedEvent::parse(&info).ok())
        else {
            return;
        };
        // A description of another event would never be found.
        if Key::of_embedded(event.identity) != key {
            return;
        }
        learn_embedded(learned, event);
        for name in learned.missing_maps(&key) {
            let info = (self.fallback.map)(key.guid, identity, &name);
            let map = info.and_then(|info| parse_map(&[&key.guid.0[..], &info].concat()).ok());
            if let Some((provider, map)) = map {
                learned.add_map(provider, map);
            }
        }
    }
}
