//! The address spaces of all processes, each with one history of its ranges.

use stackhound_trace::TraceTime;
use stackhound_types::Address;

use crate::process::ProcessId;
use crate::ranges::{RangeHistory, ValidityId};

/// Indexed by process.
#[derive(Debug, Default)]
pub(crate) struct AddressSpaces(Vec<RangeHistory>);

impl AddressSpaces {
    /// The ranges of a process, if any statement about it was recorded.
    #[inline]
    pub fn get(&self, process: ProcessId) -> Option<&RangeHistory> {
        self.0.get(process.index())
    }

    pub fn get_mut(&mut self, process: ProcessId) -> &mut RangeHistory {
        if self.0.len() <= process.index() {
            self.0.resize_with(process.index() + 1, RangeHistory::default);
        }
        &mut self.0[process.index()]
    }

    /// The value at an address of a process.
    #[inline]
    pub fn at(&self, process: ProcessId, address: Address, time: TraceTime) -> Option<u32> {
        self.get(process)?.at(address.0, time)
    }

    /// Identifies the period of time in which nothing changes in a process.
    pub fn validity_id(&self, process: ProcessId, time: TraceTime) -> ValidityId {
        self.get(process).map_or_else(ValidityId::default, |space| space.validity_id(time))
    }

    /// Forgets all ranges of a process, because it has ended or because a limit was exceeded.
    pub fn forget_process(&mut self, index: u32) {
        if let Some(space) = self.0.get_mut(index as usize) {
            space.clear();
        }
    }

    /// Forgets all state that no query about this time or a later one needs.
    pub fn forget_before(&mut self, time: TraceTime) {
        self.0.iter_mut().for_each(|space| space.forget_before(time));
    }

    /// The number of stored changes of each process.
    pub fn lens(&self) -> impl Iterator<Item = usize> {
        self.0.iter().map(RangeHistory::len)
    }

    /// All stored values, some of them several times.
    pub fn values(&self) -> impl Iterator<Item = u32> {
        self.0.iter().flat_map(RangeHistory::values)
    }
}
