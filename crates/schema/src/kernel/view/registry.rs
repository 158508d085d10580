//! The registry: group 0x09.
//!
//! A key is named by the address of its key control block (KCB), which operations call a handle. Addresses are used
//! again soon.

use stackhound_etl::{Address, Guid, PointerSize, RawTime};
use zerocopy::byteorder::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::read::{Reader, Word};
use super::text::Utf16;
use crate::error::Error;

/// An operation on a key or value, or the announcement of a key control block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegistryOperation<'a> {
    /// When it began, in raw ticks. From version 2 on.
    pub initial_time: Option<RawTime>,
    /// How long it took, in raw ticks. Before version 2.
    pub elapsed_time: Option<i64>,
    /// An NTSTATUS.
    pub status: u32,
    /// Which subkey or value, or which kind of information. From version 1 on.
    pub index: Option<u32>,
    /// The key control block; zero where the name is absolute.
    pub key_handle: Address,
    /// A path relative to the key, the name of a value, or, for KCB events, the whole path.
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
            // A status has 32 bits, whatever room it is given.
            status: fixed.status.value() as u32,
            index: if version == 1 { Some(reader.fixed::<U32>()?.get()) } else { None },
            key_handle: fixed.key_handle.address(),
            key_name: reader.utf16().unwrap_or_default(),
        })
    }
}

/// A transaction on the registry is prepared, committed or rolled back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegistryTransaction<'a> {
    /// The transaction.
    pub transaction: Guid,
    /// An NTSTATUS.
    pub status: u32,
    /// How many operations it holds.
    pub uow_count: u32,
    /// Raw ticks.
    pub operation_time: u64,
    /// The hive.
    pub hive: Utf16<'a>,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedTransaction {
    transaction: Guid,
    status: U32,
    uow_count: U32,
    operation_time: U64,
}

impl<'a> RegistryTransaction<'a> {
    /// Reads the payload of TxRCommit, TxRPrepare or TxRRollback.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    pub fn parse(
        payload: &'a [u8],
        _version: u8,
        _pointer: PointerSize,
    ) -> Result<RegistryTransaction<'a>, Error> {
        let mut reader = Reader::new("RegistryTransaction", payload);
        let fixed = reader.fixed::<FixedTransaction>()?;
        Ok(RegistryTransaction {
            transaction: fixed.transaction,
            status: fixed.status.get(),
            uow_count: fixed.uow_count.get(),
            operation_time: fixed.operation_time.get(),
            hive: reader.utf16().unwrap_or_default(),
        })
    }
}

/// The address of a hive.
fn hive(reader: &mut Reader<'_>, pointer: PointerSize) -> Result<Address, Error> {
    match pointer {
        PointerSize::Four => reader.fixed::<U32>().map(|hive| hive.address()),
        PointerSize::Eight => reader.fixed::<U64>().map(|hive| hive.address()),
    }
}

/// A hive is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HiveInit<'a> {
    /// The hive.
    pub hive: Address,
    /// How it is loaded.
    pub operation_type: u32,
    /// Which pool it uses.
    pub pool_tag: u32,
    /// Bytes.
    pub size: u32,
    /// Its file.
    pub file_name: Utf16<'a>,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedHive {
    operation_type: U32,
    pool_tag: U32,
    size: U32,
}

impl<'a> HiveInit<'a> {
    /// Reads the payload of HiveInit.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    pub fn parse(payload: &'a [u8], _version: u8, pointer: PointerSize) -> Result<HiveInit<'a>, Error> {
        let mut reader = Reader::new("HiveInit", payload);
        let hive = hive(&mut reader, pointer)?;
        let fixed = reader.fixed::<FixedHive>()?;
        Ok(HiveInit {
            hive,
            operation_type: fixed.operation_type.get(),
            pool_tag: fixed.pool_tag.get(),
            size: fixed.size.get(),
            file_name: reader.utf16().unwrap_or_default(),
        })
    }
}

/// A hive is unloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HiveDestroy<'a> {
    /// The hive.
    pub hive: Address,
    /// Its file.
    pub file_name: Utf16<'a>,
    /// Its place in the registry.
    pub path: Utf16<'a>,
}

impl<'a> HiveDestroy<'a> {
    /// Reads the payload of HiveDestroy.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    pub fn parse(payload: &'a [u8], _version: u8, pointer: PointerSize) -> Result<HiveDestroy<'a>, Error> {
        let mut reader = Reader::new("HiveDestroy", payload);
        let hive = hive(&mut reader, pointer)?;
        let file_name = reader.utf16().unwrap_or_default();
        Ok(HiveDestroy { hive, file_name, path: reader.utf16().unwrap_or_default() })
    }
}

/// A hive gets its place in the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HiveLink<'a> {
    /// The hive.
    pub hive: Address,
    /// Its place in the registry.
    pub path: Utf16<'a>,
}

impl<'a> HiveLink<'a> {
    /// Reads the payload of HiveLink.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    pub fn parse(payload: &'a [u8], _version: u8, pointer: PointerSize) -> Result<HiveLink<'a>, Error> {
        let mut reader = Reader::new("HiveLink", payload);
        Ok(HiveLink { hive: hive(&mut reader, pointer)?, path: reader.utf16().unwrap_or_default() })
    }
}

/// A hive that is loaded when the recording ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HiveRundown<'a> {
    /// Bytes.
    pub size: u64,
    /// The hive.
    pub hive: Address,
    /// How many of its keys are in memory.
    pub loaded_key_count: u32,
    /// Its file.
    pub file_name: Utf16<'a>,
    /// Its place in the registry.
    pub link_path: Utf16<'a>,
}

impl<'a> HiveRundown<'a> {
    /// Reads the payload of HiveDCEnd.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    pub fn parse(payload: &'a [u8], _version: u8, pointer: PointerSize) -> Result<HiveRundown<'a>, Error> {
        let mut reader = Reader::new("HiveRundown", payload);
        let size = reader.fixed::<U64>()?.get();
        let hive = hive(&mut reader, pointer)?;
        let loaded_key_count = reader.fixed::<U32>()?.get();
        let file_name = reader.utf16().unwrap_or_default();
        let link_path = reader.utf16().unwrap_or_default();
        Ok(HiveRundown { size, hive, loaded_key_count, file_name, link_path })
    }
}

/// A hive has to be written to its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HiveDirty<'a> {
    /// The hive.
    pub hive: Address,
    /// Its place in the registry.
    pub link_path: Utf16<'a>,
    /// Why; cut off in damaged recordings.
    pub dirty_reason: Option<u32>,
}

impl<'a> HiveDirty<'a> {
    /// Reads the payload of HiveDirty.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    pub fn parse(payload: &'a [u8], _version: u8, pointer: PointerSize) -> Result<HiveDirty<'a>, Error> {
        let mut reader = Reader::new("HiveDirty", payload);
        let hive = hive(&mut reader, pointer)?;
        let link_path = reader.utf16().unwrap_or_default();
        Ok(HiveDirty { hive, link_path, dirty_reason: reader.optional::<U32>().map(|reason| reason.get()) })
    }
}
