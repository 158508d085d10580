//! Judgements that were made before.
//!
//! The same few stacks come again and again. A judgement holds as long as nothing that it rests on has changed, so it is kept
//! under numbers that stand for all of that: first for the stack itself, in its process as that is now; then for its *shape*,
//! which is what is asked of its frames, whatever process they are in. The cache changes no answer: what is not in it is judged.

use std::hash::BuildHasher;

use hashbrown::hash_table::{Entry, HashTable};
use stackhound_detect::{Judgement, Totals};
use stackhound_stacks::StackId;

/// What tells cases apart. All that a judgement rests on, but for the memory outside of images.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Key {
    pub stack: Option<StackId>,
    /// Of the process, its modules and those of the kernel, and what is known of them.
    pub ground: u32,
    /// Of where the thread started.
    pub start: u32,
    /// Of the service or of the target.
    pub told: u32,
    /// The kind of event, what its innermost frames are, and how much of the stack there is.
    pub what: u32,
}

impl Key {
    /// Where it is looked for: the same in each run.
    #[inline]
    fn hash(&self) -> u64 {
        const FACTORS: [u64; 3] = [0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93, 0xa076_1d64_78bd_642f];
        let fold = |one: u64, other: u64| {
            let product = u128::from(one) * u128::from(other);
            product as u64 ^ (product >> 64) as u64
        };
        let stack = self.stack.map_or(0, |stack| stack.index() as u64 + 1);
        let around = u64::from(self.ground) << 32 | u64::from(self.start);
        let event = u64::from(self.told) << 32 | u64::from(self.what);
        fold(fold(stack ^ FACTORS[0], around ^ FACTORS[1]) ^ event, FACTORS[2])
    }
}

/// A case that is remembered.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Known {
    key: Key,
    /// Of the memory that it rests on where it rests on more than modules: where all user frames lie in images, only modules
    /// count. 0 if it does not. (That a place was taken by something else while the unload was not recorded is noticed when
    /// modules change.)
    pub memory: u32,
    /// Of the judgement; 0 in a free place.
    pub number: u32,
}

/// Cases that can be in one place of the table: as many as fit a line of the processor's cache.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Bucket([Known; 2]);

/// Buckets of the table of cases, at first and at most: 4 MB. Cases come again soon or, since modules have changed, never; in a
/// larger table each look would wait for memory.
const BUCKETS: std::ops::RangeInclusive<usize> = 1 << 8..=1 << 16;
/// Distinct judgements that are kept, at most: about 13 MB.
const JUDGEMENTS_MAX: usize = 1 << 14;
/// Numbers in shapes that are kept, at most: 8 MB.
const SHAPES_MAX: usize = 1 << 21;

#[derive(Clone, Copy, Debug)]
struct Shape {
    from: u32,
    to: u32,
    number: u32,
}

impl Shape {
    fn numbers(self, all: &[u32]) -> &[u32] {
        &all[self.from as usize..self.to as usize]
    }
}

/// Judgements by case.
#[derive(Debug)]
pub(super) struct Cache {
    /// As many as a power of two.
    buckets: Vec<Bucket>,
    /// Cases that were put into the buckets.
    kept: usize,
    shapes: HashTable<Shape>,
    /// Of all shapes, one behind the other.
    shape_numbers: Vec<u32>,
    /// Each once; many cases have the same.
    judgements: Vec<Judgement>,
    /// How many events each was made of.
    counts: Vec<u64>,
    /// Of judgements that were given up.
    totals: Totals,
    /// Numbers of judgements, from 1.
    numbers: HashTable<u32>,
    hasher: foldhash::fast::RandomState,
}

impl Default for Cache {
    fn default() -> Cache {
        Cache {
            buckets: vec![Bucket::default(); *BUCKETS.start()],
            kept: 0,
            shapes: HashTable::default(),
            shape_numbers: Vec::new(),
            judgements: Vec::new(),
            counts: Vec::new(),
            totals: Totals::default(),
            numbers: HashTable::default(),
            hasher: foldhash::fast::RandomState::default(),
        }
    }
}

