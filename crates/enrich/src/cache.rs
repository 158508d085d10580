//! Frames that were met before.
//!
//! The same few frames come again and again. What is looked up of one holds until something changes in its process, so
//! it is kept with the stretch of time that it was looked up in. The cache changes no answer: what is not in it, or is of
//! another stretch, is looked up.

use std::fmt;
use std::hash::BuildHasher;

use stackhound_etl::Address;
use stackhound_symbols::AddressKind;
use stackhound_system::{ProcessId, Stretch};

use crate::frame::Frame;

/// All that a frame's meaning depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FrameKey {
    pub address: Address,
    pub kind: AddressKind,
    /// `None` for the kernel, and where the process is not known.
    pub process: Option<ProcessId>,
    pub stretch: Stretch,
    pub is_complete: bool,
}

/// Places of a cache; each frame has one place where it can be.
const PLACES: usize = 1 << 15;

/// Frames that were met before. About 4 MB, whatever is looked up.
pub struct FrameCache {
    places: Box<[Option<(FrameKey, Frame)>]>,
    hasher: foldhash::fast::RandomState,
    hits: u64,
    misses: u64,
}

impl Default for FrameCache {
    fn default() -> FrameCache {
        let places = vec![None; PLACES].into_boxed_slice();
        FrameCache { places, hasher: foldhash::fast::RandomState::default(), hits: 0, misses: 0 }
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

    #[inline]
    pub(crate) fn get_or_insert_with(&mut self, key: FrameKey, look_up: impl FnOnce() -> Frame) -> Frame {
        let process = key.process.map_or(0, |process| process.index() + 1);
        let place = self.hasher.hash_one((key.address.0, process)) as usize % PLACES;
        match &self.places[place] {
            Some((known, frame)) if *known == key => {
                self.hits += 1;
                *frame
            }
            _ => {
                self.misses += 1;
                let frame = look_up();
                self.places[place] = Some((key, frame));
                frame
            }
        }
    }
}
