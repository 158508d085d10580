//! The cache of evaluations by the text of their rows. The same few stacks occur again and again.
//! The cache changes no answer.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::hash_table::HashTable;
use stackhound_detect::Evaluation;

use crate::call_trace::FrameError;
use crate::row::{Action, Row};

/// The limit of bytes of texts. If there are more, all are removed.
const TEXTS_MAX: usize = 16 << 20;

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
    key: Vec<u8>,
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
        if self.texts.len() + self.key.len() > TEXTS_MAX {
            self.clear();
        }
        let Evaluations { entries, texts, evaluations, numbers, key, hasher, .. } = self;
        let same = |number: &u32| evaluations[*number as usize] == *evaluation;
        let hash = hasher.hash_one(evaluation);
        let number = match numbers.find(hash, same) {
            Some(number) => *number,
            None => {
                let number = evaluations.len() as u32;
                evaluations.push(*evaluation);
                let rehash = |number: &u32| hasher.hash_one(evaluations[*number as usize]);
                numbers.insert_unique(hash, number, rehash);
                number
            }
        };
        let (hash, from) = (hasher.hash_one(&key[..]), texts.len() as u32);
        texts.extend_from_slice(key);
        let row = CachedRow { evaluation: number, damage, frames };
        entries.insert_unique(hash, Entry { hash, from, to: texts.len() as u32, row }, |entry| entry.hash);
    }

    fn clear(&mut self) {
        self.entries.clear();
        self.texts.clear();
        self.evaluations.clear();
        self.numbers.clear();
    }
}
