//! Disk transfers: group 0x01.

use stackhound_etl::{Address, PointerSize, Tid};
use zerocopy::byteorder::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::read::{Reader, Word, tid};
use crate::error::Error;

/// A transfer that is complete. Logged wherever it completes: the header's thread is a stranger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskTransfer {
    /// Which physical disk.
    pub disk_number: u32,
    /// See the map `IrpFlags`; bits 17 to 19 are the priority.
    pub irp_flags: u32,
    /// Bytes.
    pub transfer_size: u32,
    /// Bytes from the start of the disk.
    pub byte_offset: i64,
    /// The file key, which file names are given to.
    pub file_object: Address,
    /// The request. From version 2 on.
    pub irp: Option<Address>,
    /// Raw ticks from the start to the completion. From version 1 on.
    pub high_res_response_time: Option<u64>,
    /// Who wanted it. From version 3 on.
    pub issuing_thread_id: Option<Tid>,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedTransfer<P> {
    disk_number: U32,
    irp_flags: U32,
    transfer_size: U32,
    /// The response time in version 1.
    reserved: U32,
    byte_offset: I64,
    file_object: P,
}

impl DiskTransfer {
    /// Reads the payload of Read, Write, OpticalRead or OpticalWrite.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    #[inline]
    pub fn parse(payload: &[u8], version: u8, pointer: PointerSize) -> Result<DiskTransfer, Error> {
        match pointer {
            PointerSize::Four => DiskTransfer::with::<U32>(payload, version),
            PointerSize::Eight => DiskTransfer::with::<U64>(payload, version),
        }
    }

    #[inline]
    fn with<P: Word>(payload: &[u8], version: u8) -> Result<DiskTransfer, Error> {
        let mut reader = Reader::new("DiskTransfer", payload);
        let fixed = reader.fixed::<FixedTransfer<P>>()?;
        let mut irp = None;
        if version >= 2 {
            irp = Some(reader.fixed::<P>()?.address());
        } else if version == 1 && size_of::<P>() == 4 && reader.rest().len() >= 12 {
            // Sources disagree on whether 32-bit systems align the time that follows.
            reader.skip(4)?;
        }
        Ok(DiskTransfer {
            disk_number: fixed.disk_number.get(),
            irp_flags: fixed.irp_flags.get(),
            transfer_size: fixed.transfer_size.get(),
            byte_offset: fixed.byte_offset.get(),
            file_object: fixed.file_object.address(),
            irp,
            high_res_response_time: if version >= 1 { Some(reader.fixed::<U64>()?.get()) } else { None },
            issuing_thread_id: if version >= 3 { Some(tid(*reader.fixed()?)) } else { None },
        })
    }
}

/// A transfer or flush begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskInit {
    /// The request.
    pub irp: Address,
    /// Who wants it. From version 3 on; the header's thread is the same.
    pub issuing_thread_id: Option<Tid>,
}

impl DiskInit {
    /// Reads the payload of ReadInit, WriteInit or FlushInit, and of the same for optical disks.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    #[inline]
    pub fn parse(payload: &[u8], version: u8, pointer: PointerSize) -> Result<DiskInit, Error> {
        let mut reader = Reader::new("DiskInit", payload);
        let irp = match pointer {
            PointerSize::Four => reader.fixed::<U32>()?.address(),
            PointerSize::Eight => reader.fixed::<U64>()?.address(),
        };
        let issuing_thread_id = if version >= 3 { Some(tid(*reader.fixed()?)) } else { None };
        Ok(DiskInit { irp, issuing_thread_id })
    }
}

/// A flush of a disk's buffers that is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskFlush {
    /// Which physical disk.
    pub disk_number: u32,
    /// See the map `IrpFlags`.
    pub irp_flags: u32,
    /// Raw ticks from the start to the completion.
    pub high_res_response_time: u64,
    /// The request.
    pub irp: Address,
    /// Who wanted it. From version 3 on.
    pub issuing_thread_id: Option<Tid>,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedFlush<P> {
    disk_number: U32,
    irp_flags: U32,
    high_res_response_time: U64,
    irp: P,
}

impl DiskFlush {
    /// Reads the payload of FlushBuffers or OpticalFlushBuffers.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    #[inline]
    pub fn parse(payload: &[u8], version: u8, pointer: PointerSize) -> Result<DiskFlush, Error> {
        match pointer {
            PointerSize::Four => DiskFlush::with::<U32>(payload, version),
            PointerSize::Eight => DiskFlush::with::<U64>(payload, version),
        }
    }

    #[inline]
    fn with<P: Word>(payload: &[u8], version: u8) -> Result<DiskFlush, Error> {
        let mut reader = Reader::new("DiskFlush", payload);
        let fixed = reader.fixed::<FixedFlush<P>>()?;
        Ok(DiskFlush {
            disk_number: fixed.disk_number.get(),
            irp_flags: fixed.irp_flags.get(),
            high_res_response_time: fixed.high_res_response_time.get(),
            irp: fixed.irp.address(),
            issuing_thread_id: if version >= 3 { Some(tid(*reader.fixed()?)) } else { None },
        })
    }
}
