//! Hunting in Sysmon's events: event logs and JSON.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use stackhound::detect::Judge;
use stackhound_sysmon::{Format, Found, Sysmon, Totals, detects};

use super::report::Report;
use crate::args::Common;
use crate::output::grouped;
use crate::progress::Progress;

/// Things that cannot be read are told one by one up to this number; all are counted.
const TOLD_MAX: u64 = 5;

/// Endings of files in directories that are taken for Sysmon's.
const ENDINGS: [&str; 4] = ["evtx", "json", "jsonl", "ndjson"];

/// Bytes of a file's first line that are looked at.
const FIRST_LINE_MAX: u64 = 1 << 20;

/// Stands for standard input.
const STANDARD_INPUT: &str = "-";

const BUFFER_SIZE: usize = 1 << 18;

/// Whether it can be read only once, as standard input, named pipes and those of shells.
pub fn is_pipe(path: &Path) -> bool {
    let is_special = |path: &Path| path.metadata().is_ok_and(|there| !there.is_file() && !there.is_dir());
    path == Path::new(STANDARD_INPUT) || is_special(path)
}

/// Whether a file begins as Sysmon's do: JSON with a whole object on its first line. What cannot be opened is none: it is told
/// by who opens it.
pub fn is_one(path: &Path) -> bool {
    let Ok(start) = first_line(path) else { return false };
    match detects(&start) {
        Some(Format::Evtx) => true,
        Some(Format::Json) => start.trim_ascii_end().ends_with(b"}") || start.len() as u64 == FIRST_LINE_MAX,
        None => false,
    }
}

/// Up to the first end of a line behind something else.
fn first_line(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = BufReader::new(File::open(path)?.take(FIRST_LINE_MAX));
    let mut line = Vec::new();
    while file.read_until(b'\n', &mut line)? > 0 && line.trim_ascii().is_empty() {}
    Ok(line)
}

/// What is wrong with a file that could be Sysmon's, if its beginning tells.
pub fn what_else(path: &Path) -> Option<&'static str> {
    let start = first_line(path).ok()?;
    Some(match start.trim_ascii_start() {
        [b'{' | b'[', ..] => {
            "JSON is read with one object on each line; `jq -c '.[]?' FILE` writes the objects of a list so"
        }
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => "text in UTF-16; JSON is read in UTF-8",
        _ => return None,
    })
}

/// The files of a directory whose names say that they may be Sysmon's, and that begin so, in the order of their names.
pub fn of_directory(directory: &Path, common: &Common) -> Result<Vec<PathBuf>> {
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
    files.retain(|path| {
        let is_one = is_one(path);
        if !is_one && !common.quiet {
            eprintln!("{}: left out, since it does not begin as Sysmon's events do", path.display());
        }
        is_one
    });
    Ok(files)
}

/// Judges all rows of a file or pipe.
pub fn hunt(
    sysmon: &mut Sysmon,
    path: &Path,
    judge: &mut Judge,
    (report, progress): (&mut Report<'_>, &mut Progress),
    common: &Common,
) -> Result<Totals> {
    let name = path.display().to_string();
    let mut told = 0;
    let on = |found: Found<'_>| match found {
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
    };
    let totals = if is_pipe(path) {
        sysmon.hunt_json(pipe(path)?, &name, judge, on)
    } else {
        let file = File::open(path).with_context(|| name.clone())?;
        sysmon.hunt(BufReader::with_capacity(BUFFER_SIZE, file), &name, judge, on)
    };
    let totals = totals.with_context(|| name.clone())?;
    if told > TOLD_MAX && !common.quiet {
        eprintln!("{name}: {} more of this kind", grouped(told - TOLD_MAX));
    }
    Ok(totals)
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
