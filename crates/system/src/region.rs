//! Private memory of processes: reservations and commits.

use std::collections::BTreeSet;

use stackhound_trace::TraceTime;
use stackhound_types::{Address, Pid};

use crate::caller::Caller;
use crate::process::ProcessId;
use crate::ranges::{AddressRange, RangeHistory, ValidityId};
use crate::slab::Slab;
use crate::span::Span;

/// The facts that an event states about memory of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AllocationFacts {
    /// The process that owns the memory. It can differ from the caller's process.
    pub pid: Pid,
    /// The start address.
    pub base: Address,
    /// The size in bytes. When memory is released, 0 means all memory that was reserved at `base`.
    pub size: u64,
    /// `MEM_COMMIT` 0x1000, `MEM_RESERVE` 0x2000, `MEM_DECOMMIT` 0x4000, `MEM_RELEASE` 0x8000.
    pub flags: u32,
    /// The thread that made the call.
    pub by: Option<Caller>,
}

const COMMIT: u32 = 0x1000;
const RESERVE: u32 = 0x2000;
const DECOMMIT: u32 = 0x4000;
const RELEASE: u32 = 0x8000;

/// One call that reserved or committed memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Allocation {
    /// The start address.
    pub base: Address,
    /// The size of the call in bytes. Parts may have been freed since.
    pub size: u64,
    /// The time of the call; [`Span::BEGINNING`] if it was before the trace.
    pub since: TraceTime,
    /// The thread that made the call. Its process can differ from the owner of the memory.
    pub by: Option<Caller>,
}

/// The known facts about the memory at one address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Region {
    /// The call that reserved it; `None` if that was before the trace.
    pub reserved: Option<Allocation>,
    /// The call that last committed it; `None` if it is not committed, or was committed before the
    /// trace.
    pub committed: Option<Allocation>,
}

#[derive(Debug, Default)]
struct MemorySpace {
    reserved: RangeHistory,
    committed: RangeHistory,
}

/// Memory of all processes. A call takes about 200 bytes, and twice as much if it both reserves and
/// commits.
#[derive(Debug, Default)]
pub(crate) struct Regions {
    allocations: Slab<Allocation>,
    /// Indexed by process.
    spaces: Vec<MemorySpace>,
}

impl Regions {
    fn space(&mut self, process: ProcessId) -> &mut MemorySpace {
        if self.spaces.len() <= process.index() {
            self.spaces.resize_with(process.index() + 1, MemorySpace::default);
        }
        &mut self.spaces[process.index()]
    }

    fn add(&mut self, since: TraceTime, range: AddressRange, by: Option<Caller>) -> u32 {
        let size = (range.last - range.first).saturating_add(1);
        self.allocations.insert(Allocation { base: Address(range.first), size, since, by }).slot()
    }

    pub fn len(&self) -> usize {
        self.allocations.len()
    }

    /// Forgets all memory of a process, because it has ended or because a limit was exceeded.
    pub fn forget_process(&mut self, index: u32) {
        if let Some(MemorySpace { reserved, committed }) = self.spaces.get_mut(index as usize) {
            reserved.clear();
            committed.clear();
        }
    }

    /// Forgets all state that no query about this time or a later one needs.
    pub fn forget_before(&mut self, time: TraceTime) {
        for MemorySpace { reserved, committed } in &mut self.spaces {
            reserved.forget_before(time);
            committed.forget_before(time);
        }
    }

    /// The number of stored changes of each process.
    pub fn lens(&self) -> impl Iterator<Item = usize> {
        self.spaces.iter().map(|space| space.reserved.len() + space.committed.len())
    }

    /// Forgets allocations that are no longer referenced. Returns their number.
    pub fn sweep(&mut self) -> u64 {
        let spaces = self.spaces.iter();
        self.allocations
            .sweep(spaces.flat_map(|space| space.reserved.values().chain(space.committed.values())))
    }

