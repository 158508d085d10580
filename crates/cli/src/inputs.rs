//! Opening the recordings that a verb is given.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use globset::{GlobBuilder, GlobMatcher};
use stackhound::trace::{self, Capture, Captures, Error, OpenTrace, TraceFiles, several_captures};

use crate::options::Common;
use crate::output::message;
use crate::recognition;

/// What to read.
#[derive(Args, Debug)]
pub struct Inputs {
    /// Recordings, archives or directories
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub grouping: Grouping,
}

/// How several files are put together.
#[derive(Args, Clone, Copy, Debug)]
pub struct Grouping {
    /// Take all files as one capture, even if they come from several machines, boots or times
    #[arg(long, help_heading = "Reading")]
    pub merge: bool,
    /// Take every file as a capture of its own
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

/// Whether an input was left out, which the exit code says whatever the verb.
static IS_INCOMPLETE: AtomicBool = AtomicBool::new(false);

/// Whether a file of a folder was left out, since it could not be opened.
pub fn is_incomplete() -> bool {
    IS_INCOMPLETE.load(Ordering::Relaxed)
}

/// Reports the files that are left out, and gives the captures of the others.
pub fn reported(Captures { captures, skipped }: Captures) -> Vec<Capture> {
    for error in skipped {
        IS_INCOMPLETE.store(true, Ordering::Relaxed);
        message(format_args!("error: {error}; skipped"));
    }
    captures
}

/// Texts that people write are smaller, and devices without an end larger.
const TEXT_SIZE_MAX: u64 = 64 << 20;

/// The text of a file with settings.
pub fn text(path: &Path) -> Result<String> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(TEXT_SIZE_MAX + 1).read_to_string(&mut text));
    read.with_context(|| path.display().to_string())?;
    if text.len() as u64 > TEXT_SIZE_MAX {
        bail!("{}: larger than 64 MiB", path.display());
    }
    Ok(text)
}

/// The shells of Windows leave `*` and `?` to programs: a path that does not exist and has one in its file name is all
/// files with such names, in the order of their names.
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
        let fits = wildcards(pattern)?;
        let entries = if folder.as_os_str().is_empty() { Path::new(".") } else { folder }.read_dir();
        let entries = entries.with_context(|| folder.display().to_string())?;
        let names = entries.filter_map(|entry| Some(entry.ok()?.file_name()));
        let mut found: Vec<_> = names.filter(|name| fits.is_match(name)).collect();
        if found.is_empty() {
            bail!("{}: no file has such a name", path.display());
        }
        found.sort_unstable();
        files.extend(found.into_iter().map(|name| folder.join(name)));
    }
    Ok(files)
}

/// `*` and `?` only: brackets and braces are ordinary characters of file names.
fn wildcards(pattern: &str) -> Result<GlobMatcher> {
    let plain = |character: char| match character {
        '*' | '?' => character.to_string(),
        other => globset::escape(&other.to_string()),
    };
    let pattern: String = pattern.chars().map(plain).collect();
    Ok(GlobBuilder::new(&pattern).case_insensitive(cfg!(windows)).build()?.compile_matcher())
}

/// Opens files and groups them into captures, of which there is at least one. A file that holds call trees is refused by
/// naming the verbs that read it.
pub fn captures(
    files: &[PathBuf],
    grouping: impl Into<trace::Grouping>,
    common: &Common,
) -> Result<Vec<Capture>> {
    let files = expanded(files)?;
    let trace_files = TraceFiles::files(files.clone()).threads(common.threads()).grouping(grouping.into());
    match trace_files.captures() {
        Err(error @ Error::NotATrace(..)) => match files
            .iter()
            .find(|path| recognition::holds_call_trees(path))
        {
            Some(path) => {
                let path = path.display();
                bail!(
                    "{path} holds call trees: ask `stackhound stack {path} --at '#0'`, or tree, backtrace, calls"
                )
            }
            None => match files.iter().find(|path| path.is_file() && recognition::is_sysmon(path)) {
                Some(path) => {
                    let path = path.display();
                    bail!("{path} is no recording: if it holds Sysmon's events, ask `stackhound hunt {path}`")
                }
                None => Err(error.into()),
            },
        },
        opened => Ok(reported(opened?)),
    }
}

/// Names the capture that is analysed next, if there are several.
pub fn announce(captures: &[Capture], index: usize, common: &Common) {
    if captures.len() > 1 && !common.quiet {
        message(format_args!("capture {} of {}: {}", index + 1, captures.len(), captures[index]));
    }
}

/// Opens the files of one capture, for verbs that show one machine at one time.
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

/// What to do about several captures where one is needed.
pub fn refusal(error: &Error) -> anyhow::Error {
    anyhow!("{error}; give the files of one, or --merge to take them as one")
}
