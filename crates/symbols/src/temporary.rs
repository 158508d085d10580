//! Files that are written under a temporary name beside their place, and get their own when they are complete.
//!
//! A process that is ended from outside drops nothing, so all temporary names are known here, and
//! [`remove_all`] removes what is left.

use std::collections::BTreeSet;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use tempfile::{NamedTempFile, TempDir};

static PATHS: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn with_paths<T>(use_them: impl FnOnce(&mut BTreeSet<PathBuf>) -> T) -> T {
    use_them(&mut PATHS.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A file without its name. Removed when it is dropped.
#[derive(Debug)]
pub struct Temporary {
    file: NamedTempFile,
    path: PathBuf,
}

impl Temporary {
    /// A new file in a folder, which others may read as far as they may read new files.
    ///
    /// # Errors
    /// If there can be none.
    pub fn in_folder(folder: &Path) -> io::Result<Temporary> {
        let mut builder = tempfile::Builder::new();
        builder.prefix(".stackhound-").suffix(".part");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            builder.permissions(std::fs::Permissions::from_mode(0o666));
        }
        // What is made while others are removed is not left behind.
        with_paths(|paths| {
            let file = builder.tempfile_in(folder)?;
            let path = file.path().to_owned();
            paths.insert(path.clone());
            Ok(Temporary { file, path })
        })
    }

    /// The temporary name.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Gives the file its name; replaces what had it.
    ///
    /// # Errors
    /// If it cannot have this name.
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

/// A new folder where the system keeps temporary files. Removed when it is dropped.
///
/// # Errors
/// If there can be none.
pub fn folder() -> io::Result<TempDir> {
    with_paths(|paths| {
        let folder = TempDir::new()?;
        paths.insert(folder.path().to_owned());
        Ok(folder)
    })
}

/// Removes all temporary files and folders of this process, for the end of it.
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
    fn what_has_no_name_yet_is_removed() {
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
