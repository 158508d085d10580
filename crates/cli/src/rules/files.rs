//! Reads the files of rules.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use stackhound_rules::Library;

use crate::inputs;

/// The rules in files and directories.
pub fn read(paths: &[PathBuf]) -> Result<Library> {
    let files = yaml_files(paths)?;
    let contents: Vec<_> = files.iter().map(|file| content(file)).collect::<Result<_>>()?;
    let library = Library::read(contents.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())));
    if library.rules.is_empty() && library.errors.is_empty() {
        let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
        bail!("{}: expected rules in YAML files (.yml, .yaml), found none", paths.join(", "));
    }
    Ok(library)
}

/// The files at some paths, with those in directories that are YAML.
pub fn yaml_files(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let is_yaml = |file: &PathBuf| {
        file.extension().is_some_and(|ending| ["yml", "yaml"].iter().any(|known| ending == *known))
    };
    let mut files = Vec::new();
    for path in inputs::expanded(paths)? {
        match path.is_dir() {
            true => files.extend(inputs::files_in(&[path]).into_iter().filter(is_yaml)),
            false => files.push(path),
        }
    }
    Ok(files)
}

/// A file of at most the size that a file with rules can have, and one more byte.
pub fn content(path: &Path) -> Result<(String, Vec<u8>)> {
    let name = path.display().to_string();
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).with_context(|| name.clone())?;
    let limit = stackhound_rules::FILE_MAX as u64 + 1;
    file.take(limit).read_to_end(&mut bytes).with_context(|| name.clone())?;
    Ok((name, bytes))
}
