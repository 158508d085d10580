//! Configuration of the machine: group 0x0B.

use stackhound_types::{Address, PointerSize};
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::read::{Reader, Word};
use crate::error::Error;
use crate::text::Utf16;

/// The processors, memory and name of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuConfig<'a> {
    /// Nominal clock rate in MHz.
    pub mhz: u32,
    /// The number of logical processors.
    pub number_of_processors: u32,
    /// Memory size in units of 1 MiB.
    pub mem_size: u32,
    /// Page size in bytes.
    pub page_size: u32,
    /// Allocation granularity in bytes.
    pub allocation_granularity: u32,
    /// The machine's name.
    pub computer_name: Utf16<'a>,
    /// The domain of the machine; empty if it has none.
    pub domain_name: Utf16<'a>,
    /// A bit for each logical processor that shares its core.
    pub hyper_threading_flag: u64,
    /// Present from version 3 on.
    pub detail: Option<CpuDetail>,
}

/// The fields that version 3 adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuDetail {
    /// The highest user-mode address.
    pub highest_user_address: Address,
    /// 0 x86, 5 ARM, 9 x64, 12 ARM64.
    pub processor_architecture: u16,
    /// The processor's family.
    pub processor_level: u16,
    /// Model and stepping.
    pub processor_revision: u16,
    /// Sources disagree on the order of this flag and the next one. Both were 1 in all known
    /// traces.
    pub pae_enabled: u8,
    /// Whether pages can be protected from execution.
    pub nx_enabled: u8,
    /// Memory speed in MHz.
    pub memory_speed: u32,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedCpu {
    mhz: U32,
    number_of_processors: U32,
    mem_size: U32,
    page_size: U32,
    allocation_granularity: U32,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedCpuDetail<P> {
    highest_user_address: P,
    processor_architecture: U16,
    processor_level: U16,
    processor_revision: U16,
    pae_enabled: u8,
    nx_enabled: u8,
    memory_speed: U32,
}

impl<'a> CpuConfig<'a> {
    /// Reads the payload of CPU.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    pub fn parse(payload: &'a [u8], version: u8, pointer: PointerSize) -> Result<CpuConfig<'a>, Error> {
        match pointer {
            PointerSize::Four => CpuConfig::with::<U32>(payload, version),
            PointerSize::Eight => CpuConfig::with::<U64>(payload, version),
        }
    }

    fn with<P: Word>(payload: &'a [u8], version: u8) -> Result<CpuConfig<'a>, Error> {
        let mut reader = Reader::new("CpuConfig", payload);
        let fixed = reader.fixed::<FixedCpu>()?;
        let computer_name = reader.padded_utf16(256)?;
        let domain_name = reader.padded_utf16(if version >= 2 { 134 } else { 132 })?;
        // After the shorter name, there is padding before a number of eight bytes.
        if version < 2 && size_of::<P>() == 8 {
            reader.skip(4)?;
        }
        let hyper_threading_flag = reader.fixed::<P>()?.value();
        let mut detail = None;
        if version >= 3 {
            let fixed = reader.fixed::<FixedCpuDetail<P>>()?;
            detail = Some(CpuDetail {
                highest_user_address: fixed.highest_user_address.address(),
                processor_architecture: fixed.processor_architecture.get(),
                processor_level: fixed.processor_level.get(),
                processor_revision: fixed.processor_revision.get(),
                pae_enabled: fixed.pae_enabled,
                nx_enabled: fixed.nx_enabled,
                memory_speed: fixed.memory_speed.get(),
            });
        }
        Ok(CpuConfig {
            mhz: fixed.mhz.get(),
            number_of_processors: fixed.number_of_processors.get(),
            mem_size: fixed.mem_size.get(),
            page_size: fixed.page_size.get(),
            allocation_granularity: fixed.allocation_granularity.get(),
            computer_name,
            domain_name,
            hyper_threading_flag,
            detail,
        })
    }
}
