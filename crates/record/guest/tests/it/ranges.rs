//! Memory that a test writes.

use std::collections::BTreeMap;

use stackhound_record_guest::Memory;
use stackhound_types::Address;

/// Memory in ranges.
#[derive(Clone, Default)]
pub struct Ranges(pub BTreeMap<u64, Vec<u8>>);

impl Memory for Ranges {
    fn read(&mut self, address: Address, bytes: &mut [u8]) -> Option<()> {
        let (start, range) = self.0.range(..=address.0).next_back()?;
        let from = usize::try_from(address.0 - start).ok()?;
        bytes.copy_from_slice(range.get(from..from.checked_add(bytes.len())?)?);
        Some(())
    }
}

impl Ranges {
    pub fn put(&mut self, address: u64, bytes: &[u8]) {
        let (start, range) = self.0.range_mut(..=address).next_back().expect("a range");
        let from = (address - start) as usize;
        range[from..from + bytes.len()].copy_from_slice(bytes);
    }

    pub fn word(&mut self, address: u64, value: u64) {
        self.put(address, &value.to_le_bytes());
    }
}
