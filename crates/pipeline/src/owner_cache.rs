//! Values that depend on the process and thread of an event only.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use stackhound_system::ValidityRange;

use crate::event_view::{EventView, StatedIds};

/// Keeps a value for the ids of a process and a thread that events state, as long as the ids refer to
/// the same process and thread. Use it for one run only.
#[derive(Debug)]
pub struct OwnerCache<T>(HashMap<StatedIds, Kept<T>, RandomState>);

#[derive(Debug)]
struct Kept<T> {
    /// The times at which the value applies are in all of these ranges.
    validity: [ValidityRange; 3],
    value: T,
}

/// The limit of kept values.
const KEPT_MAX: usize = 1 << 14;

impl<T> Default for OwnerCache<T> {
    fn default() -> OwnerCache<T> {
        OwnerCache(HashMap::default())
    }
}

impl<T> OwnerCache<T> {
    /// The value for the process and thread of an event.
    pub fn find(&mut self, view: &EventView<'_>) -> Option<&mut T> {
        let time = view.time();
        let kept = self.0.get_mut(&view.stated_ids())?;
        kept.validity.iter().all(|range| range.has(time)).then_some(&mut kept.value)
    }

    /// Where a value for the process and thread of an event is kept. `None` if the state of the
    /// trace can change, so that none may be kept.
    pub fn place(&mut self, view: &EventView<'_>) -> Option<Place<'_, T>> {
        Some(Place { validity: view.owner_validity()?, ids: view.stated_ids(), cache: self })
    }
}

/// A place in an [`OwnerCache`].
#[derive(Debug)]
pub struct Place<'c, T> {
    cache: &'c mut OwnerCache<T>,
    ids: StatedIds,
    validity: [ValidityRange; 3],
}

impl<T> Place<'_, T> {
    /// Keeps a value.
    pub fn keep(self, value: T) {
        let Place { cache, ids, validity } = self;
        if cache.0.len() >= KEPT_MAX {
            cache.0.clear();
        }
        cache.0.insert(ids, Kept { validity, value });
    }
}
