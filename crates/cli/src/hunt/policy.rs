//! The policy of hunts: the content of its files.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, anyhow, bail};
use sha2::{Digest, Sha256};
use stackhound::detect::Binaries;
use stackhound::detect::tuning::Tuning;
use stackhound::frames::Lists;
use stackhound::frames::lists::ListsError;
use stackhound::hunt::{FindingSelection, Hunt, Policy, Rules};
use stackhound::images::{Checks, ImageFile, ImageTable};
use stackhound::symbols::file_loader;
use stackhound::symbols::store::StoreOptions;
use stackhound::types::ModuleIdentity;
use stackhound_rules::evaluate::Mode;

use super::baseline;
use crate::config::{Config, SymbolArguments};
use crate::hunt_files::{PolicyArguments, PolicyFiles};
use crate::images::TrustArguments;
use crate::options::Common;
use crate::output::{counted, message};
use crate::rules::files;
use crate::{images, inputs, naming};

/// The policy with the content of its files, for any number of hunts.
#[derive(Debug)]
pub struct HuntSetup {
    pub policy: Policy,
    /// Folders with image and symbol files, which come before the symbol path.
    pub folders: Vec<PathBuf>,
    /// The identity of each image by SHA-256, for modules of which only the hash is known.
    by_sha256: Arc<Identities>,
    store: StoreOptions,
}

impl HuntSetup {
    /// Reads the files of the config file.
    pub fn read(symbols: &SymbolArguments, common: &Common) -> Result<HuntSetup> {
        HuntSetup::with_arguments(&PolicyArguments::default(), symbols, common)
    }

    /// Reads the files of the config file and of options, which override it. Rules with errors are
    /// reported and not used.
    pub fn with_arguments(
        arguments: &PolicyArguments,
        symbols: &SymbolArguments,
        common: &Common,
    ) -> Result<HuntSetup> {
        let config = Config::read(common, symbols)?;
        let mut files = config.hunt.clone();
        files.put_arguments(arguments);
        let (evidence, by_sha256) = evidence(&files)?;
        let policy = Policy {
            baseline: files.baseline.value.as_deref().map(baseline::read).transpose()?,
            rules: read_rules(&files, common)?,
            ..evidence
        };
        let mut store = naming::store_options(&config, common)?;
        for folder in files.images.value.iter().rev() {
            store.path = store.path.with_first(folder.clone());
        }
        Ok(HuntSetup { policy, folders: files.images.value, by_sha256: Arc::new(by_sha256), store })
    }

    /// A hunt by the policy.
    pub fn hunt(&self, selection: FindingSelection) -> Hunt {
        Hunt::new(self.policy.clone(), self.binaries(), selection)
    }

    /// The image and symbol files in the folders, then those along the symbol path.
    fn binaries(&self) -> Binaries {
        let (_, load) = file_loader(self.store.clone(), true);
        let by_sha256 = Arc::clone(&self.by_sha256);
        // Sysmon reports hashes of files, but not their headers.
        Binaries::new(Box::new(move |module| {
            let hash = module.sha256.as_ref().filter(|_| module.identity.image.is_none());
            load(hash.and_then(|hash| by_sha256.get(hash)).unwrap_or(&module.identity))
        }))
    }
}

/// The identity of each image by SHA-256.
type Identities = HashMap<[u8; 32], ModuleIdentity>;

/// The part of a policy without rules and a baseline.
fn evidence(files: &PolicyFiles) -> Result<(Policy, Identities)> {
    let ImageFiles { facts: images, by_sha256 } = ImageFiles::read(files)?;
    let (mut lists, mut tuning) = (Lists::default(), Tuning::default());
    if let Some(file) = &files.lists.value {
        let text = inputs::text(file)?;
        let at = |error: ListsError| anyhow!("{}:{}: {}", file.display(), error.line, error.message);
        lists = Lists::with(&text).map_err(at)?;
        tuning = Tuning::parse(&text).map_err(at)?;
    }
    if let Some(file) = &files.known_images.value {
        lists = lists.with_known_images(&inputs::text(file)?);
    }
    Ok((Policy { lists, images, tuning, ..Policy::default() }, by_sha256))
}

/// The policy for tests of rules: the lists and image facts of the config file, which detections need whose answers rules
/// use, and nothing that changes or suppresses findings.
pub fn for_rules(rules: Rules, common: &Common) -> Result<Policy> {
    let config = Config::read(common, &SymbolArguments { symbol_path: None, online: false })?;
    let (Policy { lists, images, .. }, _) = evidence(&config.hunt)?;
    Ok(Policy { lists, images, rules, ..Policy::default() })
}

fn read_rules(files: &PolicyFiles, common: &Common) -> Result<Rules> {
    let paths = &files.rules.value;
    if paths.is_empty() {
        return Ok(Rules::default());
    }
    let library = files::read(paths)?;
    let of_rules = library.rules.iter().filter_map(|rule| rule.condition.as_ref().err());
    let errors: Vec<_> = library.errors.iter().chain(of_rules).collect();
    let usable = library.rules.iter().filter(|rule| rule.condition.is_ok()).count();
    if let ([error], 0) = (&errors[..], usable) {
        bail!("{error}");
    }
    for error in &errors {
        message(format_args!("{error}"));
    }
    if usable == 0 {
        bail!("no rule can be used");
    }
    if !common.quiet {
        let errors = match errors.len() as u64 {
            0 => String::new(),
            count => format!(", {}", counted(count, "error", "errors")),
        };
        message(format_args!("{}{errors}", counted(usable as u64, "rule", "rules")));
    }
    let mode = if files.compat.value { Mode::Compatible } else { Mode::Strict };
    Ok(Rules::new(library, mode))
}

/// Facts about image files.
#[derive(Debug, Default)]
struct ImageFiles {
    facts: ImageTable,
    by_sha256: Identities,
}

impl ImageFiles {
    /// Reads files of facts, and all image files in folders. Other files and unreadable files in
    /// folders are skipped.
    fn read(stated: &PolicyFiles) -> Result<ImageFiles> {
        let mut files = ImageFiles::default();
        let trust = TrustArguments { trust: stated.trust.value.clone() }.read()?;
        let checks = images::checks(trust.as_ref());
        let folders = &stated.images.value;
        if let Some(folder) = folders.iter().find(|folder| !folder.is_dir()) {
            bail!("{}: --images needs a directory", folder.display());
        }
        for path in inputs::files_in(folders) {
            files.add(&path, &checks)?;
        }
        for file in &stated.image_facts.value {
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
