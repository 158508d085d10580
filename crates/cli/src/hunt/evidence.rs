//! The detector's lists, image files and symbol files.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use sha2::{Digest, Sha256};
use stackhound::detect::{Binaries, Detector};
use stackhound::frames::Lists;
use stackhound::symbols::file_loader;
use stackhound::symbols::image::Image;
use stackhound::types::{ImageIdentity, ModuleIdentity};

use super::Arguments;
use crate::config::Config;
use crate::options::Common;
use crate::{inputs, naming};

/// Builds a detector with the lists and files of the arguments.
pub fn detector(arguments: &Arguments, common: &Common) -> Result<Detector> {
    Ok(Detector::new(lists(arguments)?, binaries(arguments, common)?))
}

fn lists(arguments: &Arguments) -> Result<Lists> {
    let lists = match &arguments.lists {
        None => Lists::default(),
        Some(file) => {
            let at = |error: stackhound::frames::lists::ListsError| {
                anyhow!("{}:{}: {}", file.display(), error.line, error.message)
            };
            Lists::with(&inputs::text(file)?).map_err(at)?
        }
    };
    match &arguments.known_images {
        None => Ok(lists),
        Some(file) => Ok(lists.with_known_images(&inputs::text(file)?)),
    }
}

/// The files of `--images`, then those along the symbol path.
fn binaries(arguments: &Arguments, common: &Common) -> Result<Binaries> {
    let config = Config::read(common, &arguments.symbols)?;
    let mut options = naming::store_options(&config, common)?;
    for folder in arguments.images.iter().rev() {
        if !folder.is_dir() {
            bail!("{}: --images needs a directory", folder.display());
        }
        options.path = options.path.with_first(folder.clone());
    }
    let (_, load) = file_loader(options, true);
    // Sysmon reports hashes of files, but not their headers. The files are hashed on first use.
    let (folders, hashes) = (arguments.images.clone(), OnceCell::new());
    Ok(Binaries::new(Box::new(move |module| {
        let hash = module.sha256.as_ref().filter(|_| module.identity.image.is_none());
        let known = hash.and_then(|hash| hashes.get_or_init(|| Hashes::of(&folders)).module(hash));
        load(known.unwrap_or(&module.identity))
    })))
}

/// The limit of examined files.
const FILES_MAX: usize = 1 << 16;
/// The limit of the size of examined files, in bytes.
const SIZE_MAX: u64 = 256 << 20;
/// The limit of nested folders.
const DEPTH_MAX: usize = 8;

/// The image files in some folders by SHA-256, for modules of which only the hash is known.
#[derive(Clone, Debug, Default)]
struct Hashes {
    modules: HashMap<[u8; 32], ModuleIdentity>,
}

impl Hashes {
    /// Reads all image files in these folders and their subfolders. Other files and unreadable
    /// files are skipped. Links are not followed.
    fn of(folders: &[PathBuf]) -> Hashes {
        let mut hashes = Hashes::default();
        let mut left = FILES_MAX;
        for folder in folders {
            hashes.add_folder(folder, DEPTH_MAX, &mut left);
        }
        hashes
    }

    /// The identity of the image with this hash, for the look-up in a store.
    fn module(&self, hash: &[u8; 32]) -> Option<&ModuleIdentity> {
        self.modules.get(hash)
    }

    fn add_folder(&mut self, folder: &Path, depth: usize, left: &mut usize) {
        let Ok(entries) = std::fs::read_dir(folder) else { return };
        for entry in entries.flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() && depth > 0 {
                self.add_folder(&entry.path(), depth - 1, left);
            } else if kind.is_file() {
                let Some(rest) = left.checked_sub(1) else { return };
                *left = rest;
                self.add_file(&entry.path());
            }
        }
    }

    fn add_file(&mut self, path: &Path) {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return };
        let Some((hash, image)) = read(path) else { return };
        let module =
            ModuleIdentity { name: name.to_owned(), image: Some(image), ..ModuleIdentity::default() };
        // Of several files with the same content, the choice does not depend on the order of the
        // folder.
        let known = self.modules.entry(hash).or_insert_with(|| module.clone());
        if module.name < known.name {
            *known = module;
        }
    }
}

fn read(path: &Path) -> Option<([u8; 32], ImageIdentity)> {
    let file = File::open(path).ok()?;
    let mut bytes = Vec::new();
    let mut start = file.take(SIZE_MAX + 1);
    // Most files of a symbol store are not images, so the first bytes are checked first.
    (&mut start).take(2).read_to_end(&mut bytes).ok()?;
    if bytes != b"MZ" {
        return None;
    }
    start.read_to_end(&mut bytes).ok()?;
    if bytes.len() as u64 > SIZE_MAX {
        return None;
    }
    let identity = Image::parse(&bytes).ok()?.identity();
    Some((Sha256::digest(&bytes).into(), identity))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_other_than_images_are_skipped() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.dll"), b"MZ and nothing else").unwrap();
        std::fs::write(folder.path().join("b.pdb"), b"Microsoft C/C++ MSF 7.00").unwrap();
        let hashes = Hashes::of(&[folder.path().to_owned(), folder.path().join("none")]);
        assert!(hashes.modules.is_empty());
        let hash = Sha256::digest(b"MZ and nothing else").into();
        assert_eq!(hashes.module(&hash), None);
    }
}
