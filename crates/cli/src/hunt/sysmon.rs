//! Hunting in Sysmon events: event logs and JSON.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use stackhound::hunt::Hunt;
use stackhound::trace::{UNPACKED_SIZE_MAX, is_trace_name};
use stackhound_rules::evaluate::RuleAnswer;
use stackhound_sysmon::rules::{LogRules, WindowsEvent};
use stackhound_sysmon::{Format, Found as Row, Sysmon, Totals, detect_format};

use super::report::Report;
use super::rows::RowFilter;
use crate::options::Common;
use crate::output::{counted, message};
use crate::progress::Progress;
use crate::recognition::{self, STANDARD_INPUT, is_pipe};

/// The limit of reported records and files that cannot be read; all are counted.
const REPORTED_MAX: u64 = 5;

/// Extensions of files in directories that may contain Sysmon events, also followed by `.gz`.
const ENDINGS: [&str; 4] = [".evtx", ".json", ".jsonl", ".ndjson"];

const BUFFER_SIZE: usize = 1 << 18;

/// The contents of a directory and its subdirectories, sorted by name.
#[derive(Debug, Default)]
pub struct Found {
    /// Files with Sysmon events, by extension and first bytes.
    pub sysmon: Vec<PathBuf>,
    /// Directories with traces.
    pub trace_files: Vec<PathBuf>,
    /// The number of other files.
    pub other: u64,
    /// Those with an extension of Sysmon events.
    skipped: u64,
}

impl Found {
    /// Searches a directory. Links to directories are not followed.
    pub fn search(&mut self, directory: &Path, common: &Common) -> Result<()> {
        let unreadable = || directory.display().to_string();
        let entries = std::fs::read_dir(directory).with_context(unreadable)?;
        let mut entries: Vec<_> = entries.collect::<io::Result<_>>().with_context(unreadable)?;
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().to_ascii_lowercase());
            let plain = name.strip_suffix(".gz").unwrap_or(&name);
            let may_be_one = ENDINGS.iter().any(|ending| plain.ends_with(ending));
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                self.search(&path, common)?;
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
                    self.report_skipped(&path, common);
                }
            }
        }
        Ok(())
    }

    fn report_skipped(&mut self, path: &Path, common: &Common) {
        self.skipped += 1;
        if self.skipped <= REPORTED_MAX && !common.quiet {
            message(format_args!(
                "{}: skipped, because it does not begin like Sysmon events",
                path.display()
            ));
        }
    }
}

/// Collects the evidence in a file, for the later evaluation of all files. Pipes are read only once.
/// Errors are reported when the file is evaluated.
pub fn learn(sysmon: &mut Sysmon, path: &Path) {
    if !is_pipe(path) {
        drop(learn_file(sysmon, path));
    }
}

fn learn_file(sysmon: &mut Sysmon, path: &Path) -> Result<()> {
    let (mut content, is_packed) = recognition::open(path)?;
    match detect_format(content.fill_buf()?) {
        Some(Format::Json) => sysmon.learn_json(content)?,
        _ if is_packed => sysmon.learn(unpacked(content)?)?,
        _ => sysmon.learn(BufReader::with_capacity(BUFFER_SIZE, File::open(path)?))?,
    }
    Ok(())
}

