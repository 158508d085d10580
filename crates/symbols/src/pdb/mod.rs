//! Program databases: names, source lines and inlined functions that the linker wrote about an image.
//!
//! A reader over `ms-pdb`, which knows the containers (MSF, MSFZ) and the records. What is ours: every size is checked
//! before `ms-pdb` sees it, addresses are translated (also of rearranged images), and records are reduced to what
//! names an address. Streams are read when they are asked for, each at most once.
//!
//! Knows nothing of images, of other sources of names, or of where a PDB comes from. Facts:
//! <https://llvm.org/docs/PDB/index.html>, `cvinfo.h` of <https://github.com/microsoft/microsoft-pdb>.

mod addresses;
mod error;
mod inlines;
mod items;
mod lines;
mod module;
mod streams;

use std::fs::File;
use std::ops::Range;
use std::path::Path;

use ms_pdb::RandomAccessFile;
use ms_pdb::StreamData;
use ms_pdb::dbi::optional_dbg::{OptionalDebugHeader, OptionalDebugHeaderStream as Extra};
use ms_pdb::dbi::{DBI_STREAM_HEADER_LEN, DbiStream};
use ms_pdb::pdbi::PdbiStream;
use ms_pdb::syms::{Pub, SymIter, SymKind};
use stackhound_types::{Guid, PdbIdentity, Rva};

pub use addresses::Section;
pub use error::PdbError;
pub use inlines::{INLINE_DEPTH_MAX, InlineCode, ItemId};
pub use items::ItemNames;
pub use lines::{CodeLine, SourceFile, SourceNames};
pub use module::{Module, Modules, Symbol, SymbolKind};

use addresses::{Addresses, Omap, sections};
use streams::{Source, Streams};

/// Streams with a fixed number.
const INFO: u32 = 1;
const DBI: u32 = 3;

/// Comparing each name of a stream costs this much at most; the library reads one to its end for each entry.
const STREAM_NAMES_COST_MAX: u64 = 1 << 28;

/// An open PDB.
pub struct Pdb {
    streams: Streams,
    name: String,
    info: PdbiStream,
    dbi: DbiStream,
    addresses: Addresses,
}

impl std::fmt::Debug for Pdb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pdb").field("identity", &self.identity()).finish_non_exhaustive()
    }
}

impl Pdb {
    /// Opens a PDB in memory.
    ///
    /// # Errors
    /// If it is none, or is damaged where all else depends on it.
    pub fn open(bytes: Vec<u8>) -> Result<Pdb, PdbError> {
        let length = bytes.len() as u64;
        Pdb::read(Box::new(bytes), length, String::new())
    }

    /// Opens a file and reads parts of it when they are needed.
    ///
    /// # Errors
    /// As for [`Pdb::open`], or if the file cannot be read.
    pub fn open_path(path: &Path) -> Result<Pdb, PdbError> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Pdb::read(Box::new(RandomAccessFile::from(file)), length, name)
    }

    fn read(source: Source, length: u64, name: String) -> Result<Pdb, PdbError> {
        let streams = Streams::open(source, length)?;
        let info = read_info(&streams)?;
        let dbi = read_dbi(&streams)?;
        let addresses = read_addresses(&streams, &dbi)?;
        Ok(Pdb { streams, name, info, dbi, addresses })
    }

    /// What an image calls this PDB. The age is that of the DBI stream: it stays the same when a tool adds streams to
    /// the PDB, which counts up the age in the info stream.
    ///
    /// The name is that of the file; empty for bytes, as a PDB does not hold its own.
    pub fn identity(&self) -> PdbIdentity {
        let age = self.dbi.header().map_or(self.info.age, |header| header.age.get());
        let guid = self.info.unique_id.map(|id| Guid(id.to_bytes_le())).unwrap_or_default();
        PdbIdentity { name: self.name.clone(), guid, age }
    }

    /// How often anything in the file was written. Not what an image's debug directory has.
    pub fn info_age(&self) -> u32 {
        self.info.age
    }

    /// The processor: `IMAGE_FILE_MACHINE_*`, such as 0x8664 for x64; 0 if not said.
    pub fn machine(&self) -> u16 {
        self.dbi.header().map_or(0, |header| header.machine.get())
    }

    /// The sections of the image. None if there is no native code, as for managed images.
    pub fn sections(&self) -> &[Section] {
        &self.addresses.sections
    }

    /// Whether the image was rearranged after linking, with addresses to be translated.
    pub fn is_rearranged(&self) -> bool {
        self.addresses.omap.is_some()
    }

    /// Reads the symbols that the linker knew: decorated names without a length.
    ///
    /// # Errors
    /// If their stream is damaged.
    pub fn publics(&self) -> Result<Publics, PdbError> {
        const WHAT: &str = "stream of global symbols";
        let header = self.dbi.header().map_err(|error| PdbError::damaged("DBI header", error))?;
        let records = match header.global_symbol_stream.get() {
            Some(stream) => self.streams.read(stream, WHAT)?,
            None => StreamData::empty(),
        };
        Ok(Publics { records })
    }

    /// Reads the compiled modules (object files) one after the other.
    pub fn modules(&self) -> Modules<'_> {
        Modules::new(self)
    }

    /// Where something is in the image: section, counted from 1, and offset, as records have them. None if there is no
    /// such section, or if the code was removed.
    pub fn rva(&self, location: SectionOffset) -> Option<Rva> {
        self.addresses.translate(self.addresses.original(location.section, location.offset)?)
    }

    /// Where `length` bytes are in the image, in the order of addresses: one range, or several in a rearranged image,
    /// with the code that was added to them.
    pub fn ranges(&self, location: SectionOffset, length: u32) -> Vec<Range<Rva>> {
        let mut parts = Vec::new();
        if let Some(original) = self.addresses.original(location.section, location.offset) {
            self.addresses.ranges(original, length, |part| parts.push(part));
        }
        parts.sort_unstable_by_key(|part| part.start);
        let mut ranges: Vec<Range<Rva>> = Vec::with_capacity(1);
        for part in parts {
            match ranges.last_mut() {
                Some(last) if part.start <= last.end.0 => last.end = last.end.max(Rva(part.end)),
                _ => ranges.push(Rva(part.start)..Rva(part.end)),
            }
        }
        ranges
    }
}

