//! Remembers which description was found for which key, and that none was found.

use std::sync::Arc;

use foldhash::HashMap;

use super::Key;
use crate::plan::Plan;

/// For how many keys the answer may be remembered.
const MAX_ANSWERS: usize = 1 << 16;

/// Answers to look-ups, good until something new is learned.
#[derive(Clone, Debug, Default)]
pub(super) struct Answers {
    index_of: HashMap<Key, usize>,
    answers: Vec<Answer>,
    generation: u64,
}

#[derive(Clone, Debug)]
struct Answer {
    generation: u64,
    plan: Option<Arc<Plan>>,
}

impl Answers {
    /// The answer for a key, found out if it is not known or no longer good.
    pub fn get(&mut self, key: Key, find: impl FnOnce() -> Option<Arc<Plan>>) -> Option<&Arc<Plan>> {
        let generation = self.generation;
        let index = match self.index_of.get(&key) {
            Some(&index) => {
                if self.answers[index].generation != generation {
                    self.answers[index] = Answer { generation, plan: find() };
                }
                index
            }
            None => {
                if self.answers.len() >= MAX_ANSWERS {
                    self.index_of.clear();
                    self.answers.clear();
                }
                self.index_of.insert(key, self.answers.len());
                self.answers.push(Answer { generation, plan: find() });
                self.answers.len() - 1
            }
        };
        self.answers[index].plan.as_ref()
    }

    /// All answers have to be found out anew.
    pub fn forget(&mut self) {
        self.generation += 1;
    }
}

#[cfg(test)]
mod tests {
    use stackhound_types::Guid;

    use super::*;
    use crate::store::Kind;

    #[test]
    fn answers_are_found_out_once_until_forgotten() {
        let mut answers = Answers::default();
        let mut asked = 0;
        let key = |number| Key { guid: Guid::ZERO, kind: Kind::Manifest, number, version: 0 };
        for (number, expected) in [(1, 1), (1, 1), (2, 2), (1, 2)] {
            answers.get(key(number), || {
                asked += 1;
                None
            });
            assert_eq!(asked, expected);
        }
        answers.forget();
        for (number, expected) in [(1, 3), (1, 3), (2, 4)] {
            answers.get(key(number), || {
                asked += 1;
                None
            });
            assert_eq!(asked, expected);
        }
    }

    #[test]
    fn the_number_of_answers_is_limited() {
        let mut answers = Answers::default();
        for number in 0..=u16::MAX {
            for version in 0..3 {
                let key = Key { guid: Guid::ZERO, kind: Kind::Manifest, number, version };
                answers.get(key, || None);
                assert!(answers.answers.len() <= MAX_ANSWERS && answers.index_of.len() <= MAX_ANSWERS);
            }
        }
    }
}
