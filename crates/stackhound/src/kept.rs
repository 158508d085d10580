//! Keeps the indexes of traces of events in the user's cache folder, so that only the first question
//! about a trace reads it.
//!
//! A file of the folder consists of the length of a text, the text, and an index. The text states
//! everything that the index depends on: the version of the program, the options, the size, time and
//! a checksum of each file of the trace, and the searches for symbol files with their results. If any
//! of it is different now, the index is not used, and replaced. The checksum covers 68 ranges of
//! a file, not all of it: a change that keeps the size and the time of a file, and all of these ranges,
//! is not noticed.

use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use stackhound_calltree::Trace;
use stackhound_pipeline::Enrichment;
use stackhound_symbols::store::Store;
use stackhound_symbols::temporary::Temporary;
use stackhound_trace::{Grouping, trace_paths};

/// Raise this if the same trace and the same symbols give another index than before.
const MODEL_VERSION: u32 = 4;

/// The folder of the indexes in the user's cache folder.
const FOLDER: &str = "indexes";

/// The size of all kept indexes. The indexes that were not used for the longest time are removed.
const SIZE_MAX: u64 = 4 << 30;

/// The bytes of a file in its checksum: those at the start and at the end, and ranges between them.
const ENDS: u64 = 64 << 10;
const RANGE: u64 = 4 << 10;
const RANGES: u64 = 66;

/// The place of a trace's index.
#[derive(Debug)]
pub(crate) struct Place {
    file: PathBuf,
    /// What the index depends on, without the symbols.
    source: String,
    paths: Vec<PathBuf>,
    store: Arc<Store>,
}

impl Place {
    /// The place for the index of a trace. `None` if there are no symbols, the user has no cache folder,
    /// or the trace cannot be read.
    pub fn of(path: &Path, enrichment: &Enrichment, grouping: Grouping) -> Option<Place> {
        let store = Arc::clone(enrichment.symbolizer.as_ref()?.store()?);
        let folder = store.cache()?.join(FOLDER);
        let paths = trace_paths(path).ok()?;
        let (version, pdb) = (env!("CARGO_PKG_VERSION"), cfg!(feature = "pdb"));
        let mut source = format!("{version}\t{MODEL_VERSION}\t{pdb}\t{grouping:?}\n");
        source += &identities(&paths).ok()?;
        let mut hasher = hasher();
        hasher.write(source.as_bytes());
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let file = folder.join(format!("{stem}-{:016x}.index", hasher.finish()));
        Some(Place { file, source, paths, store })
    }

    /// Opens the index, if it is current and undamaged. Also returns whether bytes of the trace could not
    /// be read.
    ///
    /// Reads all bytes of the index once, and repeats the searches for symbol files.
    pub fn open(&self) -> Option<(Trace, bool)> {
        let bytes = stackhound_trace::bytes_of(&self.file).ok()?;
        let (length, _) = bytes.split_first_chunk()?;
        let end = 4_usize.checked_add(u32::from_le_bytes(*length) as usize)?;
        let text = std::str::from_utf8(bytes.get(4..end)?).ok()?;
        let (damage, searches) = text.strip_prefix(&self.source)?.split_once('\n')?;
        if !searches.lines().all(|search| self.store.finds_the_same(search)) {
            return None;
        }
        let trace = Trace::open(bytes.slice(end..)).ok()?;
        // The time of the last use. Without it, the index is removed too early.
        let _ = File::options()
            .append(true)
            .open(&self.file)
            .and_then(|file| file.set_modified(SystemTime::now()));
        Some((trace, damage == "damaged"))
    }

    /// Writes an index that was made from the trace, unless the trace was changed since.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn keep(&self, trace: &Trace, is_damaged: bool) -> io::Result<()> {
        if !identities(&self.paths).is_ok_and(|now| self.source.ends_with(&now)) {
            return Ok(());
        }
        let mut searches = self.store.searches();
        searches.sort_unstable();
        let damage = if is_damaged { "damaged" } else { "complete" };
        let text = format!("{}{damage}\n{}", self.source, searches.join("\n"));
        let folder = self.file.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder)?;
        let length = (text.len() as u32).to_le_bytes();
        write_whole(&self.file, &[&length, text.as_bytes(), trace.as_bytes()])?;
        limit(folder, &self.file, SIZE_MAX)
    }
}

