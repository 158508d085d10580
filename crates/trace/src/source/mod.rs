//! Where recordings come from: files, directories, `.zst` and `.zip` files around them.
//!
//! What a file is, its first bytes decide, not its name. Packed recordings are unpacked into an unnamed temporary file
//! and mapped like the others, so that they do not stay in memory.

mod map;

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use stackhound_etl::Recording;

use crate::Error;
pub use map::bytes_of;

/// A packed recording may not unpack to more than this; real ones stay far below, archives made to fill disks do not.
pub const UNPACKED_SIZE_MAX: u64 = 64 << 30;

const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const ZIP_MAGIC: [u8; 4] = *b"PK\x03\x04";

/// One opened recording and what to call it.
#[derive(Clone, Debug)]
pub struct Source {
    /// The path as it was given; with the member's name behind it for recordings inside an archive.
    pub name: String,
    /// The recording.
    pub recording: Recording,
}

/// Opens all recordings behind the given paths, in that order; a directory's in the order of their names.
pub(crate) fn open_all(paths: &[PathBuf]) -> Result<Vec<Source>, Error> {
    let mut found = Vec::new();
    for path in paths {
        if path.is_dir() {
            let files = recordings_in(path)?;
            if files.is_empty() {
                return Err(Error::NoRecordings(path.clone()));
            }
            for file in files {
                open_file(&file, &mut found)?;
            }
        } else {
            open_file(path, &mut found)?;
        }
    }
    let number = |(index, mut source): (usize, Source)| {
        source.recording = source.recording.numbered(index as u16);
        source
    };
    if found.len() > usize::from(u16::MAX) {
        return Err(Error::TooMany);
    }
    Ok(found.into_iter().enumerate().map(number).collect())
}

/// Files of a directory whose names say that they are recordings.
fn recordings_in(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let io_error = |error| Error::Io(directory.to_owned(), error);
    let mut files = Vec::new();
    for entry in directory.read_dir().map_err(io_error)? {
        let path = entry.map_err(io_error)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        if path.is_file() && [".etl", ".etl.zst", ".etl.zip"].iter().any(|end| name.ends_with(end)) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn open_file(path: &Path, found: &mut Vec<Source>) -> Result<(), Error> {
    let io_error = |error| Error::Io(path.to_owned(), error);
    let mut file = File::open(path).map_err(io_error)?;
    let mut magic = [0; 4];
    let read = file.read(&mut magic).map_err(io_error)?;
    file.seek(SeekFrom::Start(0)).map_err(io_error)?;
    let name = path.display().to_string();
    match magic {
        ZSTD_MAGIC if read == 4 => {
            let packed = io::BufReader::new(file);
            let plain = ruzstd::decoding::StreamingDecoder::new(packed)
                .map_err(|error| Error::Packed(path.to_owned(), error.to_string()))?;
            let bytes = unpack(plain).map_err(|error| Error::Packed(path.to_owned(), error.to_string()))?;
            found.push(recording(name, bytes)?);
        }
        ZIP_MAGIC if read == 4 => open_archive(path, file, found)?,
        _ => found.push(recording(name, map::bytes_of(file).map_err(io_error)?)?),
    }
    Ok(())
}

fn open_archive(path: &Path, file: File, found: &mut Vec<Source>) -> Result<(), Error> {
    let packed = |error: String| Error::Packed(path.to_owned(), error);
    let mut archive =
        zip::ZipArchive::new(io::BufReader::new(file)).map_err(|error| packed(error.to_string()))?;
    let before = found.len();
    for index in 0..archive.len() {
        let member = archive.by_index(index).map_err(|error| packed(error.to_string()))?;
        let member_name = member.name().map_err(|error| packed(error.to_string()))?;
        if member.is_dir() || !member_name.to_lowercase().ends_with(".etl") {
            continue;
        }
        let name = format!("{}:{member_name}", path.display());
        let bytes = unpack(member).map_err(|error| packed(error.to_string()))?;
        found.push(recording(name, bytes)?);
    }
    if found.len() == before {
        return Err(packed("no .etl file in the archive".to_owned()));
    }
    Ok(())
}

/// Unpacks into an unnamed temporary file.
fn unpack(plain: impl Read) -> io::Result<Bytes> {
    let mut file = tempfile::tempfile()?;
    let mut limited = plain.take(UNPACKED_SIZE_MAX + 1);
    let size = io::copy(&mut limited, &mut file)?;
    if size > UNPACKED_SIZE_MAX {
        return Err(io::Error::other("unpacks to more than 64 GiB"));
    }
    file.flush()?;
    if size == 0 { Ok(Bytes::new()) } else { map::bytes_of(file) }
}

fn recording(name: String, bytes: Bytes) -> Result<Source, Error> {
    match Recording::open(bytes) {
        Ok(recording) => Ok(Source { name, recording }),
        Err(error) => Err(Error::NotARecording(name, error)),
    }
}
