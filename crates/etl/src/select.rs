//! Choosing records by what their headers say, before anything else is done with them.

use crate::record::{HeaderKind, Record};

/// A set of records: any kernel hooks, classic events or not, and which events with a descriptor.
///
/// A walk that looks for a few kinds only (names, rundown, metadata) skips the others at the cost of one bit test.
#[derive(Clone, Debug)]
pub struct Selection {
    hooks: Box<[u64; 1024]>,
    classic: bool,
    described: Described,
}

/// Which events with a descriptor a [`Selection`] holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Described {
    /// None of them.
    None,
    /// Those with this id.
    Id(u16),
    /// All of them.
    All,
}

impl Selection {
    /// No records at all.
    pub fn none() -> Selection {
        Selection { hooks: Box::new([0; 1024]), classic: false, described: Described::None }
    }

    /// Adds kernel events.
    pub fn hooks(mut self, hooks: impl IntoIterator<Item = u16>) -> Selection {
        for hook in hooks {
            self.hooks[usize::from(hook) / 64] |= 1 << (hook % 64);
        }
        self
    }

    /// Adds all classic events.
    pub fn classic(mut self) -> Selection {
        self.classic = true;
        self
    }

    /// Says which events with a descriptor belong to the set.
    pub fn described(mut self, described: Described) -> Selection {
        self.described = described;
        self
    }

    /// Whether a record belongs to the set. WPP messages and errors never do.
    #[inline]
    pub(crate) fn has(&self, record: &Record<'_>) -> bool {
        let kind = record.kind();
        if let Some(hook) = record.hook() {
            self.hooks[usize::from(hook) / 64] >> (hook % 64) & 1 != 0
        } else if kind.is_classic() {
            self.classic
        } else {
            match (self.described, kind) {
                (Described::All, HeaderKind::Event32 | HeaderKind::Event64) => true,
                (Described::Id(id), HeaderKind::Event32 | HeaderKind::Event64) => {
                    record.bytes()[0x28..0x2a] == id.to_le_bytes()
                }
                _ => false,
            }
        }
    }
}
