//! The table of all stacks: each distinct (caller, address) pair once.
//!
//! A stack is identified by the number of its innermost frame, which links to its caller's number.
//! Stacks that share their outer frames share them in memory, and two stacks are equal exactly if
//! their numbers are equal.
//!
//! Where memory must be bounded, the table begins a new *generation*: equal stacks of different
//! generations have different numbers, no number is reused for another stack, and an old generation
//! is dropped when none of its stacks is held.

use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::num::NonZeroU64;
use std::sync::Arc;

use hashbrown::HashTable;
use stackhound_types::Address;

/// One stack in a [`StackTable`]: its innermost frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct StackId(NonZeroU64);

impl StackId {
    fn numbered(number: u64) -> StackId {
        StackId(NonZeroU64::MIN.saturating_add(number))
    }

    fn number(self) -> u64 {
        self.0.get() - 1
    }

    /// Numbers are dense, starting at 0; a caller's is always smaller than its callee's. They go on
    /// over generations.
    pub fn index(self) -> usize {
        self.number() as usize
    }
}

#[derive(Clone, Copy)]
struct Frame {
    address: u64,
    /// The index of the caller in the same generation; `NO_CALLER` for the outermost frame.
    caller: u32,
    /// The index of the outermost frame, and the bit [`DAMAGED`](Self::DAMAGED) if this frame or
    /// one further out is impossible.
    outermost: u32,
}

impl Frame {
    /// The bit of `outermost` that marks a failed walk.
    const DAMAGED: u32 = 1 << 31;

    fn is_damaged(self) -> bool {
        self.outermost & Frame::DAMAGED != 0
    }
}

/// Addresses below this are never mapped. Walks end where they find such a value.
const LOWEST_ADDRESS: u64 = 0x1_0000;

/// Bits of 64-bit virtual addresses, sign bit included, with five levels of page tables; the others
/// repeat the sign.
const ADDRESS_BITS: u32 = 57;

/// Whether no frame can have this address: no memory is mapped there, or it is not an address of a
/// 64-bit processor.
fn is_impossible(address: u64) -> bool {
    const UNUSED: u32 = u64::BITS - ADDRESS_BITS;
    address < LOWEST_ADDRESS || ((address as i64) << UNUSED >> UNUSED) as u64 != address
}

/// Whether the frame further out is a single one of user mode between two of a 64-bit kernel. Where
/// the kernel calls user mode, the way back takes several frames.
fn is_stray(frames: &[Frame], inner: u64, frame: Frame) -> bool {
    let is_kernel = |address: u64| address >> 63 == 1;
    let outer = || frames.get(frame.caller as usize).is_some_and(|outer| is_kernel(outer.address));
    is_kernel(inner) && !is_kernel(frame.address) && outer()
}

const NO_CALLER: u32 = u32::MAX;

/// Extends 32 bits to a 64-bit hash, whose low 32 bits they remain.
fn spread(tag: u32) -> u64 {
    u64::from(tag).wrapping_mul(0x9e37_79b9) << 32 | u64::from(tag)
}

/// Keeps a generation alive while a number of it is held.
pub(crate) type Hold = Arc<()>;

/// A generation that gets no more stacks.
struct Older {
    base: u64,
    frames: Vec<Frame>,
    hold: Hold,
}

/// All stacks of a trace. About 21 bytes for each distinct frame, and 6 for each distinct sequence
/// of frames that was put on top of a stack.
#[derive(Default)]
pub struct StackTable {
    frames: Vec<Frame>,
    by_content: HashTable<u32>,
    /// The results of [`extend`](StackTable::extend), since the same sequences come again and
    /// again. A whole sequence is found with one look-up; its frames mostly stand side by side, so
    /// comparing them costs less than finding each.
    by_sequence: HashTable<(u32, u32)>,
    hasher: foldhash::fast::RandomState,
    /// The number of the first of `frames`.
    base: u64,
    hold: Hold,
    /// Generations before, in ascending order of their numbers.
    older: Vec<Older>,
}

impl fmt::Debug for StackTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StackTable").field("frames", &self.len()).field("base", &self.base).finish()
    }
}

impl StackTable {
    /// The number of distinct frames in memory.
    pub fn len(&self) -> usize {
        self.frames.len() + self.older.iter().map(|older| older.frames.len()).sum::<usize>()
    }

