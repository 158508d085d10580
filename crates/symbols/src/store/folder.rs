//! Searches folders for files, ignoring the case of their names.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::wanted::Wanted;

/// Maximum number of names of a folder that are stored. In larger folders, names beyond it must
/// match in case.
const NAMES_MAX: usize = 1 << 18;

/// A file that may be the wanted one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Candidate {
    File(PathBuf),
    /// A packed file, or a reference to another location.
    Packed(PathBuf),
}

/// The names in folders, by lower-case name. A folder is listed at most once, and only if a name is
/// not found in the requested case.
#[derive(Debug, Default)]
pub(super) struct Folders {
    listed: Mutex<HashMap<PathBuf, Arc<Listing>>>,
}

type Listing = HashMap<String, OsString>;

impl Folders {
    /// Returns the files with this name in a folder: directly in it, or sorted by extension as
    /// Windows debuggers expect.
    pub fn in_folder(&self, folder: &Path, wanted: &Wanted) -> Vec<Candidate> {
        let (name, extension) = (wanted.name.as_str(), wanted.name.extension());
        let elements: [&[&str]; 3] = [&[name], &[extension, name], &["symbols", extension, name]];
        let found = elements.into_iter().filter_map(|location| self.file(folder, location));
        found.map(Candidate::File).chain(self.in_store(folder, wanted)).collect()
    }

    /// Returns the files with this name and key in a store.
    pub fn in_store(&self, store: &Path, wanted: &Wanted) -> Vec<Candidate> {
        let (name, key) = (wanted.name.as_str(), wanted.key.as_str());
        let mut found = Vec::new();
        self.in_key_folder(store, &[name, key], name, &mut found);
        // Large stores are sorted by the first two characters, which this file indicates.
        if found.is_empty() && store.join("index2.txt").is_file() {
            let start: String = name.chars().take(2).collect();
            self.in_key_folder(store, &[&start, name, key], name, &mut found);
        }
        found
    }

    fn in_key_folder(&self, store: &Path, folder: &[&str], name: &str, found: &mut Vec<Candidate>) {
        let Some(folder) = self.path(store, folder) else { return };
        found.extend(self.file(&folder, &[name]).map(Candidate::File));
        // makecab replaces the last character by an underscore.
        let packed: String = name.chars().take(name.chars().count() - 1).chain(['_']).collect();
        for name in [packed.as_str(), "file.ptr"] {
            found.extend(self.file(&folder, &[name]).map(Candidate::Packed));
        }
    }

    fn file(&self, folder: &Path, names: &[&str]) -> Option<PathBuf> {
        self.path(folder, names).filter(|path| path.is_file())
    }

    /// Returns the path of names below a folder, in their actual case.
    fn path(&self, folder: &Path, names: &[&str]) -> Option<PathBuf> {
        let mut path = folder.to_owned();
        for name in names {
            if name.is_empty() {
                return None;
            }
            let as_written = path.join(name);
            path = if as_written.exists() {
                as_written
            } else {
                path.join(self.listing(&path).get(&name.to_lowercase())?)
            };
        }
        Some(path)
    }

    fn listing(&self, folder: &Path) -> Arc<Listing> {
        let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(listed.entry(folder.to_owned()).or_insert_with(|| Arc::new(list(folder))))
    }
}

fn list(folder: &Path) -> Listing {
    let mut listing = Listing::new();
    let Ok(entries) = std::fs::read_dir(folder) else { return listing };
    for name in entries.take(NAMES_MAX).filter_map(|entry| Some(entry.ok()?.file_name())) {
        let Some(key) = name.to_str().map(str::to_lowercase) else { continue };
        // If several names differ only in case, the least one is used.
        let known = listing.entry(key).or_insert_with(|| name.clone());
        if name < *known {
            *known = name;
        }
    }
    listing
}
