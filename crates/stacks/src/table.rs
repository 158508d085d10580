//! The table of all stacks: each distinct (caller, address) pair once.
//!
//! A stack is the number of its innermost frame; its caller's number leads outwards. Stacks that share their outer
//! frames share them in memory, and two stacks are equal exactly if their numbers are.

use std::fmt;
use std::hash::{BuildHasher, Hasher};

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

/// Makes a whole hash out of 32 bits, which stay its low half.
fn spread(tag: u32) -> u64 {
    u64::from(tag).wrapping_mul(0x9e37_79b9) << 32 | u64::from(tag)
}

/// All stacks of a trace. About 21 bytes for each distinct frame, and 6 for each distinct sequence of frames that was
/// put on top of a stack.
#[derive(Clone, Default)]
pub struct StackTable {
    frames: Vec<Frame>,
    by_content: HashTable<u32>,
    /// The results of [`extend`](StackTable::extend), since the same sequences come again and again. A whole sequence is
    /// found with one look-up; its frames mostly stand side by side, so comparing them costs less than finding each.
    by_sequence: HashTable<(u32, u32)>,
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
        let StackTable { frames, by_content, hasher, .. } = self;
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
        frames: impl DoubleEndedIterator<Item = Address> + Clone,
    ) -> Option<StackId> {
        let hash = self.sequence_hash(caller, frames.clone());
        let same =
            |&(tag, id): &(u32, u32)| tag == hash as u32 && self.is_extension(id, caller, frames.clone());
        if let Some(&(_, id)) = self.by_sequence.find(hash, same) {
            return Some(StackId(id));
        }
        let mut stack = caller;
        for address in frames.rev() {
            stack = Some(self.push(stack, address)?);
        }
        let whole = stack?;
        if stack != caller {
            // The tag's bits are spread over the whole hash, so that the table can grow without the frames.
            self.by_sequence.insert_unique(hash, (hash as u32, whole.0), |&(tag, _)| spread(tag));
        }
        stack
    }

    fn sequence_hash(&self, caller: Option<StackId>, frames: impl Iterator<Item = Address>) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write_u32(caller.map_or(NO_CALLER, |id| id.0));
        frames.for_each(|address| hasher.write_u64(address.0));
        spread(hasher.finish() as u32)
    }

    /// Whether a stack is exactly these frames on top of `caller`.
    fn is_extension(&self, id: u32, caller: Option<StackId>, frames: impl Iterator<Item = Address>) -> bool {
        let mut at = id;
        for address in frames {
            match self.frames.get(at as usize) {
                Some(frame) if frame.address == address.0 => at = frame.caller,
                _ => return false,
            }
        }
        at == caller.map_or(NO_CALLER, |id| id.0)
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