    /// All calls that reserved or committed memory of a process.
    pub fn of(&self, process: ProcessId) -> impl Iterator<Item = Allocation> {
        let spaces = self.spaces.get(process.index()).into_iter();
        let numbers: BTreeSet<u32> =
            spaces.flat_map(|space| space.reserved.values().chain(space.committed.values())).collect();
        numbers.into_iter().map(|number| *self.allocations.get(number))
    }

    pub fn at(&self, process: ProcessId, address: Address, time: TraceTime) -> Option<Region> {
        let space = self.spaces.get(process.index())?;
        let allocation = |history| self.allocation(history, address, time);
        let region =
            Region { reserved: allocation(&space.reserved), committed: allocation(&space.committed) };
        (region.reserved.is_some() || region.committed.is_some()).then_some(region)
    }

    pub fn reserved(&self, process: ProcessId, address: Address, time: TraceTime) -> Option<Allocation> {
        self.allocation(&self.spaces.get(process.index())?.reserved, address, time)
    }

    fn allocation(&self, history: &RangeHistory, address: Address, time: TraceTime) -> Option<Allocation> {
        history.at(address.0, time).map(|number| *self.allocations.get(number))
    }

    pub fn validity_id(&self, process: ProcessId, time: TraceTime) -> ValidityId {
        let Some(space) = self.spaces.get(process.index()) else { return ValidityId::default() };
        space.reserved.validity_id(time).and(space.committed.validity_id(time))
    }

    /// Records that memory is reserved or committed.
    pub fn allocate(&mut self, time: TraceTime, process: ProcessId, facts: &AllocationFacts) {
        let Some(range) = AddressRange::new(facts.base.0, facts.size) else { return };
        if facts.flags & (RESERVE | COMMIT) == 0 {
            return;
        }
        let number = self.add(time, range, facts.by);
        let space = self.space(process);
        if facts.flags & RESERVE != 0 {
            space.reserved.set(time, range, number);
        }
        if facts.flags & COMMIT != 0 {
            space.committed.set(time, range, number);
        }
    }

    /// Records that memory existed when the trace began or ended.
    pub fn run_down(&mut self, process: ProcessId, facts: &AllocationFacts) {
        let Some(range) = AddressRange::new(facts.base.0, facts.size) else { return };
        if facts.flags & RESERVE != 0 {
            self.add_existing(process, range, |space| &mut space.reserved);
        }
        if facts.flags & COMMIT != 0 {
            self.add_existing(process, range, |space| &mut space.committed);
        }
    }

    /// Records that memory is decommitted or released.
    pub fn free(&mut self, time: TraceTime, process: ProcessId, facts: &AllocationFacts) {
        if facts.flags & RELEASE != 0 {
            let held = self.space(process).reserved.held_at(facts.base.0, time);
            let size = match (facts.size, held) {
                (0, Some(number)) => self.allocations.get(number).size,
                (size, _) => size,
            };
            let Some(range) = AddressRange::new(facts.base.0, size) else { return };
            if held.is_none() {
                self.add_existing(process, range, |space| &mut space.reserved);
            }
            let space = self.space(process);
            space.reserved.free(time, range);
            space.committed.free(time, range);
        } else if facts.flags & DECOMMIT != 0 {
            let Some(range) = AddressRange::new(facts.base.0, facts.size) else { return };
            if self.space(process).committed.held_at(range.first, time).is_none() {
                self.add_existing(process, range, |space| &mut space.committed);
            }
            self.space(process).committed.free(time, range);
        }
    }

    /// Adds memory that was not known before, from the beginning of the trace.
    fn add_existing(
        &mut self,
        process: ProcessId,
        range: AddressRange,
        history: impl Fn(&mut MemorySpace) -> &mut RangeHistory,
    ) {
        let number = self.allocations.next();
        if history(self.space(process)).set_from_beginning(range, number) {
            self.add(Span::BEGINNING, range, None);
        }
    }
}
