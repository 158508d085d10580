//! Files that are written under a temporary name in their folder, and renamed when they are
//! complete.
//!
//! A process that is terminated drops nothing. All temporary names are therefore registered here,
//! and [`remove_all`] removes the remaining files.

use std::collections::BTreeSet;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use tempfile::{NamedTempFile, TempDir};

static PATHS: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn with_paths<T>(use_paths: impl FnOnce(&mut BTreeSet<PathBuf>) -> T) -> T {
    use_paths(&mut PATHS.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A file with a temporary name, which is removed when it is dropped.
#[derive(Debug)]
pub struct Temporary {
    file: NamedTempFile,
    path: PathBuf,
}

impl Temporary {
    /// Creates a file in a folder, with the usual permissions of new files.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn in_folder(folder: &Path) -> io::Result<Temporary> {
        let mut builder = tempfile::Builder::new();
        builder.prefix(".stackhound-").suffix(".part");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            builder.permissions(std::fs::Permissions::from_mode(0o666));
        }
        // The lock prevents that a file is created while others are removed, and left.
        with_paths(|paths| {
            let file = builder.tempfile_in(folder)?;
            let path = file.path().to_owned();
            paths.insert(path.clone());
            Ok(Temporary { file, path })
        })
    }

    /// Returns the temporary path.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Renames the file. Replaces an existing file.
    ///
    /// # Errors
    /// The file cannot be renamed.
    pub fn persist(self, location: &Path) -> io::Result<()> {
        let persisted = self.file.persist(location);
        with_paths(|paths| paths.remove(&self.path));
        persisted.map(|_| ()).map_err(|error| error.error)
    }
}

impl Write for Temporary {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Seek for Temporary {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

/// Creates a folder in the system's folder for temporary files, which only its user can read. It is
/// removed when it is dropped.
///
/// # Errors
/// The folder cannot be created.
pub fn folder() -> io::Result<TempDir> {
    let create = || {
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            tempfile::Builder::new().permissions(std::fs::Permissions::from_mode(0o700)).tempdir()
        }
        #[cfg(not(unix))]
        tempfile::tempdir()
    };
    with_paths(|paths| {
        let folder = create()?;
        paths.insert(folder.path().to_owned());
        Ok(folder)
    })
}

/// Removes all temporary files and folders of this process, before it exits.
pub fn remove_all() {
    with_paths(|paths| {
        for path in std::mem::take(paths) {
            let _ = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_files_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let [complete, dropped, left] = [(); 3].map(|()| Temporary::in_folder(folder.path()).unwrap());
        complete.persist(&folder.path().join("complete")).unwrap();
        drop(dropped);
        let other = super::folder().unwrap();
        std::fs::write(other.path().join("file"), "text").unwrap();
        assert!(left.path().exists());
        remove_all();
        assert!(!other.path().exists());
        let names: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["complete"]);
    }
}
