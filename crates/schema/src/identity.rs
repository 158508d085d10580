//! What kind of event a record is: all that decides how its payload reads, apart from the payload.

#[cfg(test)]
mod tests;

use stackhound_etl::record::{Descriptor, ExtendedType, Record};
use stackhound_types::Guid;

/// Names the description of an event's payload. Made from a record's header and extended items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Identity<'a> {
    /// A record of the kernel logger.
    Kernel {
        /// Group in the upper byte, type in the lower.
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
    /// An event that a manifest describes, which may or may not be at hand.
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
    /// An event that describes itself.
    TraceLogging {
        /// The provider.
        provider: Guid,
        /// The event's `EVENT_SCHEMA_TL` item.
        metadata: &'a [u8],
        /// The event's `PROV_TRAITS` item, which holds the provider's name.
        traits: Option<&'a [u8]>,
        /// The opcode in the event descriptor.
        opcode: u8,
    },
    /// An event with nothing but a text, marked so in its header.
    Text {
        /// The provider.
        provider: Guid,
    },
    /// A preprocessed trace message, for which only the writer's build has the format.
    Message {
        /// The message GUID, or a component id in its place: the first group, all others zero.
        guid: Guid,
        /// The number of the message under that GUID.
        number: u16,
    },
}

impl<'a> Identity<'a> {
    /// What a record says it is. `None` for records that are no events, and for messages that do not say whose they are.
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
            let traits = items.find(ExtendedType::PROVIDER_TRAITS);
            return Identity::TraceLogging { provider, metadata, traits, opcode: descriptor.opcode };
        }
        let Descriptor { id, version, opcode, task, .. } = descriptor;
        match record.event_flags() {
            Some((flags, _)) if flags & STRING_ONLY != 0 => Identity::Text { provider },
            _ => Identity::Manifest { provider, id, version, opcode, task },
        }
    }
}