/// Evaluates all rows of a file or pipe.
pub fn hunt(
    (sysmon, chosen): (&mut Sysmon, &RowFilter),
    path: &Path,
    hunt: &mut Hunt,
    (report, progress): (&mut Report<'_>, &mut Progress),
    common: &Common,
) -> Result<Totals> {
    let name = path.display().to_string();
    let mut reported = 0;
    let (detector, collector) = hunt.parts();
    let on = |found: Row<'_>| match found {
        Row::Evaluated(evaluated) => {
            progress.tick();
            if !chosen.wants(&evaluated) {
                return ControlFlow::Continue(());
            }
            let evaluation = evaluated.evaluation;
            collector.count(evaluation, evaluated.row.count, evaluated.frames > 0);
            if !collector.wants(evaluation) {
                return ControlFlow::Continue(());
            }
            report.write(collector.add(evaluated.event_context(), Some(evaluation), Vec::new()))
        }
        Row::Unreadable(unreadable) => {
            reported += 1;
            if reported <= REPORTED_MAX && !common.quiet {
                message(format_args!("{unreadable}"));
            }
            ControlFlow::Continue(())
        }
    };
    let totals = if is_pipe(path) {
        sysmon.hunt_pipe(pipe(path)?, &name, detector, on)
    } else {
        let (mut content, is_packed) = recognition::open(path).with_context(|| name.clone())?;
        match detect_format(content.fill_buf().with_context(|| name.clone())?) {
            Some(Format::Json) => sysmon.hunt_json(content, &name, detector, on),
            // The reader of event logs seeks.
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
    if totals.late > 0 && !common.quiet {
        message(format_args!(
            "{name}: read once, so {} about processes and images came too late for events before; write the input to a \
             file to use all of them",
            counted(totals.late, "event", "events")
        ));
    }
    if reported > REPORTED_MAX && !common.quiet {
        message(format_args!(
            "{name}: {} of this kind",
            counted(reported - REPORTED_MAX, "more problem", "more problems")
        ));
    }
    Ok(totals)
}

/// Evaluates rules on all events of a file or an event log, whatever their channels.
pub fn hunt_rules(
    (log_rules, hunt): (&mut LogRules, &mut Hunt),
    chosen: &RowFilter,
    path: &Path,
    report: &mut Report<'_>,
) -> Result<u64> {
    if is_pipe(path) {
        bail!("{}: rules need a file, which can be read again, and not a pipe", path.display());
    }
    let name = path.display().to_string();
    let (content, is_packed) = recognition::open(path)?;
    let rules = hunt.rules().clone();
    let collector = hunt.collector();
    let on = |event: &WindowsEvent, record: u64, answers: Vec<RuleAnswer>| {
        let event_context = event.context(&name, record);
        if !chosen.wants_event(event, &event_context) {
            return ControlFlow::Continue(());
        }
        let findings = answers.into_iter().map(|answer| rules.finding(answer));
        let findings = collector.rule_findings(findings, event.count);
        if findings.is_empty() {
            return ControlFlow::Continue(());
        }
        report.write(collector.add(event_context, None, findings))
    };
    let events = match is_packed {
        true => log_rules.hunt(unpacked(content)?, on)?,
        false => log_rules.hunt(BufReader::with_capacity(BUFFER_SIZE, File::open(path)?), on)?,
    };
    report.failed()?;
    Ok(events)
}

/// The content in a temporary file without a name.
fn unpacked(content: impl Read) -> io::Result<BufReader<File>> {
    let mut file = tempfile::tempfile()?;
    if io::copy(&mut content.take(UNPACKED_SIZE_MAX + 1), &mut file)? > UNPACKED_SIZE_MAX {
        return Err(io::Error::other("expected at most 64 GiB after decompression, found more"));
    }
    file.flush()?;
    file.rewind()?;
    Ok(BufReader::with_capacity(BUFFER_SIZE, file))
}

/// Opens a pipe, which must contain JSON. Other formats need a file that can be read out of order.
fn pipe(path: &Path) -> Result<impl BufRead> {
    let input: Box<dyn Read> = match path == Path::new(STANDARD_INPUT) {
        true => Box::new(io::stdin().lock()),
        false => Box::new(File::open(path).with_context(|| path.display().to_string())?),
    };
    let mut input = BufReader::with_capacity(BUFFER_SIZE, input);
    let start = input.fill_buf().with_context(|| path.display().to_string())?;
    match detect_format(start) {
        Some(Format::Json) => Ok(input),
        None if start.is_empty() => Ok(input),
        Some(Format::Evtx) | None => bail!(
            "{}: expected JSON with one object per line from a pipe; write other formats to a file first",
            path.display()
        ),
    }
}
