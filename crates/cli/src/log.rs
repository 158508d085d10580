//! The log of the libraries on standard error. With `--verbose`, it reports files, downloads and
//! sessions when they are opened. Without it, nothing is logged or formatted.

use std::io::{self, Write};

use tracing::Level;

use crate::output::message;

/// Writes log lines without control characters, because paths and names can come from hostile files.
struct Lines;

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        message(format_args!("{}", text.trim_end_matches('\n')));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Enables the log.
pub fn show() {
    tracing_subscriber::fmt().with_max_level(Level::DEBUG).with_ansi(false).with_writer(|| Lines).init();
}