/// Writes a temporary file and renames it, so that no incomplete index is ever visible.
pub(crate) fn write_whole(path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let mut file = Temporary::in_folder(folder.unwrap_or(Path::new(".")))?;
    parts.iter().try_for_each(|part| file.write_all(part))?;
    file.persist(path)
}

/// A hash function that is the same in all processes.
fn hasher() -> impl Hasher {
    foldhash::quality::FixedState::with_seed(0).build_hasher()
}

/// The sizes, times and checksums of files, a line for each.
fn identities(paths: &[PathBuf]) -> io::Result<String> {
    paths.iter().map(|path| identity(path)).collect()
}

fn identity(path: &Path) -> io::Result<String> {
    // Opening a pipe waits for a writer.
    if !fs::metadata(path)?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut file = File::open(path)?;
    let facts = file.metadata()?;
    let time = facts.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let size = facts.len();
    let mut hasher = hasher();
    let mut buffer = Vec::new();
    let mut add = |start: u64, length: u64| {
        buffer.clear();
        file.seek(SeekFrom::Start(start))?;
        (&mut file).take(length).read_to_end(&mut buffer)?;
        hasher.write(&buffer);
        io::Result::Ok(())
    };
    add(0, ENDS)?;
    for number in 1..=RANGES {
        add(size / (RANGES + 1) * number, RANGE)?;
    }
    add(size.saturating_sub(ENDS), ENDS)?;
    Ok(format!("{size}\t{time}\t{:016x}\n", hasher.finish()))
}

/// Removes the indexes that were not used for the longest time, until all have at most this size.
fn limit(folder: &Path, kept: &Path, size_max: u64) -> io::Result<()> {
    let mut indexes = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        // Another process may have removed it.
        let Ok(facts) = entry.metadata() else { continue };
        if entry.path() != kept {
            indexes.push((facts.modified().unwrap_or(UNIX_EPOCH), facts.len(), entry.path()));
        }
    }
    indexes.sort();
    let mut size = fs::metadata(kept)?.len() + indexes.iter().map(|(_, size, _)| size).sum::<u64>();
    for (_, length, path) in indexes {
        if size <= size_max {
            break;
        }
        let _ = fs::remove_file(path);
        size -= length;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_indexes_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for (age, name) in ["new", "old", "older", "oldest"].into_iter().enumerate() {
            fs::write(path(name), [0; 10]).unwrap();
            let time = SystemTime::now() - std::time::Duration::from_secs(age as u64 * 100);
            File::options().append(true).open(path(name)).unwrap().set_modified(time).unwrap();
        }
        let left = |size_max| {
            limit(folder.path(), &path("oldest"), size_max).unwrap();
            let names = fs::read_dir(folder.path()).unwrap();
            let mut names: Vec<_> =
                names.map(|name| name.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names.join(" ")
        };
        assert_eq!(left(40), "new old older oldest");
        assert_eq!(left(39), "new old oldest");
        assert_eq!(left(20), "new oldest");
        assert_eq!(left(1), "oldest");
    }

    /// Every byte of a small file, and the size and the time of any, are in its identity.
    #[test]
    fn changed_files_have_other_identities() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        let of = |bytes: &[u8], time| {
            fs::write(&path, bytes).unwrap();
            File::options().append(true).open(&path).unwrap().set_modified(time).unwrap();
            identity(&path).unwrap()
        };
        let bytes = vec![7; 100_000];
        let before = of(&bytes, time);
        assert_eq!(of(&bytes, time), before);
        assert_ne!(of(&bytes, time + std::time::Duration::from_nanos(100)), before);
        assert_ne!(of(&bytes[1..], time), before);
        for at in (0..bytes.len()).step_by(4_999) {
            let mut changed = bytes.clone();
            changed[at] = 8;
            assert_ne!(of(&changed, time), before, "{at}");
        }
    }
}
