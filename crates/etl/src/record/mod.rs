//! Records: one event as stored in a buffer, with its header and payload.
//!
//! A [`Record`] borrows its bytes and reads header fields on access; nothing is copied. The header
//! layouts are described in `docs/format/records.md`.

mod extended;
mod message;
mod walk;

pub use extended::{ExtendedItem, ExtendedItems, ExtendedType};
pub use message::MessageOptions;
pub use walk::{RecordError, Records};
pub(crate) use walk::{is_plausible_start, starts_with_event, time_of_first, trusted_end};

use stackhound_types::{Guid, Pid, PointerSize, RawTime, Tid};
use strum::{IntoStaticStr, VariantArray};

/// The kinds of record headers. `32` and `64` are the pointer size of the payload.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, IntoStaticStr, VariantArray)]
#[repr(u8)]
#[strum(serialize_all = "UPPERCASE")]
pub enum HeaderKind {
    /// Kernel event with thread, process and processor times.
    System32,
    /// Kernel event with thread, process and processor times.
    System64,
    /// Kernel event with thread and process.
    Compact32,
    /// Kernel event with thread and process.
    Compact64,
    /// Kernel event with a timestamp only.
    PerfInfo32,
    /// Kernel event with a timestamp only.
    PerfInfo64,
    /// Classic event with a class GUID.
    Full32,
    /// Classic event with a class GUID.
    Full64,
    /// Classic event with instance ids.
    Instance32,
    /// Classic event with instance ids.
    Instance64,
    /// Event of a manifest, TraceLogging or EventSource provider.
    Event32,
    /// Event of a manifest, TraceLogging or EventSource provider.
    Event64,
    /// WPP message.
    Message,
    /// An error while logging. Its layout is not published.
    Error,
}

impl HeaderKind {
    /// All kinds, in the order of their discriminants.
    pub const ALL: &[HeaderKind] = HeaderKind::VARIANTS;

    /// The spelling used in reports.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Size of the fixed header in bytes.
    pub const fn header_size(self) -> usize {
        match self {
            HeaderKind::System32 | HeaderKind::System64 => 0x20,
            HeaderKind::Compact32 | HeaderKind::Compact64 => 0x18,
            HeaderKind::PerfInfo32 | HeaderKind::PerfInfo64 => 0x10,
            HeaderKind::Full32 | HeaderKind::Full64 => 0x30,
            HeaderKind::Instance32 | HeaderKind::Instance64 => 0x48,
            HeaderKind::Event32 | HeaderKind::Event64 => 0x50,
            HeaderKind::Message | HeaderKind::Error => 8,
        }
    }

    /// Whether the record has a hook id (group and type) instead of a GUID.
    pub const fn has_hook_id(self) -> bool {
        (self as u8) <= HeaderKind::PerfInfo64 as u8
    }

    /// Whether the record has a classic header with a class GUID.
    pub const fn is_classic(self) -> bool {
        matches!(
            self,
            HeaderKind::Full32 | HeaderKind::Full64 | HeaderKind::Instance32 | HeaderKind::Instance64
        )
    }

    /// Whether the record has an EVENT_HEADER with an event descriptor.
    pub const fn has_descriptor(self) -> bool {
        matches!(self, HeaderKind::Event32 | HeaderKind::Event64)
    }

    /// Offset of the raw timestamp; `None` if it is not fixed.
    pub const fn time_offset(self) -> Option<usize> {
        match self {
            HeaderKind::PerfInfo32 | HeaderKind::PerfInfo64 => Some(8),
            HeaderKind::Message | HeaderKind::Error => None,
            _ => Some(0x10),
        }
    }
}

/// The event descriptor: identifies an event of a manifest, TraceLogging or EventSource provider.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Descriptor {
    /// Event id.
    pub id: u16,
    /// Version of the event's layout.
    pub version: u8,
    /// Channel.
    pub channel: u8,
    /// Level; 1 is critical, 5 verbose.
    pub level: u8,
    /// Opcode.
    pub opcode: u8,
    /// Task.
    pub task: u16,
    /// Keyword bits.
    pub keyword: u64,
}

