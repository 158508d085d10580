//! The cache of evaluations by the text of their rows. The same few stacks occur again and again.
//! The cache changes no answer.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::hash_table::HashTable;
use stackhound_detect::Evaluation;

use crate::call_trace::FrameError;
use crate::row::{Action, Row};

/// The limit of bytes of texts, entries and evaluations. If there are more, all are removed.
const BYTES_MAX: usize = 64 << 20;

/// The evaluation of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CachedRow {
    /// Index of the evaluation.
    evaluation: u32,
    pub damage: Option<FrameError>,
    pub frames: usize,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    hash: u64,
    from: u32,
    to: u32,
    row: CachedRow,
}

/// Evaluations of accesses.
#[derive(Debug, Default)]
pub(crate) struct Evaluations {
    entries: HashTable<Entry>,
    texts: Vec<u8>,
    evaluations: Vec<Evaluation>,
    /// Indexes of evaluations.
    numbers: HashTable<u32>,
    /// The generation of the facts about modules that all entries are based on.
    generation: u32,
    /// The text of the row that was last looked up, and its hash.
    key: Vec<u8>,
    hash: u64,
    hasher: RandomState,
}

impl Evaluations {
    /// Finds the evaluation of a row. All that the evaluation depends on is in the row, and in the
    /// facts about modules. Rows that cannot be cached return `None`.
    pub(crate) fn find(&mut self, row: &Row<'_>, generation: u32) -> Option<CachedRow> {
        self.key.clear();
        let Action::ProcessAccess { target, access, call_trace } = row.action else { return None };
        if generation != self.generation {
            self.clear();
            self.generation = generation;
        }
        let is_same_process = target.pid.is_some() && target.pid == row.actor.pid;
        for text in [row.host, row.actor.image, target.image, call_trace] {
            self.key.extend_from_slice(text.as_bytes());
            // No text contains this byte.
            self.key.push(0xff);
        }
        self.key.extend_from_slice(&access.unwrap_or_default().to_le_bytes());
        self.key.extend([u8::from(access.is_some()), u8::from(is_same_process)]);
        let key = &self.key[..];
        let hash = self.hasher.hash_one(key);
        self.hash = hash;
        let is_same =
            |entry: &Entry| entry.hash == hash && self.texts[entry.from as usize..entry.to as usize] == *key;
        self.entries.find(hash, is_same).map(|entry| entry.row)
    }

    /// The answers of a row that was found.
    pub(crate) fn evaluation(&self, row: CachedRow) -> &Evaluation {
        &self.evaluations[row.evaluation as usize]
    }

    /// Adds the evaluation of the row that was last looked up.
    pub(crate) fn keep(&mut self, evaluation: &Evaluation, damage: Option<FrameError>, frames: usize) {
        if self.key.is_empty() {
            return;
        }
        if self.bytes() + self.key.len() > BYTES_MAX {
            self.clear();
        }
        let Evaluations { entries, texts, evaluations, numbers, key, hash, hasher, .. } = self;
        let same = |number: &u32| evaluations[*number as usize] == *evaluation;
        let of_evaluation = hasher.hash_one(evaluation);
        let number = match numbers.find(of_evaluation, same) {
            Some(number) => *number,
            None => {
                let number = evaluations.len() as u32;
                evaluations.push(*evaluation);
                let rehash = |number: &u32| hasher.hash_one(evaluations[*number as usize]);
                numbers.insert_unique(of_evaluation, number, rehash);
                number
            }
        };
        let (hash, from) = (*hash, texts.len() as u32);
        texts.extend_from_slice(key);
        let row = CachedRow { evaluation: number, damage, frames };
        entries.insert_unique(hash, Entry { hash, from, to: texts.len() as u32, row }, |entry| entry.hash);
    }

    /// The bytes in use. Tables have up to twice as many entries as are used.
    fn bytes(&self) -> usize {
        self.texts.len()
            + 2 * self.entries.len() * size_of::<Entry>()
            + self.evaluations.len() * (size_of::<Evaluation>() + 2 * size_of::<u32>())
    }

    fn clear(&mut self) {
        self.entries.clear();
        self.texts.clear();
        self.evaluations.clear();
        self.numbers.clear();
    }
}

#[cfg(test)]
mod tests {
    use stackhound_detect::{Inputs, Outcome, Reason};

    use super::*;
    use crate::row::{Actor, Aim};

    fn row<'a>(call_trace: &'a str) -> Row<'a> {
        let (actor, target) = (Actor::default(), Aim::default());
        let action = Action::ProcessAccess { target, access: None, call_trace };
        Row { count: 1, host: "", time: None, actor, action }
    }

    /// Rows with short texts and many different evaluations.
    #[test]
    fn all_that_is_kept_counts() {
        let mut cache = Evaluations::default();
        let no = Outcome::no(Reason::AllBacked, Inputs::NONE);
        let mut outcomes = std::array::from_fn(|_| no);
        let mut most = 0;
        for number in 0..100_000_u32 {
            for (bit, outcome) in outcomes.iter_mut().take(17).enumerate() {
                outcome.frame = Some((number >> bit & 1) as u16);
            }
            let (text, evaluation) = (number.to_string(), Evaluation::new(outcomes));
            assert_eq!(cache.find(&row(&text), 0), None);
            cache.keep(&evaluation, None, 1);
            let kept = cache.find(&row(&text), 0).expect("the last one is kept");
            assert_eq!(cache.evaluation(kept), &evaluation);
            most = most.max(cache.evaluations.len());
        }
        assert!(most > 10_000 && most * size_of::<Evaluation>() <= BYTES_MAX, "{most}");
    }
}
