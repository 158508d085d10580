//! The kind of event that a record is: everything except the payload that determines the schema.

#[cfg(test)]
mod tests;

use stackhound_etl::record::{Descriptor, ExtendedType, Record};
use stackhound_types::Guid;

/// The key to the schema of an event, from the record's header and its extended data items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Identity<'a> {
    /// A record of the kernel logger.
    Kernel {
        /// Group in the high byte, type in the low byte.
        hook_id: u16,
        /// The version in the header.
        version: u8,
    },
    /// A record with a classic header.
    Classic {
        /// The class GUID.
        class: Guid,
        /// The event's type within the class.
        opcode: u8,
        /// The version of the class.
        version: u8,
    },
    /// A manifest event. Its manifest may or may not be available.
    Manifest {
        /// The provider.
        provider: Guid,
        /// The id in the event descriptor.
        id: u16,
        /// The version in the event descriptor.
        version: u8,
        /// The opcode in the event descriptor.
        opcode: u8,
        /// The task in the event descriptor.
        task: u16,
    },
    /// A TraceLogging event, which contains its own description.
    TraceLogging {
        /// The provider.
        provider: Guid,
        /// The event's `EVENT_SCHEMA_TL` item.
        metadata: &'a [u8],
        /// The opcode in the event descriptor.
        opcode: u8,
    },
    /// An event whose payload is a single text, as a flag of its header states
    /// (`EVENT_HEADER_FLAG_STRING_ONLY`).
    Text {
        /// The provider.
        provider: Guid,
    },
    /// A WPP trace message. Only the build of its writer has the format.
    Message {
        /// The message GUID. If the record has a component id instead, the id is the first group
        /// and all others are zero.
        guid: Guid,
        /// The number of the message under this GUID.
        number: u16,
    },
}

impl<'a> Identity<'a> {
    /// The identity of a record. `None` for records that are not events, and for messages without a
    /// GUID or component id.
    pub fn of(record: &Record<'a>) -> Option<Identity<'a>> {
        if let Some(hook_id) = record.hook_id() {
            return Some(Identity::Kernel { hook_id, version: record.version() });
        }
        if let Some(number) = record.message_number() {
            let component = || record.message_component().map(|id| Guid::new(id, 0, 0, [0; 8]));
            return Some(Identity::Message { guid: record.guid().or_else(component)?, number });
        }
        let guid = record.guid()?;
        let Some(descriptor) = record.descriptor() else {
            return Some(Identity::Classic {
                class: guid,
                opcode: record.opcode(),
                version: record.version(),
            });
        };
        Some(Identity::of_event(record, guid, descriptor))
    }

    fn of_event(record: &Record<'a>, provider: Guid, descriptor: Descriptor) -> Identity<'a> {
        const STRING_ONLY: u16 = 4;
        let items = record.extended_items();
        if let Some(metadata) = items.find(ExtendedType::SCHEMA) {
            return Identity::TraceLogging { provider, metadata, opcode: descriptor.opcode };
        }
        let Descriptor { id, version, opcode, task, .. } = descriptor;
        match record.event_flags() {
            Some((flags, _)) if flags & STRING_ONLY != 0 => Identity::Text { provider },
            _ => Identity::Manifest { provider, id, version, opcode, task },
        }
    }
}