/// One record of a buffer. Borrows its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Exactly the bytes of the record; at least the fixed header of `kind`.
    bytes: &'a [u8],
    time: RawTime,
    kind: HeaderKind,
}

impl<'a> Record<'a> {
    /// A record that a walk has already checked: kind and size are consistent.
    #[inline]
    pub(crate) fn found(bytes: &'a [u8], time: RawTime, kind: HeaderKind) -> Record<'a> {
        Record { bytes, time, kind }
    }

    /// The kind of header.
    #[inline]
    pub fn kind(&self) -> HeaderKind {
        self.kind
    }

    /// The raw timestamp. For kinds without one, that of the previous record.
    #[inline]
    pub fn time(&self) -> RawTime {
        self.time
    }

    /// All bytes of the record, including the header.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Pointer size of the payload. WPP messages that do not state it count as 64-bit.
    pub fn pointer_size(&self) -> PointerSize {
        match self.kind {
            HeaderKind::System32
            | HeaderKind::Compact32
            | HeaderKind::PerfInfo32
            | HeaderKind::Full32
            | HeaderKind::Instance32
            | HeaderKind::Event32 => PointerSize::Four,
            HeaderKind::Message if self.message_options().has(MessageOptions::POINTER32) => PointerSize::Four,
            _ => PointerSize::Eight,
        }
    }

    /// The hook id (group << 8 | type) of a kernel event.
    #[inline]
    pub fn hook_id(&self) -> Option<u16> {
        self.kind.has_hook_id().then(|| self.u16_at(6))
    }

    /// Version of the payload's layout.
    pub fn version(&self) -> u8 {
        match self.kind {
            HeaderKind::Full32 | HeaderKind::Full64 | HeaderKind::Instance32 | HeaderKind::Instance64 => {
                self.bytes[6]
            }
            HeaderKind::Event32 | HeaderKind::Event64 => self.bytes[0x2a],
            HeaderKind::Message | HeaderKind::Error => 0,
            _ => self.bytes[0],
        }
    }

    /// The opcode: the type of a kernel event, the class type of a classic event, otherwise that of
    /// the descriptor.
    pub fn opcode(&self) -> u8 {
        match self.kind {
            HeaderKind::Full32 | HeaderKind::Full64 | HeaderKind::Instance32 | HeaderKind::Instance64 => {
                self.bytes[4]
            }
            HeaderKind::Event32 | HeaderKind::Event64 => self.bytes[0x2d],
            HeaderKind::Message | HeaderKind::Error => 0,
            _ => self.bytes[6],
        }
    }

    /// The level: that of the descriptor, or the class level of a classic event. Kernel events and
    /// messages have none.
    pub fn level(&self) -> Option<u8> {
        match self.kind {
            kind if kind.is_classic() => Some(self.bytes[5]),
            kind if kind.has_descriptor() => Some(self.bytes[0x2c]),
            _ => None,
        }
    }

    /// Class GUID or provider GUID of records that have one; the message GUID of WPP messages.
    pub fn guid(&self) -> Option<Guid> {
        match self.kind {
            HeaderKind::Message => self.message_guid(),
            kind if kind.is_classic() || kind.has_descriptor() => Some(self.guid_at(0x18)),
            _ => None,
        }
    }

    /// The event descriptor of manifest, TraceLogging and EventSource events.
    pub fn descriptor(&self) -> Option<Descriptor> {
        self.kind.has_descriptor().then(|| Descriptor {
            id: self.u16_at(0x28),
            version: self.bytes[0x2a],
            channel: self.bytes[0x2b],
            level: self.bytes[0x2c],
            opcode: self.bytes[0x2d],
            task: self.u16_at(0x2e),
            keyword: self.u64_at(0x30),
        })
    }

    /// Flags and properties of an EVENT_HEADER.
    pub fn event_flags(&self) -> Option<(u16, u16)> {
        self.kind.has_descriptor().then(|| (self.u16_at(4), self.u16_at(6)))
    }

    /// The activity id of an EVENT_HEADER.
    pub fn activity(&self) -> Option<Guid> {
        self.kind.has_descriptor().then(|| self.guid_at(0x40))
    }

    /// Thread id in the header, if the header has one and it is known.
    #[inline]
    pub fn tid(&self) -> Option<Tid> {
        self.ids().and_then(|(tid, _)| Tid::known(tid))
    }

    /// Process id in the header, if the header has one and it is known.
    #[inline]
    pub fn pid(&self) -> Option<Pid> {
        self.ids().and_then(|(_, pid)| Pid::known(pid))
    }

    /// Thread id and process id as stored.
    #[inline]
    fn ids(&self) -> Option<(u32, u32)> {
        match self.kind {
            HeaderKind::PerfInfo32 | HeaderKind::PerfInfo64 | HeaderKind::Error => None,
            HeaderKind::Message => self.message_ids(),
            _ => Some((self.u32_at(8), self.u32_at(12))),
        }
    }

    /// Kernel time and user time of the thread, in units of the session's timer resolution.
    pub fn processor_times(&self) -> Option<(u32, u32)> {
        match self.kind {
            HeaderKind::System32 | HeaderKind::System64 => Some((self.u32_at(0x18), self.u32_at(0x1c))),
            kind if kind.is_classic() => Some((self.u32_at(0x28), self.u32_at(0x2c))),
            HeaderKind::Event32 | HeaderKind::Event64 => Some((self.u32_at(0x38), self.u32_at(0x3c))),
            _ => None,
        }
    }

    /// Instance id, parent instance id and parent GUID of an INSTANCE record.
    pub fn instance(&self) -> Option<(u32, u32, Guid)> {
        matches!(self.kind, HeaderKind::Instance32 | HeaderKind::Instance64)
            .then(|| (self.u32_at(0x30), self.u32_at(0x34), self.guid_at(0x38)))
    }

    /// Last-branch-record index before a PERFINFO payload.
    pub fn pebs_index(&self) -> Option<u64> {
        (self.is_perf_info() && self.bytes[1] & 0x80 != 0).then(|| self.bytes.get(0x10..0x18).map(u64_of))?
    }

    /// Performance counters before a PERFINFO payload.
    pub fn counters(&self) -> impl Iterator<Item = u64> + use<'a> {
        let (from, count) = if self.is_perf_info() {
            (0x10 + 8 * usize::from(self.bytes[1] >> 7), usize::from(self.bytes[1] & 7))
        } else {
            (0, 0)
        };
        self.bytes.get(from..from + 8 * count).unwrap_or_default().chunks_exact(8).map(u64_of)
    }

