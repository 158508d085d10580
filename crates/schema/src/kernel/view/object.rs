//! Handles of kernel objects: group 0x11.

use stackhound_etl::{Address, Pid, PointerSize};
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::read::{Reader, Word, pid};
use super::text::Utf16;
use crate::error::Error;

/// A handle that is made or closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle<'a> {
    /// What it stands for.
    pub object: Address,
    /// The highest bit marks handles of the kernel.
    pub handle: u32,
    /// Numbers are given by the type events of the same recording.
    pub object_type: u16,
    /// Some systems only.
    pub object_name: Option<Utf16<'a>>,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedHandle<P> {
    object: P,
    handle: U32,
    object_type: U16,
}

impl<'a> Handle<'a> {
    /// Reads the payload of CreateHandle or CloseHandle.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    pub fn parse(payload: &'a [u8], _version: u8, pointer: PointerSize) -> Result<Handle<'a>, Error> {
        match pointer {
            PointerSize::Four => Handle::with::<U32>(payload),
            PointerSize::Eight => Handle::with::<U64>(payload),
        }
    }

    fn with<P: Word>(payload: &'a [u8]) -> Result<Handle<'a>, Error> {
        let mut reader = Reader::new("Handle", payload);
        let fixed = reader.fixed::<FixedHandle<P>>()?;
        Ok(Handle {
            object: fixed.object.address(),
            handle: fixed.handle.get(),
            object_type: fixed.object_type.get(),
            object_name: reader.utf16(),
        })
    }
}

/// A handle that is copied, perhaps to another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandleDuplicate {
    /// What both stand for.
    pub object: Address,
    /// The original.
    pub source_handle: u32,
    /// The copy.
    pub target_handle: u32,
    /// Who gets the copy.
    pub target_process_id: Pid,
    /// Numbers are given by the type events of the same recording.
    pub object_type: u16,
    /// Who has the original.
    pub source_process_id: Pid,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedDuplicate<P> {
    object: P,
    source_handle: U32,
    target_handle: U32,
    target_process_id: U32,
    object_type: U16,
    source_process_id: U32,
}

impl HandleDuplicate {
    /// Reads the payload of DuplicateHandle.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    pub fn parse(payload: &[u8], _version: u8, pointer: PointerSize) -> Result<HandleDuplicate, Error> {
        match pointer {
            PointerSize::Four => HandleDuplicate::with::<U32>(payload),
            PointerSize::Eight => HandleDuplicate::with::<U64>(payload),
        }
    }

    fn with<P: Word>(payload: &[u8]) -> Result<HandleDuplicate, Error> {
        let fixed = Reader::new("HandleDuplicate", payload).fixed::<FixedDuplicate<P>>()?;
        Ok(HandleDuplicate {
            object: fixed.object.address(),
            source_handle: fixed.source_handle.get(),
            target_handle: fixed.target_handle.get(),
            target_process_id: pid(fixed.target_process_id),
            object_type: fixed.object_type.get(),
            source_process_id: pid(fixed.source_process_id),
        })
    }
}
