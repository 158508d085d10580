//! The option `--trust`.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use stackhound::images::{Checks, Trust};

/// Maximum size of a file of certificates, in bytes.
const SIZE_MAX: u64 = 16 << 20;

#[derive(Args, Clone, Debug, Default)]
pub struct TrustArguments {
    /// Trust the root certificates in this file or directory (PEM or DER). Without it, no signature
    /// is valid, only intact
    #[arg(long, value_name = "FILE|DIR", help_heading = "Evidence")]
    pub trust: Vec<PathBuf>,
}

impl TrustArguments {
    /// The trusted roots. `None` if none were given.
    pub fn read(&self) -> Result<Option<Trust>> {
        if self.trust.is_empty() {
            return Ok(None);
        }
        let mut trust = Trust::default();
        for path in &self.trust {
            for file in certificate_files(path)? {
                let mut bytes = Vec::new();
                let read = File::open(&file).and_then(|open| open.take(SIZE_MAX + 1).read_to_end(&mut bytes));
                read.with_context(|| file.display().to_string())?;
                if bytes.len() as u64 > SIZE_MAX {
                    bail!("{}: expected certificates of at most 16 MiB, found a larger file", file.display());
                }
                trust.add(&bytes).map_err(|error| anyhow!("{}: {error}", file.display()))?;
            }
        }
        Ok(Some(trust))
    }
}

/// The settings of a check now.
pub fn checks(trust: Option<&Trust>) -> Checks<'_> {
    Checks { trust, time: super::now() }
}

/// The file itself, or the certificates in a directory, by name.
fn certificate_files(path: &Path) -> Result<Vec<PathBuf>> {
    const EXTENSIONS: [&str; 4] = ["pem", "crt", "cer", "der"];
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = path.read_dir().with_context(|| path.display().to_string())?;
    let is_certificate = |file: &PathBuf| {
        let extension = file.extension().and_then(|extension| extension.to_str());
        extension.is_some_and(|one| EXTENSIONS.iter().any(|known| one.eq_ignore_ascii_case(known)))
    };
    let files = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut files: Vec<PathBuf> = files.filter(|file| file.is_file()).filter(is_certificate).collect();
    if files.is_empty() {
        bail!("{}: expected files with the extension .pem, .crt, .cer or .der, found none", path.display());
    }
    files.sort_unstable();
    Ok(files)
}
