//! Selection of records by their headers.

use stackhound_types::{Guid, Pid, Tid};

use crate::block::Entry;
use crate::record::{ExtendedType, Record};

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
    thread_owners: bool,
    provider_traits: bool,
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
        Selection {
            kernel: bits(),
            classic: false,
            manifest: bits(),
            thread_owners: false,
            provider_traits: false,
        }
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

    /// Adds records whose headers state a thread and its process: of each buffer, the first record of
    /// each thread, each that states another process than the record before it, and some more.
    pub fn thread_owners(self) -> Selection {
        Selection { thread_owners: true, ..self }
    }

    /// Adds records that contain the traits of their provider: of each buffer, the first record of each
    /// provider, and some more.
    pub fn provider_traits(self) -> Selection {
        Selection { provider_traits: true, ..self }
    }

    /// Whether a record belongs to the set by its kind and number. WPP messages and ERROR records
    /// never do.
    #[inline]
    pub fn has(&self, entry: &Entry) -> bool {
        match entry.kind() {
            kind if kind.has_hook_id() => is_set(&self.kernel, entry.tag),
            kind if kind.has_descriptor() => is_set(&self.manifest, entry.tag),
            kind => self.classic && kind.is_classic(),
        }
    }
}

/// The records of one buffer that a [`Selection`] has.
pub(crate) struct BufferSelection<'s> {
    selection: &'s Selection,
    /// The ids that headers stated last. Threads share slots.
    owners: [(Option<Tid>, Option<Pid>); OWNERS],
    /// The providers whose traits were found last. Providers share slots.
    providers: [Option<Guid>; PROVIDERS],
}

/// Threads of one buffer are few.
const OWNERS: usize = 64;

/// So are providers.
const PROVIDERS: usize = 16;

impl<'s> BufferSelection<'s> {
    pub fn new(selection: &'s Selection) -> BufferSelection<'s> {
        BufferSelection { selection, owners: [(None, None); OWNERS], providers: [None; PROVIDERS] }
    }

    #[inline]
    pub fn has(&mut self, entry: &Entry, record: &Record<'_>) -> bool {
        self.selection.has(entry)
            || (self.selection.thread_owners && self.states_owner(record))
            || (self.selection.provider_traits && entry.has_extended_items() && self.has_traits(record))
    }

    fn has_traits(&mut self, record: &Record<'_>) -> bool {
        let Some(provider) = record.guid() else { return false };
        let slot = &mut self.providers[usize::from(provider.0[0]) % PROVIDERS];
        let is_wanted =
            *slot != Some(provider) && record.extended_items().find(ExtendedType::PROVIDER_TRAITS).is_some();
        if is_wanted {
            *slot = Some(provider);
        }
        is_wanted
    }

    fn states_owner(&mut self, record: &Record<'_>) -> bool {
        let (Some(tid), Some(pid)) = (record.tid(), record.pid()) else { return false };
        // Thread ids are multiples of four.
        let slot = &mut self.owners[tid.0 as usize / 4 % OWNERS];
        let owner = (Some(tid), Some(pid));
        std::mem::replace(slot, owner) != owner
    }
}

fn set(bits: &mut Bits, number: u16) {
    bits[usize::from(number) / 64] |= 1 << (number % 64);
}

#[inline]
fn is_set(bits: &Bits, number: u16) -> bool {
    bits[usize::from(number) / 64] >> (number % 64) & 1 != 0
}
