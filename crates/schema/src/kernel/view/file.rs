//! File names, file operations and mapped views: group 0x04.
//!
//! Operations identify a file in two ways: the file object belongs to one open of the file, the
//! file key to the file itself as long as it is open. In version 2, the thread is pointer-sized and
//! precedes the objects; in version 3 it follows them.

use stackhound_types::{Address, Pid, PointerSize, Tid};
use zerocopy::byteorder::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::read::{Reader, Word, pid, tid};
use crate::error::Error;
use crate::text::Utf16;

/// Thread ids have 32 bits, even if they are stored pointer-sized.
fn tid_of_word<P: Word>(id: P) -> Tid {
    Tid(id.value() as u32)
}

/// A file key and its file name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileName<'a> {
    /// The file key. Windows names the field file object.
    pub file_object: Address,
    /// The file name as NT path.
    pub file_name: Utf16<'a>,
}

impl<'a> FileName<'a> {
    /// Reads the payload of Name, FileCreate, FileDelete or FileRundown.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    pub fn parse(payload: &'a [u8], _version: u8, pointer: PointerSize) -> Result<FileName<'a>, Error> {
        let mut reader = Reader::new("FileName", payload);
        let file_object = match pointer {
            PointerSize::Four => reader.fixed::<U32>()?.address(),
            PointerSize::Eight => reader.fixed::<U64>()?.address(),
        };
        Ok(FileName { file_object, file_name: reader.utf16().unwrap_or_default() })
    }
}

/// The creation or opening of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileCreate<'a> {
    /// The I/O request packet. The end of the operation has the same one.
    pub irp: Address,
    /// The new file object.
    pub file_object: Address,
    /// The requesting thread.
    pub thread_id: Tid,
    /// The low 24 bits are options, see the map `CreateOptions`; the high 8 bits are the
    /// disposition.
    pub create_options: u32,
    /// See the map `FileAttributes`.
    pub file_attributes: u32,
    /// 1 read, 2 write, 4 delete.
    pub share_access: u32,
    /// The path that the caller requested. It may be relative, or empty for files that are opened
    /// by their id.
    pub open_path: Utf16<'a>,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedCreateV2<P> {
    irp: P,
    thread_id: P,
    file_object: P,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedCreateV3<P> {
    irp: P,
    file_object: P,
    thread_id: U32,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedOptions {
    create_options: U32,
    file_attributes: U32,
    share_access: U32,
}

impl<'a> FileCreate<'a> {
    /// Reads the payload of Create or CreateNew.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    pub fn parse(payload: &'a [u8], version: u8, pointer: PointerSize) -> Result<FileCreate<'a>, Error> {
        match pointer {
            PointerSize::Four => FileCreate::with::<U32>(payload, version),
            PointerSize::Eight => FileCreate::with::<U64>(payload, version),
        }
    }

    fn with<P: Word>(payload: &'a [u8], version: u8) -> Result<FileCreate<'a>, Error> {
        let mut reader = Reader::new("FileCreate", payload);
        let (irp, file_object, thread_id) = if version >= 3 {
            let fixed = reader.fixed::<FixedCreateV3<P>>()?;
            (fixed.irp, fixed.file_object, tid(fixed.thread_id))
        } else {
            let fixed = reader.fixed::<FixedCreateV2<P>>()?;
            (fixed.irp, fixed.file_object, tid_of_word(fixed.thread_id))
        };
        let options = reader.fixed::<FixedOptions>()?;
        Ok(FileCreate {
            irp: irp.address(),
            file_object: file_object.address(),
            thread_id,
            create_options: options.create_options.get(),
            file_attributes: options.file_attributes.get(),
            share_access: options.share_access.get(),
            open_path: reader.utf16().unwrap_or_default(),
        })
    }

    /// The requested disposition: 0 supersede, 1 open, 2 create, 3 open or create, 4 overwrite, 5
    /// overwrite or create.
    pub fn disposition(&self) -> u8 {
        (self.create_options >> 24) as u8
    }
}

/// A file operation without further parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileOperation {
    /// The I/O request packet.
    pub irp: Address,
    /// The file object, which identifies the open of the file.
    pub file_object: Address,
    /// The file key, which identifies the file.
    pub file_key: Address,
    /// The requesting thread.
    pub thread_id: Tid,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedOperationV2<P> {
    irp: P,
    thread_id: P,
    file_object: P,
    file_key: P,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedOperationV3<P> {
    irp: P,
    file_object: P,
    file_key: P,
    thread_id: U32,
}

impl FileOperation {
    /// Reads the payload of Cleanup, Close or Flush.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    pub fn parse(payload: &[u8], version: u8, pointer: PointerSize) -> Result<FileOperation, Error> {
        FileOperation::read(&mut Reader::new("FileOperation", payload), version, pointer)
    }

    fn read(reader: &mut Reader<'_>, version: u8, pointer: PointerSize) -> Result<FileOperation, Error> {
        match (pointer, version) {
            (PointerSize::Four, ..3) => FileOperation::v2::<U32>(reader),
            (PointerSize::Four, _) => FileOperation::v3::<U32>(reader),
            (PointerSize::Eight, ..3) => FileOperation::v2::<U64>(reader),
            (PointerSize::Eight, _) => FileOperation::v3::<U64>(reader),
        }
    }

    fn v2<P: Word>(reader: &mut Reader<'_>) -> Result<FileOperation, Error> {
        let fixed = reader.fixed::<FixedOperationV2<P>>()?;
        Ok(FileOperation {
            irp: fixed.irp.address(),
            file_object: fixed.file_object.address(),
            file_key: fixed.file_key.address(),
            thread_id: tid_of_word(fixed.thread_id),
        })
    }

    fn v3<P: Word>(reader: &mut Reader<'_>) -> Result<FileOperation, Error> {
        let fixed = reader.fixed::<FixedOperationV3<P>>()?;
        Ok(FileOperation {
            irp: fixed.irp.address(),
            file_object: fixed.file_object.address(),
            file_key: fixed.file_key.address(),
            thread_id: tid(fixed.thread_id),
        })
    }
}

/// The end of an operation. It belongs to the most recent operation with the same I/O request
/// packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationEnd {
    /// The I/O request packet.
    pub irp: Address,
    /// The number of bytes transferred, or other information that depends on the operation.
    pub extra_info: u64,
    /// An NTSTATUS.
    pub nt_status: u32,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedEnd<P> {
    irp: P,
    extra_info: P,
    nt_status: U32,
}

impl OperationEnd {
    /// Reads the payload of OperationEnd.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    pub fn parse(payload: &[u8], _version: u8, pointer: PointerSize) -> Result<OperationEnd, Error> {
        match pointer {
            PointerSize::Four => OperationEnd::with::<U32>(payload),
            PointerSize::Eight => OperationEnd::with::<U64>(payload),
        }
    }

    fn with<P: Word>(payload: &[u8]) -> Result<OperationEnd, Error> {
        let fixed = Reader::new("OperationEnd", payload).fixed::<FixedEnd<P>>()?;
        Ok(OperationEnd {
            irp: fixed.irp.address(),
            extra_info: fixed.extra_info.value(),
            nt_status: fixed.nt_status.get(),
        })
    }
}

