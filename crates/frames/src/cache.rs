//! Caches resolved frames and stacks.
//!
//! A trace repeats a small number of stacks, and different stacks share frames. A resolved frame is
//! valid until something changes in its process, so it is cached with the validity range in which
//! it was resolved. The cache never changes a result: a frame that is missing, or cached for
//! another validity range, is resolved again.

use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::HashMap;
use stackhound_stacks::StackId;
use stackhound_system::{ProcessId, ValidityId};
use stackhound_types::{Address, AddressKind};

use crate::frame::Frame;
use crate::resolve::First;

/// Everything that the resolution of a frame depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FrameKey {
    pub address: Address,
    pub kind: AddressKind,
    /// `None` for the kernel, and if the process is not known.
    pub process: Option<ProcessId>,
    pub circumstances: FrameCircumstances,
}

/// The state of the address space in which a frame is resolved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FrameCircumstances {
    validity_id: ValidityId,
    all_modules: bool,
    flags: Option<u32>,
}

/// A stack of a process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct StackKey {
    pub stack: StackId,
    pub process: Option<ProcessId>,
    pub first: First,
}

/// Everything that the resolution of a stack depends on in addition to its addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Circumstances {
    pub user: ValidityId,
    pub kernel: ValidityId,
    /// Whether all modules of the process are known.
    pub all_modules: bool,
    /// Whether all drivers are known.
    pub all_drivers: bool,
    /// The process flags, which show whether it runs a 32-bit program.
    pub flags: Option<u32>,
}

impl Circumstances {
    /// The circumstances of a frame in a process, or in the kernel if `process` is `None`.
    pub fn of(self, process: Option<ProcessId>) -> FrameCircumstances {
        let Circumstances { user, kernel, all_modules, all_drivers, flags } = self;
        match process {
            Some(_) => FrameCircumstances { validity_id: user, all_modules, flags },
            None => FrameCircumstances { validity_id: kernel, all_modules: all_drivers, flags: None },
        }
    }
}

/// Maximum number of frames in cached stacks: about 8 MB.
const STACK_FRAMES_MAX: usize = 1 << 16;

/// Slots of the direct-mapped cache of frames: each frame can be in one slot only.
const SLOTS: usize = 1 << 15;

/// Cache of resolved frames and stacks. Its size is limited to about 15 MB.
pub struct FrameCache {
    stacks: HashMap<StackKey, (Circumstances, Arc<[Frame]>), foldhash::fast::RandomState>,
    /// Frames in `stacks`.
    stack_frames: usize,
    slots: Box<[Option<(FrameKey, Frame)>]>,
    hasher: foldhash::fast::RandomState,
    hits: u64,
    misses: u64,
}

impl Default for FrameCache {
    fn default() -> FrameCache {
        let slots = vec![None; SLOTS].into_boxed_slice();
        let hasher = foldhash::fast::RandomState::default();
        FrameCache { stacks: HashMap::default(), stack_frames: 0, slots, hasher, hits: 0, misses: 0 }
    }
}

impl fmt::Debug for FrameCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameCache").field("hits", &self.hits).field("misses", &self.misses).finish()
    }
}

impl FrameCache {
    /// Number of frames that were found in the cache, and of frames that were resolved.
    pub fn hits_and_misses(&self) -> (u64, u64) {
        (self.hits, self.misses)
    }

    /// The frames of a stack, if it is cached for the same circumstances.
    #[inline]
    pub(crate) fn stack(&mut self, key: &StackKey, now: Circumstances) -> Option<Arc<[Frame]>> {
        let (known, frames) = self.stacks.get(key)?;
        (*known == now).then(|| {
            self.hits += frames.len() as u64;
            Arc::clone(frames)
        })
    }

    /// Caches the frames of a stack. Clears all stacks first if the limit would be exceeded.
    pub(crate) fn keep(&mut self, key: StackKey, now: Circumstances, frames: &Arc<[Frame]>) {
        if self.stack_frames + frames.len() > STACK_FRAMES_MAX {
            self.stacks.clear();
            self.stack_frames = 0;
        }
        self.stack_frames += frames.len();
        if let Some((_, old)) = self.stacks.insert(key, (now, Arc::clone(frames))) {
            self.stack_frames -= old.len();
        }
    }

    /// A frame, if it is cached for the same circumstances.
    #[inline]
    pub(crate) fn frame(&mut self, key: &FrameKey) -> Option<Frame> {
        let frame = self.slots[self.slot(key)].as_ref().filter(|(known, _)| known == key)?.1;
        self.hits += 1;
        Some(frame)
    }

    /// Caches a frame that was resolved.
    pub(crate) fn keep_frame(&mut self, key: FrameKey, frame: Frame) {
        self.misses += 1;
        let slot = self.slot(&key);
        self.slots[slot] = Some((key, frame));
    }

    #[inline]
    fn slot(&self, key: &FrameKey) -> usize {
        let process = key.process.map_or(0, |process| process.index() + 1);
        self.hasher.hash_one((key.address.0, process)) as usize % SLOTS
    }
}
