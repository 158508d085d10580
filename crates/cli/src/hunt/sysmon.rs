//! Hunting in Sysmon's events: event logs and JSON.

use std::fs::File;
use std::io::{BufReader, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use stackhound::detect::Judge;
use stackhound_sysmon::{Found, Sysmon, Totals, detects};

use super::report::Report;
use crate::args::Common;
use crate::output::grouped;
use crate::progress::Progress;

/// Things that cannot be read are told one by one up to this number; all are counted.
const TOLD_MAX: u64 = 5;

/// Endings of files in directories that are taken for Sysmon's.
const ENDINGS: [&str; 4] = ["evtx", "json", "jsonl", "ndjson"];

/// Whether a file begins as Sysmon's do. What cannot be opened is none: it is told by who opens it.
pub fn is_one(path: &Path) -> bool {
    let mut start = Vec::new();
    let read = File::open(path).and_then(|file| file.take(64).read_to_end(&mut start));
    read.is_ok() && detects(&start).is_some()
}

/// The files of a directory whose names say that they may be Sysmon's, in the order of their names.
pub fn of_directory(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.with_context(|| directory.display().to_string())?.path();
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        if ENDINGS.iter().any(|known| known.eq_ignore_ascii_case(ending)) && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Judges all rows of a file.
pub fn hunt(
    sysmon: &mut Sysmon,
    path: &Path,
    judge: &mut Judge,
    (report, progress): (&mut Report<'_>, &mut Progress),
    common: &Common,
) -> Result<Totals> {
    let name = path.display().to_string();
    let file = File::open(path).with_context(|| name.clone())?;
    let mut told = 0;
    let totals = sysmon.hunt(BufReader::with_capacity(1 << 18, file), &name, judge, |found| match found {
        Found::Judged(judged) => {
            progress.tick();
            report.count_one(judged.judgement, judged.row.count, !judged.case.stack.frames.is_empty());
            match report.wants(judged.judgement) {
                true => report.write(&judged.sighting(), judged.judgement),
                false => ControlFlow::Continue(()),
            }
        }
        Found::Unreadable(unreadable) => {
            told += 1;
            if told <= TOLD_MAX && !common.quiet {
                eprintln!("{unreadable}");
            }
            ControlFlow::Continue(())
        }
    });
    report.failed()?;
    let totals = totals.with_context(|| name.clone())?;
    if told > TOLD_MAX && !common.quiet {
        eprintln!("{name}: {} more of this kind", grouped(told - TOLD_MAX));
    }
    Ok(totals)
}
