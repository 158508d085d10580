//! Numbers that stand for what judgements rest on, so that cases are told apart by a few of them.

use std::hash::Hash;

use hashbrown::HashMap;
use stackhound_frames::ProcessContext;
use stackhound_pipeline::slots;
use stackhound_system::ProcessId;

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

/// Numbers of what is known of processes. Processes of which the same is known have the same number.
#[derive(Debug, Default)]
pub(super) struct ContextNumbers {
    /// By the system's index of each process: the context's own number, and ours.
    known: Vec<Option<(ProcessId, u32, u32)>>,
    numbered: Numbered<ProcessContext>,
}

impl ContextNumbers {
    /// A number that stands for all that is known of a process: two states of knowledge never have the same. 0 is that of unknown
    /// processes.
    pub fn of(
        &mut self,
        process: Option<ProcessId>,
        (context, revision): (&ProcessContext, u32),
        numbers: &mut Numbers,
    ) -> u32 {
        let Some(id) = process else { return 0 };
        let place = slots::at(&mut self.known, id.index());
        match place {
            Some((known, then, number)) if (*known, *then) == (id, revision) => *number,
            _ => {
                let number = self.numbered.of(context.clone(), numbers);
                *place = Some((id, revision, number));
                number
            }
        }
    }
}
