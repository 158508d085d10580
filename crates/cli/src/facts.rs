//! Facts of the state in tables, and the number of events that lack them.

use std::fmt;

use stackhound::facts::{EventFact, FactId, ProcessFact, ThreadFact};
use stackhound::{EventView, Fact, Missing, MissingCounts, ProcessView, ThreadStart};
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

/// The columns of facts in CSV: those of the catalogue, with the names that they have in filters.
pub fn columns() -> impl Iterator<Item = String> {
    let own = of::<ProcessFact>("process.").chain(of::<ThreadFact>("thread."));
    let target = of::<ProcessFact>("target.process.").chain(of::<ThreadFact>("target.thread."));
    own.chain(of::<EventFact>("")).chain(target)
}

fn of<F: FactId>(subject: &str) -> impl Iterator<Item = String> {
    F::ALL.iter().map(move |fact| format!("{subject}{}", fact.row().path))
}

/// The values of the columns; empty if they are not known.
pub fn cells(view: &EventView<'_>) -> impl Iterator<Item = String> {
    let target = view.target().ok_or(Missing::NotStated);
    let of_target =
        texts(target.and_then(|target| target.process()), target.and_then(|target| target.thread_start()));
    let of_event = EventFact::ALL.iter().map(|fact| Fact::Event(*fact).value(view).unwrap_or_default());
    texts(view.process(), view.thread_start()).into_iter().chain(of_event).chain(of_target)
}

fn texts(process: Result<ProcessView<'_>, Missing>, start: Result<ThreadStart<'_>, Missing>) -> Vec<String> {
    let process = process.map(|process| process.facts()).unwrap_or_default();
    let thread = start.map(|start| start.facts()).unwrap_or_default();
    process.texts().chain(thread.texts()).collect()
}
