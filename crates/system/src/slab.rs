//! Numbered things that come and go. A number that was given back is given out again, in another generation: an id of
//! what is gone never means what came into its place.

use std::num::NonZeroU32;

/// A number and its generation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct Id {
    slot: u32,
    generation: NonZeroU32,
}

impl Id {
    /// The first id of a number.
    pub const fn first(slot: u32) -> Id {
        Id { slot, generation: NonZeroU32::MIN }
    }

    /// The number.
    pub fn slot(self) -> u32 {
        self.slot
    }

    /// The number, for columns.
    pub fn index(self) -> usize {
        self.slot as usize
    }
}

#[derive(Debug)]
struct Slot<T> {
    /// Of the content; of the next one if there is none.
    generation: NonZeroU32,
    content: Option<T>,
}

/// Things by number. As long as nothing is removed, numbers are dense, in the order of insertion.
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
    /// How many things there are.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The number that the next thing will have.
    pub fn next(&self) -> u32 {
        self.free.last().map_or(self.slots.len() as u32, |&slot| slot)
    }

    /// Adds a thing.
    pub fn insert(&mut self, content: T) -> Id {
        if let Some(slot) = self.free.pop() {
            let location = &mut self.slots[slot as usize];
            location.content = Some(content);
            return Id { slot, generation: location.generation };
        }
        let id = Id::first(self.slots.len() as u32);
        self.slots.push(Slot { generation: id.generation, content: Some(content) });
        id
    }

    /// The thing that has a number.
    #[inline]
    pub fn get(&self, slot: u32) -> &T {
        self.slots[slot as usize].content.as_ref().expect("the number is in use")
    }

    /// The same, if there is one.
    pub fn at(&self, slot: u32) -> Option<&T> {
        self.slots.get(slot as usize)?.content.as_ref()
    }

    /// The thing that has a number, to be changed.
    #[inline]
    pub fn get_mut(&mut self, slot: u32) -> &mut T {
        self.slots[slot as usize].content.as_mut().expect("the number is in use")
    }

    /// The thing that an id means, if it is still there.
    #[inline]
    pub fn of(&self, id: Id) -> Option<&T> {
        let location = self.slots.get(id.index())?;
        location.content.as_ref().filter(|_| location.generation == id.generation)
    }

    /// The id of the thing that has a number.
    #[inline]
    pub fn id(&self, slot: u32) -> Id {
        Id { slot, generation: self.slots[slot as usize].generation }
    }

    /// All things in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (Id, &T)> {
        self.slots.iter().enumerate().filter_map(|(slot, location)| {
            Some((Id { slot: slot as u32, generation: location.generation }, location.content.as_ref()?))
        })
    }

    /// All things, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().filter_map(|location| location.content.as_mut())
    }

    /// Removes all but the things with these numbers; gives how many that were.
    pub fn sweep(&mut self, in_use: impl Iterator<Item = u32>) -> u64 {
        let mut is_used = vec![false; self.slots.len()];
        in_use.for_each(|number| is_used[number as usize] = true);
        self.retain(|number, _| is_used[number as usize])
    }

    /// Removes what does not fit; gives how many things that were.
    pub fn retain(&mut self, mut keep: impl FnMut(u32, &T) -> bool) -> u64 {
        let before = self.len();
        for (slot, location) in self.slots.iter_mut().enumerate() {
            let slot = slot as u32;
            if location.content.as_ref().is_some_and(|content| !keep(slot, content)) {
                location.content = None;
                self.free.push(slot);
                // After four billion things a number begins anew; nobody has kept an id for so long.
                location.generation = location.generation.checked_add(1).unwrap_or(NonZeroU32::MIN);
            }
        }
        (before - self.len()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_never_means_what_came_later() {
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
