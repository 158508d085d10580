//! Unpacks `.zip` archives. A truncated archive has no central directory; its members are then read
//! sequentially up to the end of the file.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;

use stackhound_etl::{Damage, DamageReason};
use zip::ZipArchive;
use zip::read::read_zipfile_from_stream;

use super::{Source, UNPACKED_SIZE_MAX, Unpacked, etl_file};
use crate::Error;

/// Opens all .etl files of an archive.
pub(super) fn open(path: &Path, file: File, found: &mut Vec<Source>) -> Result<(), Error> {
    let packed = |error: String| Error::Packed(path.to_owned(), error);
    let size = file.metadata().map_err(|error| Error::Io(path.to_owned(), error))?.len();
    let mut reader = BufReader::new(file);
    let before = found.len();
    match ZipArchive::new(&mut reader) {
        Ok(mut archive) => read_members(path, &mut archive, found)?,
        Err(error) => {
            reader.seek(SeekFrom::Start(0)).map_err(|error| Error::Io(path.to_owned(), error))?;
            read_beginning(path, reader, size, found)?;
            if found.len() == before {
                return Err(packed(error.to_string()));
            }
        }
    }
    if found.len() == before {
        return Err(packed("no .etl file in the archive".to_owned()));
    }
    Ok(())
}

fn is_etl_name(name: &str) -> bool {
    name.to_lowercase().ends_with(".etl")
}

fn read_members(
    path: &Path,
    archive: &mut ZipArchive<&mut BufReader<File>>,
    found: &mut Vec<Source>,
) -> Result<(), Error> {
    let packed = |error: String| Error::Packed(path.to_owned(), error);
    let mut locations = Vec::new();
    for index in 0..archive.len() {
        let member = archive.by_index_raw(index).map_err(|error| packed(error.to_string()))?;
        let start = member.data_start().unwrap_or_default();
        locations.push((member.header_start(), start.saturating_add(member.compressed_size())));
    }
    locations.sort();
    // Overlapping members are a technique of decompression bombs.
    if locations.windows(2).any(|pair| pair[0].1 > pair[1].0) {
        return Err(packed("members of the archive overlap".to_owned()));
    }
    let mut left = UNPACKED_SIZE_MAX;
    for index in 0..archive.len() {
        let mut member = archive.by_index(index).map_err(|error| packed(error.to_string()))?;
        let member_name = member.name().map_err(|error| packed(error.to_string()))?.into_owned();
        if member.is_dir() || !is_etl_name(&member_name) {
            continue;
        }
        let start = member.data_start().unwrap_or_default();
        let (name, mut plain) = (format!("{}:{member_name}", path.display()), new(path, left)?);
        let copied = copy(&mut member, &mut plain);
        let failed = plain.accepted(&name, copied, path)?;
        left = left.saturating_sub(plain.size);
        // The checksum is compared after the last byte.
        let is_whole = plain.size == member.size();
        let damage = failed.then(|| Damage {
            offset: start,
            skipped: if is_whole { 0 } else { member.compressed_size() },
            reason: DamageReason::Packed(match is_whole {
                true => "the checksum of a member does not match what it decompresses to",
                false => "a member does not decompress to its end",
            }),
        });
        let bytes = plain.finish().map_err(|error| Error::Io(path.to_owned(), error))?;
        found.push(etl_file(name, bytes, Vec::from_iter(damage))?);
    }
    Ok(())
}

/// Reads the members of an archive without a central directory. The last member may be incomplete.
fn read_beginning(
    path: &Path,
    mut reader: BufReader<File>,
    size: u64,
    found: &mut Vec<Source>,
) -> Result<(), Error> {
    const REASON: DamageReason = DamageReason::Packed("the archive breaks off");
    let mut left = UNPACKED_SIZE_MAX;
    loop {
        let Ok(Some(mut member)) = read_zipfile_from_stream(&mut reader) else { break };
        let Ok(member_name) = member.name().map(|name| name.into_owned()) else { break };
        if !is_etl_name(&member_name) {
            let failed = copy(&mut member, &mut io::sink());
            if failed.is_ok_and(|failed| failed) { break } else { continue }
        }
        let (name, mut plain) = (format!("{}:{member_name}", path.display()), new(path, left)?);
        let copied = copy(&mut member, &mut plain);
        drop(member);
        let failed = plain.accepted(&name, copied, path)?;
        left = left.saturating_sub(plain.size);
        let at = reader.stream_position().unwrap_or(size).min(size);
        let damage = Damage { offset: at, skipped: size - at, reason: REASON };
        let bytes = plain.finish().map_err(|error| Error::Io(path.to_owned(), error))?;
        found.push(etl_file(name, bytes, vec![damage])?);
        if failed {
            break;
        }
    }
    Ok(())
}

fn new(path: &Path, limit: u64) -> Result<Unpacked, Error> {
    Unpacked::new(limit).map_err(|error| Error::Io(path.to_owned(), error))
}

/// Copies up to the end, or up to a read error, and returns whether there was one. `Err` if writing
/// fails.
fn copy(from: &mut impl Read, to: &mut impl Write) -> io::Result<bool> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(false),
            Ok(read) => to.write_all(&buffer[..read])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Ok(true),
        }
    }
}
