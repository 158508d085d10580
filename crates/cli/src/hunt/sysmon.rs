//! Hunting in Sysmon's events: event logs and JSON.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use stackhound::detect::Detector;
use stackhound::trace::{UNPACKED_SIZE_MAX, is_trace_name};
use stackhound_sysmon::{Format, Found as Row, Sysmon, Totals, detects};

use super::report::Report;
use super::rows::RowFilter;
use crate::options::Common;
use crate::output::{grouped, message};
use crate::progress::Progress;
use crate::recognition::{self, STANDARD_INPUT, is_pipe};

/// Things that cannot be read are told one by one up to this number; all are counted.
const TOLD_MAX: u64 = 5;

/// Endings of files in directories that are taken for Sysmon's, also followed by `.gz`.
const ENDINGS: [&str; 4] = [".evtx", ".json", ".jsonl", ".ndjson"];

const BUFFER_SIZE: usize = 1 << 18;

/// What a directory and those in it hold, in the order of their names.
#[derive(Debug, Default)]
pub struct Found {
    /// Files whose names say that they may be Sysmon's, and that begin so.
    pub sysmon: Vec<PathBuf>,
    /// Directories with recordings.
    pub trace_files: Vec<PathBuf>,
    /// Other files.
    pub other: u64,
    /// Those of them whose names say that they may be Sysmon's.
    passed_over: u64,
}

impl Found {
    /// Looks through a directory. Links to directories are not followed.
    pub fn look(&mut self, directory: &Path, common: &Common) -> Result<()> {
        let unreadable = || directory.display().to_string();
        let entries = std::fs::read_dir(directory).with_context(unreadable)?;
        let mut entries: Vec<_> = entries.collect::<io::Result<_>>().with_context(unreadable)?;
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().to_ascii_lowercase());
            let plain = name.strip_suffix(".gz").unwrap_or(&name);
            let may_be_one = ENDINGS.iter().any(|ending| plain.ends_with(ending));
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                self.look(&path, common)?;
            } else if !path.is_file() {
                self.other += 1;
            } else if is_trace_name(&name) {
                if self.trace_files.last().is_none_or(|last| last != directory) {
                    self.trace_files.push(directory.to_owned());
                }
            } else if may_be_one && recognition::is_sysmon(&path) {
                self.sysmon.push(path);
            } else {
                self.other += 1;
                if may_be_one {
                    self.pass_over(&path, common);
                }
            }
        }
        Ok(())
    }

    fn pass_over(&mut self, path: &Path, common: &Common) {
        self.passed_over += 1;
        if self.passed_over <= TOLD_MAX && !common.quiet {
            message(format_args!(
                "{}: left out, since it does not begin as Sysmon's events do",
                path.display()
            ));
        }
    }
}

/// Evaluates all rows of a file or pipe.
pub fn hunt(
    (sysmon, chosen): (&mut Sysmon, &RowFilter),
    path: &Path,
    detector: &mut Detector,
    (report, progress): (&mut Report<'_>, &mut Progress),
    common: &Common,
) -> Result<Totals> {
    let name = path.display().to_string();
    let mut told = 0;
    let on = |found: Row<'_>| match found {
        Row::Evaluated(evaluated) => {
            progress.tick();
            if !chosen.wants(&evaluated) {
                return ControlFlow::Continue(());
            }
            report.count_one(
                evaluated.evaluation,
                evaluated.row.count,
                !evaluated.case.stack.frames.is_empty(),
            );
            match report.wants(evaluated.evaluation) {
                true => report.write(&evaluated.event_context(), evaluated.evaluation),
                false => ControlFlow::Continue(()),
            }
        }
        Row::Unreadable(unreadable) => {
            told += 1;
            if told <= TOLD_MAX && !common.quiet {
                message(format_args!("{unreadable}"));
            }
            ControlFlow::Continue(())
        }
    };
    let totals = if is_pipe(path) {
        sysmon.hunt_json(pipe(path)?, &name, detector, on)
    } else {
        let (mut content, is_packed) = recognition::open(path).with_context(|| name.clone())?;
        match detects(content.fill_buf().with_context(|| name.clone())?) {
            Some(Format::Json) => sysmon.hunt_json(content, &name, detector, on),
            // Event logs are read from more than one place.
            _ if is_packed => {
                sysmon.hunt(unpacked(content).with_context(|| name.clone())?, &name, detector, on)
            }
            _ => {
                let file = File::open(path).with_context(|| name.clone())?;
                sysmon.hunt(BufReader::with_capacity(BUFFER_SIZE, file), &name, detector, on)
            }
        }
    };
    let totals = totals.with_context(|| name.clone())?;
    if told > TOLD_MAX && !common.quiet {
        message(format_args!("{name}: {} more of this kind", grouped(told - TOLD_MAX)));
    }
    Ok(totals)
}

/// The content in a temporary file without a name.
fn unpacked(content: impl Read) -> io::Result<BufReader<File>> {
    let mut file = tempfile::tempfile()?;
    if io::copy(&mut content.take(UNPACKED_SIZE_MAX + 1), &mut file)? > UNPACKED_SIZE_MAX {
        return Err(io::Error::other("unpacks to more than 64 GiB"));
    }
    file.flush()?;
    file.rewind()?;
    Ok(BufReader::with_capacity(BUFFER_SIZE, file))
}

/// What comes through a pipe, which is JSON: other forms have to be read from behind, or more than once.
fn pipe(path: &Path) -> Result<impl BufRead> {
    let input: Box<dyn Read> = match path == Path::new(STANDARD_INPUT) {
        true => Box::new(io::stdin().lock()),
        false => Box::new(File::open(path).with_context(|| path.display().to_string())?),
    };
    let mut input = BufReader::with_capacity(BUFFER_SIZE, input);
    let start = input.fill_buf().with_context(|| path.display().to_string())?;
    match detects(start) {
        Some(Format::Json) => Ok(input),
        None if start.is_empty() => Ok(input),
        Some(Format::Evtx) | None => bail!(
            "{}: through pipes only JSON can be read, one object on each line; write the rest to a file",
            path.display()
        ),
    }
}
