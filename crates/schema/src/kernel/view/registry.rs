//! The registry: group 0x09.
//!
//! A key is identified by the address of its key control block (KCB), which operations call a
//! handle. Addresses are reused soon.

use stackhound_types::{Address, PointerSize, RawTime};
use zerocopy::byteorder::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::read::{Reader, Word};
use crate::error::Error;
use crate::text::Utf16;

/// An operation on a key or value, or a description of a key control block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegistryOperation<'a> {
    /// The start of the operation, in raw ticks. Present from version 2 on.
    pub initial_time: Option<RawTime>,
    /// The duration of the operation, in raw ticks. Present before version 2.
    pub elapsed_time: Option<i64>,
    /// An NTSTATUS.
    pub status: u32,
    /// The index of a subkey or value, or the kind of information. Present from version 1 on.
    pub index: Option<u32>,
    /// The key control block; zero if the name is absolute.
    pub key_handle: Address,
    /// A path relative to the key, the name of a value, or, for KCB events, the full path.
    pub key_name: Utf16<'a>,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedV0<P> {
    status: P,
    key_handle: P,
    elapsed_time: I64,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedV2<P> {
    initial_time: I64,
    status: U32,
    index: U32,
    key_handle: P,
}

impl<'a> RegistryOperation<'a> {
    /// Reads the payload of types 0x0A (Create) to 0x1D (QuerySecurity).
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    pub fn parse(
        payload: &'a [u8],
        version: u8,
        pointer: PointerSize,
    ) -> Result<RegistryOperation<'a>, Error> {
        match pointer {
            PointerSize::Four => RegistryOperation::with::<U32>(payload, version),
            PointerSize::Eight => RegistryOperation::with::<U64>(payload, version),
        }
    }

    fn with<P: Word>(payload: &'a [u8], version: u8) -> Result<RegistryOperation<'a>, Error> {
        let mut reader = Reader::new("RegistryOperation", payload);
        if version >= 2 {
            let fixed = reader.fixed::<FixedV2<P>>()?;
            return Ok(RegistryOperation {
                initial_time: Some(RawTime(fixed.initial_time.get())),
                elapsed_time: None,
                status: fixed.status.get(),
                index: Some(fixed.index.get()),
                key_handle: fixed.key_handle.address(),
                key_name: reader.utf16().unwrap_or_default(),
            });
        }
        let fixed = reader.fixed::<FixedV0<P>>()?;
        Ok(RegistryOperation {
            initial_time: None,
            elapsed_time: Some(fixed.elapsed_time.get()),
            // A status has 32 bits, even if it is stored pointer-sized.
            status: fixed.status.value() as u32,
            index: if version == 1 { Some(reader.fixed::<U32>()?.get()) } else { None },
            key_handle: fixed.key_handle.address(),
            key_name: reader.utf16().unwrap_or_default(),
        })
    }
}
