//! Facts of the state in tables, and the number of events that lack them.

use std::fmt;
use std::sync::LazyLock;

use stackhound::{EventView, Fact, MissingCounts};
use stackhound_export::escape::Short;
use stackhound_export::json::event_rows;

use crate::output::grouped;

/// The limit of characters of a value in tables. The other formats have no limit.
pub const VALUE_MAX: usize = 1024;

/// The facts whose absence the closing line reports.
const REPORTED: [&str; 3] = ["process.path", "file.path", "registry.path"];

/// Numbers of events that lack a fact, by fact and reason.
#[derive(Debug, Default)]
pub struct MissingFacts([MissingCounts; REPORTED.len()]);

impl MissingFacts {
    /// Adds the missing facts of an event.
    pub fn add(&mut self, missing: event_rows::MissingFacts) {
        let reasons = [missing.process_path, missing.file_path, missing.registry_path];
        for (counts, reason) in self.0.iter_mut().zip(reasons) {
            if let Some(reason) = reason {
                counts.add(reason);
            }
        }
    }
}

/// For the closing line: `, unknown: file.path 12 (no rundown 10, lost 2)`, or nothing.
impl fmt::Display for MissingFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = self.0.iter().zip(REPORTED).filter(|(counts, _)| counts.total() > 0);
        for (index, (counts, name)) in named.enumerate() {
            let lead = if index == 0 { ", unknown: " } else { ", " };
            write!(f, "{lead}{name} {} ({counts})", grouped(counts.total()))?;
        }
        Ok(())
    }
}

/// Writes the file, the key and the target of an event, unless the payload has them in full.
pub fn write(f: &mut fmt::Formatter<'_>, view: &EventView<'_>) -> fmt::Result {
    if let Ok(path) = view.file_path() {
        write!(f, " (file: {})", Short(path, VALUE_MAX))?;
    }
    if let Some(Ok(path)) = view.registry().map(|registry| registry.path) {
        write!(f, " (key: {})", Short(path, VALUE_MAX))?;
    }
    let Some(target) = view.target() else { return Ok(()) };
    f.write_str(" (target:")?;
    if let Some(pid) = target.pid() {
        let name = target.process().and_then(|process| process.name());
        write!(f, " {} {}", name.unwrap_or("-"), pid.0)?;
    }
    if let Some(tid) = target.tid() {
        write!(f, " thread {}", tid.0)?;
    }
    f.write_str(")")
}

/// The columns of facts in CSV.
pub const COLUMNS: [&str; 10] = [
    "process.path",
    "process.command_line",
    "process.parent.pid",
    "process.user.sid",
    "file.path",
    "registry.path",
    "registry.value",
    "target.pid",
    "target.tid",
    "target.process.path",
];

static COLUMN_FACTS: LazyLock<[Option<Fact>; COLUMNS.len()]> = LazyLock::new(|| COLUMNS.map(Fact::of));

/// The values of the columns; empty if they are not known.
pub fn columns(view: &EventView<'_>) -> impl Iterator<Item = String> {
    COLUMN_FACTS.iter().map(|fact| fact.and_then(|fact| fact.value(view).ok()).unwrap_or_default())
}
