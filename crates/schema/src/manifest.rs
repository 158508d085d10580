//! Instrumentation manifests: as the message compiler takes them, as people dump them from systems, and as .NET event
//! sources send them ahead of their events.
//!
//! A manifest is XML and describes all events of its providers: events refer to levels, tasks, opcodes, keywords,
//! channels and templates by name or number, templates to value maps, and all of them to texts in a string table.
//! Event sources send theirs in chunks ([`ManifestChunks`]).
//!
//! Source of the elements: the pages of the EventManifest schema of Microsoft.

mod chunks;
mod document;
mod references;
mod text;

use crate::error::Error;
use crate::provider::ProviderDescription;

pub use chunks::{ManifestChunks, is_manifest_chunk};
use document::Document;
use references::{References, Strings};

/// How many bytes the descriptions of one file may take, roughly. Many events may refer to one long text or template.
pub(crate) const MAX_DESCRIPTION_BYTES: usize = 64 << 20;

/// Reads the XML text of a manifest, in UTF-8 or UTF-16; what is neither is replaced. Texts are those of the given culture
/// (such as `de-DE`), of `en-US` where it has none, and of the first one that has any.
///
/// # Errors
/// [`Error::Metadata`] if the XML is not well-formed, has no provider with a GUID, or is too large.
pub fn providers_of_manifest(xml: &[u8], culture: Option<&str>) -> Result<Vec<ProviderDescription>, Error> {
    let text = text::decode(xml);
    let document = Document::parse(&text)?;
    let strings = Strings::of(&document.tables, culture);
    let mut room = MAX_DESCRIPTION_BYTES;
    let mut providers = Vec::new();
    for element in &document.providers {
        let Ok(guid) = element.guid.trim().parse() else { continue };
        let provider = References::describe(element, guid, &strings, &mut room);
        let too_large = Error::Metadata { offset: text.len(), expected: "a smaller manifest" };
        providers.push(provider.ok_or(too_large)?);
    }
    if providers.is_empty() {
        return Err(Error::Metadata { offset: 0, expected: "a provider with a GUID" });
    }
    Ok(providers)
}

/// Whether the bytes are the beginning of XML rather than of an image.
pub fn looks_like_manifest(bytes: &[u8]) -> bool {
    let start = &bytes[..bytes.len().min(64)];
    let text = text::decode(start);
    let name = text.trim_start().strip_prefix('<');
    // The size of a recording's first buffer may look like the first character.
    name.is_some_and(|name| name.starts_with(|c: char| c.is_alphabetic() || c == '?' || c == '!'))
}

#[cfg(test)]
mod tests;
