//! The log of calls.

use std::fmt::Arguments;
use std::io::Write;
use std::sync::Mutex;

use crate::report::Report;

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Writes a line.
pub(crate) fn log(line: Arguments<'_>) {
    let _guard = ONE_AT_A_TIME.lock();
    let file = std::fs::OpenOptions::new().append(true).open(Report::calls());
    // Without the file, nothing is logged.
    if let Ok(mut file) = file {
        let _ = file.write_all(format!("{line}\n").as_bytes());
    }
}
