//! Record headers as stored in files, for writing. See `docs/format/records.md`.

use stackhound_types::PointerSize;
use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{Immutable, IntoBytes, Unaligned};

use crate::record::HeaderKind;

/// The top byte of the first word of every record with a fixed header.
pub(super) const FIXED_HEADER: u8 = 0xc0;
/// The top byte of the first word of WPP messages.
pub(super) const WPP_MESSAGE: u8 = 0x90;

/// Header type bytes for payloads with 32-bit and with 64-bit pointers.
#[derive(Clone, Copy)]
pub(super) struct HeaderTypes(u8, u8);

pub(super) const SYSTEM: HeaderTypes = HeaderTypes(1, 2);
pub(super) const COMPACT: HeaderTypes = HeaderTypes(3, 4);
pub(super) const FULL: HeaderTypes = HeaderTypes(10, 20);
pub(super) const INSTANCE: HeaderTypes = HeaderTypes(11, 21);
pub(super) const ERROR: HeaderTypes = HeaderTypes(13, 13);
pub(super) const PERF_INFO: HeaderTypes = HeaderTypes(16, 17);
pub(super) const EVENT: HeaderTypes = HeaderTypes(18, 19);

impl HeaderTypes {
    pub(super) fn of(self, pointer_size: PointerSize) -> u8 {
        match pointer_size {
            PointerSize::Four => self.0,
            PointerSize::Eight => self.1,
        }
    }
}

/// The common start of SYSTEM, COMPACT and PERFINFO headers.
#[derive(IntoBytes, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct Packet {
    pub version: u8,
    pub extras: u8,
    pub header_type: u8,
    pub flags: u8,
    pub size: U16,
    pub hook_id: U16,
}

#[derive(IntoBytes, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct CompactHeader {
    pub packet: Packet,
    pub tid: U32,
    pub pid: U32,
    pub time: I64,
}

#[derive(IntoBytes, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct SystemHeader {
    pub compact: CompactHeader,
    pub kernel_time: U32,
    pub user_time: U32,
}

#[derive(IntoBytes, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct PerfInfoHeader {
    pub packet: Packet,
    pub time: I64,
}

#[derive(IntoBytes, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct FullHeader {
    pub size: U16,
    pub header_type: u8,
    pub flags: u8,
    pub opcode: u8,
    pub level: u8,
    pub version: U16,
    pub tid: U32,
    pub pid: U32,
    pub time: I64,
    pub guid: [u8; 16],
    pub kernel_time: U32,
    pub user_time: U32,
}

#[derive(IntoBytes, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct InstanceHeader {
    pub full: FullHeader,
    pub instance: Instance,
}

/// The fields that an INSTANCE header has in addition to those of a FULL header. Also the data of
/// the extended item.
#[derive(IntoBytes, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct Instance {
    pub id: U32,
    pub parent_id: U32,
    pub parent_guid: [u8; 16],
}

#[derive(IntoBytes, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct EventHeader {
    pub size: U16,
    pub header_type: u8,
    pub marker_flags: u8,
    pub flags: U16,
    pub property: U16,
    pub tid: U32,
    pub pid: U32,
    pub time: I64,
    pub provider: [u8; 16],
    pub id: U16,
    pub version: u8,
    pub channel: u8,
    pub level: u8,
    pub opcode: u8,
    pub task: U16,
    pub keyword: U64,
    pub kernel_time: U32,
    pub user_time: U32,
    pub activity: [u8; 16],
}

#[derive(IntoBytes, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct MessageHeader {
    pub size: U16,
    pub reserved: u8,
    pub flags: u8,
    pub number: U16,
    pub options: U16,
}

#[derive(IntoBytes, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct ItemHeader {
    pub stride: U16,
    pub item_type: U16,
    pub linkage: U16,
    pub data_size: U16,
}

const _: () = {
    assert!(size_of::<CompactHeader>() == HeaderKind::Compact64.header_size());
    assert!(size_of::<SystemHeader>() == HeaderKind::System64.header_size());
    assert!(size_of::<PerfInfoHeader>() == HeaderKind::PerfInfo64.header_size());
    assert!(size_of::<FullHeader>() == HeaderKind::Full64.header_size());
    assert!(size_of::<InstanceHeader>() == HeaderKind::Instance64.header_size());
    assert!(size_of::<EventHeader>() == HeaderKind::Event64.header_size());
    assert!(size_of::<MessageHeader>() == HeaderKind::Message.header_size());
};

/// Fills reserved bytes from front to back.
pub(super) struct Cursor<'a>(&'a mut [u8]);

impl<'a> Cursor<'a> {
    /// `bytes` must be exactly as long as all data that will be put.
    pub(super) fn new(bytes: &'a mut [u8]) -> Cursor<'a> {
        Cursor(bytes)
    }

    #[inline]
    pub(super) fn put(&mut self, bytes: &[u8]) {
        let (target, rest) = std::mem::take(&mut self.0).split_at_mut(bytes.len());
        target.copy_from_slice(bytes);
        self.0 = rest;
    }

    pub(super) fn put_zeros(&mut self, count: usize) {
        let (target, rest) = std::mem::take(&mut self.0).split_at_mut(count);
        target.fill(0);
        self.0 = rest;
    }

    pub(super) fn put_u64s(&mut self, values: &[u64]) {
        for value in values {
            self.put(&value.to_le_bytes());
        }
    }

    /// Puts an address or a key in the size of a pointer.
    #[inline]
    pub(super) fn put_pointer(&mut self, value: u64, size: PointerSize) {
        match size {
            PointerSize::Four => {
                debug_assert!(value <= u32::MAX.into(), "{value:#x} is not a 32-bit pointer");
                self.put(&(value as u32).to_le_bytes());
            }
            PointerSize::Eight => self.put(&value.to_le_bytes()),
        }
    }

    /// Checks that all reserved bytes were filled.
    pub(super) fn finish(&self) {
        debug_assert!(self.0.is_empty(), "{} reserved bytes were not filled", self.0.len());
    }
}
