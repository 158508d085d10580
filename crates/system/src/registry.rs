//! Names of registry keys.

use std::fmt;

use stackhound_trace::TraceTime;

use crate::name_history::NameHistory;
use crate::text::Text;

/// The address of a key control block, called `KeyHandle` in registry events. Zero means no key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct KeyControlBlock(pub u64);

/// The statement of an event about a key control block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum KeyNameEvent {
    /// The block refers to the key from now on.
    Create,
    /// The block referred to the key until now.
    Delete,
    /// The block refers to the key when the trace begins or ends.
    Rundown,
}

#[derive(Debug, Default)]
pub(crate) struct KeyNames {
    by_block: NameHistory,
}

impl KeyNames {
    /// The number of stored statements.
    pub fn len(&self) -> usize {
        self.by_block.len()
    }

    /// Forgets all state that no query about this time or a later one needs.
    pub fn forget_before(&mut self, time: TraceTime) {
        self.by_block.forget_before(time);
    }

    /// Forgets the oldest statements until `left` remain. Returns the number of forgotten
    /// statements.
    pub fn forget_oldest(&mut self, left: usize) -> u64 {
        self.by_block.forget_oldest(left)
    }

    /// All referenced texts.
    pub fn texts_mut(&mut self) -> impl Iterator<Item = &mut Text> {
        self.by_block.texts_mut()
    }

    pub fn note(&mut self, time: TraceTime, event: KeyNameEvent, block: KeyControlBlock, name: Text) {
        match event {
            KeyNameEvent::Create => self.by_block.give(time, block.0, name),
            KeyNameEvent::Delete => self.by_block.end(time, block.0, name),
            KeyNameEvent::Rundown => self.by_block.list(time, block.0, name),
        }
    }

    /// The names that statements give, with the times of the statements. An earlier statement takes
    /// precedence.
    pub fn at(
        &self,
        KeyControlBlock(block): KeyControlBlock,
        time: TraceTime,
    ) -> impl Iterator<Item = (Text, TraceTime)> {
        let earlier = self.by_block.covering(block, time);
        earlier.into_iter().chain(self.by_block.later(block, time))
    }
}

/// The path of a key in two parts. `Display` joins them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RegistryPath<'a> {
    /// The key that `name` is relative to: empty if there is none, `None` if its name is not known.
    pub key: Option<&'a str>,
    /// The name in the event.
    pub name: &'a str,
}

impl RegistryPath<'_> {
    /// Whether the path begins at the root of the registry.
    pub fn is_complete(&self) -> bool {
        self.key.is_some()
    }
}

impl fmt::Display for RegistryPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.key.unwrap_or_default();
        f.write_str(key)?;
        if !key.is_empty() && !self.name.is_empty() && !self.name.starts_with('\\') {
            f.write_str("\\")?;
        }
        f.write_str(self.name)
    }
}
