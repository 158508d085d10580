//! Where the settings say to look for files.

use std::time::Duration;

use anyhow::{Result, bail};
use stackhound::symbols::path::SymbolPath;
use stackhound::symbols::store::{DownloadLimits, StoreOptions};

use crate::args::Common;
use crate::config::Config;

/// What the settings say of places and downloads. Parts of the path that cannot be used are told on standard error.
pub fn store_options(config: &Config, common: &Common) -> Result<StoreOptions> {
    let mut options = StoreOptions { online: config.online.value, ..StoreOptions::default() };
    if let Some(path) = &config.symbol_path.value {
        options.path = SymbolPath::parse(path)?;
    }
    if !common.quiet {
        for path in options.path.unusable() {
            anstream::eprintln!(
                "note: {path} in the symbol path is a path of Windows, which cannot be used here"
            );
        }
    }
    if options.online && !options.path.has_server() {
        bail!(
            "--online needs a server in the symbol path, such as --symbol-path srv*https://msdl.microsoft.com/download/symbols"
        );
    }
    options.limits = DownloadLimits {
        file_size: u64::from(config.download_limit_mib.value) << 20,
        file: Duration::from_secs(config.download_timeout_seconds.value.into()),
        ..DownloadLimits::default()
    };
    Ok(options)
}
