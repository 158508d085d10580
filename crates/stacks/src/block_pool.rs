//! The blocks of pending events. A block is kept as long as one of its events is pending.

use std::sync::Arc;

use stackhound_etl::Block;

/// A reference to a block in a [`BlockPool`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockRef(u32);

const RECENT: usize = 64;

#[derive(Debug)]
pub(crate) struct BlockPool {
    blocks: Vec<Option<(Arc<Block>, u32)>>,
    free: Vec<u32>,
    /// The slot a block was last found in, indexed by a few bits of its address. After a collision,
    /// a block is in the pool twice, which costs only a reference count.
    recent: [u32; RECENT],
}

impl BlockPool {
    pub fn new() -> BlockPool {
        BlockPool { blocks: Vec::new(), free: Vec::new(), recent: [0; RECENT] }
    }

    /// Adds one use of a block to the pool.
    #[inline]
    pub fn take(&mut self, block: &Arc<Block>) -> BlockRef {
        let hint = Arc::as_ptr(block).addr() / align_of::<Block>() / 8 % RECENT;
        let slot = self.recent[hint];
        if let Some(Some((known, uses))) = self.blocks.get_mut(slot as usize)
            && Arc::ptr_eq(known, block)
        {
            *uses += 1;
            return BlockRef(slot);
        }
        self.insert(block, hint)
    }

    #[cold]
    fn insert(&mut self, block: &Arc<Block>, hint: usize) -> BlockRef {
        let entry = Some((block.clone(), 1));
        let slot = match self.free.pop() {
            Some(slot) => {
                self.blocks[slot as usize] = entry;
                slot
            }
            None => {
                self.blocks.push(entry);
                self.blocks.len() as u32 - 1
            }
        };
        self.recent[hint] = slot;
        BlockRef(slot)
    }

    /// The block of a slot that was taken and not given back.
    #[inline]
    pub fn block(&self, slot: BlockRef) -> &Arc<Block> {
        let entry = self.blocks[slot.0 as usize].as_ref();
        &entry.expect("a taken slot has a block").0
    }

    /// Removes one use of a block.
    #[inline]
    pub fn give_back(&mut self, slot: BlockRef) {
        let entry = &mut self.blocks[slot.0 as usize];
        let (_, uses) = entry.as_mut().expect("a taken slot has a block");
        *uses -= 1;
        if *uses == 0 {
            *entry = None;
            self.free.push(slot.0);
        }
    }
}
