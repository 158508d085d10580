//! What an answer lacks.

use std::sync::Arc;

/// What a rule would need for a certain answer.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Missing {
    /// A field, by its name in conditions, or a function that would ask the running system.
    Field(Arc<str>),
    /// Events that were lost, or dropped to bound the memory.
    Events,
}

impl Missing {
    /// The name in output.
    pub fn name(&self) -> &str {
        match self {
            Missing::Field(name) => name,
            Missing::Events => "events",
        }
    }
}

/// Everything that an answer lacks: with all of it, the rule is decided. A part of it can be enough.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MissingInputs(Vec<Missing>);

impl MissingInputs {
    /// Nothing.
    pub const NONE: MissingInputs = MissingInputs(Vec::new());

    /// The inputs in a fixed order, each once.
    pub fn iter(&self) -> impl Iterator<Item = &Missing> {
        self.0.iter()
    }

    /// Whether nothing is missing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn add(&mut self, missing: Missing) {
        if let Err(position) = self.0.binary_search(&missing) {
            self.0.insert(position, missing);
        }
    }

    pub(super) fn add_field(&mut self, name: &Arc<str>) {
        self.add(Missing::Field(Arc::clone(name)));
    }

    pub(super) fn add_all(&mut self, others: &MissingInputs) {
        others.0.iter().for_each(|missing| self.add(missing.clone()));
    }
}
