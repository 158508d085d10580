//! Opening the recordings that a verb is given.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use stackhound::calltree::{self, journal};
use stackhound::trace::{Error, OpenTrace, Recordings};

use crate::args::Common;

/// Opens them. A file that holds call trees instead is told from others.
pub fn open(files: &[PathBuf], common: &Common) -> Result<OpenTrace> {
    match Recordings::files(files.to_vec()).threads(crate::threads(common)).open() {
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

fn holds_call_trees(path: &Path) -> bool {
    let mut first = [0; 8];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut first));
    read.is_ok() && (journal::is_journal(&first) || first == *calltree::Trace::MAGIC)
}
