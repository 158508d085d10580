//! Names of registry keys.

use std::fmt;

use stackhound_trace::TraceTime;

use crate::name_history::NameHistory;
use crate::text::Text;

/// The address of a key control block, which registry events call `KeyHandle`. Zero stands for no key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct KeyControlBlock(pub u64);

/// What an event says of a key control block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum KeyNameEvent {
    /// It stands for the key from now on.
    Create,
    /// It stood for the key until now.
    Delete,
    /// It stands for the key when the recording begins or ends.
    Rundown,
}

/// All names of registry keys.
#[derive(Debug, Default)]
pub(crate) struct KeyNames {
    by_block: NameHistory,
}

impl KeyNames {
    /// How many statements are remembered.
    pub fn len(&self) -> usize {
        self.by_block.len()
    }

    /// Forgets what no answer about this time or a later one rests on.
    pub fn forget_before(&mut self, time: TraceTime) {
        self.by_block.forget_before(time);
    }

    /// Forgets what was said first, until so many statements are left. Gives how many were forgotten.
    pub fn forget_oldest(&mut self, left: usize) -> u64 {
        self.by_block.forget_oldest(left)
    }

    /// All texts that are referred to.
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

    pub fn at(&self, block: KeyControlBlock, time: TraceTime) -> Option<Text> {
        self.by_block.at(block.0, time)
    }
}

/// A key's path in two parts. Prints as one path.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RegistryPath<'a> {
    /// The key that the other part is relative to: empty if there is none, `None` if its name is not known.
    pub key: Option<&'a str>,
    /// What the event says.
    pub name: &'a str,
}

impl RegistryPath<'_> {
    /// Whether it begins at the registry's root.
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
