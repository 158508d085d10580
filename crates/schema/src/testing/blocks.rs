//! Blocks of metadata as they are embedded in traces.

use stackhound_types::Guid;

use super::{hex, utf16z};

/// The provider of all blocks.
pub const PROVIDER: Guid = Guid([7; 16]);
/// The class of all blocks.
pub const CLASS: Guid = Guid([9; 16]);

/// One stored property. [`event_info`] writes the names after the array of properties.
#[derive(Clone, Default)]
pub struct Stored {
    pub flags: u32,
    pub name: &'static str,
    pub map: &'static str,
    pub types: (u16, u16),
    pub count: u16,
    pub length: u16,
}

/// A single value.
pub fn value(name: &'static str, in_type: u16, out_type: u16) -> Stored {
    // The high flag bits are set in real blocks, regardless of the property.
    Stored { flags: 0xf0, name, types: (in_type, out_type), count: 1, ..Stored::default() }
}

/// A structure of the properties from `start` on.
pub fn structure(name: &'static str, start: u16, members: u16) -> Stored {
    Stored { flags: 0xf1, name, types: (start, members), count: 1, ..Stored::default() }
}

/// The part of a block before the properties.
pub struct Head {
    pub source: u32,
    pub task: &'static str,
    pub opcode: &'static str,
    pub message: &'static str,
    pub top_level: u32,
}

/// The head of a block for a manifest event.
pub const MANIFEST: Head = Head { source: 0, task: "Task ", opcode: "win:Start", message: "", top_level: 0 };

/// The payload of an event-info event.
pub fn event_info(head: &Head, properties: &[Stored]) -> Vec<u8> {
    let mut block = Vec::new();
    block.extend(PROVIDER.0);
    block.extend(CLASS.0);
    // Id 0x102, version 3, channel, level, opcode 6, task, keyword.
    block.extend(hex("0201 03 10 04 06 0700 0000000000000080"));
    block.extend(head.source.to_le_bytes());
    let mut names = Vec::new();
    let names_at = 0x70 + 24 * properties.len();
    let mut name = |text: &str| {
        let at = if text.is_empty() { 0 } else { names_at + names.len() };
        names.extend(if text.is_empty() { Vec::new() } else { utf16z(text) });
        u32::try_from(at).unwrap().to_le_bytes()
    };
    for text in ["Provider", "", "", "", head.task, head.opcode, head.message, "", "", "", "", ""] {
        block.extend(name(text));
    }
    block.extend(u32::try_from(properties.len()).unwrap().to_le_bytes());
    block.extend(head.top_level.to_le_bytes());
    block.extend([0; 4]);
    for property in properties {
        block.extend(property.flags.to_le_bytes());
        block.extend(name(property.name));
        block.extend(property.types.0.to_le_bytes());
        block.extend(property.types.1.to_le_bytes());
        block.extend(name(property.map));
        block.extend(property.count.to_le_bytes());
        block.extend(property.length.to_le_bytes());
        block.extend([0; 4]);
    }
    block.extend(names);
    block
}

/// The payload of a map-info event for `TypeMap`.
pub fn map_info(flag: u32, count: u32, entries: &[(u32, &str)]) -> Vec<u8> {
    let mut names = Vec::new();
    let names_at = 16 + 8 * entries.len();
    let mut name = |text: &str| {
        let at = names_at + names.len();
        names.extend(utf16z(text));
        u32::try_from(at).unwrap().to_le_bytes()
    };
    let mut block = PROVIDER.0.to_vec();
    block.extend(name("TypeMap"));
    for number in [flag, count, 0] {
        block.extend(number.to_le_bytes());
    }
    for (number, text) in entries {
        block.extend(name(text));
        block.extend(number.to_le_bytes());
    }
    block.extend(names);
    block
}

/// TraceLogging metadata: its size, the tags 0, a name and field descriptors.
pub fn event_metadata(name: &str, fields: &[u8]) -> Vec<u8> {
    let rest = [&[0], name.as_bytes(), &[0], fields].concat();
    [&u16::try_from(rest.len() + 2).unwrap().to_le_bytes()[..], &rest].concat()
}

/// A field descriptor: the name, then in-type and further bytes as hexadecimal digits.
pub fn field(name: &str, descriptor: &str) -> Vec<u8> {
    [name.as_bytes(), &[0], &hex(descriptor)].concat()
}