/// A section that is mapped into a process, unmapped, or mapped at the start or the end of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapFile {
    /// The address of the view.
    pub view_base: Address,
    /// The file key. Windows names the field file object.
    pub file_object: Address,
    /// The protection in bits 48 to 50 ([`MapFile::protection`]), the kind of section from bit 52
    /// on.
    pub misc_info: u64,
    /// The size of the view in bytes.
    pub view_size: u64,
    /// The offset in the section, in bytes. Present from version 3 on.
    pub byte_offset: Option<i64>,
    /// The process.
    pub process_id: Pid,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedView<P> {
    view_base: P,
    file_object: P,
    misc_info: U64,
    view_size: P,
}

impl MapFile {
    /// Reads the payload of MapFile, UnmapFile, MapFileDCStart or MapFileDCEnd.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    pub fn parse(payload: &[u8], version: u8, pointer: PointerSize) -> Result<MapFile, Error> {
        match pointer {
            PointerSize::Four => MapFile::with::<U32>(payload, version),
            PointerSize::Eight => MapFile::with::<U64>(payload, version),
        }
    }

    fn with<P: Word>(payload: &[u8], version: u8) -> Result<MapFile, Error> {
        let mut reader = Reader::new("MapFile", payload);
        let fixed = reader.fixed::<FixedView<P>>()?;
        let mut byte_offset = None;
        if version >= 3 {
            if size_of::<P>() == 4 && reader.rest().len() >= 16 {
                // It is unknown whether 32-bit systems align the offset that follows.
                reader.skip(4)?;
            }
            byte_offset = Some(reader.fixed::<I64>()?.get());
        }
        Ok(MapFile {
            view_base: fixed.view_base.address(),
            file_object: fixed.file_object.address(),
            misc_info: fixed.misc_info.get(),
            view_size: fixed.view_size.value(),
            byte_offset,
            process_id: pid(*reader.fixed()?),
        })
    }

    /// The protection as numbered by the memory manager: 1 read, 2 execute, 3 execute and read, 4
    /// read and write, 5 copy on write, 6 execute, read and write, 7 execute and copy on write.
    pub fn protection(&self) -> u8 {
        (self.misc_info >> 48) as u8 & 7
    }
}
