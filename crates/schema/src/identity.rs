//! What kind of event a record is: all that decides how its payload reads, apart from the payload.

use stackhound_etl::Guid;

/// Names the description of an event's payload. Made from a record's header and extended items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Identity<'a> {
    /// A record of the kernel logger.
    Kernel {
        /// Group in the upper byte, type in the lower.
        hook: u16,
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
        /// The message GUID, or the component id where there is none.
        guid: Guid,
        /// The number of the message under that GUID.
        number: u16,
    },
}
