//! Opening the input traces of a verb.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use globset::{GlobBuilder, GlobMatcher};
use stackhound::trace::{self, Capture, Captures, Error, OpenTrace, TraceFiles, several_captures};

use crate::options::Common;
use crate::output::{self, at_end};
use crate::recognition;

#[derive(Args, Debug)]
pub struct Inputs {
    /// Read these traces (.etl), archives or directories
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub grouping: Grouping,
}

/// The grouping of several files into captures.
#[derive(Args, Clone, Copy, Debug)]
pub struct Grouping {
    /// Merge all files into one capture, even if they are of several machines, boots or times
    #[arg(long, help_heading = "Reading")]
    pub merge: bool,
    /// Analyze each file as a separate capture
    #[arg(long, conflicts_with = "merge", help_heading = "Reading")]
    pub separate: bool,
}

impl From<Grouping> for trace::Grouping {
    fn from(grouping: Grouping) -> trace::Grouping {
        match grouping {
            Grouping { merge: true, .. } => trace::Grouping::Merge,
            Grouping { separate: true, .. } => trace::Grouping::Separate,
            _ => trace::Grouping::ByCapture,
        }
    }
}

/// Whether an input was skipped, which sets the exit code of every verb.
static IS_INCOMPLETE: AtomicBool = AtomicBool::new(false);

/// Whether a file of a folder was skipped because it could not be opened.
pub fn is_incomplete() -> bool {
    IS_INCOMPLETE.load(Ordering::Relaxed)
}

/// Reports the skipped files, and returns the captures of the others.
pub fn reported(Captures { captures, skipped }: Captures) -> Vec<Capture> {
    for error in skipped {
        IS_INCOMPLETE.store(true, Ordering::Relaxed);
        output::error(format_args!("{error}; skipped"));
    }
    captures
}

/// Larger than any settings file. Rejects devices that never end.
const TEXT_SIZE_MAX: u64 = 64 << 20;

/// Reads the text of a settings file of at most 64 MiB.
pub fn text(path: &Path) -> Result<String> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(TEXT_SIZE_MAX + 1).read_to_string(&mut text));
    if read.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::InvalidData) {
        bail!("{}: expected a text file in UTF-8, found other bytes", path.display());
    }
    read.with_context(|| path.display().to_string())?;
    if text.len() as u64 > TEXT_SIZE_MAX {
        bail!("{}: expected a text file of at most 64 MiB, found a larger one", path.display());
    }
    Ok(text)
}

/// The limit of files in folders.
const FILES_MAX: usize = 1 << 16;
/// The limit of nested folders.
const DEPTH_MAX: usize = 8;

/// All files in some folders and their subfolders: those of the first folder by path, then those
/// of the next one. Links are not followed.
pub fn files_in(folders: &[PathBuf]) -> Vec<PathBuf> {
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

/// Expands wildcards, which the shells of Windows leave to programs. A path that does not exist and
/// has `*` or `?` in its file name stands for all files with matching names, sorted by name.
pub fn expanded(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        let pattern =
            path.file_name().and_then(|name| name.to_str()).filter(|name| name.contains(['*', '?']));
        let Some(pattern) = pattern.filter(|_| path.symlink_metadata().is_err()) else {
            files.push(path.clone());
            continue;
        };
        let folder = path.parent().unwrap_or(Path::new(""));
        let fits = wildcards(pattern, cfg!(windows))?;
        let entries = if folder.as_os_str().is_empty() { Path::new(".") } else { folder }.read_dir();
        let entries = entries.with_context(|| folder.display().to_string())?;
        let names = entries.filter_map(|entry| Some(entry.ok()?.file_name()));
        let mut found: Vec<_> = names.filter(|name| fits.is_match(name)).collect();
        if found.is_empty() {
            bail!("{}: no file name matches this pattern", path.display());
        }
        found.sort_unstable();
        files.extend(found.into_iter().map(|name| folder.join(name)));
    }
    Ok(files)
}

/// A pattern in which only `*` and `?` are special. Brackets and braces are common in names.
pub fn wildcards(pattern: &str, ignores_case: bool) -> Result<GlobMatcher> {
    let plain = |character: char| match character {
        '*' | '?' => character.to_string(),
        other => globset::escape(&other.to_string()),
    };
    let pattern: String = pattern.chars().map(plain).collect();
    Ok(GlobBuilder::new(&pattern).case_insensitive(ignores_case).build()?.compile_matcher())
}

/// Opens files and groups them into captures, at least one. The error about a trace of calls or a
/// file of Sysmon events names the verbs that read it.
pub fn captures(
    files: &[PathBuf],
    grouping: impl Into<trace::Grouping>,
    common: &Common,
) -> Result<Vec<Capture>> {
    let files = expanded(files)?;
    let trace_files = TraceFiles::files(files.clone()).threads(common.threads()).grouping(grouping.into());
    match trace_files.captures() {
        Err(error @ Error::NotATrace(..)) => {
            match files.iter().find(|path| recognition::holds_call_trees(path)) {
                Some(path) => {
                    let path = path.display();
                    bail!(
                        "{path}: expected an .etl file, found a trace of calls; use `stackhound stack {path} --at '#0'`, or tree, backtrace or calls"
                    )
                }
                None => match files.iter().find(|path| path.is_file() && recognition::is_sysmon(path)) {
                    Some(path) => {
                        let path = path.display();
                        bail!(
                            "{path}: expected an .etl file; if it contains Sysmon events, use `stackhound hunt {path}`"
                        )
                    }
                    None => Err(error.into()),
                },
            }
        }
        opened => Ok(reported(opened?)),
    }
}

/// Names the next capture before its closing line, if there are several.
pub fn announce(captures: &[Capture], index: usize, common: &Common) {
    if captures.len() > 1 && !common.quiet {
        at_end(format_args!("capture {} of {}: {}", index + 1, captures.len(), captures[index]));
    }
}

/// Opens the files of one capture, for verbs that show one position of one trace.
pub fn one(files: &[PathBuf], merge: bool, common: &Common) -> Result<OpenTrace> {
    let mut captures = captures(files, grouping(merge), common)?;
    match captures.len() {
        1 => Ok(captures.remove(0).trace),
        _ => Err(refusal(&several_captures(&captures))),
    }
}

pub fn grouping(merge: bool) -> trace::Grouping {
    if merge { trace::Grouping::Merge } else { trace::Grouping::ByCapture }
}

/// Adds the remedy to the error about several captures.
pub fn refusal(error: &Error) -> anyhow::Error {
    anyhow!("{error}; pass the files of one capture, or use --merge to read them as one")
}
