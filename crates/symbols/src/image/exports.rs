//! The export directory.

use std::borrow::Cow;
use std::cmp::Ordering;

use object::read::pe::ExportTable;
use stackhound_types::Rva;

use super::{Image, ImageError};

/// The exports of an image.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Exports<'d> {
    /// One entry for each name, and one for each ordinal without a name; sorted by ordinal, then by
    /// name.
    pub entries: Vec<Export<'d>>,
    /// The number of entries that point outside of the image or to a name without an end.
    pub unreadable: usize,
}

/// One export.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Export<'d> {
    /// Its ordinal.
    pub ordinal: u16,
    /// Its name as in the image, which can be mangled. `None` if it is exported by ordinal only.
    pub name: Option<Cow<'d, str>>,
    /// Its target.
    pub target: ExportTarget<'d>,
}

/// The target of an export.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ExportTarget<'d> {
    /// Code or data of the image.
    Rva(Rva),
    /// An export of another image, such as `NTDLL.RtlAllocateHeap` or `dll.#123`.
    Forwarder(Cow<'d, str>),
}

/// Exported code, with all its names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExportedCode<'d> {
    /// Its address.
    pub rva: Rva,
    /// Its names, at least one, with the preferred name first. They are in alphabetical order,
    /// except that `Zw` names are last. A name made of an ordinal (`Ordinal#7`) is only used if
    /// there is no other.
    pub names: Vec<Cow<'d, str>>,
}

impl Export<'_> {
    /// Returns its name, or `Ordinal#` and its ordinal.
    pub fn shown(&self) -> Cow<'_, str> {
        match &self.name {
            Some(name) => Cow::Borrowed(name),
            None => Cow::Owned(format!("Ordinal#{}", self.ordinal)),
        }
    }
}

impl<'d> ExportedCode<'d> {
    /// Returns the preferred name.
    pub fn name(&self) -> &str {
        &self.names[0]
    }
}

impl<'d> Exports<'d> {
    /// Returns the exports that are code of the image, by address, without forwarders and data.
    pub fn code(&self, image: &Image<'_>) -> Vec<ExportedCode<'d>> {
        let mut found: Vec<(Rva, &Export<'d>)> = self
            .entries
            .iter()
            .filter_map(|export| match export.target {
                ExportTarget::Rva(rva) => Some((rva, export)),
                ExportTarget::Forwarder(_) => None,
            })
            .filter(|(rva, _)| image.is_code(*rva))
            .collect();
        found.sort_by(|(rva, export), (other_rva, other)| {
            rva.cmp(other_rva).then_with(|| preference(export, other))
        });
        let at_one_address = found.chunk_by(|(rva, _), (other, _)| rva == other);
        at_one_address
            .map(|exports| {
                let mut names: Vec<_> =
                    exports.iter().filter_map(|(_, export)| export.name.clone()).collect();
                names.dedup();
                if names.is_empty() {
                    names.push(Cow::Owned(exports[0].1.shown().into_owned()));
                }
                ExportedCode { rva: exports[0].0, names }
            })
            .collect()
    }
}

fn preference(export: &Export<'_>, other: &Export<'_>) -> Ordering {
    let key = |export: &Export<'_>| {
        let name = export.name.as_deref();
        (name.is_none(), name.is_some_and(|name| name.starts_with("Zw")))
    };
    key(export)
        .cmp(&key(other))
        .then_with(|| (&export.name, export.ordinal).cmp(&(&other.name, other.ordinal)))
}

/// Maximum number of names. There are 65,536 ordinals, and an image can give several names to some
/// of them.
const MAX_NAMES: usize = 1 << 17;

pub(super) fn read<'d>(image: &Image<'d>) -> Result<Exports<'d>, ImageError> {
    let Some(directory) = image.headers.exports else { return Ok(Exports::default()) };
    let wrong = |reason| ImageError::Table { table: "export directory", rva: directory.rva, reason };
    let bytes = image.bytes_from(directory.rva).ok_or_else(|| wrong("it is outside the image"))?;
    // Targets inside the directory are forwarders. Its size therefore matters, even if it is
    // truncated.
    let bytes = &bytes[..bytes.len().min(directory.size as usize)];
    let table = ExportTable::parse(bytes, directory.rva.0)
        .map_err(|_| wrong("its tables are outside it or too large"))?;

    let mut reader =
        Reader { image, table: &table, text_left: image.data.len(), exports: Exports::default() };
    let addresses: Vec<_> = table.address_iter().map(|(_, ordinal, address)| (ordinal.0, address)).collect();
    let mut named = vec![false; addresses.len()];
    for (name, index) in table.name_iter().take(MAX_NAMES) {
        let index = usize::from(index.0);
        match addresses.get(index) {
            Some(&(ordinal, address)) => {
                named[index] = true;
                reader.add(Some(name), ordinal, address);
            }
            None => reader.exports.unreadable += 1,
        }
    }
    for (&(ordinal, address), named) in addresses.iter().zip(named) {
        // Unused ordinals between others have no address.
        if !named && address != 0 {
            reader.add(None, ordinal, address);
        }
    }
    let mut exports = reader.exports;
    exports.unreadable += table.name_pointers().len().saturating_sub(MAX_NAMES);
    exports
        .entries
        .sort_by(|export, other| (export.ordinal, &export.name).cmp(&(other.ordinal, &other.name)));
    Ok(exports)
}

struct Reader<'i, 'd> {
    image: &'i Image<'d>,
    table: &'i ExportTable<'d>,
    /// The remaining length of all names. Names do not overlap in valid images, so their total
    /// length is at most that of the image.
    text_left: usize,
    exports: Exports<'d>,
}

impl<'d> Reader<'_, 'd> {
    /// Adds an export, or counts it if it cannot be read.
    fn add(&mut self, name: Option<u32>, ordinal: u16, address: u32) {
        match self.read(name, ordinal, address) {
            Some(export) => self.exports.entries.push(export),
            None => self.exports.unreadable += 1,
        }
    }

    fn read(&mut self, name: Option<u32>, ordinal: u16, address: u32) -> Option<Export<'d>> {
        let name = match name {
            Some(pointer) => Some(self.text(pointer)?),
            None => None,
        };
        let target = if self.table.is_forward(address) {
            ExportTarget::Forwarder(self.text(address)?)
        } else if address < self.image.size() {
            ExportTarget::Rva(Rva(address))
        } else {
            return None;
        };
        Some(Export { ordinal, name, target })
    }

    fn text(&mut self, rva: u32) -> Option<Cow<'d, str>> {
        let text = self.image.text_at(Rva(rva))?;
        self.text_left = self.text_left.checked_sub(text.len() + 1)?;
        Some(String::from_utf8_lossy(text))
    }
}
