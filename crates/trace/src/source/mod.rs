//! Sources of traces: `.etl` files, directories, and compressed `.zst` and `.zip` files.
//!
//! The first bytes of a file determine its format, not its name. Compressed traces are unpacked
//! into an unnamed temporary file and mapped like the others, so that they do not occupy memory.

mod map;
mod zip;
mod zstd;

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use stackhound_etl::{Damage, EtlFile, OpenError};

use crate::Error;
pub use map::bytes_of;
#[cfg(unix)]
pub use map::on_shrunk_file;

/// Maximum unpacked size of one compressed file or archive, in bytes. Real traces are far smaller;
/// the limit protects against decompression bombs.
pub const UNPACKED_SIZE_MAX: u64 = 64 << 30;

const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const ZIP_MAGIC: [u8; 4] = *b"PK\x03\x04";

/// One opened .etl file and its display name.
#[derive(Clone, Debug)]
pub struct Source {
    /// The path as given; for files inside an archive, followed by a colon and the member's name.
    pub name: String,
    /// The opened file.
    pub etl_file: EtlFile,
    /// Regions of a compressed file that could not be unpacked. Offsets and sizes are those of the
    /// compressed file.
    pub packed_damage: Vec<Damage>,
}

impl Source {
    /// A source that was not compressed.
    pub fn new(name: impl Into<String>, etl_file: EtlFile) -> Source {
        Source { name: name.into(), etl_file, packed_damage: Vec::new() }
    }
}

/// The sources that were found under some paths.
#[derive(Debug, Default)]
pub(crate) struct Opened {
    pub sources: Vec<Source>,
    /// The errors of files of directories that were skipped.
    pub skipped: Vec<Error>,
}

/// Opens all traces under the given paths, in that order; those of a directory in the order of
/// their names. A file of a directory that cannot be opened is skipped, unless no source is left.
pub(crate) fn open_all(paths: &[PathBuf]) -> Result<Opened, Error> {
    let mut opened = Opened::default();
    for path in paths {
        if path.is_dir() {
            open_directory(path, &mut opened)?;
        } else {
            open_file(path, &mut opened.sources)?;
        }
    }
    if opened.sources.is_empty() && !opened.skipped.is_empty() {
        return Err(opened.skipped.remove(0));
    }
    if opened.sources.len() > usize::from(u16::MAX) {
        return Err(Error::TooMany);
    }
    for (source, number) in opened.sources.iter_mut().zip(0..) {
        source.etl_file = source.etl_file.clone().numbered(number);
    }
    Ok(opened)
}

fn open_directory(directory: &Path, opened: &mut Opened) -> Result<(), Error> {
    let files = traces_in(directory)?;
    if files.is_empty() {
        return Err(Error::NoTraces(directory.to_owned()));
    }
    for file in files {
        let before = opened.sources.len();
        if let Err(error) = open_file(&file, &mut opened.sources) {
            opened.sources.truncate(before);
            opened.skipped.push(error);
        }
    }
    Ok(())
}

/// The files that are opened for a path: the traces of a directory, in order, or the path itself.
///
/// # Errors
/// The directory cannot be read.
pub fn trace_paths(path: &Path) -> Result<Vec<PathBuf>, Error> {
    if path.is_dir() { traces_in(path) } else { Ok(vec![path.to_owned()]) }
}