    /// Whether there is no stack.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The stack that has `address` on top of `caller`. `None` when the table is full (2³¹ frames).
    pub fn push(&mut self, caller: Option<StackId>, address: Address) -> Option<StackId> {
        let caller = self.own(caller)?;
        self.push_own(caller, address).map(|location| self.id(location))
    }

    /// The stack of `frames`, innermost first, on top of `caller`; `caller` itself if there are
    /// none.
    pub fn extend(
        &mut self,
        caller: Option<StackId>,
        frames: impl DoubleEndedIterator<Item = Address> + Clone,
    ) -> Option<StackId> {
        let caller = self.own(caller)?;
        self.extend_own(caller, frames).map(|location| self.id(location))
    }

    /// Whether a frame of a stack is impossible: the walk failed.
    #[inline]
    pub fn is_damaged(&self, stack: StackId) -> bool {
        let (frames, location) = self.location(stack);
        frames.get(location).is_some_and(|frame| frame.is_damaged())
    }

    /// The outermost frame's address.
    ///
    /// # Panics
    /// If the stack's generation was forgotten.
    #[inline]
    pub fn outermost(&self, stack: StackId) -> Address {
        let (frames, location) = self.location(stack);
        Address(frames[(frames[location].outermost & !Frame::DAMAGED) as usize].address)
    }

    fn id(&self, location: u32) -> StackId {
        StackId::numbered(self.base + u64::from(location))
    }

    /// The index of a stack in this generation; copies the stack if it belongs to an older one.
    #[inline]
    fn own(&mut self, stack: Option<StackId>) -> Option<u32> {
        let Some(stack) = stack else { return Some(NO_CALLER) };
        match stack.number().checked_sub(self.base) {
            Some(location) => u32::try_from(location).ok(),
            None => {
                let frames: Vec<Address> = self.frames(stack).collect();
                self.extend_own(NO_CALLER, frames.into_iter())
            }
        }
    }

    fn push_own(&mut self, caller: u32, Address(address): Address) -> Option<u32> {
        let StackTable { frames, by_content, hasher, .. } = self;
        let hash_of = |caller: u32, address: u64| hasher.hash_one((caller, address));
        let same = |&location: &u32| {
            let frame = frames[location as usize];
            frame.caller == caller && frame.address == address
        };
        let hash = hash_of(caller, address);
        if let Some(&location) = by_content.find(hash, same) {
            return Some(location);
        }
        let location = u32::try_from(frames.len()).ok().filter(|&location| location < Frame::DAMAGED)?;
        let outer = frames.get(caller as usize);
        let is_damaged =
            is_impossible(address) || outer.is_some_and(|outer| is_stray(frames, address, *outer));
        let outermost =
            outer.map_or(location, |outer| outer.outermost) | if is_damaged { Frame::DAMAGED } else { 0 };
        frames.push(Frame { address, caller, outermost });
        let hash_at =
            |&location: &u32| hash_of(frames[location as usize].caller, frames[location as usize].address);
        by_content.insert_unique(hash, location, hash_at);
        Some(location)
    }

    fn extend_own(
        &mut self,
        caller: u32,
        frames: impl DoubleEndedIterator<Item = Address> + Clone,
    ) -> Option<u32> {
        let hash = self.sequence_hash(caller, frames.clone());
        let same = |&(tag, location): &(u32, u32)| {
            tag == hash as u32 && self.is_extension(location, caller, frames.clone())
        };
        if let Some(&(_, location)) = self.by_sequence.find(hash, same) {
            return Some(location);
        }
        let mut whole = caller;
        for address in frames.rev() {
            whole = self.push_own(whole, address)?;
        }
        if whole != caller {
            // The tag's bits are spread over the whole hash, so that the table can grow without the
            // frames.
            self.by_sequence.insert_unique(hash, (hash as u32, whole), |&(tag, _)| spread(tag));
        }
        (whole != NO_CALLER).then_some(whole)
    }

