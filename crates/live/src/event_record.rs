//! Conversion of an `EVENT_RECORD` to the record that a trace file contains.
//!
//! Windows converts every kind of record to the same form before it delivers it to a consumer: hook
//! ids of kernel events become class GUIDs and opcodes, and instance ids of classic headers become
//! an extended data item. All of this can be reversed, because the flags identify the original
//! header. `docs/live.md` lists the assumptions about the flags.

use stackhound_etl::BlockBuilder;
use stackhound_etl::record::{Descriptor, ExtendedType, MessageOptions};
use stackhound_etl::write::stack::{self, Trigger};
use stackhound_etl::write::{
    EventClass, HeaderSpec, InstanceIds, Issuer, ItemSpec, MessageSpec, Payload, RecordSpec, WriteError,
};
use stackhound_schema::kernel;
use stackhound_schema::kernel::class_guid;
use stackhound_types::{Address, Guid, Pid, PointerSize, RawTime, Tid};

/// An event as Windows delivers it to a consumer: the content of an `EVENT_RECORD` without
/// pointers.
#[derive(Clone, Copy, Debug)]
pub struct EventRecord<'a> {
    /// The bytes of the `EVENT_HEADER` (evntcons.h). Its time is raw.
    pub header: &'a [u8; 80],
    /// The index of the processor.
    pub processor: u16,
    /// The extended data items.
    pub items: &'a [ExtendedDataItem<'a>],
    /// The payload (`UserData`).
    pub payload: &'a [u8],
}

/// The type (`ExtType`) and the data of an extended data item.
pub type ExtendedDataItem<'a> = (u16, &'a [u8]);

/// Flags of an `EVENT_HEADER` (evntcons.h).
pub(crate) mod flag {
    pub const TRACE_MESSAGE: u16 = 0x0008;
    pub const NO_CPU_TIME: u16 = 0x0010;
    pub const POINTER32: u16 = 0x0020;
    pub const CLASSIC: u16 = 0x0100;
}

/// The number of extended data items that are converted without an allocation. Windows has 18
/// types.
const ITEMS: usize = 18;

/// The class of the events by which a session reports lost events or buffers.
pub const LOST_EVENTS: Guid = class_guid::LOST_EVENT;

