//! The facts that an image file has about its addresses.
//!
//! Everything here concerns one image and depends only on its bytes. Images are hostile input: the
//! cost of every look-up is bounded, and a result that would exceed the bound is reported as not
//! known.

mod code;
pub(crate) mod reach;
pub(crate) mod site;
pub(crate) mod stubs;

use std::sync::Arc;

use iced_x86::{Decoder, DecoderOptions};
use stackhound_symbols::image::{Functions, Image, Machine, Relocation};
use stackhound_types::Rva;

use self::reach::Reach;
use self::site::Site;
use self::stubs::StubTable;

/// The assumed size of functions without unwind data, in bytes: patches are at the start of
/// functions.
const PATCH_SIZE: u32 = 32;

/// An image file with the data that is read from it once.
pub(crate) struct ImageFile {
    bytes: Vec<u8>,
    bits: u32,
    functions: Functions,
    /// The starts of functions, with the indexes of their chunks.
    chunks: Vec<(Rva, u32)>,
    imports: Vec<Imported>,
    relocations: Vec<Relocation>,
    services: Arc<ServiceNames>,
}

/// A pointer that the loader sets.
#[derive(Clone, Copy)]
struct Imported {
    slot: Rva,
    /// Index of the service in [`ServiceNames::imported`]; `None` for all other functions.
    service: Option<u32>,
}

/// The services that an image calls.
#[derive(Debug, Default)]
pub(crate) struct ServiceNames {
    /// Services that its stubs call.
    pub stubs: StubTable,
    /// Services that it imports from `ntdll.dll` or `win32u.dll`.
    pub imported: Vec<Box<str>>,
}

/// An exported function that a range of an image covers or touches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExportInRange {
    /// Its name.
    pub name: Box<str>,
    /// Whether it is on the list of exports that attacks patch.
    pub is_sensitive: bool,
}

/// Why an image cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ImageError {
    /// It cannot be read.
    Unreadable,
    /// Its processor is not supported.
    Unsupported,
}

impl ImageFile {
    pub fn read(bytes: Vec<u8>) -> Result<ImageFile, ImageError> {
        let image = Image::parse(&bytes).map_err(|_| ImageError::Unreadable)?;
        let bits = match image.machine() {
            Machine::X64 => 64,
            Machine::X86 => 32,
            Machine::Arm64 | Machine::Other(_) => return Err(ImageError::Unsupported),
        };
        let functions = image.functions();
        let mut chunks: Vec<(Rva, u32)> = functions
            .entries
            .iter()
            .zip(0..)
            .filter_map(|(function, index)| Some((function.primary?, index)))
            .collect();
        chunks.sort_unstable();
        let (imports, imported) = imports(&image);
        let relocations = image.relocations();
        let services = Arc::new(ServiceNames { stubs: StubTable::read(&image), imported });
        Ok(ImageFile { bits, functions, chunks, imports, relocations, services, bytes })
    }

    /// Approximate size in memory, in bytes.
    pub fn memory(&self) -> usize {
        self.bytes.len()
            + size_of_val(&*self.functions.entries)
            + size_of_val(&*self.chunks)
            + size_of_val(&*self.imports)
            + size_of_val(&*self.relocations)
    }

    /// The services. Their names are kept after the file is unloaded.
    pub fn services(&self) -> &Arc<ServiceNames> {
        &self.services
    }

    /// The facts about an address.
    pub fn site(&self, rva: Rva) -> Site {
        site::read(self, &self.image(), rva)
    }

    /// The functions that a call of this address can reach.
    pub fn reach(&self, target: Rva) -> Reach {
        reach::read(self, &self.image(), target)
    }

    /// The bytes around an address in its section, at most 16 on each side.
    pub fn around(&self, rva: Rva) -> Option<(Vec<u8>, Vec<u8>)> {
        let site = self.image().call_site(rva, 16, 16)?;
        Some((site.before.to_vec(), site.after.to_vec()))
    }

