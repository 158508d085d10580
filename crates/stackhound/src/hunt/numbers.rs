//! Numbers that stand for what judgements rest on, so that cases are told apart by a few of them.

use std::hash::Hash;

use hashbrown::HashMap;

/// Gives numbers, from 1; never the same one twice.
#[derive(Debug, Default)]
pub(super) struct Numbers(u32);

impl Numbers {
    /// The highest bit is free for other things.
    const MAX: u32 = u32::MAX >> 1;
    /// More than one event takes.
    const LEFT: u32 = 1 << 20;

    /// The next one.
    pub fn next(&mut self) -> u32 {
        self.0 += 1;
        self.0
    }

    /// Whether there are hardly any left. Then all that is known by number has to be forgotten, and numbers begin again.
    #[inline]
    pub fn are_spent(&self) -> bool {
        self.0 >= Numbers::MAX - Numbers::LEFT
    }
}

/// Things with a number each. Of very many, all are forgotten, and get new numbers.
#[derive(Debug)]
pub(super) struct Numbered<T>(HashMap<T, u32, foldhash::fast::RandomState>);

impl<T> Default for Numbered<T> {
    fn default() -> Numbered<T> {
        Numbered(HashMap::default())
    }
}

impl<T: Hash + Eq> Numbered<T> {
    /// Things that are known at once, at most.
    const MAX: usize = 1 << 16;

    /// The number of a thing.
    pub fn of(&mut self, thing: T, numbers: &mut Numbers) -> u32 {
        if self.0.len() >= Self::MAX && !self.0.contains_key(&thing) {
            self.0.clear();
        }
        *self.0.entry(thing).or_insert_with(|| numbers.next())
    }
}
