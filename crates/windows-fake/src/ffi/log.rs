//! The log of calls, which tests read.

use std::fmt::Arguments;
use std::fs::OpenOptions;
use std::io::Write;

use crate::settings::Settings;

/// Appends a line to the log, if the settings name one.
pub(super) fn log(line: Arguments<'_>) {
    let Some(path) = Settings::of_environment().log else { return };
    // One write per line, so that the lines of several threads do not mix.
    let written = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
    written.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}
