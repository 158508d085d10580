//! The detector's lists, image files and symbol files.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Result, anyhow, bail};
use sha2::{Digest, Sha256};
use stackhound::detect::{Binaries, Detector};
use stackhound::frames::Lists;
use stackhound::images::{Checks, ImageFile, ImageTable};
use stackhound::symbols::file_loader;
use stackhound::types::ModuleIdentity;

use super::Arguments;
use crate::config::Config;
use crate::options::Common;
use crate::{images, inputs, naming};

/// Builds a detector with the lists and files of the arguments.
pub fn detector(arguments: &Arguments, common: &Common) -> Result<Detector> {
    let files = ImageFiles::read(arguments)?;
    let lists = lists(arguments)?;
    Ok(Detector::new(lists, binaries(arguments, files.by_sha256, common)?).with_images(files.facts))
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
fn binaries(
    arguments: &Arguments,
    by_sha256: HashMap<[u8; 32], ModuleIdentity>,
    common: &Common,
) -> Result<Binaries> {
    let config = Config::read(common, &arguments.symbols)?;
    let mut options = naming::store_options(&config, common)?;
    for folder in arguments.images.iter().rev() {
        options.path = options.path.with_first(folder.clone());
    }
    let (_, load) = file_loader(options, true);
    // Sysmon reports hashes of files, but not their headers.
    Ok(Binaries::new(Box::new(move |module| {
        let hash = module.sha256.as_ref().filter(|_| module.identity.image.is_none());
        load(hash.and_then(|hash| by_sha256.get(hash)).unwrap_or(&module.identity))
    })))
}

/// Facts about image files.
#[derive(Debug, Default)]
struct ImageFiles {
    facts: ImageTable,
    /// The identity of each image by SHA-256, for modules of which only the hash is known.
    by_sha256: HashMap<[u8; 32], ModuleIdentity>,
}

impl ImageFiles {
    /// Reads the files of `--image-facts`, and all image files of `--images`. Other files and
    /// unreadable files in directories are skipped.
    fn read(arguments: &Arguments) -> Result<ImageFiles> {
        let mut files = ImageFiles::default();
        let trust = arguments.trust.read()?;
        let checks = images::checks(trust.as_ref());
        if let Some(folder) = arguments.images.iter().find(|folder| !folder.is_dir()) {
            bail!("{}: --images needs a directory", folder.display());
        }
        for path in inputs::files_in(&arguments.images) {
            files.add(&path, &checks)?;
        }
        for file in &arguments.image_facts {
            let added = files.facts.add_side_car(&inputs::text(file)?);
            added.map_err(|error| anyhow!("{}: {error}", file.display()))?;
        }
        Ok(files)
    }

    fn add(&mut self, path: &Path, checks: &Checks<'_>) -> Result<()> {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return Ok(()) };
        let Some(bytes) = images::read(path) else { return Ok(()) };
        let Ok(file) = ImageFile::read(&bytes, checks) else { return Ok(()) };
        let (name, image) = (name.to_owned(), Some(file.identity));
        let hashes = file.hashes.as_ref();
        let sha256 = hashes.map_or_else(|| Sha256::digest(&bytes).into(), |hashes| hashes.sha256);
        // The first of several files with the same content counts.
        let known = self.by_sha256.entry(sha256);
        known.or_insert_with(|| ModuleIdentity { name, image, ..ModuleIdentity::default() });
        self.facts.add(&file).map_err(|error| anyhow!("{}: {error}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_other_than_images_are_skipped() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.dll"), b"MZ and nothing else").unwrap();
        std::fs::write(folder.path().join("b.pdb"), b"Microsoft C/C++ MSF 7.00").unwrap();
        let mut files = ImageFiles::default();
        for path in inputs::files_in(&[folder.path().to_owned()]) {
            files.add(&path, &images::checks(None)).unwrap();
        }
        assert!(files.by_sha256.is_empty() && files.facts.is_empty());
        assert_eq!(inputs::files_in(&[folder.path().join("none")]), Vec::<std::path::PathBuf>::new());
    }
}
