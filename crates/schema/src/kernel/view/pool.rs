//! Kernel pools: group 0x0E.

use stackhound_etl::{Address, PointerSize};
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::read::{Reader, Word};
use super::text::Ansi;
use crate::error::Error;

/// Memory that is taken from a pool of the kernel or given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolAllocation<'a> {
    /// Which pool; 0x10000000 marks large allocations.
    pub pool_type: u32,
    /// Up to four letters that name the owner.
    pub tag: Ansi<'a>,
    /// Bytes.
    pub number_of_bytes: u64,
    /// Where the memory is.
    pub entry: Address,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedPool<P> {
    pool_type: U32,
    tag: [u8; 4],
    number_of_bytes: P,
    entry: P,
}

impl<'a> PoolAllocation<'a> {
    /// Reads the payload of Allocate, AllocateSession, Free or FreeSession.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    #[inline]
    pub fn parse(payload: &'a [u8], _version: u8, pointer: PointerSize) -> Result<PoolAllocation<'a>, Error> {
        match pointer {
            PointerSize::Four => PoolAllocation::with::<U32>(payload),
            PointerSize::Eight => PoolAllocation::with::<U64>(payload),
        }
    }

    #[inline]
    fn with<P: Word>(payload: &'a [u8]) -> Result<PoolAllocation<'a>, Error> {
        let fixed = Reader::new("PoolAllocation", payload).fixed::<FixedPool<P>>()?;
        let length = fixed.tag.iter().position(|&byte| byte == 0).unwrap_or(4);
        Ok(PoolAllocation {
            pool_type: fixed.pool_type.get(),
            tag: Ansi(&fixed.tag[..length]),
            number_of_bytes: fixed.number_of_bytes.value(),
            entry: fixed.entry.address(),
        })
    }
}
