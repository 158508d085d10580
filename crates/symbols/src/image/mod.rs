//! PE images: exports, imports, functions, the PDB, and the bytes at an address.
//!
//! Reads images as they are in files, and as they are when loaded. Everything except for the
//! headers is read on demand, and limited by the image's own size or by a named constant: images
//! are hostile input.
//!
//! The module handles one image. It is independent of PDBs and of the choice of names.

mod call_site;
mod debug;
mod error;
mod exports;
mod functions;
mod headers;
mod imports;
mod relocations;
mod section;

pub use call_site::{CallSite, NoCall, calls_at_end, is_call, last_before};
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

    /// Returns the processor that it is for.
    pub fn machine(&self) -> Machine {
        self.headers.machine
    }

    /// Returns its preferred base, or the actual base of a loaded image.
    pub fn base(&self) -> u64 {
        self.headers.base
    }

    /// Returns the size of its address range when it is loaded, in bytes.
    pub fn size(&self) -> u32 {
        self.headers.identity.size
    }

    /// Returns its identity on a symbol server.
    pub fn identity(&self) -> ImageIdentity {
        self.headers.identity
    }

    /// Returns its sections, by address.
    pub fn sections(&self) -> &[Section] {
        &self.headers.sections
    }

    /// Whether an address is in an executable section.
    pub fn is_code(&self, rva: Rva) -> bool {
        self.section_at(rva).is_some_and(|section| section.executable)
    }

    /// Returns the PDB that belongs to it: the first debug entry of the kind RSDS that is not a
    /// portable PDB.
    pub fn pdb(&self) -> Option<PdbIdentity> {
        self.debug_entries().into_iter().find_map(|entry| match entry {
            DebugEntry::Pdb(identity) => Some(identity),
            _ => None,
        })
    }

    /// Returns all readable entries of its debug directory.
    pub fn debug_entries(&self) -> Vec<DebugEntry> {
        debug::entries(self)
    }

    /// Returns its exports, which are empty if it has no export directory.
    pub fn exports(&self) -> Result<Exports<'d>, ImageError> {
        exports::read(self)
    }

    /// Returns its functions according to its unwind data (x64 and ARM64), if it has any.
    pub fn functions(&self) -> Functions {
        functions::read(self)
    }

    /// Whether the function at an address starts on top of a machine frame, which the processor
    /// pushes when it interrupts code (x64). Such functions are called by the kernel to dispatch
    /// exceptions and callbacks; the outer frame of the stack is not their caller. `None` if there
    /// is no unwind data.
    pub fn has_machine_frame(&self, rva: Rva) -> Option<bool> {
        functions::has_machine_frame(self, rva)
    }

    /// Returns its imports, including delay-loaded ones.
    pub fn imports(&self) -> Imports<'d> {
        imports::read(self)
    }

    /// Returns the bytes that depend on its load address, by address.
    pub fn relocations(&self) -> Vec<Relocation> {
        relocations::read(self)
    }

    /// Returns `len` bytes at an address. `None` unless the image contains all of them; memory that
    /// is initialized with zeros is not in the image.
    pub fn bytes_at(&self, rva: Rva, len: usize) -> Option<&'d [u8]> {
        self.bytes_from(rva)?.get(..len)
    }

    /// Returns the bytes around a return address, limited by the section and by the requested
    /// numbers.
    pub fn call_site(&self, return_address: Rva, before: usize, after: usize) -> Option<CallSite<'d>> {
        call_site::read(self, return_address, before, after)
    }

    /// Returns the call, or the instruction that enters the kernel, before a return address as text,
    /// such as `call qword ptr [rip+0x1a2b]`. Targets of direct calls are offsets in the image.
    /// `functions` are those of the image. Costs the decoding of up to 16 KB of code.
    ///
    /// # Errors
    /// The reason for which the call is not certain.
    pub fn call_before(&self, functions: &Functions, return_address: Rva) -> Result<String, NoCall> {
        call_site::instruction(self, functions, return_address)
    }

    /// Returns all bytes from an address to the end of its section's data.
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

    /// Returns the section that contains an address. Costs a binary search.
    pub fn section_at(&self, rva: Rva) -> Option<&Section> {
        let sections = &self.headers.sections;
        let next = sections.partition_point(|section| section.rva <= rva);
        sections.get(next.checked_sub(1)?).filter(|section| section.contains(rva))
    }

    /// Returns the text up to a zero byte, of limited length.
    fn text_at(&self, rva: Rva) -> Option<&'d [u8]> {
        let bytes = self.bytes_from(rva)?;
        let end = bytes.iter().take(MAX_TEXT).position(|byte| *byte == 0)?;
        Some(&bytes[..end])
    }
}

/// Maximum length of export names, including mangled ones, with the zero byte: the linker truncates
/// names at 4096 characters.
const MAX_TEXT: usize = 4096 + 1;

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}
