//! Virtual memory: group 0x02.

use stackhound_types::{Address, Pid, PointerSize};
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::read::{Reader, Word, pid};
use crate::error::Error;

/// Virtual memory that is allocated, freed, or allocated at the start or the end of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VirtualAllocation {
    /// The address of the first byte.
    pub base_address: Address,
    /// The size in bytes.
    pub region_size: u64,
    /// The process that owns the memory. Another process may have requested the operation.
    pub process_id: Pid,
    /// 0x1000 commit, 0x2000 reserve, 0x4000 decommit, 0x8000 release.
    pub flags: u32,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedAllocation<P> {
    base_address: P,
    region_size: P,
    process_id: U32,
    flags: U32,
}

impl VirtualAllocation {
    /// Reads the payload of VirtualAlloc, VirtualFree, VirtualAllocDCStart or VirtualAllocDCEnd.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    #[inline]
    pub fn parse(payload: &[u8], _version: u8, pointer: PointerSize) -> Result<VirtualAllocation, Error> {
        match pointer {
            PointerSize::Four => VirtualAllocation::with::<U32>(payload),
            PointerSize::Eight => VirtualAllocation::with::<U64>(payload),
        }
    }

    #[inline]
    fn with<P: Word>(payload: &[u8]) -> Result<VirtualAllocation, Error> {
        let fixed = Reader::new("VirtualAllocation", payload).fixed::<FixedAllocation<P>>()?;
        Ok(VirtualAllocation {
            base_address: fixed.base_address.address(),
            region_size: fixed.region_size.value(),
            process_id: pid(fixed.process_id),
            flags: fixed.flags.get(),
        })
    }
}