    fn sequence_hash(&self, caller: u32, frames: impl Iterator<Item = Address>) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write_u32(caller);
        frames.for_each(|address| hasher.write_u64(address.0));
        spread(hasher.finish() as u32)
    }

    /// Whether a stack is exactly these frames on top of `caller`.
    fn is_extension(&self, location: u32, caller: u32, frames: impl Iterator<Item = Address>) -> bool {
        let mut at = location;
        for address in frames {
            match self.frames.get(at as usize) {
                Some(frame) if frame.address == address.0 => at = frame.caller,
                _ => return false,
            }
        }
        at == caller
    }

    /// The frames of a stack's generation, and the index of the stack in it; no frames if the
    /// generation was dropped.
    #[inline]
    fn location(&self, stack: StackId) -> (&[Frame], usize) {
        match stack.number().checked_sub(self.base) {
            Some(location) => (&self.frames, location as usize),
            None => self
                .older_of(stack)
                .map_or((&[], 0), |older| (&older.frames, (stack.number() - older.base) as usize)),
        }
    }

    fn older_of(&self, stack: StackId) -> Option<&Older> {
        let later = self.older.partition_point(|older| older.base <= stack.number());
        let older = &self.older[later.checked_sub(1)?];
        (stack.number() - older.base < older.frames.len() as u64).then_some(older)
    }

    /// The frames of a stack, innermost first. None if its generation was forgotten.
    pub fn frames(&self, stack: StackId) -> impl Iterator<Item = Address> + Clone + '_ {
        let (frames, mut next) = self.location(stack);
        std::iter::from_fn(move || {
            let frame = frames.get(next)?;
            next = frame.caller as usize;
            Some(Address(frame.address))
        })
    }

    /// The innermost frame's address.
    ///
    /// # Panics
    /// If the stack's generation was forgotten.
    pub fn address(&self, stack: StackId) -> Address {
        let (frames, location) = self.location(stack);
        Address(frames[location].address)
    }

    /// The stack without its innermost frame.
    ///
    /// # Panics
    /// If the stack's generation was forgotten.
    pub fn caller(&self, stack: StackId) -> Option<StackId> {
        let (frames, location) = self.location(stack);
        let caller = frames[location].caller;
        let base = stack.number() - location as u64;
        (caller != NO_CALLER).then(|| StackId::numbered(base + u64::from(caller)))
    }

    /// Frames of the generation that gets the new stacks.
    #[inline]
    pub(crate) fn generation_len(&self) -> usize {
        self.frames.len()
    }

    /// Begins a new generation. The previous one stays until it is not [held](StackTable::hold) and
    /// [`forget_unheld`](StackTable::forget_unheld) is called.
    pub(crate) fn begin_generation(&mut self) {
        let (frames, hold) = (std::mem::take(&mut self.frames), std::mem::take(&mut self.hold));
        let base = self.base;
        self.base += frames.len() as u64;
        self.by_content.clear();
        self.by_sequence.clear();
        self.older.push(Older { base, frames, hold });
    }

    /// The same stack in this generation.
    pub(crate) fn renew(&mut self, stack: StackId) -> Option<StackId> {
        self.own(Some(stack)).map(|location| self.id(location))
    }

    /// Keeps the stack in memory until the returned hold is dropped.
    pub(crate) fn hold(&self, stack: StackId) -> Option<Hold> {
        let hold = if stack.number() >= self.base { &self.hold } else { &self.older_of(stack)?.hold };
        Some(Arc::clone(hold))
    }

    /// Whether older generations are still there.
    #[inline]
    pub(crate) fn has_older(&self) -> bool {
        !self.older.is_empty()
    }

    /// Drops older generations that are not held.
    pub(crate) fn forget_unheld(&mut self) {
        self.older.retain(|older| Arc::strong_count(&older.hold) > 1);
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
        assert_eq!((table.outermost(both), table.outermost(user.unwrap())), (Address(4), Address(4)));
        assert_eq!(table.len(), 4);
        assert_eq!(table.extend(user, [].into_iter()), user);
    }

    #[test]
    fn a_generation_stays_as_long_as_it_is_held() {
        let mut table = StackTable::default();
        let addresses = [1, 2, 3].map(Address);
        let old = table.extend(None, addresses.into_iter()).unwrap();
        let hold = table.hold(old).unwrap();
        table.begin_generation();
        table.forget_unheld();
        let new = table.extend(None, addresses.into_iter()).unwrap();
        assert_ne!(old, new);
        assert_eq!(table.renew(old), Some(new));
        assert_eq!(table.frames(old).collect::<Vec<_>>(), addresses);
        // A stack on top of an old one belongs to the new generation.
        let on_old = table.push(Some(old), Address(9)).unwrap();
        assert_eq!(table.push(Some(new), Address(9)), Some(on_old));
        assert_eq!(table.caller(on_old), Some(new));
        assert_eq!((table.address(old), table.len()), (Address(1), 7));
        drop(hold);
        table.forget_unheld();
        assert_eq!((table.frames(old).count(), table.len()), (0, 4));
        assert_eq!(table.frames(on_old).collect::<Vec<_>>(), [9, 1, 2, 3].map(Address));
    }
}
