//! The modules of .NET methods, by the ids that the runtime gives them.
//!
//! An id is an address in its process, and is used again after the module is unloaded. Methods keep
//! only this id. Their module is looked up when it is needed, because a trace may report its path
//! only at its end. This module does not know the images that the kernel reports.

use stackhound_trace::TraceTime;

use crate::name_history::NameHistory;
use crate::process::ProcessId;
use crate::span::Phase;
use crate::text::Text;
use crate::validity::ValidityRange;

/// The paths of the modules of all processes.
#[derive(Debug, Default)]
pub(crate) struct ManagedModules {
    paths: NameHistory<(ProcessId, u64)>,
}

impl ManagedModules {
    /// The number of stored statements.
    pub fn len(&self) -> usize {
        self.paths.len()
    }

    /// Records the statement of an event about a module. A load of a module that is known to be
    /// loaded adds nothing: a module is loaded once into each application domain.
    pub fn observe(&mut self, phase: Phase, time: TraceTime, process: ProcessId, id: u64, path: Text) {
        let key = (process, id);
        match phase {
            Phase::Start => self.paths.give_again(time, key, path),
            Phase::End => self.paths.end(time, key, path),
            Phase::RundownAtStart | Phase::RundownAtEnd => self.paths.list(time, key, path),
        }
    }

    /// The path of a module at a time. Costs two look-ups in a tree.
    pub fn path(&self, process: ProcessId, id: u64, time: TraceTime) -> Option<Text> {
        let key = (process, id);
        let found = self.paths.covering(key, time).or_else(|| self.paths.later(key, time));
        found.map(|(path, _)| path)
    }

    /// The times around a time at which an id has the same path.
    pub fn validity(&self, process: ProcessId, id: u64, time: TraceTime) -> ValidityRange {
        self.paths.validity((process, id), time)
    }

    /// Forgets the modules of processes that are forgotten.
    pub fn forget_processes(&mut self, is_there: impl Fn(ProcessId) -> bool) {
        self.paths.retain(|(process, _)| is_there(process));
    }

    /// Forgets all state that no query about this time or a later one needs.
    pub fn forget_before(&mut self, time: TraceTime) {
        self.paths.forget_before(time);
    }

    /// Forgets the oldest statements until `left` remain. Returns the number of forgotten
    /// statements.
    pub fn forget_oldest(&mut self, left: usize) -> u64 {
        self.paths.forget_oldest(left)
    }

    /// All referenced texts.
    pub fn texts_mut(&mut self) -> impl Iterator<Item = &mut Text> {
        self.paths.texts_mut()
    }
}
