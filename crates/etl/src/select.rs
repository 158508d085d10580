//! Choosing records by what their headers say, before anything else is done with them.

use crate::record::{HeaderKind, Record};

/// A set of records: any kernel hooks, classic events or not, and which events with a descriptor.
///
/// A walk that looks for a few kinds only (names, rundown, metadata) skips the others at the cost of one bit test.
#[derive(Clone, Debug)]
pub struct Selection {
    /// One bit a hook, then one a header kind for records without a hook.
    bits: Box<[u64; WORDS]>,
    /// Ids of events with a descriptor, in ascending order; `None` for all of them.
    ids: Option<Vec<u16>>,
}

const HOOK_IDS: usize = 1 << 16;
const WORDS: usize = HOOK_IDS / 64 + 1;

/// Which events with a descriptor are added to a [`Selection`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManifestEvents {
    /// Those with this id.
    Id(u16),
    /// All of them.
    All,
}

impl Selection {
    /// No records at all.
    pub fn none() -> Selection {
        Selection { bits: Box::new([0; WORDS]), ids: Some(Vec::new()) }
    }

    /// Adds kernel events.
    pub fn hook_ids(mut self, hook_ids: impl IntoIterator<Item = u16>) -> Selection {
        for hook_id in hook_ids {
            self.set(usize::from(hook_id));
        }
        self
    }

    /// Adds all classic events.
    pub fn classic(mut self) -> Selection {
        for kind in HeaderKind::ALL.into_iter().filter(|kind| kind.is_classic()) {
            self.set(HOOK_IDS + kind as usize);
        }
        self
    }

    /// Adds events with a descriptor.
    pub fn manifest_events(mut self, manifest_events: ManifestEvents) -> Selection {
        for kind in HeaderKind::ALL.into_iter().filter(|kind| kind.has_descriptor()) {
            self.set(HOOK_IDS + kind as usize);
        }
        match (manifest_events, &mut self.ids) {
            (ManifestEvents::All, ids) => *ids = None,
            (ManifestEvents::Id(_), None) => {}
            (ManifestEvents::Id(id), Some(ids)) => {
                if let Err(location) = ids.binary_search(&id) {
                    ids.insert(location, id);
                }
            }
        }
        self
    }

    fn set(&mut self, bit: usize) {
        self.bits[bit / 64] |= 1 << (bit % 64);
    }

    /// Whether a record belongs to the set. WPP messages and errors never do.
    #[inline]
    pub(crate) fn has(&self, record: &Record<'_>) -> bool {
        let (kind, bytes) = (record.kind(), record.bytes());
        let hook_id = usize::from(u16::from_le_bytes([bytes[6], bytes[7]]));
        let bit = if kind.has_hook_id() { hook_id } else { HOOK_IDS + kind as usize };
        self.bits[bit / 64] >> (bit % 64) & 1 != 0 && self.has_id(record)
    }

    #[inline]
    fn has_id(&self, record: &Record<'_>) -> bool {
        match &self.ids {
            Some(ids) if record.kind().has_descriptor() => {
                let bytes = record.bytes();
                ids.binary_search(&u16::from_le_bytes([bytes[0x28], bytes[0x29]])).is_ok()
            }
            _ => true,
        }
    }
}
