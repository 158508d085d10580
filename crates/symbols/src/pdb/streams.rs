//! The container: numbered streams in an MSF or MSFZ file.
//!
//! `ms-pdb` reads both. It trusts sizes in the headers when it allocates, and asserts that a stream's number exists.
//! Everything of that kind is checked here before it is called; what it is asked for after that cannot exceed the file.

use ms_pdb::{Container, ReadAt, StreamData, msf, msfz};

use super::{PdbError, u32_at};

/// What a PDB is read from: a file, or bytes in memory.
pub(super) type Source = Box<dyn ReadAt + Send + Sync>;

/// An MSFZ file may unpack to this many times its size, and [`UNPACKED_SIZE_FREE`]. Usual is 3 to 10.
const UNPACKED_FACTOR: u64 = 64;
/// What an MSFZ file of any size may unpack to, in bytes.
const UNPACKED_SIZE_FREE: u64 = 16 << 20;
/// A stream's number is 16 bits wide in a PDB.
const STREAMS_MAX: u32 = 1 << 16;

const MSF: &[u8] = b"Microsoft C/C++ MSF 7.00\r\n\x1aDS\0\0\0";
const MSF_OLD: &[u8] = b"Microsoft C/C++ program database 2.00\r\n\x1aJG";
const PORTABLE: &[u8] = b"BSJB";
/// Bytes of an MSFZ header, of which an MSF header has fewer.
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
        // No page belongs to two streams, so that all of them together are no larger than what they are in.
        let all = (0..container.num_streams()).map(|stream| container.stream_len(stream)).sum();
        within("all streams", all, limit)?;
        Ok(Streams { container })
    }

    /// The whole of a stream; empty if it is said not to be there.
    pub fn read(&self, stream: u32, what: &'static str) -> Result<StreamData, PdbError> {
        if stream >= self.container.num_streams() {
            let reason = format!("stream {stream} of {}", self.container.num_streams());
            return Err(PdbError::damaged(what, reason));
        }
        if !self.container.is_stream_valid(stream) {
            return Ok(StreamData::empty());
        }
        self.container.read_stream(stream).map_err(|error| PdbError::damaged(what, error))
    }
}

fn open_msf(source: Source, header: &[u8], length: u64) -> Result<Container<Source>, PdbError> {
    let page_size = u32_at(header, 32).unwrap_or(0);
    let pages = u32_at(header, 40).unwrap_or(0);
    let directory = u32_at(header, 44).unwrap_or(0);
    if !page_size.is_power_of_two() || !(1 << 9..=1 << 16).contains(&page_size) {
        let reason =
            format!("a page size of {page_size} bytes, where a power of two from 512 to 65536 was expected");
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

fn within(what: &'static str, size: u64, limit: u64) -> Result<(), PdbError> {
    if size > limit { Err(PdbError::TooLarge { what, size, limit }) } else { Ok(()) }
}
