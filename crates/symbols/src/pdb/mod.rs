//! Program databases: names, source lines and inlined functions that the linker wrote for an image.
//!
//! This is a reader on top of `ms-pdb`, which parses the containers (MSF, MSFZ) and the records. It
//! adds the following: all sizes are checked before `ms-pdb` uses them, addresses are translated
//! (also for rearranged images), and records are reduced to the data that names an address. Streams
//! are read on demand, each at most once.
//!
//! The module is independent of images, of other sources of names, and of the location of a PDB.
//! Sources: <https://llvm.org/docs/PDB/index.html>, `cvinfo.h` of
//! <https://github.com/microsoft/microsoft-pdb>.

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

/// Maximum cost of comparing the names of streams. The library reads one name to its end for each
/// entry.
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
    /// The bytes are not a PDB, or a required part is damaged.
    pub fn open(bytes: Vec<u8>) -> Result<Pdb, PdbError> {
        let length = bytes.len() as u64;
        Pdb::read(Box::new(bytes), length, String::new())
    }

    /// Opens a file, and reads its parts on demand.
    ///
    /// # Errors
    /// See [`Pdb::open`]; in addition, the file cannot be read.
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

    /// Returns the identity by which an image refers to this PDB. The age is that of the DBI
    /// stream: it does not change when a tool adds streams to the PDB, which increments the age in
    /// the info stream.
    ///
    /// The name is that of the file. It is empty for bytes in memory, because a PDB does not
    /// contain its own name.
    pub fn identity(&self) -> PdbIdentity {
        let age = self.dbi.header().map_or(self.info.age, |header| header.age.get());
        let guid = self.info.unique_id.map(|id| Guid(id.to_bytes_le())).unwrap_or_default();
        PdbIdentity { name: self.name.clone(), guid, age }
    }

    /// Returns how often the file was written. This is not the age in an image's debug directory.
    pub fn info_age(&self) -> u32 {
        self.info.age
    }

    /// Returns the processor: `IMAGE_FILE_MACHINE_*`, such as 0x8664 for x64; 0 if unknown.
    pub fn machine(&self) -> u16 {
        self.dbi.header().map_or(0, |header| header.machine.get())
    }

    /// Returns the sections of the image. There are none without native code, as for managed
    /// images.
    pub fn sections(&self) -> &[Section] {
        &self.addresses.sections
    }

    /// Whether the image was rearranged after linking, so that addresses must be translated.
    pub fn is_rearranged(&self) -> bool {
        self.addresses.omap.is_some()
    }

    /// Reads the public symbols: decorated names without a length.
    ///
    /// # Errors
    /// The stream is damaged.
    pub fn publics(&self) -> Result<Publics, PdbError> {
        const PART: &str = "stream of global symbols";
        let header = self.dbi.header().map_err(|error| PdbError::damaged("DBI header", error))?;
        let records = match header.global_symbol_stream.get() {
            Some(stream) => self.streams.read(stream, PART)?,
            None => StreamData::empty(),
        };
        Ok(Publics { records })
    }

    /// Reads the compiled modules (object files) one after another.
    pub fn modules(&self) -> Modules<'_> {
        Modules::new(self)
    }

    /// Returns the address of a section number, from 1, and an offset, as records contain them.
    /// `None` if there is no such section, or if the code was removed.
    pub fn rva(&self, location: SectionOffset) -> Option<Rva> {
        self.addresses.translate(self.addresses.original(location.section, location.offset)?)
    }

    /// Returns the ranges that contain `length` bytes, in the order of addresses: one range, or
    /// several in a rearranged image, including code that was added to them.
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

/// A location in the image as the linker wrote it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct SectionOffset {
    /// The number of the section, from 1.
    pub section: u16,
    /// The offset from its start, in bytes.
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
    /// Iterates over the symbols in the order of the stream.
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
    const PART: &str = "info stream";
    let stream = streams.read(INFO, PART)?;
    // After version, signature, age and GUID.
    let names_size = u32_at(&stream, 28).unwrap_or(0);
    let names = u32_at(&stream, names_size as usize + 32).unwrap_or(0);
    let cost = u64::from(names_size) * u64::from(names);
    if cost > STREAM_NAMES_COST_MAX {
        return Err(PdbError::TooLarge {
            part: "the names of streams",
            size: cost,
            limit: STREAM_NAMES_COST_MAX,
        });
    }
    let info = PdbiStream::parse(&stream).map_err(|error| PdbError::damaged(PART, error))?;
    if info.unique_id.is_none() { Err(PdbError::Old) } else { Ok(info) }
}

fn read_dbi(streams: &Streams) -> Result<DbiStream, PdbError> {
    const PART: &str = "DBI stream";
    let stream = streams.read(DBI, PART)?;
    if stream.len() < DBI_STREAM_HEADER_LEN {
        let reason =
            format!("expected a header of {DBI_STREAM_HEADER_LEN} bytes, found {} bytes", stream.len());
        return Err(PdbError::damaged(PART, reason));
    }
    DbiStream::parse(stream.into_vec()).map_err(|error| PdbError::damaged(PART, error))
}

fn read_addresses(streams: &Streams, dbi: &DbiStream) -> Result<Addresses, PdbError> {
    let extras = OptionalDebugHeader::parse(dbi.optional_debug_header_bytes())
        .map_err(|error| PdbError::damaged("optional debug header", error))?;
    let read = |extra: Extra, part| match extras.stream(extra) {
        Some(stream) => streams.read(stream, part).map(Some),
        None => Ok(None),
    };
    let in_image = read(Extra::section_header_data, "section headers")?.unwrap_or_default();
    let in_image = sections(&in_image);
    let original = read(Extra::original_section_header_data, "original section headers")?;
    let from_source = read(Extra::omap_from_src_data, "OMAP from source")?;
    let to_source = read(Extra::omap_to_src_data, "OMAP to source")?;
    // Some tools omit the original sections if these did not change.
    let original = original.map_or_else(|| in_image.clone(), |original| sections(&original));
    let omap = from_source.zip(to_source).map(|(from, to)| Omap::parse(&from, &to));
    Ok(Addresses { original, sections: in_image, omap })
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    bytes.get(offset..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}
