//! Extended data items: optional data between an EVENT_HEADER and its payload.

use stackhound_types::{Address, Guid, PointerSize};
use zerocopy::IntoBytes;

use super::layout::{self, Cursor, ItemHeader};
use super::record::InstanceIds;
use crate::record::ExtendedType;

/// An extended data item to write.
#[derive(Clone, Copy, Debug)]
pub enum ItemSpec<'a> {
    /// The related activity.
    RelatedActivityId(Guid),
    /// The user's SID in binary form.
    Sid(&'a [u8]),
    /// The terminal session.
    TerminalSessionId(u32),
    /// Instance ids.
    InstanceInfo(InstanceIds),
    /// The stack of the event, or its kernel stack.
    StackTrace {
        /// Size of the addresses.
        pointer_size: PointerSize,
        /// Not zero if the user stack follows in a separate record with the same number.
        match_id: u64,
        /// Return addresses, innermost first.
        frames: &'a [Address],
    },
    /// The key of a cached stack.
    StackKey {
        /// Size of the key.
        pointer_size: PointerSize,
        /// See [`ItemSpec::StackTrace`].
        match_id: u64,
        /// The key.
        key: u64,
    },
    /// The index of a precise sample.
    PebsIndex(u64),
    /// Values of performance counters.
    PmcCounters(&'a [u64]),
    /// The key of a packaged application.
    PsmKey(&'a [u8]),
    /// A number unique to the event.
    EventKey(u64),
    /// TraceLogging metadata.
    Schema(&'a [u8]),
    /// The provider's name and traits.
    ProviderTraits(&'a [u8]),
    /// A number unique to the process.
    ProcessStartKey(u64),
    /// The control GUID of the provider.
    ControlGuid(Guid),
    /// Offset of the performance counter.
    QpcDelta(u64),
    /// The container id, which is stored as text.
    ContainerId(Guid),
    /// Any data of any type.
    Other {
        /// The type.
        item_type: ExtendedType,
        /// The data, which may be empty.
        data: &'a [u8],
    },
}

/// Items start at multiples of this.
const ALIGNMENT: usize = 8;

impl ItemSpec<'_> {
    fn item_type(&self) -> ExtendedType {
        match self {
            ItemSpec::RelatedActivityId(_) => ExtendedType::RELATED_ACTIVITY_ID,
            ItemSpec::Sid(_) => ExtendedType::SID,
            ItemSpec::TerminalSessionId(_) => ExtendedType::TERMINAL_SESSION_ID,
            ItemSpec::InstanceInfo(_) => ExtendedType::INSTANCE_INFO,
            ItemSpec::StackTrace { pointer_size: PointerSize::Four, .. } => ExtendedType::STACK_TRACE32,
            ItemSpec::StackTrace { pointer_size: PointerSize::Eight, .. } => ExtendedType::STACK_TRACE64,
            ItemSpec::StackKey { pointer_size: PointerSize::Four, .. } => ExtendedType::STACK_KEY32,
            ItemSpec::StackKey { pointer_size: PointerSize::Eight, .. } => ExtendedType::STACK_KEY64,
            ItemSpec::PebsIndex(_) => ExtendedType::PEBS_INDEX,
            ItemSpec::PmcCounters(_) => ExtendedType::PMC_COUNTERS,
            ItemSpec::PsmKey(_) => ExtendedType::PSM_KEY,
            ItemSpec::EventKey(_) => ExtendedType::EVENT_KEY,
            ItemSpec::Schema(_) => ExtendedType::SCHEMA,
            ItemSpec::ProviderTraits(_) => ExtendedType::PROVIDER_TRAITS,
            ItemSpec::ProcessStartKey(_) => ExtendedType::PROCESS_START_KEY,
            ItemSpec::ControlGuid(_) => ExtendedType::CONTROL_GUID,
            ItemSpec::QpcDelta(_) => ExtendedType::QPC_DELTA,
            ItemSpec::ContainerId(_) => ExtendedType::CONTAINER_ID,
            ItemSpec::Other { item_type, .. } => *item_type,
        }
    }

    fn data_size(&self) -> usize {
        match self {
            ItemSpec::RelatedActivityId(_) | ItemSpec::ControlGuid(_) => size_of::<Guid>(),
            ItemSpec::Sid(data)
            | ItemSpec::PsmKey(data)
            | ItemSpec::Schema(data)
            | ItemSpec::ProviderTraits(data)
            | ItemSpec::Other { data, .. } => data.len(),
            ItemSpec::TerminalSessionId(_) => size_of::<u32>(),
            ItemSpec::InstanceInfo(_) => size_of::<layout::Instance>(),
            ItemSpec::StackTrace { pointer_size, frames, .. } => 8 + frames.len() * pointer_size.bytes(),
            // A 32-bit key is padded to eight bytes.
            ItemSpec::StackKey { .. } => 16,
            ItemSpec::PmcCounters(values) => size_of_val(*values),
            ItemSpec::PebsIndex(_)
            | ItemSpec::EventKey(_)
            | ItemSpec::ProcessStartKey(_)
            | ItemSpec::QpcDelta(_) => size_of::<u64>(),
            ItemSpec::ContainerId(_) => 36,
        }
    }

    /// Size in bytes, including header and padding.
    pub(super) fn stride(&self) -> usize {
        (size_of::<ItemHeader>() + self.data_size()).next_multiple_of(ALIGNMENT)
    }

    /// Encodes the item. Its sizes fit their fields, because the size of the record was checked.
    pub(super) fn encode(&self, more: bool, out: &mut Cursor<'_>) {
        let data_size = self.data_size();
        let header = ItemHeader {
            stride: (self.stride() as u16).into(),
            item_type: self.item_type().0.into(),
            linkage: u16::from(more).into(),
            data_size: (data_size as u16).into(),
        };
        out.put(header.as_bytes());
        match *self {
            ItemSpec::RelatedActivityId(guid) | ItemSpec::ControlGuid(guid) => out.put(&guid.0),
            ItemSpec::Sid(data)
            | ItemSpec::PsmKey(data)
            | ItemSpec::Schema(data)
            | ItemSpec::ProviderTraits(data)
            | ItemSpec::Other { data, .. } => out.put(data),
            ItemSpec::TerminalSessionId(id) => out.put(&id.to_le_bytes()),
            ItemSpec::InstanceInfo(ids) => out.put(ids.layout().as_bytes()),
            ItemSpec::StackTrace { pointer_size, match_id, frames } => {
                out.put(&match_id.to_le_bytes());
                for frame in frames {
                    out.put_pointer(frame.0, pointer_size);
                }
            }
            ItemSpec::StackKey { pointer_size, match_id, key } => {
                out.put(&match_id.to_le_bytes());
                out.put_pointer(key, pointer_size);
                out.put_zeros(8 - pointer_size.bytes());
            }
            ItemSpec::PmcCounters(values) => out.put_u64s(values),
            ItemSpec::PebsIndex(value)
            | ItemSpec::EventKey(value)
            | ItemSpec::ProcessStartKey(value)
            | ItemSpec::QpcDelta(value) => out.put(&value.to_le_bytes()),
            ItemSpec::ContainerId(guid) => out.put(guid.to_string().as_bytes()),
        }
        out.put_zeros(self.stride() - size_of::<ItemHeader>() - data_size);
    }
}
