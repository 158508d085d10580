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

    /// Adds records whose headers state a thread and its process: of each buffer, the first and the last
    /// record of each thread, those before and after a change of its process, and some more. Records
    /// of stacks can state the other process.
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
    /// What was stated last. Threads share slots.
    owners: [Owner; OWNERS],
    /// The providers whose traits were found last. Providers share slots.
    providers: [Option<Guid>; PROVIDERS],
}

/// The process of a thread, as records state it.
#[derive(Clone, Copy, Default)]
struct Owner {
    ids: Option<(Pid, Tid)>,
    /// The last record that repeats it, if it was not selected.
    repetition: Option<Entry>,
}

/// Threads of one buffer are few.
const OWNERS: usize = 64;

/// So are providers.
const PROVIDERS: usize = 16;

impl<'s> BufferSelection<'s> {
    pub fn new(selection: &'s Selection) -> BufferSelection<'s> {
        BufferSelection { selection, owners: [Owner::default(); OWNERS], providers: [None; PROVIDERS] }
    }

    /// Adds the next record to `entries` if it is selected.
    #[inline]
    pub fn add(&mut self, entry: Entry, record: &Record<'_>, entries: &mut Vec<Entry>) {
        let mut is_selected = self.selection.has(&entry)
            || (self.selection.provider_traits && entry.has_extended_items() && self.has_traits(record));
        if self.selection.thread_owners
            && let Some(ids) = stated_ids(record)
        {
            // Thread ids are multiples of four.
            let owner = &mut self.owners[ids.1.0 as usize / 4 % OWNERS];
            if owner.ids != Some(ids) {
                entries.extend(owner.repetition);
                is_selected = true;
            }
            *owner = Owner { ids: Some(ids), repetition: (!is_selected).then_some(entry) };
        }
        if is_selected {
            entries.push(entry);
        }
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

    /// Ends the buffer.
    pub fn end(self, entries: &mut Vec<Entry>) {
        if self.selection.thread_owners {
            entries.extend(self.owners.iter().filter_map(|owner| owner.repetition));
            // The repetitions were added later.
            entries.sort_by_key(Entry::offset);
        }
    }
}

/// The process and the thread that the header of a record states, or the record of a stack.
fn stated_ids(record: &Record<'_>) -> Option<(Pid, Tid)> {
    use crate::hook_id::{STACK_WALK_KEY_KERNEL, STACK_WALK_KEY_USER, STACK_WALK_STACK};
    if let (Some(pid), Some(tid)) = (record.pid(), record.tid()) {
        return Some((pid, tid));
    }
    let is_stack =
        matches!(record.hook_id(), Some(STACK_WALK_STACK | STACK_WALK_KEY_KERNEL | STACK_WALK_KEY_USER));
    // After the time of the event.
    let (_, ids) = record.payload().split_first_chunk::<8>().filter(|_| is_stack)?;
    let (pid, ids) = ids.split_first_chunk()?;
    let (tid, _) = ids.split_first_chunk()?;
    Some((Pid::known(u32::from_le_bytes(*pid))?, Tid::known(u32::from_le_bytes(*tid))?))
}

fn set(bits: &mut Bits, number: u16) {
    bits[usize::from(number) / 64] |= 1 << (number % 64);
}

#[inline]
fn is_set(bits: &Bits, number: u16) -> bool {
    bits[usize::from(number) / 64] >> (number % 64) & 1 != 0
}