/// Files of a directory that are traces by their names.
fn traces_in(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let io_error = |error| Error::Io(directory.to_owned(), error);
    let mut files = Vec::new();
    for entry in directory.read_dir().map_err(io_error)? {
        let path = entry.map_err(io_error)?.path();
        if path.is_file() && is_trace_name(&path.file_name().unwrap_or_default().to_string_lossy()) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Whether a file of a directory is regarded as a trace, by its name: `.etl`, `.etl.zst` or
/// `.etl.zip`.
pub fn is_trace_name(name: &str) -> bool {
    let name = name.to_lowercase();
    [".etl", ".etl.zst", ".etl.zip"].iter().any(|end| name.ends_with(end))
}

fn open_file(path: &Path, found: &mut Vec<Source>) -> Result<(), Error> {
    let io_error = |error| Error::Io(path.to_owned(), error);
    // Opening a pipe waits for a writer, and devices have no end.
    if !path.metadata().map_err(io_error)?.is_file() {
        return Err(Error::NoRegularFile(path.to_owned()));
    }
    let mut file = File::open(path).map_err(io_error)?;
    let mut magic = [0; 4];
    let read = file.read(&mut magic).map_err(io_error)?;
    file.seek(SeekFrom::Start(0)).map_err(io_error)?;
    let name = path.display().to_string();
    match magic {
        _ if read < 4 => found.push(etl_file(name, map::bytes_of(path).map_err(io_error)?, Vec::new())?),
        ZIP_MAGIC => zip::open(path, file, found)?,
        _ if magic == ZSTD_MAGIC || zstd::is_skippable(magic) => {
            let mut plain = Unpacked::new(UNPACKED_SIZE_MAX).map_err(io_error)?;
            let unpacked = zstd::unpack(&file, &mut plain);
            let damage = plain.accepted(&name, unpacked, path)?;
            let bytes = plain.finish().map_err(io_error)?;
            // If nothing was unpacked, the reason is an error and not damage.
            if let (true, Some(damage)) = (bytes.is_empty(), damage.first()) {
                return Err(Error::Packed(path.to_owned(), damage.reason.to_string()));
            }
            found.push(etl_file(name, bytes, damage)?);
        }
        _ => found.push(etl_file(name, map::bytes_of(path).map_err(io_error)?, Vec::new())?),
    }
    Ok(())
}

/// Number of bytes that is sufficient to check whether data begins as an .etl file.
const HEAD_SIZE: usize = 1 << 16;

static ZEROS: [u8; 1 << 12] = [0; 1 << 12];

/// An unnamed temporary file for unpacked data, up to a size limit. Data that does not begin as an
/// .etl file is refused. Zeros are stored as holes.
struct Unpacked {
    file: File,
    size: u64,
    limit: u64,
    /// The first bytes, until there are enough to check them.
    head: Option<Vec<u8>>,
    refused: Option<OpenError>,
}

impl Unpacked {
    fn new(limit: u64) -> io::Result<Unpacked> {
        Ok(Unpacked { file: tempfile::tempfile()?, size: 0, limit, head: Some(Vec::new()), refused: None })
    }

    /// The result of unpacking, or the reason why this file refused the data.
    fn accepted<T>(&mut self, name: &str, unpacked: io::Result<T>, path: &Path) -> Result<T, Error> {
        match self.refused.take() {
            Some(refused) => Err(Error::NotATrace(name.to_owned(), refused)),
            None => unpacked.map_err(|error| Error::Packed(path.to_owned(), error.to_string())),
        }
    }

    fn finish(mut self) -> io::Result<Bytes> {
        self.file.flush()?;
        self.file.set_len(self.size)?;
        if self.size == 0 { Ok(Bytes::new()) } else { map::map(self.file) }
    }

    /// Checks the first bytes once there are enough of them.
    fn look(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(head) = &mut self.head else { return Ok(()) };
        head.extend_from_slice(&bytes[..bytes.len().min(HEAD_SIZE - head.len())]);
        if head.len() == HEAD_SIZE {
            let opened = EtlFile::open(Bytes::from(std::mem::take(head)));
            self.head = None;
            if let Err(error) = opened
                && !matches!(error, OpenError::FirstBufferCutOff { .. })
            {
                self.refused = Some(error);
                return Err(io::Error::other("not an .etl file"));
            }
        }
        Ok(())
    }
}

impl Write for Unpacked {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.size.saturating_add(bytes.len() as u64) > self.limit {
            return Err(io::Error::other("unpacks to more than 64 GiB"));
        }
        self.look(bytes)?;
        let written = match bytes.chunks(ZEROS.len()).all(|part| part == &ZEROS[..part.len()]) {
            true => {
                self.file.seek(SeekFrom::Current(bytes.len() as i64))?;
                bytes.len()
            }
            false => self.file.write(bytes)?,
        };
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn etl_file(name: String, bytes: Bytes, packed_damage: Vec<Damage>) -> Result<Source, Error> {
    let size = bytes.len();
    match EtlFile::open(bytes) {
        Ok(etl_file) => {
            tracing::debug!(name, bytes = size, "trace opened");
            Ok(Source { name, etl_file, packed_damage })
        }
        Err(error) => Err(Error::NotATrace(name, error)),
    }
}
