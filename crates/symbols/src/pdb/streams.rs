//! The container: numbered streams in an MSF or MSFZ file.
//!
//! `ms-pdb` reads both. It trusts the sizes in the headers when it allocates memory, and asserts
//! that a stream's number exists. All of these values are checked here before it is called. Later
//! requests cannot exceed the file.

use ms_pdb::{Container, ReadAt, StreamData, msf, msfz};

use super::{PdbError, u32_at};

/// The source of a PDB: a file, or bytes in memory.
pub(super) type Source = Box<dyn ReadAt + Send + Sync>;

/// An MSFZ file may unpack to this many times its size, plus [`UNPACKED_SIZE_FREE`]. Usual factors
/// are 3 to 10.
const UNPACKED_FACTOR: u64 = 64;
/// The number of bytes to which an MSFZ file of any size may unpack.
const UNPACKED_SIZE_FREE: u64 = 16 << 20;
/// Maximum number of streams: stream numbers in a PDB have 16 bits.
const STREAMS_MAX: u32 = 1 << 16;

const MSF: &[u8] = b"Microsoft C/C++ MSF 7.00\r\n\x1aDS\0\0\0";
const MSF_OLD: &[u8] = b"Microsoft C/C++ program database 2.00\r\n\x1aJG";
const PORTABLE: &[u8] = b"BSJB";
/// Size of an MSFZ header in bytes. An MSF header is smaller.
const HEADER_SIZE: usize = 80;

pub(super) struct Streams {
    container: Container<Source>,
}

impl Streams {
    /// Opens a file of `length` bytes. Reads its directory.
    pub fn open(source: Source, length: u64) -> Result<Streams, PdbError> {
        let mut header = [0; HEADER_SIZE];
        let read = usize::try_from(length).unwrap_or(HEADER_SIZE).min(HEADER_SIZE);
        source.read_exact_at(&mut header[..read], 0)?;
        let (container, limit) = if header.starts_with(MSF) {
            (open_msf(source, &header, length)?, length)
        } else if header.starts_with(&msfz::MSFZ_FILE_SIGNATURE) {
            let limit = length.saturating_mul(UNPACKED_FACTOR).saturating_add(UNPACKED_SIZE_FREE);
            (open_msfz(source, &header, length, limit)?, limit)
        } else if header.starts_with(PORTABLE) {
            return Err(PdbError::Portable);
        } else if header.starts_with(MSF_OLD) {
            return Err(PdbError::Old);
        } else {
            return Err(PdbError::NotPdb);
        };
        // A page belongs to at most one stream, so all streams together are at most as large as the
        // container.
        let all = (0..container.num_streams()).map(|stream| container.stream_len(stream)).sum();
        within("all streams", all, limit)?;
        Ok(Streams { container })
    }

    /// Reads a whole stream. The result is empty if the stream is marked as missing.
    pub fn read(&self, stream: u32, part: &'static str) -> Result<StreamData, PdbError> {
        if stream >= self.container.num_streams() {
            let reason =
                format!("stream {stream} does not exist; there are {}", self.container.num_streams());
            return Err(PdbError::damaged(part, reason));
        }
        if !self.container.is_stream_valid(stream) {
            return Ok(StreamData::empty());
        }
        self.container.read_stream(stream).map_err(|error| PdbError::damaged(part, error))
    }
}

fn open_msf(source: Source, header: &[u8], length: u64) -> Result<Container<Source>, PdbError> {
    let page_size = u32_at(header, 32).unwrap_or(0);
    let pages = u32_at(header, 40).unwrap_or(0);
    let directory = u32_at(header, 44).unwrap_or(0);
    if !page_size.is_power_of_two() || !(1 << 9..=1 << 16).contains(&page_size) {
        let reason =
            format!("expected a page size that is a power of two from 512 to 65536, found {page_size}");
        return Err(PdbError::damaged("MSF header", reason));
    }
    let expected = u64::from(pages) * u64::from(page_size);
    if expected > length {
        return Err(PdbError::Truncated { expected, found: length });
    }
    within("the directory of streams", u64::from(directory), length)?;
    let container =
        msf::Msf::open_with_file(source).map_err(|error| PdbError::damaged("MSF directory", error))?;
    Ok(Container::Msf(container))
}

fn open_msfz(source: Source, header: &[u8], length: u64, limit: u64) -> Result<Container<Source>, PdbError> {
    let field = |at| u64::from(u32_at(header, at).unwrap_or(0));
    within("the number of streams", field(56), u64::from(STREAMS_MAX))?;
    within("the packed directory of streams", field(64), length)?;
    within("the directory of streams", field(68), limit)?;
    within("the table of chunks", field(72) * size_of::<msfz::ChunkEntry>() as u64, length)?;
    let container =
        msfz::Msfz::from_file(source).map_err(|error| PdbError::damaged("MSFZ directory", error))?;
    let sum = |size: fn(&msfz::ChunkEntry) -> u32| -> u64 {
        container.chunks().iter().map(|chunk| u64::from(size(chunk))).sum()
    };
    within("all packed chunks", sum(|chunk| chunk.compressed_size.get()), length)?;
    within("all chunks", sum(|chunk| chunk.uncompressed_size.get()), limit)?;
    Ok(Container::Msfz(container))
}

fn within(part: &'static str, size: u64, limit: u64) -> Result<(), PdbError> {
    if size > limit { Err(PdbError::TooLarge { part, size, limit }) } else { Ok(()) }
}
