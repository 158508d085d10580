//! Frames and stacks that were met before.
//!
//! The same few stacks come again and again, and other stacks have frames in common with them. What is looked up of a frame
//! holds until something changes in its process, so it is kept with the stretch of time that it was looked up in. The cache
//! changes no answer: what is not in it, or is of another stretch, is looked up.

use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::HashMap;
use stackhound_stacks::StackId;
use stackhound_system::{ProcessId, ValidityId};
use stackhound_types::{Address, AddressKind};

use crate::frame::Frame;
use crate::resolve::First;

/// All that a frame's meaning depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FrameKey {
    pub address: Address,
    pub kind: AddressKind,
    /// `None` for the kernel, and where the process is not known.
    pub process: Option<ProcessId>,
    pub circumstances: FrameCircumstances,
}

/// What is known of the address space of a frame.
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

/// All that the meaning of a stack's frames depends on in addition to its addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Circumstances {
    pub user: ValidityId,
    pub kernel: ValidityId,
    /// Whether all modules of the process are known.
    pub all_modules: bool,
    /// Whether all drivers are known.
    pub all_drivers: bool,
    /// Of the process, by which it says whether it is a 32-bit program.
    pub flags: Option<u32>,
}

impl Circumstances {
    /// Of a frame in a process, or in the kernel.
    pub fn of(self, process: Option<ProcessId>) -> FrameCircumstances {
        let Circumstances { user, kernel, all_modules, all_drivers, flags } = self;
        match process {
            Some(_) => FrameCircumstances { validity_id: user, all_modules, flags },
            None => FrameCircumstances { validity_id: kernel, all_modules: all_drivers, flags: None },
        }
    }
}

/// Frames of whole stacks that are kept, at most: about 8 MB.
const STACK_FRAMES_MAX: usize = 1 << 16;

/// Places of a cache; each frame has one place where it can be.
const PLACES: usize = 1 << 15;

/// Frames and stacks that were met before. At most about 15 MB, whatever is looked up.
pub struct FrameCache {
    stacks: HashMap<StackKey, (Circumstances, Arc<[Frame]>), foldhash::fast::RandomState>,
    /// Frames in `stacks`.
    stack_frames: usize,
    locations: Box<[Option<(FrameKey, Frame)>]>,
    hasher: foldhash::fast::RandomState,
    hits: u64,
    misses: u64,
}

impl Default for FrameCache {
    fn default() -> FrameCache {
        let locations = vec![None; PLACES].into_boxed_slice();
        let hasher = foldhash::fast::RandomState::default();
        FrameCache { stacks: HashMap::default(), stack_frames: 0, locations, hasher, hits: 0, misses: 0 }
    }
}

impl fmt::Debug for FrameCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameCache").field("hits", &self.hits).field("misses", &self.misses).finish()
    }
}

impl FrameCache {
    /// How many frames were found, and how many were looked up.
    pub fn hits_and_misses(&self) -> (u64, u64) {
        (self.hits, self.misses)
    }

    /// The frames of a stack, if it was met under the same circumstances.
    #[inline]
    pub(crate) fn stack(&mut self, key: &StackKey, now: Circumstances) -> Option<Arc<[Frame]>> {
        let (known, frames) = self.stacks.get(key)?;
        (*known == now).then(|| {
            self.hits += frames.len() as u64;
            Arc::clone(frames)
        })
    }

    /// Keeps the frames of a stack.
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

    /// A frame, if it was met under the same circumstances.
    #[inline]
    pub(crate) fn frame(&mut self, key: &FrameKey) -> Option<Frame> {
        let frame = self.locations[self.location(key)].as_ref().filter(|(known, _)| known == key)?.1;
        self.hits += 1;
        Some(frame)
    }

    /// Keeps a frame that was looked up.
    pub(crate) fn keep_frame(&mut self, key: FrameKey, frame: Frame) {
        self.misses += 1;
        let location = self.location(&key);
        self.locations[location] = Some((key, frame));
    }

    #[inline]
    fn location(&self, key: &FrameKey) -> usize {
        let process = key.process.map_or(0, |process| process.index() + 1);
        self.hasher.hash_one((key.address.0, process)) as usize % PLACES
    }
}
