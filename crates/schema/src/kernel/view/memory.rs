//! Page faults and virtual memory: group 0x02.

use stackhound_etl::{Address, Pid, PointerSize, RawTime, Tid};
use zerocopy::byteorder::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::read::{Reader, Word, pid, tid};
use crate::error::Error;

/// A page that had to be read from disk. The record has no thread but the one in the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HardFault {
    /// When the fault began, in raw ticks.
    pub initial_time: RawTime,
    /// Bytes from the start of the file.
    pub read_offset: u64,
    /// The address that was touched.
    pub virtual_address: Address,
    /// The file key.
    pub file_object: Address,
    /// The thread that touched it.
    pub thread_id: Tid,
    /// Bytes read.
    pub byte_count: u32,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedHardFault<P> {
    initial_time: I64,
    read_offset: U64,
    virtual_address: P,
    file_object: P,
    thread_id: U32,
    byte_count: U32,
}

impl HardFault {
    /// Reads the payload of HardFault.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    #[inline]
    pub fn parse(payload: &[u8], _version: u8, pointer: PointerSize) -> Result<HardFault, Error> {
        match pointer {
            PointerSize::Four => HardFault::with::<U32>(payload),
            PointerSize::Eight => HardFault::with::<U64>(payload),
        }
    }

    #[inline]
    fn with<P: Word>(payload: &[u8]) -> Result<HardFault, Error> {
        let fixed = Reader::new("HardFault", payload).fixed::<FixedHardFault<P>>()?;
        Ok(HardFault {
            initial_time: RawTime(fixed.initial_time.get()),
            read_offset: fixed.read_offset.get(),
            virtual_address: fixed.virtual_address.address(),
            file_object: fixed.file_object.address(),
            thread_id: tid(fixed.thread_id),
            byte_count: fixed.byte_count.get(),
        })
    }
}

/// Any other page fault. The hook tells which kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageFault {
    /// The address that was touched.
    pub virtual_address: Address,
    /// The instruction that touched it.
    pub program_counter: Address,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedPageFault<P> {
    virtual_address: P,
    program_counter: P,
}

impl PageFault {
    /// Reads the payload of TransitionFault, DemandZeroFault, CopyOnWrite, GuardPageFault, HardPageFault or
    /// AccessViolation.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    #[inline]
    pub fn parse(payload: &[u8], _version: u8, pointer: PointerSize) -> Result<PageFault, Error> {
        match pointer {
            PointerSize::Four => PageFault::with::<U32>(payload),
            PointerSize::Eight => PageFault::with::<U64>(payload),
        }
    }

    #[inline]
    fn with<P: Word>(payload: &[u8]) -> Result<PageFault, Error> {
        let fixed = Reader::new("PageFault", payload).fixed::<FixedPageFault<P>>()?;
        Ok(PageFault {
            virtual_address: fixed.virtual_address.address(),
            program_counter: fixed.program_counter.address(),
        })
    }
}

/// Virtual memory that is allocated, freed, or allocated while a recording starts or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VirtualAllocation {
    /// The first byte.
    pub base_address: Address,
    /// Bytes.
    pub region_size: u64,
    /// The process whose memory it is; another one may have asked for it.
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
