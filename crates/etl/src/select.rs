//! Selection of records by their headers.

use crate::record::{HeaderKind, Record};

/// A set of records: any kernel events, all or no classic events, and any manifest events.
///
/// A walk that needs only a few kinds (names, rundown, metadata) skips the other records at the
/// cost of one bit test each.
#[derive(Clone, Debug)]
pub struct Selection {
    /// One bit per hook id, then one per header kind for records without a hook id.
    bits: Box<[u64; WORDS]>,
    /// Ids of manifest events in ascending order; `None` for all of them.
    ids: Option<Vec<u16>>,
}

const HOOK_IDS: usize = 1 << 16;
const WORDS: usize = HOOK_IDS / 64 + 1;

/// The manifest events that are added to a [`Selection`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManifestEvents {
    /// Events with this id.
    Id(u16),
    /// All events.
    All,
}

impl Selection {
    /// The empty set.
    pub fn none() -> Selection {
        Selection { bits: Box::new([0; WORDS]), ids: Some(Vec::new()) }
    }

    /// Adds the kernel events with these hook ids.
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

    /// Adds manifest events.
    pub fn manifest_events(mut self, manifest_events: ManifestEvents) -> Selection {
        for kind in HeaderKind::ALL.into_iter().filter(|kind| kind.has_descriptor()) {
            self.set(HOOK_IDS + kind as usize);
        }
        match (manifest_events, &mut self.ids) {
            (ManifestEvents::All, ids) => *ids = None,
            (ManifestEvents::Id(_), None) => {}
            (ManifestEvents::Id(id), Some(ids)) => {
                if let Err(index) = ids.binary_search(&id) {
                    ids.insert(index, id);
                }
            }
        }
        self
    }

    fn set(&mut self, bit: usize) {
        self.bits[bit / 64] |= 1 << (bit % 64);
    }

    /// Whether a record belongs to the set. WPP messages and ERROR records never do.
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