    /// The extended data items between an EVENT_HEADER and its payload.
    pub fn extended_items(&self) -> ExtendedItems<'a> {
        match self.event_flags() {
            Some((flags, _)) if flags & 1 != 0 => ExtendedItems::new(&self.bytes[0x50..]),
            _ => ExtendedItems::new(&[]),
        }
    }

    /// The payload. Empty if the parts before it are longer than the record.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        let start = match self.kind {
            HeaderKind::PerfInfo32 | HeaderKind::PerfInfo64 => {
                let extras = self.bytes[1];
                0x10 + 8 * (usize::from(extras & 7) + usize::from(extras >> 7))
            }
            HeaderKind::Event32 | HeaderKind::Event64 if self.bytes[4] & 1 != 0 => {
                0x50 + self.extended_items().total_size()
            }
            HeaderKind::Message => self.message_payload_offset(),
            kind => kind.header_size(),
        };
        self.bytes.get(start..).unwrap_or_default()
    }

    #[inline]
    fn is_perf_info(&self) -> bool {
        matches!(self.kind, HeaderKind::PerfInfo32 | HeaderKind::PerfInfo64)
    }

    // The walk guarantees that the fixed header is complete, so these offsets are in bounds.
    #[inline]
    fn u16_at(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    #[inline]
    fn u32_at(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.bytes[at..at + 4].try_into().expect("four bytes"))
    }

    fn u64_at(&self, at: usize) -> u64 {
        u64_of(&self.bytes[at..at + 8])
    }

    fn guid_at(&self, at: usize) -> Guid {
        Guid(self.bytes[at..at + 16].try_into().expect("sixteen bytes"))
    }
}

/// Reads a slice of exactly eight bytes.
fn u64_of(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}
