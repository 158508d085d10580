//! The table of all stacks: each distinct (caller, address) pair once.
//!
//! A stack is the number of its innermost frame; its caller's number leads outwards. Stacks that share their outer
//! frames share them in memory, and two stacks are equal exactly if their numbers are.

use std::fmt;
use std::hash::BuildHasher;

use hashbrown::HashTable;
use stackhound_etl::Address;

/// One stack in a [`StackTable`]: its innermost frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct StackId(u32);

impl StackId {
    /// Numbers are dense, starting at 0; a caller's is always smaller than its callee's.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Clone, Copy)]
struct Frame {
    address: u64,
    /// `NO_CALLER` for the outermost frame.
    caller: u32,
}

const NO_CALLER: u32 = u32::MAX;

/// All stacks of a trace. About 21 bytes for each distinct frame.
#[derive(Clone, Default)]
pub struct StackTable {
    frames: Vec<Frame>,
    by_content: HashTable<u32>,
    hasher: foldhash::fast::RandomState,
}

impl fmt::Debug for StackTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StackTable").field("frames", &self.frames.len()).finish()
    }
}

impl StackTable {
    /// How many distinct frames there are.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Whether there is no stack yet.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// The stack that has `address` on top of `caller`. `None` when the table is full (2³² − 1 frames).
    pub fn push(&mut self, caller: Option<StackId>, address: Address) -> Option<StackId> {
        let caller = caller.map_or(NO_CALLER, |id| id.0);
        let address = address.0;
        let StackTable { frames, by_content, hasher } = self;
        let hash_of = |frame: Frame| hasher.hash_one((frame.caller, frame.address));
        let same = |&id: &u32| {
            let frame = frames[id as usize];
            frame.caller == caller && frame.address == address
        };
        let hash = hash_of(Frame { address, caller });
        if let Some(&id) = by_content.find(hash, same) {
            return Some(StackId(id));
        }
        let id = u32::try_from(frames.len()).ok().filter(|&id| id != NO_CALLER)?;
        frames.push(Frame { address, caller });
        by_content.insert_unique(hash, id, |&id| hash_of(frames[id as usize]));
        Some(StackId(id))
    }

    /// The stack of `frames`, innermost first, on top of `caller`; `caller` itself if there are none.
    pub fn extend(
        &mut self,
        caller: Option<StackId>,
        frames: impl DoubleEndedIterator<Item = Address>,
    ) -> Option<StackId> {
        let mut stack = caller;
        for address in frames.rev() {
            stack = Some(self.push(stack, address)?);
        }
        stack
    }

    /// The frames of a stack, innermost first.
    pub fn frames(&self, stack: StackId) -> impl Iterator<Item = Address> + Clone + '_ {
        let mut next = Some(stack);
        std::iter::from_fn(move || {
            let frame = self.frames[next?.index()];
            next = (frame.caller != NO_CALLER).then_some(StackId(frame.caller));
            Some(Address(frame.address))
        })
    }

    /// The innermost frame's address.
    pub fn address(&self, stack: StackId) -> Address {
        Address(self.frames[stack.index()].address)
    }

    /// The stack without its innermost frame.
    pub fn caller(&self, stack: StackId) -> Option<StackId> {
        let caller = self.frames[stack.index()].caller;
        (caller != NO_CALLER).then_some(StackId(caller))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Oracle: a map from whole stacks to numbers.
        #[test]
        fn equal_stacks_have_equal_numbers(stacks in prop::collection::vec(prop::collection::vec(0u64..6, 1..6), 1..60)) {
            let mut table = StackTable::default();
            let mut known: HashMap<Vec<u64>, StackId> = HashMap::new();
            for frames in &stacks {
                let id = table.extend(None, frames.iter().map(|&a| Address(a))).unwrap();
                prop_assert_eq!(table.frames(id).map(|a| a.0).collect::<Vec<_>>(), frames.clone());
                prop_assert!(table.caller(id).is_none_or(|caller| caller < id));
                prop_assert_eq!(*known.entry(frames.clone()).or_insert(id), id);
            }
            let mut ids: Vec<_> = known.values().collect();
            ids.sort();
            ids.dedup();
            prop_assert_eq!(ids.len(), known.len());
        }
    }

    #[test]
    fn a_stack_on_top_of_another_shares_it() {
        let mut table = StackTable::default();
        let user = table.extend(None, [3, 4].map(Address).into_iter());
        let both = table.extend(user, [1, 2].map(Address).into_iter()).unwrap();
        assert_eq!(table.frames(both).collect::<Vec<_>>(), [1, 2, 3, 4].map(Address));
        assert_eq!(table.len(), 4);
        assert_eq!(table.extend(user, [].into_iter()), user);
    }
}
