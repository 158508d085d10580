//! What servers are known not to have, from one run to the next.
//!
//! A text file for each symbol file, in a folder for each name, with a line for each server. It holds until somebody
//! asks for a new try: time plays no part, so that equal runs give equal results.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use super::wanted::Wanted;
use crate::path::ServerUrl;
use crate::temporary::Temporary;

/// Longest file that is read.
const LENGTH_MAX: u64 = 64 << 10;

#[derive(Debug)]
pub(super) struct Missing {
    root: PathBuf,
    writing: Mutex<()>,
}

impl Missing {
    pub fn new(root: PathBuf) -> Missing {
        Missing { root, writing: Mutex::new(()) }
    }

    fn path(&self, wanted: &Wanted) -> PathBuf {
        self.root.join(wanted.name.as_str()).join(&wanted.key)
    }

    fn read(&self, wanted: &Wanted) -> String {
        let path = self.path(wanted);
        let is_small = fs::metadata(&path).is_ok_and(|file| file.len() <= LENGTH_MAX);
        if is_small { fs::read_to_string(&path).unwrap_or_default() } else { String::new() }
    }

    pub fn contains(&self, wanted: &Wanted, server: &ServerUrl) -> bool {
        self.read(wanted).lines().any(|line| line == server.as_str())
    }

    /// Remembers that a server does not have a file, or that it does.
    pub fn set(&self, wanted: &Wanted, server: &ServerUrl, is_missing: bool) -> io::Result<()> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let known = self.read(wanted);
        if known.lines().any(|line| line == server.as_str()) == is_missing {
            return Ok(());
        }
        let path = self.path(wanted);
        let mut lines: Vec<&str> = known.lines().filter(|line| *line != server.as_str()).collect();
        if is_missing {
            lines.push(server.as_str());
        }
        if lines.is_empty() {
            return fs::remove_file(&path);
        }
        let folder = path.parent().unwrap_or(&self.root);
        fs::create_dir_all(folder)?;
        let mut file = Temporary::in_folder(folder)?;
        file.write_all((lines.join("\n") + "\n").as_bytes())?;
        file.persist(&path)
    }
}
