//! Judgements that were made before.
//!
//! The same few stacks come again and again. A judgement holds as long as nothing that it rests on has changed, so it is kept
//! with all of that. The cache changes no answer: what is not in it, or was judged under other circumstances, is judged.

use std::hash::BuildHasher;

use hashbrown::HashMap;
use hashbrown::hash_table::{Entry, HashTable};
use stackhound_detect::{Code, Judgement, Totals};
use stackhound_stacks::{StackId, StackState};
use stackhound_system::Stretch;

use super::kind::Kind;
use super::services::Service;

/// What tells cases apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Key {
    pub stack: Option<StackId>,
    pub state: StackState,
    /// Decides what the innermost frames are. 0 of events without one.
    pub hook: u16,
    pub kind: Kind,
    /// Stands for all that is known of the process.
    pub process: u32,
    pub thread_start: Option<Code>,
    pub service: Option<Service>,
    /// Whom it was done to: stands for all that is known of the process, whether it is another one, and the rights.
    pub target: Option<(u32, bool, Option<u32>)>,
}

/// What else a judgement rests on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Circumstances {
    pub user: Stretch,
    pub kernel: Stretch,
    pub is_complete: bool,
    pub has_losses: bool,
    pub all_drivers: bool,
    /// Where live memory is looked at: the period of which its answers are.
    pub memory: Option<i64>,
}

/// Cases that are remembered, at most: about 25 MB.
const CASES_MAX: usize = 1 << 17;
/// Distinct judgements that are kept, at most: about 13 MB.
const JUDGEMENTS_MAX: usize = 1 << 14;

/// Judgements by case.
#[derive(Debug, Default)]
pub(super) struct Cache {
    cases: HashMap<Key, (Circumstances, u32), foldhash::fast::RandomState>,
    /// Each once; many cases have the same.
    judgements: Vec<Judgement>,
    /// How many events each was made of.
    counts: Vec<u64>,
    /// Of judgements that were given up.
    totals: Totals,
    numbers: HashTable<u32>,
    hasher: foldhash::fast::RandomState,
}

impl Cache {
    /// The number of the judgement of a case, if it was made under the same circumstances.
    #[inline]
    pub fn find(&self, key: &Key, now: &Circumstances) -> Option<u32> {
        let (known, number) = self.cases.get(key)?;
        (known == now).then_some(*number)
    }

    /// Keeps a judgement; gives its number, which is good until the next one is kept.
    pub fn keep(&mut self, key: Key, now: Circumstances, judgement: Judgement) -> u32 {
        if self.cases.len() >= CASES_MAX || self.judgements.len() >= JUDGEMENTS_MAX {
            self.totals = self.totals();
            self.cases.clear();
            self.judgements.clear();
            self.counts.clear();
            self.numbers.clear();
        }
        let number = self.number(judgement);
        self.cases.insert(key, (now, number));
        number
    }

    fn number(&mut self, judgement: Judgement) -> u32 {
        let Cache { judgements, counts, numbers, hasher, .. } = self;
        let entry = numbers.entry(
            hasher.hash_one(judgement),
            |number| judgements[*number as usize] == judgement,
            |number| hasher.hash_one(judgements[*number as usize]),
        );
        match entry {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(place) => {
                let number = judgements.len() as u32;
                place.insert(number);
                judgements.push(judgement);
                counts.push(0);
                number
            }
        }
    }

    /// Counts an event for a judgement, which is given by its number.
    #[inline]
    pub fn count(&mut self, number: u32) -> &Judgement {
        self.counts[number as usize] += 1;
        &self.judgements[number as usize]
    }

    /// The answers of all judgements that were counted.
    pub fn totals(&self) -> Totals {
        let mut totals = self.totals.clone();
        let counted = self.judgements.iter().zip(&self.counts);
        counted.for_each(|(judgement, count)| totals.add(judgement, *count));
        totals
    }
}
