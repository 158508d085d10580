//! Opening the recordings that a verb is given.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use stackhound::calltree::{self, journal};
use stackhound::trace::{Capture, Error, Grouping, OpenTrace, Recordings};

use crate::args::Common;

/// Opens files and groups them into captures, of which there is at least one. A file that holds call trees is refused by
/// naming the verbs that read it.
pub fn captures(files: &[PathBuf], grouping: impl Into<Grouping>, common: &Common) -> Result<Vec<Capture>> {
    let recordings =
        Recordings::files(files.to_vec()).threads(crate::threads(common)).grouping(grouping.into());
    match recordings.captures() {
        Err(error @ Error::NotARecording(..)) => match files.iter().find(|path| holds_call_trees(path)) {
            Some(path) => {
                let path = path.display();
                bail!(
                    "{path} holds call trees: ask `stackhound stack {path} --at '#0'`, or tree, backtrace, calls"
                )
            }
            None => Err(error.into()),
        },
        opened => Ok(opened?),
    }
}

/// Names the capture that is analysed next, if there are several.
pub fn announce(captures: &[Capture], index: usize, common: &Common) {
    if captures.len() > 1 && !common.quiet {
        anstream::eprintln!("capture {} of {}: {}", index + 1, captures.len(), captures[index]);
    }
}

/// Opens the files of one capture, for verbs that show one machine at one time.
pub fn one(files: &[PathBuf], merge: bool, common: &Common) -> Result<OpenTrace> {
    let mut captures = captures(files, grouping(merge), common)?;
    match captures.len() {
        1 => Ok(captures.remove(0).trace),
        _ => Err(refusal(&Error::several(&captures))),
    }
}

pub fn grouping(merge: bool) -> Grouping {
    if merge { Grouping::Merge } else { Grouping::ByCapture }
}

/// What to do about several captures where one is needed.
pub fn refusal(error: &Error) -> anyhow::Error {
    anyhow!("{error}; give the files of one, or --merge to take them as one")
}

fn holds_call_trees(path: &Path) -> bool {
    let mut first = [0; 8];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut first));
    read.is_ok() && (journal::is_journal(&first) || first == *calltree::Trace::MAGIC)
}