impl<'a> EventRecord<'a> {
    fn u16_at(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.header[at], self.header[at + 1]])
    }

    fn u32_at(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.header[at..at + 4].try_into().expect("four bytes"))
    }

    /// The time at which the event was logged.
    pub fn time(&self) -> RawTime {
        RawTime(i64::from_le_bytes(self.header[0x10..0x18].try_into().expect("eight bytes")))
    }

    fn guid(&self) -> Guid {
        Guid(self.header[0x18..0x28].try_into().expect("sixteen bytes"))
    }

    fn opcode(&self) -> u8 {
        self.header[0x2d]
    }

    fn version(&self) -> u8 {
        self.header[0x2a]
    }

    /// The thread and its processor times, as stated by the header.
    fn issuer(&self) -> Issuer {
        Issuer {
            tid: Tid::known(self.u32_at(8)),
            pid: Pid::known(self.u32_at(12)),
            kernel_time: self.u32_at(0x38),
            user_time: self.u32_at(0x3c),
        }
    }

    fn item(&self, wanted: ExtendedType) -> Option<&'a [u8]> {
        self.items.iter().find(|(item_type, _)| *item_type == wanted.0).map(|(_, data)| *data)
    }

    /// Whether the event reports that the session lost events or buffers.
    #[inline]
    pub fn reports_loss(&self) -> bool {
        // A single comparison rejects nearly all other events.
        self.header[0x18..0x20] == LOST_EVENTS.0[..8] && self.guid() == LOST_EVENTS
    }

    /// Writes the event to the end of a block.
    ///
    /// # Errors
    /// The event is larger than a record can be.
    #[inline]
    pub fn write(&self, block: &mut BlockBuilder) -> Result<(), WriteError> {
        if self.u16_at(4) & (flag::CLASSIC | flag::TRACE_MESSAGE) != 0 {
            return self.write_classic(block);
        }
        if self.items.is_empty() {
            return block.push_event(self.header, &[], self.payload);
        }
        let mut items = [ItemSpec::EventKey(0); ITEMS];
        let count = self.items.len().min(ITEMS);
        for (spec, &(item_type, data)) in items.iter_mut().zip(self.items) {
            *spec = ItemSpec::Other { item_type: ExtendedType(item_type), data };
        }
        block.push_event(self.header, &items[..count], self.payload)
    }

    fn write_classic(&self, block: &mut BlockBuilder) -> Result<(), WriteError> {
        let flags = self.u16_at(4);
        let pointer_size = if flags & flag::POINTER32 != 0 { PointerSize::Four } else { PointerSize::Eight };
        let push = |block: &mut BlockBuilder, header| {
            let payload = Payload::Bytes(self.payload);
            block.push(&RecordSpec { time: self.time(), pointer_size, header, payload })
        };
        if flags & flag::TRACE_MESSAGE != 0 {
            return push(block, HeaderSpec::Message(self.message(pointer_size)));
        }
        let (class, opcode) = (self.guid(), self.opcode());
        // Kernel events of these types have no processor times.
        let is_classic = flags & flag::NO_CPU_TIME == 0 && kernel::differs_if_classic(class, opcode);
        let Some(hook_id) = kernel::hook_id_of(class, opcode).filter(|_| !is_classic) else {
            return push(block, self.class());
        };
        let (version, issuer) = (self.version(), self.issuer());
        let mut counters = [0; 7];
        let header = if flags & flag::NO_CPU_TIME == 0 {
            HeaderSpec::System { hook_id, version, issuer }
        } else if issuer.tid.is_some() || issuer.pid.is_some() {
            HeaderSpec::Compact { hook_id, version, issuer }
        } else {
            let values = self.item(ExtendedType::PMC_COUNTERS).unwrap_or_default().chunks_exact(8);
            let count = values.len().min(counters.len());
            for (counter, value) in counters.iter_mut().zip(values) {
                *counter = u64::from_le_bytes(value.try_into().expect("eight bytes"));
            }
            let pebs_index = self.item(ExtendedType::PEBS_INDEX).and_then(|data| data.first_chunk());
            let pebs_index = pebs_index.map(|bytes| u64::from_le_bytes(*bytes));
            HeaderSpec::PerfInfo { hook_id, version, pebs_index, counters: &counters[..count] }
        };
        push(block, header)?;
        self.write_stack(pointer_size, &issuer, block)
    }

    /// Writes the stack of a kernel event that is delivered with the event. A trace file contains
    /// it as a separate record.
    fn write_stack(
        &self,
        pointer_size: PointerSize,
        issuer: &Issuer,
        block: &mut BlockBuilder,
    ) -> Result<(), WriteError> {
        let stack64 = self.item(ExtendedType::STACK_TRACE64);
        let stack32 = self.item(ExtendedType::STACK_TRACE32);
        let (Some(pid), Some(tid)) = (issuer.pid, issuer.tid) else { return Ok(()) };
        let addresses = |data: &[u8], size: usize| -> Vec<Address> {
            let address = |bytes: &[u8]| bytes.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte));
            data.get(8..)
                .unwrap_or_default()
                .chunks_exact(size)
                .map(|bytes| Address(address(bytes)))
                .collect()
        };
        let frames = match (stack64, stack32) {
            (Some(data), _) => addresses(data, 8),
            (None, Some(data)) => addresses(data, 4),
            (None, None) => return Ok(()),
        };
        let trigger = Trigger { time: self.time(), pid, tid };
        block.push(&stack::frames(self.time(), pointer_size, trigger, &frames))
    }

    fn class(&self) -> HeaderSpec<'static> {
        let class = EventClass {
            guid: self.guid(),
            opcode: self.opcode(),
            level: self.header[0x2c],
            version: self.version().into(),
        };
        let instance = self.item(ExtendedType::INSTANCE_INFO).and_then(|data| {
            let number = |at: usize| Some(u32::from_le_bytes(data.get(at..at + 4)?.try_into().ok()?));
            let parent_guid = Guid(data.get(8..24)?.try_into().ok()?);
            Some(InstanceIds { id: number(0)?, parent_id: number(4)?, parent_guid })
        });
        let issuer = self.issuer();
        match instance {
            Some(instance) => HeaderSpec::Instance { class, issuer, instance },
            None => HeaderSpec::Full { class, issuer },
        }
    }

    fn message(&self, pointer_size: PointerSize) -> MessageSpec {
        let mut options =
            MessageOptions::GUID.0 | MessageOptions::TIMESTAMP.0 | MessageOptions::SYSTEM_INFO.0;
        if pointer_size == PointerSize::Four {
            options |= MessageOptions::POINTER32.0;
        }
        MessageSpec {
            number: self.descriptor().id,
            options: MessageOptions(options),
            sequence: 0,
            guid: self.guid(),
            component: 0,
            issuer: self.issuer(),
        }
    }

    /// The event descriptor in the header.
    pub fn descriptor(&self) -> Descriptor {
        Descriptor {
            id: self.u16_at(0x28),
            version: self.version(),
            channel: self.header[0x2b],
            level: self.header[0x2c],
            opcode: self.opcode(),
            task: self.u16_at(0x2e),
            keyword: u64::from_le_bytes(self.header[0x30..0x38].try_into().expect("eight bytes")),
        }
    }
}
