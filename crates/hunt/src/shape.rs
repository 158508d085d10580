//! The shape of a case: all that judgements rest on, as a row of numbers, so that cases of different processes that mean the
//! same to the judge are judged once.
//!
//! Frames stand in it by their [key](Frame::cache_key). What is at an address of a process is remembered,
//! as long as its modules stay as they are; for frames outside of images, as long as all of its memory does.

use stackhound_frames::{Frame, FrameResolver, addresses};
use stackhound_pipeline::Seen;
use stackhound_types::{Address, AddressKind};

use super::around::Around;
use super::cache::Key;
use super::numbers::{Numbered, Numbers};
use super::{Circumscribed, Hunter};

/// Addresses that are remembered; each has one place where it can be. 1 MB.
const PLACES: usize = 1 << 16;

/// In place of a frame's number: what it is depends on more than modules.
const OUTSIDE: u32 = 0;

#[derive(Clone, Copy, Default)]
struct Known {
    address: u64,
    /// Of the modules, or of the memory, in which this holds; 0 in a free place.
    ground: u32,
    /// Of the frame. The highest bit says that the address is an instruction's.
    number: u32,
}

const INSTRUCTION: u32 = 1 << 31;

/// Frames by address.
pub(super) struct FrameNumbers {
    known: Box<[Known]>,
    numbers: Numbered<Frame>,
}

impl std::fmt::Debug for FrameNumbers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FrameNumbers").finish_non_exhaustive()
    }
}

impl Default for FrameNumbers {
    fn default() -> FrameNumbers {
        let known = vec![Known::default(); PLACES].into_boxed_slice();
        FrameNumbers { known, numbers: Numbered::default() }
    }
}

fn kind_bit(kind: AddressKind) -> u32 {
    match kind {
        AddressKind::Instruction => INSTRUCTION,
        AddressKind::Return => 0,
    }
}

impl FrameNumbers {
    #[inline]
    fn place(address: Address, ground: u32) -> usize {
        let hash = (address.0 ^ u64::from(ground) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (hash >> 40) as usize % PLACES
    }

    #[inline]
    fn find(&self, address: Address, kind: AddressKind, ground: u32) -> Option<u32> {
        let known = &self.known[FrameNumbers::place(address, ground)];
        let is_same = known.address == address.0
            && known.ground == ground
            && known.number & INSTRUCTION == kind_bit(kind);
        is_same.then_some(known.number & !INSTRUCTION)
    }

    fn keep(&mut self, address: Address, kind: AddressKind, ground: u32, number: u32) {
        let number = number | kind_bit(kind);
        self.known[FrameNumbers::place(address, ground)] = Known { address: address.0, ground, number };
    }

    fn number(&mut self, frame: Frame, numbers: &mut Numbers) -> u32 {
        self.numbers.of(frame, numbers)
    }
}

/// Numbers of a shape in front of those of the frames.
const HEAD: usize = 5;

fn head(key: &Key, around: &Around) -> [u32; HEAD] {
    let flags = u32::from(around.is_complete) | u32::from(around.is_lossy) << 1;
    [around.facts, key.start, key.told, key.what, flags]
}

impl Hunter {
    /// Finds the shape of a case. Gives the number of the memory that it rests on, 0 if on none but that of images.
    pub(super) fn find_shape(
        &mut self,
        seen: &Seen<'_>,
        resolver: &mut FrameResolver,
        all: &Circumscribed,
        key: &Key,
    ) -> u32 {
        let around = &all.around;
        let session = around.session;
        let mut shape = std::mem::take(&mut self.shape);
        shape.clear();
        shape.extend(head(key, around));
        let mut memory = 0;
        for (address, kind) in addresses(session, seen.delivered()) {
            let ground = match address.is_kernel(session) {
                true => around.kernel_ground,
                false => around.ground,
            };
            shape.push(match self.frame_numbers.find(address, kind, ground) {
                Some(number) if number != OUTSIDE => number,
                known => self.look_at_frame((seen, resolver), around, (address, kind), known, &mut memory),
            });
        }
        self.shape = shape;
        memory
    }

    #[cold]
    fn look_at_frame(
        &mut self,
        (seen, resolver): (&Seen<'_>, &mut FrameResolver),
        around: &Around,
        (address, kind): (Address, AddressKind),
        known: Option<u32>,
        memory: &mut u32,
    ) -> u32 {
        let (system, owner) = (seen.knowledge().system(), around.owner);
        let mut frames = resolver.at(system, owner, seen.time(), around.session);
        let is_kernel = address.is_kernel(around.session);
        if known.is_none()
            && let Some(frame) = frames.in_module(address, kind)
        {
            let ground = if is_kernel { around.kernel_ground } else { around.ground };
            return self.keep_frame(resolver, &frame, (address, kind), ground);
        }
        let ground = match is_kernel {
            true => around.kernel_ground,
            false => {
                if *memory == 0 {
                    *memory = self.surroundings.memory(system, owner.process, seen.time(), &mut self.numbers);
                }
                if known.is_none() {
                    self.frame_numbers.keep(address, kind, around.ground, OUTSIDE);
                }
                *memory
            }
        };
        if known == Some(OUTSIDE)
            && let Some(number) = self.frame_numbers.find(address, kind, ground)
        {
            return number;
        }
        let frame = frames.frame(address, kind);
        self.keep_frame(resolver, &frame, (address, kind), ground)
    }

    fn keep_frame(
        &mut self,
        resolver: &FrameResolver,
        frame: &Frame,
        (address, kind): (Address, AddressKind),
        ground: u32,
    ) -> u32 {
        let key = frame.cache_key(resolver.modules(), !self.binaries.is_none());
        let number = self.frame_numbers.number(key, &mut self.numbers);
        self.frame_numbers.keep(address, kind, ground, number);
        number
    }

    /// The shape of a case with the frames that were just judged.
    pub(super) fn shape_of_judged(&mut self, resolver: &FrameResolver, all: &Circumscribed, key: &Key) {
        let Hunter { shape, frames, frame_numbers, numbers, binaries, .. } = self;
        shape.clear();
        shape.extend(head(key, &all.around));
        let key = |frame: &Frame| frame.cache_key(resolver.modules(), !binaries.is_none());
        shape.extend(frames.iter().map(|frame| frame_numbers.number(key(frame), numbers)));
    }
}
