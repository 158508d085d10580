//! Images that are loaded, unloaded, or loaded at the start or the end of a trace: group 0x14 and
//! hook id 0x030A.

use stackhound_types::{Address, Pid, PointerSize};
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::read::{Reader, Word, pid};
use crate::error::Error;
use crate::text::Utf16;

/// An image in a process or in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image<'a> {
    /// The load address.
    pub image_base: Address,
    /// The size in memory, in bytes.
    pub image_size: u64,
    /// The process: 0, and in rundowns also 4, for images of the kernel. Present from version 1 on.
    pub process_id: Option<Pid>,
    /// Present from version 2 on.
    pub identity: Option<ImageIdentity>,
    /// An NT path such as `\Device\HarddiskVolume3\…` or `\SystemRoot\…`.
    pub file_name: Utf16<'a>,
}

/// Data from the headers of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageIdentity {
    /// The checksum of the file.
    pub image_checksum: u32,
    /// Seconds since 1970, or a hash in reproducible builds.
    pub time_date_stamp: u32,
    /// Present from version 3 on.
    pub signature: Option<ImageSignature>,
    /// The preferred load address.
    pub default_base: Address,
}

/// The signature of the file, as far as the system has checked it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageSignature {
    /// The signing level in the low four bits, see the map `SigningLevel`; 0x10 catalog-signed,
    /// 0x20 embedded signature.
    pub level: u8,
    /// The type of the signature, see the map `SignatureType`.
    pub kind: u8,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedV0<P> {
    image_base: P,
    image_size: U32,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedV1<P> {
    image_base: P,
    image_size: P,
    process_id: U32,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FixedV2<P> {
    image_checksum: U32,
    time_date_stamp: U32,
    /// Reserved in version 2.
    signature_level: u8,
    signature_type: u8,
    reserved0: U16,
    default_base: P,
    reserved: [U32; 4],
}

impl<'a> Image<'a> {
    /// Reads the payload of Load, Unload, DCStart or DCEnd.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    pub fn parse(payload: &'a [u8], version: u8, pointer: PointerSize) -> Result<Image<'a>, Error> {
        match pointer {
            PointerSize::Four => Image::with::<U32>(payload, version),
            PointerSize::Eight => Image::with::<U64>(payload, version),
        }
    }

    fn with<P: Word>(payload: &'a [u8], version: u8) -> Result<Image<'a>, Error> {
        let mut reader = Reader::new("Image", payload);
        let mut identity = None;
        let (image_base, image_size, process_id) = if version == 0 {
            let fixed = reader.fixed::<FixedV0<P>>()?;
            (fixed.image_base.address(), fixed.image_size.get().into(), None)
        } else {
            let fixed = reader.fixed::<FixedV1<P>>()?;
            (fixed.image_base.address(), fixed.image_size.value(), Some(pid(fixed.process_id)))
        };
        if version >= 2 {
            let fixed = reader.fixed::<FixedV2<P>>()?;
            identity = Some(ImageIdentity {
                image_checksum: fixed.image_checksum.get(),
                time_date_stamp: fixed.time_date_stamp.get(),
                signature: (version >= 3)
                    .then_some(ImageSignature { level: fixed.signature_level, kind: fixed.signature_type }),
                default_base: fixed.default_base.address(),
            });
        }
        let file_name = reader.utf16().unwrap_or_default();
        Ok(Image { image_base, image_size, process_id, identity, file_name })
    }
}

/// The load address of the kernel's own image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelBase {
    /// The address of its first byte.
    pub image_base: Address,
}

impl KernelBase {
    /// Reads the payload of KernelBase.
    ///
    /// # Errors
    /// [`Error::Class`] if the payload is too short.
    pub fn parse(payload: &[u8], _version: u8, pointer: PointerSize) -> Result<KernelBase, Error> {
        let mut reader = Reader::new("KernelBase", payload);
        let image_base = match pointer {
            PointerSize::Four => reader.fixed::<U32>()?.address(),
            PointerSize::Eight => reader.fixed::<U64>()?.address(),
        };
        Ok(KernelBase { image_base })
    }
}
