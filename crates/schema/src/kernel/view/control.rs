//! Classes that are added to merged traces: the identity of images, and the relation of NT paths to
//! drives.

use stackhound_types::{Address, Guid, Pid, PointerSize};
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::read::{Reader, Word, pid};
use crate::error::Error;
use crate::text::{Ansi, Utf16};

/// The PDB of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DbgIdRsds<'a> {
    /// The load address of the image.
    pub image_base: Address,
    /// The process; zero for the kernel.
    pub process_id: Pid,
    /// The GUID, which identifies the PDB together with the age.
    pub guid: Guid,
    /// The age: the number of times that the PDB was written.
    pub age: u32,
    /// The path or file name that the linker wrote.
    pub pdb_file_name: Ansi<'a>,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedRsds<P> {
    image_base: P,
    process_id: U32,
    guid: Guid,
    age: U32,
}

impl<'a> DbgIdRsds<'a> {
    /// Reads the payload of ImageId/DbgIdRsds or ImageId/DbgIdIlRsds.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    pub fn parse(payload: &'a [u8], _version: u8, pointer: PointerSize) -> Result<DbgIdRsds<'a>, Error> {
        match pointer {
            PointerSize::Four => DbgIdRsds::with::<U32>(payload),
            PointerSize::Eight => DbgIdRsds::with::<U64>(payload),
        }
    }

    fn with<P: Word>(payload: &'a [u8]) -> Result<DbgIdRsds<'a>, Error> {
        let mut reader = Reader::new("DbgIdRsds", payload);
        let fixed = reader.fixed::<FixedRsds<P>>()?;
        Ok(DbgIdRsds {
            image_base: fixed.image_base.address(),
            process_id: pid(fixed.process_id),
            guid: fixed.guid,
            age: fixed.age.get(),
            pdb_file_name: reader.ansi().unwrap_or_default(),
        })
    }
}

/// The version resource of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileVersion<'a> {
    /// The size in memory, from the header of the image.
    pub image_size: u32,
    /// The time stamp in the header of the image.
    pub time_date_stamp: u32,
    /// The file name that the author intended.
    pub original_file_name: Utf16<'a>,
    /// The description.
    pub description: Utf16<'a>,
    /// The version of the file.
    pub file_version: Utf16<'a>,
    /// The product.
    pub product: Utf16<'a>,
    /// The company.
    pub company: Utf16<'a>,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedVersion {
    image_size: U32,
    time_date_stamp: U32,
}

impl<'a> FileVersion<'a> {
    /// Reads the payload of ImageId/FileVersion.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    pub fn parse(payload: &'a [u8], _version: u8, _pointer: PointerSize) -> Result<FileVersion<'a>, Error> {
        let mut reader = Reader::new("FileVersion", payload);
        let fixed = reader.fixed::<FixedVersion>()?;
        let mut text = || reader.utf16().unwrap_or_default();
        let [original_file_name, description, file_version] = [text(), text(), text()];
        let [_binary_version, _language, product, company] = [text(), text(), text(), text()];
        Ok(FileVersion {
            image_size: fixed.image_size.get(),
            time_date_stamp: fixed.time_date_stamp.get(),
            original_file_name,
            description,
            file_version,
            product,
            company,
        })
    }
}

/// The directories of Windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SystemPaths<'a> {
    /// For example `C:\Windows\system32`.
    pub system_directory: Utf16<'a>,
    /// For example `C:\Windows\`.
    pub system_windows_directory: Utf16<'a>,
}

impl<'a> SystemPaths<'a> {
    /// Reads the payload of SysConfigEx/SystemPaths.
    ///
    /// # Errors
    /// Never fails. The signature is the same for all views.
    pub fn parse(payload: &'a [u8], _version: u8, _pointer: PointerSize) -> Result<SystemPaths<'a>, Error> {
        let mut reader = Reader::new("SystemPaths", payload);
        let system_directory = reader.utf16().unwrap_or_default();
        Ok(SystemPaths { system_directory, system_windows_directory: reader.utf16().unwrap_or_default() })
    }
}

/// The start of NT paths, and its replacement in DOS paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeMapping<'a> {
    /// For example `\Device\HarddiskVolume3\`, `\SystemRoot\` or `\??\`.
    pub nt_path: Utf16<'a>,
    /// For example `C:\`; may be empty.
    pub dos_path: Utf16<'a>,
}

impl<'a> VolumeMapping<'a> {
    /// Reads the payload of SysConfigEx/VolumeMapping.
    ///
    /// # Errors
    /// Never fails. The signature is the same for all views.
    pub fn parse(payload: &'a [u8], _version: u8, _pointer: PointerSize) -> Result<VolumeMapping<'a>, Error> {
        let mut reader = Reader::new("VolumeMapping", payload);
        let nt_path = reader.utf16().unwrap_or_default();
        Ok(VolumeMapping { nt_path, dos_path: reader.utf16().unwrap_or_default() })
    }
}