/// A place in the image as the linker wrote it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct SectionOffset {
    /// Number of the section, from 1.
    pub section: u16,
    /// Bytes from its start.
    pub offset: u32,
}

/// The stream of public symbols.
pub struct Publics {
    records: StreamData,
}

impl std::fmt::Debug for Publics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Publics({} bytes)", self.records.len())
    }
}

impl Publics {
    /// All of them, in the order of the stream.
    pub fn iter(&self) -> impl Iterator<Item = Symbol<'_>> {
        /// `CVPSF_FUNCTION`
        const FUNCTION: u32 = 1 << 1;
        SymIter::new(&self.records).filter(|record| record.kind == SymKind::S_PUB32).filter_map(|record| {
            let public: Pub<'_> = record.parse_as().ok()?;
            let location = public.offset_segment();
            Some(Symbol {
                name: public.name,
                kind: SymbolKind::Public { function: public.fixed.flags.get() & FUNCTION != 0 },
                location: SectionOffset { section: location.segment(), offset: location.offset() },
                length: 0,
            })
        })
    }
}

fn read_info(streams: &Streams) -> Result<PdbiStream, PdbError> {
    const WHAT: &str = "info stream";
    let stream = streams.read(INFO, WHAT)?;
    // Behind version, signature, age and GUID.
    let names_size = u32_at(&stream, 28).unwrap_or(0);
    let names = u32_at(&stream, names_size as usize + 32).unwrap_or(0);
    let cost = u64::from(names_size) * u64::from(names);
    if cost > STREAM_NAMES_COST_MAX {
        return Err(PdbError::TooLarge {
            what: "the names of streams",
            size: cost,
            limit: STREAM_NAMES_COST_MAX,
        });
    }
    let info = PdbiStream::parse(&stream).map_err(|error| PdbError::damaged(WHAT, error))?;
    if info.unique_id.is_none() { Err(PdbError::Old) } else { Ok(info) }
}

fn read_dbi(streams: &Streams) -> Result<DbiStream, PdbError> {
    const WHAT: &str = "DBI stream";
    let stream = streams.read(DBI, WHAT)?;
    if stream.len() < DBI_STREAM_HEADER_LEN {
        let reason =
            format!("{} bytes, where a header of {DBI_STREAM_HEADER_LEN} was expected", stream.len());
        return Err(PdbError::damaged(WHAT, reason));
    }
    DbiStream::parse(stream.into_vec()).map_err(|error| PdbError::damaged(WHAT, error))
}

fn read_addresses(streams: &Streams, dbi: &DbiStream) -> Result<Addresses, PdbError> {
    let extras = OptionalDebugHeader::parse(dbi.optional_debug_header_bytes())
        .map_err(|error| PdbError::damaged("optional debug header", error))?;
    let read = |extra: Extra, what| match extras.stream(extra) {
        Some(stream) => streams.read(stream, what).map(Some),
        None => Ok(None),
    };
    let in_image = read(Extra::section_header_data, "section headers")?.unwrap_or_default();
    let in_image = sections(&in_image);
    let original = read(Extra::original_section_header_data, "original section headers")?;
    let from_source = read(Extra::omap_from_src_data, "OMAP from source")?;
    let to_source = read(Extra::omap_to_src_data, "OMAP to source")?;
    // Some tools leave the original sections out, where they did not change.
    let original = original.map_or_else(|| in_image.clone(), |original| sections(&original));
    let omap = from_source.zip(to_source).map(|(from, to)| Omap::parse(&from, &to));
    Ok(Addresses { original, sections: in_image, omap })
}

/// The little-endian number at an offset.
fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    bytes.get(offset..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}
