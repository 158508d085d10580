//! Instrumentation manifests: input of the message compiler, dumps of registered providers, and the
//! manifests that .NET event sources write before their events.
//!
//! A manifest is XML and describes all events of its providers. Events refer to levels, tasks,
//! opcodes, keywords, channels and templates by name or number, templates refer to value maps, and
//! all of them refer to texts in a string table. Event sources write their manifests in chunks
//! ([`ManifestChunks`]).
//!
//! Source of the elements: the EventManifest schema on Microsoft Learn.

mod chunks;
mod document;
mod references;
mod text;

use crate::error::Error;
use crate::provider::ProviderDescription;

pub(crate) use chunks::MANIFEST_CHUNK;
pub use chunks::{ManifestChunks, is_manifest_chunk};
use document::Document;
use references::{References, Strings};

/// The approximate limit, in bytes, of the descriptions of one file. A limit is needed because many
/// events can refer to one long text or template.
pub(crate) const MAX_DESCRIPTION_BYTES: usize = 64 << 20;

/// Reads a manifest as XML text in UTF-8 or UTF-16; invalid characters are replaced. Each text is
/// taken from the given culture (such as `de-DE`), otherwise from `en-US`, otherwise from the first
/// culture that has it.
///
/// # Errors
/// [`Error::Metadata`] if the XML is not well-formed, has no provider with a GUID, or has
/// descriptions that take more than 64 MiB.
pub fn providers_of_manifest(xml: &[u8], culture: Option<&str>) -> Result<Vec<ProviderDescription>, Error> {
    let text = text::decode(xml);
    let document = Document::parse(&text)?;
    let strings = Strings::of(&document.tables, culture);
    let mut budget = MAX_DESCRIPTION_BYTES;
    let mut providers = Vec::new();
    for element in &document.providers {
        let Ok(guid) = element.guid.trim().parse() else { continue };
        let provider = References::describe(element, guid, &strings, &mut budget);
        let too_large = Error::Metadata {
            offset: text.len(),
            expected: "a manifest with at most 64 MiB of descriptions",
        };
        providers.push(provider.ok_or(too_large)?);
    }
    if providers.is_empty() {
        return Err(Error::Metadata { offset: 0, expected: "a provider with a GUID" });
    }
    Ok(providers)
}

/// Whether the bytes begin like XML, as opposed to an image file.
pub fn looks_like_manifest(bytes: &[u8]) -> bool {
    let start = &bytes[..bytes.len().min(64)];
    let text = text::decode(start);
    let name = text.trim_start().strip_prefix('<');
    // The size field of a trace's first buffer can have the value of `<`.
    name.is_some_and(|name| name.starts_with(|c: char| c.is_alphabetic() || c == '?' || c == '!'))
}

#[cfg(test)]
mod tests;
