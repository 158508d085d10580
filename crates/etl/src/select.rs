//! Selection of records by their headers.

use crate::block::Entry;

/// A set of records: any kernel events, all or no classic events, and any manifest events.
///
/// A walk that needs only a few kinds (names, rundown, metadata) skips the other records at the
/// cost of one bit test each.
#[derive(Clone, Debug)]
pub struct Selection {
    /// By hook id.
    kernel: Bits,
    classic: bool,
    /// By event id.
    manifest: Bits,
}

/// One bit for each 16-bit number.
type Bits = Box<[u64; 1 << 10]>;

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
        let bits = || Box::new([0; 1 << 10]);
        Selection { kernel: bits(), classic: false, manifest: bits() }
    }

    /// Adds the kernel events with these hook ids.
    pub fn hook_ids(mut self, hook_ids: impl IntoIterator<Item = u16>) -> Selection {
        for hook_id in hook_ids {
            set(&mut self.kernel, hook_id);
        }
        self
    }

    /// Adds all classic events.
    pub fn classic(self) -> Selection {
        Selection { classic: true, ..self }
    }

    /// Adds manifest events.
    pub fn manifest_events(mut self, manifest_events: ManifestEvents) -> Selection {
        match manifest_events {
            ManifestEvents::All => self.manifest.fill(u64::MAX),
            ManifestEvents::Id(id) => set(&mut self.manifest, id),
        }
        self
    }

    /// Whether a record belongs to the set. WPP messages and ERROR records never do.
    #[inline]
    pub fn has(&self, entry: &Entry) -> bool {
        match entry.kind() {
            kind if kind.has_hook_id() => is_set(&self.kernel, entry.tag),
            kind if kind.has_descriptor() => is_set(&self.manifest, entry.tag),
            kind => self.classic && kind.is_classic(),
        }
    }
}

fn set(bits: &mut Bits, number: u16) {
    bits[usize::from(number) / 64] |= 1 << (number % 64);
}

#[inline]
fn is_set(bits: &Bits, number: u16) -> bool {
    bits[usize::from(number) / 64] >> (number % 64) & 1 != 0
}
