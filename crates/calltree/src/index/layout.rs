//! The bytes of an index: a header, a table of sections, the sections. See
//! `docs/format/stack-index.md`.

use bytes::Bytes;

use crate::Error;

/// The first bytes of every index.
pub(crate) const MAGIC: &[u8; 8] = b"shstacks";
/// The version of the format. Other versions are not read: an index is rebuilt from its trace.
pub(crate) const VERSION: u32 = 3;

const HEADER: usize = 64;
const ENTRY: usize = 48;

/// The content of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Kind {
    Strings = 1,
    StringStarts = 2,
    Modules = 3,
    Locations = 4,
    Stacks = 5,
    Bounds = 6,
    Parentheses = 7,
    FrameLocations = 8,
    Classed = 9,
    Classes = 10,
    Inferred = 11,
    StartSlack = 12,
    EndSlack = 13,
    PeriodStarts = 14,
    PeriodStacks = 15,
    PeriodsByStack = 16,
    InferredPeriods = 17,
    PeriodSlack = 18,
    Times = 19,
    Cpus = 20,
    Labels = 21,
    LabelNames = 22,
    TailCalls = 23,
    TailContexts = 24,
    TailLocations = 25,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Header {
    /// The number of transitions of the trace.
    pub(crate) transitions: u64,
    /// The time of the first transition, in 100 ns since 1601, if times are known.
    pub(crate) origin: u64,
    /// The length and the checksum of the source file, or zeros.
    pub(crate) source: [u64; 2],
    /// The number of processors.
    pub(crate) cpus: u32,
    /// Bit 0: the trace is sampled. Bit 1: it has no switches of threads.
    pub(crate) flags: u32,
}

/// A section, with the numbers that are required to read it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Section {
    pub(crate) bytes: Bytes,
    /// Bits of each number, for numbers of a fixed width.
    pub(crate) width: u32,
    /// The number of items.
    pub(crate) count: u64,
    /// The greatest possible number, for rising numbers.
    pub(crate) greatest: u64,
    /// The offset in the file.
    pub(crate) offset: u64,
}

/// Assembles sections to a file.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    entries: Vec<(Kind, Section)>,
}

impl Writer {
    pub(crate) fn add(&mut self, kind: Kind, width: u32, count: u64, greatest: u64, bytes: Vec<u8>) {
        self.entries.push((kind, Section { bytes: bytes.into(), width, count, greatest, offset: 0 }));
    }

    /// Returns the whole file.
    pub(crate) fn finish(self, header: Header) -> Vec<u8> {
        let body = HEADER + ENTRY * self.entries.len();
        let total: usize =
            self.entries.iter().map(|(_, section)| section.bytes.len().next_multiple_of(8)).sum();
        let mut file = Vec::with_capacity(body + total);
        file.extend_from_slice(MAGIC);
        file.extend(VERSION.to_le_bytes());
        file.extend((self.entries.len() as u32).to_le_bytes());
        for word in [header.transitions, header.origin, header.source[0], header.source[1]] {
            file.extend(word.to_le_bytes());
        }
        file.extend(header.cpus.to_le_bytes());
        file.extend(header.flags.to_le_bytes());
        file.extend([0; 8]);
        let mut offset = body as u64;
        for (kind, section) in &self.entries {
            file.extend((*kind as u32).to_le_bytes());
            file.extend(section.width.to_le_bytes());
            for word in [section.count, section.greatest, offset, section.bytes.len() as u64] {
                file.extend(word.to_le_bytes());
            }
            file.extend(u64::from(crc32fast::hash(&section.bytes)).to_le_bytes());
            offset += section.bytes.len().next_multiple_of(8) as u64;
        }
        let checksum = crc32fast::hash(&file);
        file[HEADER - 8..HEADER - 4].copy_from_slice(&checksum.to_le_bytes());
        for (_, section) in self.entries {
            file.extend_from_slice(&section.bytes);
            file.resize(file.len().next_multiple_of(8), 0);
        }
        file
    }
}

/// The sections of a file with a valid header and valid checksums.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) header: Header,
    entries: Vec<(u32, Section)>,
}

impl Reader {
    /// Checks magic, version, lengths and checksums. Reads the whole file once.
    pub(crate) fn new(file: &Bytes) -> Result<Self, Error> {
        let damaged = |offset: usize, expected| Error::IndexDamaged { offset: offset as u64, expected };
        if !file.starts_with(MAGIC) {
            return Err(Error::NoIndex { expected: MAGIC });
        }
        let word32 = |at: usize| file.get(at..).and_then(|b| b.first_chunk()).map(|b| u32::from_le_bytes(*b));
        let word = |at: usize| file.get(at..).and_then(|b| b.first_chunk()).map(|b| u64::from_le_bytes(*b));
        let short = || damaged(file.len(), "the rest of the header");
        let version = word32(8).ok_or_else(short)?;
        if version != VERSION {
            return Err(Error::IndexVersion { found: version, expected: VERSION });
        }
        let count = word32(12).ok_or_else(short)? as usize;
        let body = count.checked_mul(ENTRY).and_then(|table| table.checked_add(HEADER)).ok_or_else(short)?;
        let head = file.get(..body).ok_or_else(short)?;
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&head[..HEADER - 8]);
        hasher.update(&[0; 4]);
        hasher.update(&head[HEADER - 4..]);
        if word32(HEADER - 8) != Some(hasher.finalize()) {
            return Err(damaged(HEADER - 8, "the checksum of the header"));
        }
        let field = |at| word(at).ok_or_else(short);
        let header = Header {
            transitions: field(16)?,
            origin: field(24)?,
            source: [field(32)?, field(40)?],
            cpus: word32(48).ok_or_else(short)?,
            flags: word32(52).ok_or_else(short)?,
        };
        let mut entries = Vec::with_capacity(count);
        for index in 0..count {
            let at = HEADER + index * ENTRY;
            let (offset, length) = (field(at + 24)?, field(at + 32)?);
            let end = offset.checked_add(length).and_then(|end| usize::try_from(end).ok());
            let range = end.and_then(|end| file.get(offset as usize..end));
            let bytes = range.ok_or_else(|| damaged(at + 24, "a section within the file"))?;
            if u64::from(crc32fast::hash(bytes)) != field(at + 40)? {
                return Err(damaged(offset as usize, "a section with a matching checksum"));
            }
            let section = Section {
                bytes: file.slice_ref(bytes),
                width: word32(at + 4).ok_or_else(short)?,
                count: field(at + 8)?,
                greatest: field(at + 16)?,
                offset,
            };
            entries.push((word32(at).ok_or_else(short)?, section));
        }
        Ok(Self { header, entries })
    }

    /// Returns the section of this kind, or an empty one if it is missing.
    pub(crate) fn section(&self, kind: Kind) -> Section {
        let found = self.entries.iter().find(|(found, _)| *found == kind as u32);
        found.map(|(_, section)| section.clone()).unwrap_or_default()
    }
}
