//! What mergers of recordings add: the identity of images, and how NT paths relate to drives.

use stackhound_etl::{Address, FileTime, Guid, Pid, PointerSize};
use zerocopy::byteorder::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::read::{Reader, Word, pid};
use super::text::{Ansi, Utf16};
use crate::error::Error;

/// Size and time stamp of an image, beside the image event of the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageId<'a> {
    /// Where it is.
    pub image_base: Address,
    /// How many bytes it takes there.
    pub image_size: u64,
    /// The process; zero for the kernel.
    pub process_id: Pid,
    /// From the image's header.
    pub time_date_stamp: u32,
    /// The name it was built with.
    pub original_file_name: Utf16<'a>,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedImageId<P> {
    image_base: P,
    image_size: P,
    process_id: U32,
    time_date_stamp: U32,
}

impl<'a> ImageId<'a> {
    /// Reads the payload of ImageId/Info.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    pub fn parse(payload: &'a [u8], _version: u8, pointer: PointerSize) -> Result<ImageId<'a>, Error> {
        match pointer {
            PointerSize::Four => ImageId::with::<U32>(payload),
            PointerSize::Eight => ImageId::with::<U64>(payload),
        }
    }

    fn with<P: Word>(payload: &'a [u8]) -> Result<ImageId<'a>, Error> {
        let mut reader = Reader::new("ImageId", payload);
        let fixed = reader.fixed::<FixedImageId<P>>()?;
        Ok(ImageId {
            image_base: fixed.image_base.address(),
            image_size: fixed.image_size.value(),
            process_id: pid(fixed.process_id),
            time_date_stamp: fixed.time_date_stamp.get(),
            original_file_name: reader.utf16().unwrap_or_default(),
        })
    }
}

/// The PDB that belongs to an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DbgIdRsds<'a> {
    /// Where the image is.
    pub image_base: Address,
    /// The process; zero for the kernel.
    pub process_id: Pid,
    /// With the age, names the PDB.
    pub guid: Guid,
    /// Counts the times that the PDB was written.
    pub age: u32,
    /// As the linker knew it.
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

/// The version resource of an image. Has no address: size and time stamp tell which image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileVersion<'a> {
    /// How many bytes the image takes in memory.
    pub image_size: u32,
    /// From the image's header.
    pub time_date_stamp: u32,
    /// The name it was built with.
    pub orig_file_name: Utf16<'a>,
    /// What it is.
    pub file_description: Utf16<'a>,
    /// Its version as text.
    pub file_version: Utf16<'a>,
    /// Its version as four numbers.
    pub bin_file_version: Utf16<'a>,
    /// A language id.
    pub ver_language: Utf16<'a>,
    /// What it belongs to.
    pub product_name: Utf16<'a>,
    /// Who made it.
    pub company_name: Utf16<'a>,
    /// Version of what it belongs to.
    pub product_version: Utf16<'a>,
    /// An id for compatibility data; often empty.
    pub file_id: Utf16<'a>,
    /// An id for compatibility data; often empty.
    pub program_id: Utf16<'a>,
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
        Ok(FileVersion {
            image_size: fixed.image_size.get(),
            time_date_stamp: fixed.time_date_stamp.get(),
            orig_file_name: text(),
            file_description: text(),
            file_version: text(),
            bin_file_version: text(),
            ver_language: text(),
            product_name: text(),
            company_name: text(),
            product_version: text(),
            file_id: text(),
            program_id: text(),
        })
    }
}

/// Which Windows was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuildInfo<'a> {
    /// When it was installed.
    pub install_date: FileTime,
    /// Build, branch and date.
    pub build_lab: Utf16<'a>,
    /// The edition.
    pub product_name: Utf16<'a>,
}

impl<'a> BuildInfo<'a> {
    /// Reads the payload of SysConfigEx/BuildInfo.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    pub fn parse(payload: &'a [u8], _version: u8, _pointer: PointerSize) -> Result<BuildInfo<'a>, Error> {
        let mut reader = Reader::new("BuildInfo", payload);
        let install_date = FileTime(reader.fixed::<I64>()?.get());
        let build_lab = reader.utf16().unwrap_or_default();
        Ok(BuildInfo { install_date, build_lab, product_name: reader.utf16().unwrap_or_default() })
    }
}

/// Where Windows is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SystemPaths<'a> {
    /// Such as `C:\Windows\system32`.
    pub system_directory: Utf16<'a>,
    /// Such as `C:\Windows\`.
    pub system_windows_directory: Utf16<'a>,
}

impl<'a> SystemPaths<'a> {
    /// Reads the payload of SysConfigEx/SystemPaths.
    ///
    /// # Errors
    /// None; the signature is that of all views.
    pub fn parse(payload: &'a [u8], _version: u8, _pointer: PointerSize) -> Result<SystemPaths<'a>, Error> {
        let mut reader = Reader::new("SystemPaths", payload);
        let system_directory = reader.utf16().unwrap_or_default();
        Ok(SystemPaths { system_directory, system_windows_directory: reader.utf16().unwrap_or_default() })
    }
}

/// The beginning of NT paths, and what people see in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeMapping<'a> {
    /// Such as `\Device\HarddiskVolume3\`, `\SystemRoot\` or `\??\`.
    pub nt_path: Utf16<'a>,
    /// Such as `C:\`; may be empty.
    pub dos_path: Utf16<'a>,
}

impl<'a> VolumeMapping<'a> {
    /// Reads the payload of SysConfigEx/VolumeMapping.
    ///
    /// # Errors
    /// None; the signature is that of all views.
    pub fn parse(payload: &'a [u8], _version: u8, _pointer: PointerSize) -> Result<VolumeMapping<'a>, Error> {
        let mut reader = Reader::new("VolumeMapping", payload);
        let nt_path = reader.utf16().unwrap_or_default();
        Ok(VolumeMapping { nt_path, dos_path: reader.utf16().unwrap_or_default() })
    }
}
