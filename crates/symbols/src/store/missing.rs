//! Stores which files servers do not have, across runs.
//!
//! There is a text file for each symbol file, in a folder for each name, with a line for each
//! server. Entries are valid until a retry is requested. They do not expire, so that equal runs
//! give equal results.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use super::wanted::Wanted;
use crate::path::ServerUrl;
use crate::temporary::Temporary;

/// Maximum length of an entry.
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

    /// Stores whether a server lacks a file.
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
