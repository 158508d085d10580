//! A slab of values with generational ids. A free slot is used again in the next generation, so
//! that the id of a removed value never refers to its successor.

use std::num::NonZeroU32;

use prefetch_index::prefetch_index;

/// A slot and its generation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct Id {
    slot: u32,
    generation: NonZeroU32,
}

impl Id {
    /// The first id of a slot.
    pub const fn first(slot: u32) -> Id {
        Id { slot, generation: NonZeroU32::MIN }
    }

    pub fn slot(self) -> u32 {
        self.slot
    }

    /// The slot, as an index into columns.
    pub fn index(self) -> usize {
        self.slot as usize
    }
}

#[derive(Debug)]
struct Slot<T> {
    /// The generation of the content, or of the next content if the slot is free.
    generation: NonZeroU32,
    content: Option<T>,
}

/// Values by slot. As long as nothing is removed, slots are dense and in the order of insertion.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// The number of values.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The slot that the next value will get.
    pub fn next(&self) -> u32 {
        self.free.last().map_or(self.slots.len() as u32, |&slot| slot)
    }

    pub fn insert(&mut self, content: T) -> Id {
        if let Some(slot) = self.free.pop() {
            let entry = &mut self.slots[slot as usize];
            entry.content = Some(content);
            return Id { slot, generation: entry.generation };
        }
        let id = Id::first(self.slots.len() as u32);
        self.slots.push(Slot { generation: id.generation, content: Some(content) });
        id
    }

    /// The value in a slot. Panics if the slot is free.
    #[inline]
    pub fn get(&self, slot: u32) -> &T {
        self.slots[slot as usize].content.as_ref().expect("the number is in use")
    }

    /// Requests the cache lines of a value that is read soon.
    #[inline]
    pub fn request(&self, slot: u32) {
        prefetch_index(&self.slots, slot as usize);
        // A value can begin in one line and end in the next.
        prefetch_index(&self.slots, slot as usize + 1);
    }

    /// The value in a slot, if there is one.
    pub fn at(&self, slot: u32) -> Option<&T> {
        self.slots.get(slot as usize)?.content.as_ref()
    }

    #[inline]
    pub fn get_mut(&mut self, slot: u32) -> &mut T {
        self.slots[slot as usize].content.as_mut().expect("the number is in use")
    }

    /// The value with this id, if it still exists.
    #[inline]
    pub fn of(&self, id: Id) -> Option<&T> {
        let entry = self.slots.get(id.index())?;
        entry.content.as_ref().filter(|_| entry.generation == id.generation)
    }

    /// The id of the value in a slot.
    #[inline]
    pub fn id(&self, slot: u32) -> Id {
        Id { slot, generation: self.slots[slot as usize].generation }
    }

    /// All values, ordered by slot.
    pub fn iter(&self) -> impl Iterator<Item = (Id, &T)> {
        self.slots.iter().enumerate().filter_map(|(slot, entry)| {
            Some((Id { slot: slot as u32, generation: entry.generation }, entry.content.as_ref()?))
        })
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().filter_map(|entry| entry.content.as_mut())
    }

    /// Removes all values except those in the given slots. Returns the number of removed values.
    pub fn sweep(&mut self, in_use: impl Iterator<Item = u32>) -> u64 {
        let mut is_used = vec![false; self.slots.len()];
        in_use.for_each(|number| is_used[number as usize] = true);
        self.retain(|number, _| is_used[number as usize])
    }

    /// Removes the values for which `keep` returns false. Returns their number.
    pub fn retain(&mut self, mut keep: impl FnMut(u32, &T) -> bool) -> u64 {
        let before = self.len();
        for (slot, entry) in self.slots.iter_mut().enumerate() {
            let slot = slot as u32;
            if entry.content.as_ref().is_some_and(|content| !keep(slot, content)) {
                entry.content = None;
                self.free.push(slot);
                // The generation wraps after four billion values in a slot. No id is kept for that
                // long.
                entry.generation = entry.generation.checked_add(1).unwrap_or(NonZeroU32::MIN);
            }
        }
        (before - self.len()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_ids_find_nothing() {
        let mut slots = Slab::default();
        let [a, b, c] = ["a", "b", "c"].map(|name| slots.insert(name));
        assert_eq!((a.index(), b.index(), c.index()), (0, 1, 2));
        assert_eq!(slots.retain(|_, &name| name != "b"), 1);
        assert_eq!((slots.of(b), slots.len()), (None, 2));
        let d = slots.insert("d");
        assert_eq!((d.slot(), slots.id(1), slots.of(d), slots.of(b)), (1, d, Some(&"d"), None));
        assert_ne!(b, d);
        let all: Vec<_> = slots.iter().map(|(id, &name)| (id, name)).collect();
        assert_eq!(all, [(a, "a"), (d, "d"), (c, "c")]);
    }
}
