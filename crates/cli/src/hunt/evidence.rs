//! The lists and files of the detector.

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

/// A detector with the lists and files that the arguments name.
pub fn evaluate(arguments: &Arguments, common: &Common) -> Result<Detector> {
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

/// Files along the symbol path, those of `--images` first.
fn binaries(arguments: &Arguments, common: &Common) -> Result<Binaries> {
    let config = Config::read(common, &arguments.symbols)?;
    let mut options = naming::store_options(&config, common)?;
    for folder in arguments.images.iter().rev() {
        if !folder.is_dir() {
            bail!("{}: no directory, which --images needs", folder.display());
        }
        options.path = options.path.behind(folder.clone());
    }
    let (_, load) = file_loader(options, true);
    // Sysmon tells sums of files and nothing of their headers. Read when the first one is met.
    let (folders, sums) = (arguments.images.clone(), OnceCell::new());
    Ok(Binaries::new(Box::new(move |module| {
        let sum = module.sha256.as_ref().filter(|_| module.identity.image.is_none());
        let known = sum.and_then(|sum| sums.get_or_init(|| Sums::of(&folders)).module(sum));
        load(known.unwrap_or(&module.identity))
    })))
}

/// Files that are looked at, at most.
const FILES_MAX: usize = 1 << 16;
/// Bytes of the largest file that is looked at.
const SIZE_MAX: u64 = 256 << 20;
/// Folders below folders, at most.
const DEPTH_MAX: usize = 8;

/// What the image files in some folders are, by their SHA-256 sums: for modules of which only the
/// sum is known.
#[derive(Clone, Debug, Default)]
struct Sums {
    modules: HashMap<[u8; 32], ModuleIdentity>,
}

impl Sums {
    /// Reads all image files in these folders and below them. What is no image or cannot be read is passed over; links are
    /// not followed.
    fn of(folders: &[PathBuf]) -> Sums {
        let mut sums = Sums::default();
        let mut left = FILES_MAX;
        for folder in folders {
            sums.add_folder(folder, DEPTH_MAX, &mut left);
        }
        sums
    }

    /// What names the image with this sum, so that a store finds it.
    fn module(&self, sum: &[u8; 32]) -> Option<&ModuleIdentity> {
        self.modules.get(sum)
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
        let Some((sum, image)) = read(path) else { return };
        let module =
            ModuleIdentity { name: name.to_owned(), image: Some(image), ..ModuleIdentity::default() };
        // Of several with the same content, always the same one.
        let known = self.modules.entry(sum).or_insert_with(|| module.clone());
        if module.name < known.name {
            *known = module;
        }
    }
}

fn read(path: &Path) -> Option<([u8; 32], ImageIdentity)> {
    let file = File::open(path).ok()?;
    let mut bytes = Vec::new();
    let mut start = file.take(SIZE_MAX + 1);
    // Most files of a symbol store are no images, so their first bytes decide.
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
    fn what_is_no_image_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.dll"), b"MZ and nothing else").unwrap();
        std::fs::write(folder.path().join("b.pdb"), b"Microsoft C/C++ MSF 7.00").unwrap();
        let sums = Sums::of(&[folder.path().to_owned(), folder.path().join("none")]);
        assert!(sums.modules.is_empty());
        let sum = Sha256::digest(b"MZ and nothing else").into();
        assert_eq!(sums.module(&sum), None);
    }
}
