//! Checks `.etl` files against rules that hold in every trace written by Windows.
//!
//! ```
//! use stackhound_validator::{Rule, validate};
//!
//! let report = validate(&[0; 16]);
//! assert_eq!(report.violated(), [Rule::F01, Rule::F02]);
//! ```
//!
//! [`validate`] checks every buffer and record, and counts the checks and violations of each
//! [`Rule`]. The rules depend on the class of the trace: live or relogged, compressed or not, and
//! the version of Windows. They were derived from traces of Windows Vista to Windows 11, and are
//! stricter than readers need: a file that violates a rule differs from the files of Windows, but
//! may still be readable. [`assert_known`] compares the files of this project's writer with a table
//! of known violations.
//!
//! This crate parses the bytes itself and uses no other crate of the workspace, because it checks
//! the output of their writer. It does not repair or resynchronize: it stops at a buffer of
//! impossible size.
#![forbid(unsafe_code)]

mod buffer;
mod bytes;
mod data;
mod header;
mod kernel;
mod known_violations;
mod record;
mod report;
mod rules;
mod xpress;

pub use known_violations::{KnownViolation, assert_known};
pub use report::{Report, Tally, Violation};
pub use rules::Rule;

use self::buffer::{BUFFER_HEADER_SIZE, Buffer};
use self::header::Session;

/// Checks a whole file. Does not panic on any input.
///
/// The memory usage is proportional to the size of the file.
pub fn validate(file: &[u8]) -> Report {
    let mut report = Report::default();
    let mut buffers = Vec::new();
    let mut at = 0;
    while at + BUFFER_HEADER_SIZE <= file.len() {
        let size = bytes::u32(file, at) as usize;
        let fits = (BUFFER_HEADER_SIZE..=file.len() - at).contains(&size);
        if !report.check(Rule::F01, at, fits, || format!("a buffer of {size} bytes")) {
            break;
        }
        buffers.push(Buffer::parse(at, &file[at..at + size]));
        at += size;
    }
    if buffers.is_empty() && report.violated().is_empty() {
        report.check(Rule::F01, 0, false, || format!("no buffer in {} bytes", file.len()));
    }
    report.check(Rule::F02, at, at == file.len(), || format!("{} bytes more", file.len() - at));
    let Some((first, data)) = buffers.split_first() else { return report };
    if let Some(session) = Session::check(&mut report, first, buffers.len(), file.len()) {
        data::check(&mut report, &session, data);
    }
    report
}
