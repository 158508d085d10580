//! Image files in directories.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The limit of examined files.
const FILES_MAX: usize = 1 << 16;
/// The limit of the size of examined files, in bytes.
const SIZE_MAX: u64 = 256 << 20;
/// The limit of nested folders.
const DEPTH_MAX: usize = 8;

/// All files in some folders and their subfolders: those of the first folder by path, then those
/// of the next one. Links are not followed.
pub fn image_files(folders: &[PathBuf]) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for folder in folders {
        let start = files.len();
        add_folder(folder, DEPTH_MAX, &mut files);
        files[start..].sort_unstable();
    }
    files
}

fn add_folder(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() && depth > 0 {
            add_folder(&entry.path(), depth - 1, files);
        } else if kind.is_file() && files.len() < FILES_MAX {
            files.push(entry.path());
        }
    }
}

/// The bytes of a file that can be an image. `None` for other files, and for unreadable ones.
pub fn read(path: &Path) -> Option<Vec<u8>> {
    let file = File::open(path).ok()?;
    let mut bytes = Vec::new();
    let mut start = file.take(SIZE_MAX + 1);
    // Most files of a symbol store are not images, so the first bytes are checked first.
    (&mut start).take(2).read_to_end(&mut bytes).ok()?;
    if bytes != b"MZ" {
        return None;
    }
    start.read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= SIZE_MAX).then_some(bytes)
}
