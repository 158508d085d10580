//! PE images: what they export, where their functions are, which PDB belongs to them, which bytes stand where.
//!
//! Reads images as they are in files, and as they are when loaded. Everything but the headers is read when it is asked for,
//! and bounded by the image's own size or by a named limit: images are hostile input.
//!
//! Knows one image; must not know PDBs or how names are chosen.

mod call_site;
mod debug;
mod error;
mod exports;
mod functions;
mod headers;
mod imports;
mod relocations;
mod section;

pub use call_site::CallSite;
pub use debug::DebugEntry;
pub use error::ImageError;
pub use exports::{Export, ExportTarget, ExportedCode, Exports};
pub use functions::{Function, Functions};
pub use headers::Machine;
pub use imports::{Import, Imports};
pub use relocations::Relocation;
pub use section::Section;

use headers::Headers;
use section::Layout;
use stackhound_types::{ImageIdentity, PdbIdentity, Rva};

/// A PE image.
#[derive(Debug)]
pub struct Image<'d> {
    data: &'d [u8],
    layout: Layout,
    headers: Headers,
}

impl<'d> Image<'d> {
    /// Reads the headers of an image file.
    pub fn parse(bytes: &'d [u8]) -> Result<Image<'d>, ImageError> {
        Self::with_layout(bytes, Layout::File)
    }

    /// Reads the headers of an image as it is loaded in memory, from its base on.
    pub fn parse_loaded(bytes: &'d [u8]) -> Result<Image<'d>, ImageError> {
        Self::with_layout(bytes, Layout::Loaded)
    }

    fn with_layout(bytes: &'d [u8], layout: Layout) -> Result<Image<'d>, ImageError> {
        Ok(Image { data: bytes, layout, headers: Headers::parse(bytes, layout)? })
    }

    /// Which processor it is for.
    pub fn machine(&self) -> Machine {
        self.headers.machine
    }

    /// Where it would be loaded if it could choose; in a loaded image, where it is.
    pub fn base(&self) -> u64 {
        self.headers.base
    }

    /// Bytes of addresses that it takes when it is loaded.
    pub fn size(&self) -> u32 {
        self.headers.identity.size
    }

    /// What names it on a symbol server.
    pub fn identity(&self) -> ImageIdentity {
        self.headers.identity
    }

    /// Its sections, by address.
    pub fn sections(&self) -> &[Section] {
        &self.headers.sections
    }

    /// Whether an address is in a section that may run.
    pub fn is_code(&self, rva: Rva) -> bool {
        self.section_at(rva).is_some_and(|section| section.executable)
    }

    /// The PDB that belongs to it: its first debug entry of the RSDS kind that is no portable PDB.
    pub fn pdb(&self) -> Option<PdbIdentity> {
        self.debug_entries().into_iter().find_map(|entry| match entry {
            DebugEntry::Pdb(identity) => Some(identity),
            _ => None,
        })
    }

    /// All entries of its debug directory that can be read.
    pub fn debug_entries(&self) -> Vec<DebugEntry> {
        debug::entries(self)
    }

    /// What it exports; nothing if it has no export directory.
    pub fn exports(&self) -> Result<Exports<'d>, ImageError> {
        exports::read(self)
    }

    /// Where its functions are, as its unwind data says (x64 and ARM64); none if it has none.
    pub fn functions(&self) -> Functions {
        functions::read(self)
    }

    /// Whether the function at an address begins behind what the processor pushes when it interrupts code (x64), as those
    /// do that the kernel calls to dispatch exceptions and callbacks: what is outer to it in a stack did not call it. `None`
    /// if no unwind data tells.
    pub fn is_behind_interrupt(&self, rva: Rva) -> Option<bool> {
        functions::is_behind_interrupt(self, rva)
    }

    /// What it calls in others, also where that is loaded at the first call only.
    pub fn imports(&self) -> Imports<'d> {
        imports::read(self)
    }

    /// Which of its bytes depend on where it is loaded, by address.
    pub fn relocations(&self) -> Vec<Relocation> {
        relocations::read(self)
    }

    /// Bytes at an address. `None` unless the image has all of them, as it has not in memory that starts as zeros.
    pub fn bytes_at(&self, rva: Rva, len: usize) -> Option<&'d [u8]> {
        self.bytes_from(rva)?.get(..len)
    }

    /// The bytes around a return address, as far as the section goes but not more than asked for on either side.
    pub fn call_site(&self, return_address: Rva, before: usize, after: usize) -> Option<CallSite<'d>> {
        call_site::read(self, return_address, before, after)
    }

    /// All bytes from an address to the end of its section's data.
    pub fn bytes_from(&self, rva: Rva) -> Option<&'d [u8]> {
        if let Some(section) = self.section_at(rva) {
            let start = section.data.start + u64::from(rva.0 - section.rva.0);
            let end = section.data.end.min(self.data.len() as u64);
            return self.slice(start, end);
        }
        let end = u64::from(self.headers.size).min(self.data.len() as u64);
        self.slice(u64::from(rva.0), end)
    }

    fn slice(&self, start: u64, end: u64) -> Option<&'d [u8]> {
        self.data.get(usize::try_from(start).ok()?..usize::try_from(end).ok()?)
    }

    fn is_loaded(&self) -> bool {
        self.layout == Layout::Loaded
    }

    /// The section that an address is in. Costs a binary search.
    pub fn section_at(&self, rva: Rva) -> Option<&Section> {
        let sections = &self.headers.sections;
        let next = sections.partition_point(|section| section.rva <= rva);
        sections.get(next.checked_sub(1)?).filter(|section| section.contains(rva))
    }

    /// Text up to a zero byte, of bounded length.
    fn text_at(&self, rva: Rva) -> Option<&'d [u8]> {
        let bytes = self.bytes_from(rva)?;
        let end = bytes.iter().take(MAX_TEXT).position(|byte| *byte == 0)?;
        Some(&bytes[..end])
    }
}

/// Names of exports are no longer, even mangled ones: the linker cuts them at 4096 characters.
const MAX_TEXT: usize = 4096 + 1;

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}
