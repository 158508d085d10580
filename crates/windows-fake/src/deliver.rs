//! Converts a record to the content of the `EVENT_RECORD` that a consumer on Windows receives.
//!
//! The hook id of a kernel record becomes the GUID of its class and an opcode. Performance counters
//! that precede a payload become extended data items. Flags show the kind of the header. Sources:
//! Microsoft's pages EVENT_RECORD and EVENT_HEADER, and `evntcons.h`. Comments mark behavior that
//! these do not specify.

use stackhound_etl::record::{ExtendedType, HeaderKind, Record};
use stackhound_schema::kernel;
use stackhound_schema::kernel::class_guid;
use stackhound_types::{Guid, PointerSize};

/// Size of an EVENT_HEADER, in bytes.
pub const HEADER_SIZE: usize = 80;

/// Class of the events that report losses in real-time sessions.
pub const LOST_EVENT: Guid = class_guid::LOST_EVENT;

/// The opcode of [`LOST_EVENT`] for a lost buffer.
pub const LOST_BUFFER: u8 = 33;

/// Bits of `EVENT_HEADER.Flags`.
pub mod flags {
    /// The event has extended data items.
    pub const EXTENDED_INFO: u16 = 0x01;
    /// A WPP message.
    pub const TRACE_MESSAGE: u16 = 0x08;
    /// The header has no processor times.
    pub const NO_CPUTIME: u16 = 0x10;
    /// Pointers in the payload have four bytes.
    pub const HEADER_32: u16 = 0x20;
    /// Pointers in the payload have eight bytes.
    pub const HEADER_64: u16 = 0x40;
    /// A kernel event, or an event of a classic provider.
    pub const CLASSIC_HEADER: u16 = 0x100;
    /// The processor number has 16 bits.
    pub const PROCESSOR_INDEX: u16 = 0x200;
}

/// The data of an extended data item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ItemData<'a> {
    /// Bytes of the record.
    Borrowed(&'a [u8]),
    /// Bytes that were built from other data of the record.
    Made(Vec<u8>),
}

impl ItemData<'_> {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            ItemData::Borrowed(bytes) => bytes,
            ItemData::Made(bytes) => bytes,
        }
    }
}

/// The content of an EVENT_RECORD.
#[derive(Clone, Debug)]
pub struct Delivered<'a> {
    /// The EVENT_HEADER in its layout in memory.
    pub header: [u8; HEADER_SIZE],
    /// Extended data items with their types.
    pub items: Vec<(u16, ItemData<'a>)>,
    /// The payload (`UserData`).
    pub payload: &'a [u8],
}

/// Whether a record is the logfile header. A consumer receives it as TRACE_LOGFILE_HEADER, not as
/// an event.
pub fn is_logfile_header(hook_id: Option<u16>) -> bool {
    hook_id == Some(0)
}

/// Whether [`deliver`] returns an event for a record of this kind and hook id.
pub fn is_delivered(kind: HeaderKind, hook_id: Option<u16>) -> bool {
    match kind {
        HeaderKind::Error => false,
        _ => hook_id.is_none_or(|hook_id| {
            !is_logfile_header(Some(hook_id)) && kernel::class_of_hook_id(hook_id).is_some()
        }),
    }
}

