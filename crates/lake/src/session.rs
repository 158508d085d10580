//! The engine: its limits of memory, files and threads, and the state in which it answers queries.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Args;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::prelude::SessionConfig;

/// The limits of a process.
#[derive(Args, Clone, Debug)]
pub struct Limits {
    /// Use at most this much memory for the data of queries, in bytes or as 500M or 2G; sorts, joins
    /// and sums beyond it use temporary files
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = size)]
    pub memory_limit: usize,
    /// Create temporary files in this directory; by default in that of the system
    #[arg(long, value_name = "DIR")]
    pub spill_dir: Option<PathBuf>,
    /// Work with N threads; by default one per processor
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: Option<u16>,
}

/// A size in bytes, such as `500M`.
fn size(text: &str) -> Result<usize, String> {
    const EXPECTED: &str = "expected a size such as 500M or 2G";
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let shift = match &*text[digits.len()..].to_ascii_uppercase() {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err(EXPECTED.to_owned()),
    };
    let number: usize = digits.parse().map_err(|_| EXPECTED.to_owned())?;
    number
        .checked_mul(1 << shift)
        .filter(|size| *size > 0)
        .ok_or_else(|| format!("{EXPECTED} that is not zero and that this machine can address"))
}

impl Limits {
    /// The number of threads.
    pub fn threads(&self) -> usize {
        let available = || std::thread::available_parallelism().map_or(1, usize::from);
        self.threads.map_or_else(available, usize::from)
    }

    /// The memory and temporary files of this process.
    pub fn runtime(&self) -> Result<Arc<RuntimeEnv>> {
        let folder = self.spill_dir.as_deref();
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            bail!("--spill-dir: expected an existing directory, found {}", folder.display());
        }
        let mode = match folder.map(Path::to_owned) {
            None => DiskManagerMode::OsTmpDirectory,
            Some(folder) => DiskManagerMode::Directories(vec![folder]),
        };
        RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(FairSpillPool::new(self.memory_limit)))
            .with_disk_manager_builder(DiskManagerBuilder::default().with_mode(mode))
            .build_arc()
            .context("cannot prepare memory and temporary files")
    }

    /// How queries are planned.
    pub fn config(&self) -> SessionConfig {
        // Each sort keeps this much for the merging of its temporary files.
        let for_merging = (self.memory_limit / 16).min(10 << 20);
        SessionConfig::new()
            .with_information_schema(true)
            .with_target_partitions(self.threads())
            .with_sort_spill_reservation_bytes(for_merging)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        for (text, expected) in
            [("1", Some(1)), ("500M", Some(500 << 20)), ("2g", Some(2 << 30)), ("3k", Some(3072))]
        {
            assert_eq!(size(text).ok(), expected, "{text}");
        }
        for text in ["", "M", "0", "-1", "1.5G", "1MB", "99999999T"] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
