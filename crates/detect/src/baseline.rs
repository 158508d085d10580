//! Baselines: the low findings that are usual on a host, so that later ones can be recognized.
//!
//! A key is the detection, the program and the shape of the stack. Values that differ between
//! machines and versions are normalized. Only findings of at most low severity are learned and
//! recognized, and only where program and stack identify the activity: see [`Novelty::Excluded`].

mod normal;

use std::collections::{BTreeMap, BTreeSet};

use stackhound_frames::Lists;

use crate::catalogue::DetectionId;
pub use crate::marks::Novelty;
use crate::marks::SuppressedBy;
use crate::report::{EventContext, Finding, ProcessReport};
use crate::totals::add_count;
use crate::verdict::{Severity, Verdict};

/// Version of the keys. It is raised if the same finding gets another key.
pub const VERSION: u32 = 1;

/// The highest severity that is learned, and that is suppressed if it is known.
pub const SEVERITY_MAX: Severity = Severity::Low;

/// Maximum number of entries.
pub const ENTRIES_MAX: usize = 1 << 17;
/// Maximum length of the texts of a key, in bytes. Longer ones are not learned.
const KEY_BYTES_MAX: usize = 1 << 13;
/// Maximum number of processes of which findings are collected. Further ones are not learned.
const PROCESSES_MAX: usize = 1 << 16;

/// Identifies a kind of finding on all machines.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Key {
    /// The detection.
    pub detection: DetectionId,
    /// The normalized path of the program.
    pub program: String,
    /// The normalized module names of the stack, innermost first.
    pub stack: String,
}

impl Key {
    /// The key of a finding; `None` if it is [excluded](Novelty::Excluded).
    pub fn of(lists: &Lists, event_context: &EventContext, detection: DetectionId) -> Option<Key> {
        let EventContext { process, event, .. } = event_context;
        if !normal::is_complete(process.path())
            || lists.is_script_host(process.path())
            || lists.is_sensitive_target(event.target_path())
        {
            return None;
        }
        let Shape { program, stack } = Shape::of(event_context);
        let key = Key { detection, program, stack };
        (!key.stack.is_empty() && key.program.len() + key.stack.len() <= KEY_BYTES_MAX).then_some(key)
    }
}

/// The program and the stack of an event, in a form that is equal on all machines.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shape {
    /// The normalized path of the program; empty if it is not known.
    pub program: String,
    /// The normalized module names of the stack, innermost first; empty if it is not known.
    pub stack: String,
}

impl Shape {
    /// The shape of an event.
    pub fn of(event_context: &EventContext) -> Shape {
        let EventContext { process, event, .. } = event_context;
        let stack = match (&*event_context.summary, &*event_context.kernel_summary, &*event.start_name) {
            ("", "", "") => String::new(),
            // The events of thread starts without stacks.
            ("", "", start) => {
                format!("start {}", normal::name(start.split('+').next().unwrap_or_default()))
            }
            ("", kernel, _) => normal::names(kernel),
            (user, ..) => normal::names(user),
        };
        Shape { program: normal::path(process.path()), stack }
    }
}

/// The usual findings, with the number of raw events of each.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Baseline {
    entries: BTreeMap<Key, u64>,
    programs: BTreeSet<String>,
    stacks: BTreeSet<(DetectionId, String)>,
}

impl Baseline {
    /// Adds raw events of a key. Returns whether the limit of entries allows it.
    pub fn add(&mut self, key: Key, count: u64) -> bool {
        if let Some(known) = self.entries.get_mut(&key) {
            add_count(known, count);
            return true;
        }
        if self.entries.len() >= ENTRIES_MAX {
            return false;
        }
        self.programs.insert(key.program.clone());
        self.stacks.insert((key.detection, key.stack.clone()));
        self.entries.insert(key, count);
        true
    }

    /// The entries, sorted by key.
    pub fn entries(&self) -> impl Iterator<Item = (&Key, u64)> {
        self.entries.iter().map(|(key, count)| (key, *count))
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Compares a finding with the entries.
    pub fn compare(&self, lists: &Lists, event_context: &EventContext, detection: DetectionId) -> Novelty {
        let Some(key) = Key::of(lists, event_context, detection) else { return Novelty::Excluded };
        if self.entries.contains_key(&key) {
            return Novelty::Known;
        }
        let program = self.programs.contains(&key.program);
        match (program, self.stacks.contains(&(detection, key.stack))) {
            (false, true) => Novelty::NewProcess,
            (true, _) => Novelty::NewStack,
            (false, false) => Novelty::New,
        }
    }
}

/// Whether the findings of an event can be usual: none of them is above low.
pub fn is_usual(findings: &[Finding]) -> bool {
    let mut found = findings.iter().filter(|finding| finding.is_reported());
    found.all(|finding| finding.outcome.severity <= SEVERITY_MAX)
}

/// A process of a machine.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Entity(String, Option<u32>, Option<u64>, String);

impl Entity {
    fn of(host: &str, process: &ProcessReport) -> Entity {
        Entity(host.to_owned(), process.pid, process.started(), process.path().to_ascii_lowercase())
    }
}

/// Collects the usual findings. A process with a finding above low at any time contributes
/// nothing, so that a baseline does not learn an attack that was also found.
#[derive(Debug, Default)]
pub struct Learner {
    /// The keys of each process; `None` if it had a finding above low.
    processes: BTreeMap<Entity, Option<BTreeMap<Key, u64>>>,
    keys: usize,
    skipped: u64,
}

impl Learner {
    /// Adds the findings of an event. Those that an exception suppressed are not learned.
    pub fn add(&mut self, lists: &Lists, event_context: &EventContext, findings: &[Finding]) {
        let is_learned = |finding: &&Finding| {
            finding.outcome.verdict == Verdict::Yes
                && finding.suppressed.as_ref().is_none_or(|cause| cause.by == SuppressedBy::Baseline)
        };
        if !findings.iter().any(|finding| is_learned(&finding)) {
            return;
        }
        let entity = Entity::of(&event_context.host, &event_context.process);
        let is_full = self.processes.len() >= PROCESSES_MAX && !self.processes.contains_key(&entity);
        if is_full {
            add_count(&mut self.skipped, event_context.count);
            return;
        }
        let process = self.processes.entry(entity).or_insert_with(|| Some(BTreeMap::new()));
        let Some(keys) = process else { return };
        if !is_usual(findings) {
            self.keys -= keys.len();
            *process = None;
            return;
        }
        for finding in findings.iter().filter(is_learned) {
            let Some(id) = finding.analytic.detection() else { continue };
            let Some(key) = Key::of(lists, event_context, id) else { continue };
            if let Some(count) = keys.get_mut(&key) {
                add_count(count, event_context.count);
            } else if self.keys < ENTRIES_MAX {
                self.keys += 1;
                keys.insert(key, event_context.count);
            } else {
                add_count(&mut self.skipped, event_context.count);
            }
        }
    }

    /// Adds what was learned to a baseline. Returns the number of raw events beyond the limits,
    /// which were not learned.
    pub fn finish(self, baseline: &mut Baseline) -> u64 {
        let keys = self.processes.into_values().flatten().flatten();
        keys.fold(self.skipped, |skipped, (key, count)| {
            if baseline.add(key, count) { skipped } else { skipped.saturating_add(count) }
        })
    }
}

#[cfg(test)]
mod tests;