/// The event that a consumer with raw time stamps receives for a record. `None` for records that
/// are not delivered: the logfile header, errors, and hook ids of groups whose class is unknown.
///
/// `buffer_flags` are the [`flags`] that depend on the buffer.
pub fn deliver<'a>(record: &Record<'a>, buffer_flags: u16) -> Option<Delivered<'a>> {
    let kind = record.kind();
    if !is_delivered(kind, record.hook_id()) {
        return None;
    }
    let mut header = [0; HEADER_SIZE];
    let mut items = Vec::new();
    let bytes = record.bytes();
    let pointer = match record.pointer_size() {
        PointerSize::Four => flags::HEADER_32,
        PointerSize::Eight => flags::HEADER_64,
    };
    let mut set = buffer_flags | pointer;
    put(&mut header, 0, &(bytes.len() as u16).to_le_bytes());
    put(&mut header, 0x10, &record.time().0.to_le_bytes());
    if kind.has_descriptor() {
        // The header has the same layout in the file and in memory.
        set |= record.event_flags().unwrap_or_default().0;
        put(&mut header, 6, &bytes[6..0x10]);
        put(&mut header, 0x18, &bytes[0x18..HEADER_SIZE]);
        items.extend(record.extended_items().map(|item| (item.item_type.0, ItemData::Borrowed(item.data))));
    } else {
        let ids = match kind {
            HeaderKind::Message => {
                [record.tid().map_or(u32::MAX, |tid| tid.0), record.pid().map_or(u32::MAX, |pid| pid.0)]
            }
            // These records have no ids; Windows delivers `u32::MAX`.
            HeaderKind::PerfInfo32 | HeaderKind::PerfInfo64 => [u32::MAX; 2],
            _ => [8, 12].map(|at| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))),
        };
        put(&mut header, 8, &ids[0].to_le_bytes());
        put(&mut header, 12, &ids[1].to_le_bytes());
        match record.processor_times() {
            Some((kernel, user)) => {
                put(&mut header, 0x38, &kernel.to_le_bytes());
                put(&mut header, 0x3c, &user.to_le_bytes());
            }
            None => set |= flags::NO_CPUTIME,
        }
        // EVENT_DESCRIPTOR at 0x28: id, version, channel, level, opcode, task, keyword.
        header[0x2a] = record.version();
        header[0x2d] = record.opcode();
        if kind == HeaderKind::Message {
            set |= flags::TRACE_MESSAGE;
            put(&mut header, 0x28, &record.message_number().unwrap_or_default().to_le_bytes());
        } else {
            set |= flags::CLASSIC_HEADER;
        }
        if kind.is_classic() {
            header[0x2c] = bytes[5];
        }
        let class = match record.hook_id() {
            Some(hook_id) => kernel::class_of_hook_id(hook_id)?,
            None => record.guid().unwrap_or(Guid([0; 16])),
        };
        put(&mut header, 0x18, &class.0);
        if let Some(index) = record.pebs_index() {
            items.push((ExtendedType::PEBS_INDEX.0, ItemData::Made(index.to_le_bytes().to_vec())));
        }
        let counters: Vec<u8> = record.counters().flat_map(u64::to_le_bytes).collect();
        if !counters.is_empty() {
            items.push((ExtendedType::PMC_COUNTERS.0, ItemData::Made(counters)));
        }
        if record.instance().is_some() {
            // Ids and the parent's GUID, as in EVENT_EXTENDED_ITEM_INSTANCE.
            items.push((ExtendedType::INSTANCE_INFO.0, ItemData::Borrowed(&bytes[0x30..0x48])));
        }
    }
    set &= !flags::EXTENDED_INFO;
    if !items.is_empty() {
        set |= flags::EXTENDED_INFO;
    }
    put(&mut header, 4, &set.to_le_bytes());
    Some(Delivered { header, items, payload: record.payload() })
}

/// The header of the event that reports a lost buffer.
pub fn lost_buffer(time: i64, buffer_flags: u16) -> [u8; HEADER_SIZE] {
    let mut header = [0; HEADER_SIZE];
    put(&mut header, 0, &(HEADER_SIZE as u16).to_le_bytes());
    let set = buffer_flags | flags::HEADER_64 | flags::CLASSIC_HEADER | flags::NO_CPUTIME;
    put(&mut header, 4, &set.to_le_bytes());
    put(&mut header, 8, &[0xff; 8]);
    put(&mut header, 0x10, &time.to_le_bytes());
    put(&mut header, 0x18, &LOST_EVENT.0);
    header[0x2d] = LOST_BUFFER;
    header
}

fn put(header: &mut [u8; HEADER_SIZE], at: usize, bytes: &[u8]) {
    header[at..at + bytes.len()].copy_from_slice(bytes);
}
