//! Descriptions of providers that the Windows functions of `tdh.h` return.
//!
//! This module only reads bytes; it does not call Windows. Offsets are relative to the start of a
//! block.

use stackhound_etl::record::Descriptor;
use stackhound_types::Guid;

use crate::embedded::Block;
use crate::error::Error;
use crate::provider::{Named, ProviderDescription};

/// Reads a `PROVIDER_ENUMERATION_INFO`: a count, then 24 bytes per provider. Only the GUID and the
/// name of each provider are set.
///
/// # Errors
/// [`Error::Metadata`] if the block is too short for its entries, or a name is outside the block.
pub fn parse_providers(info: &[u8]) -> Result<Vec<ProviderDescription>, Error> {
    const ENTRY: usize = 24;
    let block = Block(info);
    let count = count(info, ENTRY)?;
    (0..count)
        .map(|index| FIRST + ENTRY * index)
        .map(|at| {
            let (guid, name) = (block.guid(at)?, block.name_at(at + 20)?.into());
            Ok(ProviderDescription { guid, name, ..ProviderDescription::default() })
        })
        .collect()
}

/// Reads a `PROVIDER_EVENT_INFO`: a count, then descriptors of 16 bytes.
///
/// # Errors
/// [`Error::Metadata`] if the block is too short for its descriptors.
pub fn parse_event_descriptors(info: &[u8]) -> Result<Vec<Descriptor>, Error> {
    const ENTRY: usize = 16;
    let count = count(info, ENTRY)?;
    (0..count).map(|index| Block(info).descriptor(FIRST + ENTRY * index)).collect()
}

/// Reads a `PROVIDER_FIELD_INFOARRAY`: a count and a type, then for each field the offsets of its
/// name and text, and its value.
///
/// # Errors
/// [`Error::Metadata`] if the block is too short for its entries, or a text is outside the block.
pub fn parse_provider_fields(info: &[u8]) -> Result<Vec<Named<u64>>, Error> {
    const ENTRY: usize = 16;
    let block = Block(info);
    let count = count(info, ENTRY)?;
    (0..count)
        .map(|index| FIRST + ENTRY * index)
        .map(|at| {
            let (name, message) = (block.name_at(at)?, block.name_at(at + 4)?);
            let message = if message.is_empty() { None } else { Some(message.into()) };
            Ok(Named { value: block.u64(at + 8)?, name: name.into(), message })
        })
        .collect()
}

/// The bytes of a GUID and of an event descriptor, in the layouts of `GUID` and `EVENT_DESCRIPTOR`.
pub fn event_key(provider: Guid, descriptor: &Descriptor) -> ([u8; 16], [u8; 16]) {
    let Descriptor { id, version, channel, level, opcode, task, keyword } = *descriptor;
    let mut bytes = [0; 16];
    bytes[..2].copy_from_slice(&id.to_le_bytes());
    bytes[2..6].copy_from_slice(&[version, channel, level, opcode]);
    bytes[6..8].copy_from_slice(&task.to_le_bytes());
    bytes[8..].copy_from_slice(&keyword.to_le_bytes());
    (provider.0, bytes)
}

/// The offset of the first entry, after two u32.
const FIRST: usize = 8;

fn count(info: &[u8], entry: usize) -> Result<usize, Error> {
    let count = Block(info).u32(0)? as usize;
    if count > info.len().saturating_sub(FIRST) / entry {
        return Err(Error::Metadata { offset: 0, expected: "the stated number of entries" });
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{hex, utf16z};

    #[test]
    fn provider_lists_are_read() {
        let guid = "d62cfb227b0e2b42a0c72fad1fd0e716";
        let head = hex(&format!("02000000 00000000 {guid} 00000000 38000000 {guid} 01000000 00000000"));
        let info = [head, utf16z("Microsoft-Windows-Kernel-Process")].concat();
        let providers = parse_providers(&info).unwrap();
        let rows: Vec<String> =
            providers.iter().map(|provider| format!("{} {}", provider.guid, provider.name)).collect();
        assert_eq!(
            rows,
            [
                "22fb2cd6-0e7b-422b-a0c7-2fad1fd0e716 Microsoft-Windows-Kernel-Process",
                "22fb2cd6-0e7b-422b-a0c7-2fad1fd0e716 ",
            ]
        );
        assert!(parse_providers(&info[..55]).is_err() && parse_providers(&[]).is_err());
    }

    #[test]
    fn event_descriptors_are_read_and_written() {
        let bytes = hex("0a00 01 10 04 0b 0700 1000000000000080");
        let info = [hex("01000000 00000000"), bytes.clone()].concat();
        let descriptor = parse_event_descriptors(&info).unwrap()[0];
        assert_eq!((descriptor.id, descriptor.version, descriptor.channel, descriptor.level), (10, 1, 16, 4));
        assert_eq!((descriptor.opcode, descriptor.task, descriptor.keyword), (11, 7, 0x8000_0000_0000_0010));
        assert_eq!(event_key(Guid::ZERO, &descriptor).1[..], bytes);
        assert!(parse_event_descriptors(&info[..23]).is_err());
    }

    #[test]
    fn keyword_names_are_read() {
        let info = [
            hex("02000000 00000000 28000000 30000000 1000000000000000 28000000 00000000 2000000000000000"),
            utf16z("Net"),
            utf16z("All %1\r\n"),
        ]
        .concat();
        let keywords = parse_provider_fields(&info).unwrap();
        let named = |value, message: Option<&str>| Named {
            value,
            name: "Net".into(),
            message: message.map(Into::into),
        };
        assert_eq!(keywords, [named(0x10, Some("All %1")), named(0x20, None)]);
    }
}