    /// Whether 32 bytes of memory around this address can be those of the image. Bytes that the
    /// loader relocates may differ. `None` if the file cannot decide, because the section is
    /// writable or has no bytes there.
    pub fn is_like(&self, rva: Rva, memory: &[u8; 32]) -> Option<bool> {
        let image = self.image();
        let start = Rva(rva.0.checked_sub(16)?);
        let section = image.section_at(start).filter(|section| !section.writable)?;
        let expected = image.bytes_at(start, 32).filter(|_| section.contains(Rva(start.0 + 31)))?;
        let from = self.relocations.partition_point(|relocation| relocation.rva.0 + 8 <= start.0);
        let near = self.relocations[from..].iter().take_while(|relocation| relocation.rva.0 < start.0 + 32);
        let mut free = 0_u32;
        for relocation in near {
            for byte in relocation.rva.0..relocation.rva.0.saturating_add(relocation.length.into()) {
                let at = byte.wrapping_sub(start.0);
                free |= 1_u32.checked_shl(at).unwrap_or(0);
            }
        }
        let same = |at: usize| free & (1 << at) != 0 || expected[at] == memory[at];
        Some((0..32).all(same))
    }

    /// Whether an address is in a section with code.
    pub fn is_code(&self, rva: Rva) -> bool {
        self.image().is_code(rva)
    }

    /// The exported function that a range touches: the first sensitive one, otherwise the first
    /// one. The cost is proportional to the number of exports.
    pub fn export_in(
        &self,
        range: std::ops::Range<Rva>,
        is_sensitive: impl Fn(&str) -> bool,
    ) -> Option<ExportInRange> {
        let image = self.image();
        let exports = image.exports().ok()?.code(&image);
        let mut first = None;
        for export in exports.iter().filter(|export| export.rva < range.end) {
            let end = match self.functions.at(export.rva) {
                Some(function) if function.start == export.rva => function.end,
                _ => Rva(export.rva.0.saturating_add(PATCH_SIZE)),
            };
            if end <= range.start {
                continue;
            }
            let sensitive = export.names.iter().find(|name| is_sensitive(name));
            if let Some(name) = sensitive {
                return Some(ExportInRange { name: name.as_ref().into(), is_sensitive: true });
            }
            let found = || ExportInRange { name: export.name().into(), is_sensitive: false };
            first.get_or_insert_with(found);
        }
        first
    }

    /// Parses the headers again, which cannot fail because they were parsed before.
    fn image(&self) -> Image<'_> {
        Image::parse(&self.bytes).expect("an image that was read before")
    }

    /// The import with this pointer.
    fn import(&self, slot: Rva) -> Option<Imported> {
        let at = self.imports.binary_search_by_key(&slot, |import| import.slot).ok()?;
        self.imports.get(at).copied()
    }

    /// The start of the function that contains an address.
    fn function(&self, rva: Rva) -> Option<Rva> {
        self.functions.at(rva)?.primary
    }

    /// The chunks of the function that starts at this address.
    fn chunks(&self, start: Rva) -> impl Iterator<Item = (Rva, Rva)> {
        let from = self.chunks.partition_point(|chunk| chunk.0 < start);
        self.chunks[from..].iter().take_while(move |chunk| chunk.0 == start).map(|chunk| {
            let function = &self.functions.entries[chunk.1 as usize];
            (function.start, function.end)
        })
    }

    /// Decodes instructions from an address on. Their addresses are relative to the image.
    fn decoder<'b>(&self, image: &Image<'b>, from: Rva) -> Option<Decoder<'b>> {
        let bytes = image.bytes_from(from).filter(|_| image.is_code(from))?;
        Some(Decoder::with_ip(self.bits, bytes, from.0.into(), DecoderOptions::NONE))
    }
}

/// The pointers that the loader sets, and the names of services among them.
fn imports(image: &Image<'_>) -> (Vec<Imported>, Vec<Box<str>>) {
    let mut services: Vec<Box<str>> = Vec::new();
    let imports = image.imports().entries.into_iter().map(|import| {
        let library = import.library.to_ascii_lowercase();
        let is_native = matches!(&*library, "ntdll.dll" | "ntdll" | "win32u.dll" | "win32u");
        let is_service = |name: &str| name.starts_with("Nt") || name.starts_with("Zw");
        let name = import.name.filter(|name| is_native && is_service(name));
        let service = name.map(|name| {
            services.push(name.into());
            services.len() as u32 - 1
        });
        Imported { slot: import.slot, service }
    });
    (imports.collect(), services)
}