impl Cache {
    /// What is remembered of a case. It holds if it rests on no memory, or that is as it was.
    #[inline]
    pub fn find(&self, key: &Key) -> Option<Known> {
        let Bucket(places) = &self.buckets[self.bucket(key)];
        places.iter().find(|known| known.key == *key && known.number != 0).copied()
    }

    #[inline]
    fn bucket(&self, key: &Key) -> usize {
        key.hash() as usize & (self.buckets.len() - 1)
    }

    /// Remembers a case, in place of the one that was put into its bucket first.
    pub fn keep(&mut self, key: Key, memory: u32, number: u32) {
        if self.kept >= self.buckets.len() && self.buckets.len() < *BUCKETS.end() {
            let larger = vec![Bucket::default(); 4 * self.buckets.len()];
            let smaller = std::mem::replace(&mut self.buckets, larger);
            self.kept = 0;
            for Bucket(places) in smaller {
                places.into_iter().rev().filter(|known| known.number != 0).for_each(|known| self.put(known));
            }
        }
        self.put(Known { key, memory, number });
    }

    fn put(&mut self, known: Known) {
        let bucket = self.bucket(&known.key);
        let Bucket(places) = &mut self.buckets[bucket];
        if places[0].key != known.key {
            self.kept += usize::from(places[1].number == 0);
            places[1] = places[0];
        }
        places[0] = known;
    }

    /// The number of the judgement of a shape.
    pub fn of_shape(&self, shape: &[u32]) -> Option<u32> {
        let is_same = |known: &Shape| known.numbers(&self.shape_numbers) == shape;
        self.shapes.find(self.hasher.hash_one(shape), is_same).map(|known| known.number)
    }

    /// Remembers the judgement of a shape.
    pub fn keep_shape(&mut self, shape: &[u32], number: u32) {
        if self.shape_numbers.len() + shape.len() > SHAPES_MAX {
            self.shapes.clear();
            self.shape_numbers.clear();
        }
        let from = self.shape_numbers.len() as u32;
        self.shape_numbers.extend_from_slice(shape);
        let known = Shape { from, to: self.shape_numbers.len() as u32, number };
        let Cache { shapes, shape_numbers, hasher, .. } = self;
        let hash = |known: &Shape| hasher.hash_one(known.numbers(shape_numbers));
        shapes.insert_unique(hash(&known), known, hash);
    }

    /// The number of a judgement, which is good until the next one is asked for. Where there are too many, all that is
    /// remembered is forgotten first.
    pub fn number(&mut self, judgement: Judgement) -> u32 {
        if self.judgements.len() >= JUDGEMENTS_MAX {
            self.forget();
        }
        let Cache { judgements, counts, numbers, hasher, .. } = self;
        let entry = numbers.entry(
            hasher.hash_one(judgement),
            |number| judgements[*number as usize - 1] == judgement,
            |number| hasher.hash_one(judgements[*number as usize - 1]),
        );
        match entry {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(place) => {
                judgements.push(judgement);
                counts.push(0);
                let number = judgements.len() as u32;
                place.insert(number);
                number
            }
        }
    }

    /// Forgets all but what was counted.
    pub fn forget(&mut self) {
        *self = Cache { totals: self.totals(), ..Cache::default() };
    }

    /// Counts an event for a judgement, which is given by its number.
    #[inline]
    pub fn count(&mut self, number: u32) -> &Judgement {
        let index = number as usize - 1;
        self.counts[index] += 1;
        &self.judgements[index]
    }

    /// The answers of all judgements that were counted.
    pub fn totals(&self) -> Totals {
        let mut totals = self.totals.clone();
        let counted = self.judgements.iter().zip(&self.counts);
        counted.for_each(|(judgement, count)| totals.add(judgement, *count));
        totals
    }
}
