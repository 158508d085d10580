//! The newest methods by their start addresses.
//!
//! Most statements about methods repeat earlier ones, so that a look-up by address and time would be
//! most of the work. This module answers for the newest time only, by a hash of the process and the
//! address; it does not know ranges. It is unsure after a change near an address and about earlier
//! times.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry as TableEntry;
use stackhound_trace::TraceTime;

use crate::method::MethodStart;
use crate::process::ProcessId;
use crate::ranges::AddressRange;
use crate::span::Span;

/// A change affects all start addresses that have the same number without these bits.
const GRANULE_BITS: u32 = 10;
/// The number of bits of a counter's index. Different granules can share a counter.
const COUNTER_BITS: u32 = 12;
/// A change of more granules affects all addresses.
const GRANULES_MAX: u64 = 64;

/// What is known about the code that starts at an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    /// No method ever started there.
    Nothing,
    /// This method starts there.
    Method(u32),
    /// The ranges must be searched.
    Unsure,
}

/// Every address of a process at which a method starts has one entry.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The number of a method that starts there.
    number: u32,
    /// The count of changes up to which this method starts there; 0 if it is not known whether it
    /// does.
    changes: u32,
}

/// Takes about 15 bytes for each method.
#[derive(Debug)]
pub(crate) struct Newest {
    entries: HashTable<Entry>,
    /// The changes in granules, by a hash of the process and the granule.
    changes: Box<[u32]>,
    /// The changes that affect all addresses, plus 1.
    changes_of_all: u32,
    /// The sum of all changes.
    total: u32,
    /// Entries are valid from this time on.
    from: TraceTime,
}

impl Default for Newest {
    fn default() -> Newest {
        Newest {
            entries: HashTable::new(),
            changes: vec![0; 1 << COUNTER_BITS].into(),
            changes_of_all: 1,
            total: 1,
            from: Span::BEGINNING,
        }
    }
}

/// A product with a number without regularities (2⁶⁴ divided by the golden ratio).
#[inline]
fn mixed(number: u64) -> u64 {
    let product = u128::from(number) * 0x9e37_79b9_7f4a_7c15;
    product as u64 ^ (product >> 64) as u64
}

#[inline]
fn hash((process, start): MethodStart) -> u64 {
    mixed(start ^ mixed(process.index() as u64 + 1))
}

#[inline]
fn counter(process: ProcessId, granule: u64) -> usize {
    (hash((process, granule)) >> (64 - COUNTER_BITS)) as usize
}

impl Newest {
    /// The changes that affect a start address.
    #[inline]
    fn changes(&self, (process, start): MethodStart) -> u32 {
        self.changes[counter(process, start >> GRANULE_BITS)] + self.changes_of_all
    }

    /// The method that starts at an address at a time, after all changes of that time.
    #[inline]
    pub fn find(&self, at: MethodStart, time: TraceTime, start_of: impl Fn(u32) -> MethodStart) -> Found {
        let entry = self.entries.find(hash(at), |entry| start_of(entry.number) == at);
        match entry {
            None => Found::Nothing,
            Some(entry) if entry.changes == self.changes(at) && time >= self.from => {
                Found::Method(entry.number)
            }
            Some(_) => Found::Unsure,
        }
    }

    /// The number of the method that [`find`](Newest::find) will most probably compare.
    #[inline]
    pub fn candidate(&self, at: MethodStart) -> Option<u32> {
        self.entries.find(hash(at), |_| true).map(|entry| entry.number)
    }

    /// Adds a method that does not start at its address at the newest time.
    pub fn add(&mut self, at: MethodStart, number: u32, start_of: impl Fn(u32) -> MethodStart) {
        self.entry(at, Entry { number, changes: 0 }, start_of);
    }

    /// States that a method starts at an address at a time and at all later times up to the next
    /// change.
    pub fn keep(
        &mut self,
        at: MethodStart,
        time: TraceTime,
        number: u32,
        start_of: impl Fn(u32) -> MethodStart,
    ) {
        self.from = self.from.max(time);
        let changes = self.changes(at);
        self.entry(at, Entry { number, changes }, start_of);
    }

    fn entry(&mut self, at: MethodStart, entry: Entry, start_of: impl Fn(u32) -> MethodStart) {
        let found = self.entries.entry(
            hash(at),
            |known| start_of(known.number) == at,
            |known| hash(start_of(known.number)),
        );
        match found {
            TableEntry::Occupied(mut known) => *known.get_mut() = entry,
            TableEntry::Vacant(vacant) => {
                vacant.insert(entry);
            }
        }
    }

    /// The code in a range changes.
    pub fn change(&mut self, process: ProcessId, range: AddressRange) {
        let granules = range.first >> GRANULE_BITS..=range.last >> GRANULE_BITS;
        if self.total >= u32::MAX - GRANULES_MAX as u32 - 1 {
            // A counter would begin again.
            self.entries.iter_mut().for_each(|entry| entry.changes = 0);
            self.changes.fill(0);
            (self.changes_of_all, self.total) = (1, 1);
        } else if granules.end() - granules.start() >= GRANULES_MAX {
            (self.changes_of_all, self.total) = (self.changes_of_all + 1, self.total + 1);
        } else {
            for granule in granules {
                self.changes[counter(process, granule)] += 1;
                self.total += 1;
            }
        }
    }
}
