//! The memory of a capture, shared by the request and the APC.
//!
//! A slot has an owner, the id of the thread whose stack is captured; a slot without an owner is
//! free. References keep a slot alive: one of the request and, from before it is queued, one of the
//! APC. The side that releases the last reference frees the slot. Freeing changes the slot's
//! generation, so tickets of earlier generations are refused.
//!
//! These accesses order the steps of different threads:
//!
//! - the owner: all changes, and all reads by claiming requests, are read-modify-writes, so each
//!   comes after all earlier ones;
//! - the phase;
//! - the release of references.
//!
//! The reads of the APC are ordered by the system, which runs the APC after it was queued.
//! `tests/loom.rs` fails if one of these orderings is weakened, with one exception: the half of the
//! ordering at the owner that matters only on processors on which read-modify-writes of different
//! memory locations can be reordered, which loom does not model.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use stackhound_kstack_proto::{Capture, Flags, Missing};

use crate::sync::{AtomicU32, AtomicU64};
use crate::{Kernel, MACHINERY};

/// The right to use a slot until its reference ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// The index of the slot.
    pub index: u32,
    /// The generation of the slot for which the ticket is valid.
    pub generation: u32,
}

/// A ticket was used after its slot had been freed. This cannot happen. The check is the last line
/// of defense, and the exploration of all orders looks for this error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stale;

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress<T> {
    /// There are more steps.
    Again,
    /// This was the last step.
    Done(T),
}

/// The phase of a capture. The APC changes it by compare-and-exchange, the request only to
/// `Abandoned`, by a swap. So exactly one of them decides how the capture ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Phase {
    /// The APC has not started.
    Waiting,
    /// The APC is walking the kernel stack.
    Running,
    /// The kernel stack is published, and the APC is walking the user stack.
    KernelDone,
    /// All frames are published.
    Captured,
    /// The thread ended before the APC ran.
    RunDown,
    /// The request waits no longer.
    Abandoned,
}

impl Phase {
    fn from_number(number: u32) -> Phase {
        match number {
            0 => Phase::Waiting,
            1 => Phase::Running,
            2 => Phase::KernelDone,
            3 => Phase::Captured,
            4 => Phase::RunDown,
            _ => Phase::Abandoned,
        }
    }
}

/// The memory of one capture.
#[derive(Debug)]
pub struct Slot<Objects, Frames> {
    /// The id of the thread whose stack is captured; 0 if the slot is free.
    owner: AtomicU32,
    generation: AtomicU32,
    references: AtomicU32,
    phase: AtomicU32,
    wanted: AtomicU32,
    kernel: AtomicU32,
    user: AtomicU32,
    frames: Frames,
    objects: Objects,
}

impl<Objects, Frames> Slot<Objects, Frames> {
    /// A free slot.
    #[cfg(not(loom))]
    pub const fn new(objects: Objects, frames: Frames) -> Self {
        Self::of([const { AtomicU32::new(0) }; 7], objects, frames)
    }

    /// A free slot. Loom's atomics cannot be created at compile time.
    #[cfg(loom)]
    pub fn new(objects: Objects, frames: Frames) -> Self {
        Self::of(core::array::from_fn(|_| AtomicU32::new(0)), objects, frames)
    }

    const fn of(zeros: [AtomicU32; 7], objects: Objects, frames: Frames) -> Self {
        let [owner, generation, references, phase, wanted, kernel, user] = zeros;
        Self { owner, generation, references, phase, wanted, kernel, user, frames, objects }
    }

    /// The objects of the system.
    pub fn objects(&self) -> &Objects {
        &self.objects
    }

    /// The number of references to the slot; 0 if it is free.
    pub fn references(&self) -> u32 {
        self.references.load(Relaxed)
    }

    /// The id of the thread whose stack is captured, or `None` if the slot is free.
    pub fn owner(&self) -> Option<u32> {
        Some(self.owner.load(Relaxed)).filter(|&owner| owner != 0)
    }

    /// Claims the slot for a thread if it is free.
    pub(crate) fn claim(&self, index: u32, tid: u32) -> Option<Ticket> {
        self.owner.compare_exchange(0, tid, AcqRel, Relaxed).ok()?;
        Some(Ticket { index, generation: self.generation.load(Relaxed) })
    }

    /// Whether the slot is claimed for a thread. If two requests have claimed slots and then check
    /// each other's slot, at least one of them gets true. With plain loads, both could read too
    /// early; a read-modify-write comes either before or after that of the other request.
    pub(crate) fn is_of(&self, tid: u32) -> bool {
        self.owner.fetch_add(0, AcqRel) == tid
    }

    /// Initializes a claimed slot for a new capture: nothing of an earlier capture can be read, and
    /// the request has a reference.
    pub(crate) fn begin(&self, wanted: Wanted) {
        self.wanted.store(wanted.pack(), Relaxed);
        self.kernel.store(Walked::default().pack(), Relaxed);
        self.user.store(Walked::default().pack(), Relaxed);
        self.phase.store(Phase::Waiting as u32, Relaxed);
        self.references.store(1, Relaxed);
    }

    pub(crate) fn wanted(&self) -> Wanted {
        Wanted::unpack(self.wanted.load(Relaxed))
    }

    /// Counts the reference of the APC.
    pub(crate) fn refer(&self) {
        self.references.fetch_add(1, Relaxed);
    }

    /// Releases a reference. Returns true if it was the last one: then [`Self::free`] must follow.
    pub(crate) fn end_reference(&self) -> bool {
        self.references.fetch_sub(1, AcqRel) == 1
    }

    /// Frees the slot. Only the side that released the last reference may call this.
    pub(crate) fn free(&self) {
        self.generation.fetch_add(1, Relaxed);
        self.owner.swap(0, AcqRel);
    }

    /// Changes the phase to `to` if it is `from`, and returns whether it was. Earlier writes are
    /// visible to the request once it has abandoned the capture.
    pub(crate) fn advance(&self, from: Phase, to: Phase) -> bool {
        self.phase.compare_exchange(from as u32, to as u32, Release, Relaxed).is_ok()
    }

    /// Abandons the capture. Returns the phase that was reached before.
    pub(crate) fn abandon(&self) -> Phase {
        Phase::from_number(self.phase.swap(Phase::Abandoned as u32, Acquire))
    }

    pub(crate) fn set_kernel(&self, walked: Walked) {
        self.kernel.store(walked.pack(), Relaxed);
    }

    pub(crate) fn set_user(&self, walked: Walked) {
        self.user.store(walked.pack(), Relaxed);
    }

    pub(crate) fn kernel(&self) -> Walked {
        Walked::unpack(self.kernel.load(Relaxed))
    }

    pub(crate) fn user(&self) -> Walked {
        Walked::unpack(self.user.load(Relaxed))
    }
}

impl<Objects, Frames: AsRef<[AtomicU64]>> Slot<Objects, Frames> {
    pub(crate) fn frames(&self) -> &[AtomicU64] {
        self.frames.as_ref()
    }
}

/// The slot of a ticket.
///
/// # Errors
/// If the slot has been freed since.
pub(crate) fn open<K: Kernel>(kernel: &K, ticket: Ticket) -> Result<&Slot<K::Objects, K::Frames>, Stale> {
    let slot = kernel.slots().get(ticket.index as usize).ok_or(Stale)?;
    let current = slot.owner.load(Relaxed) != 0 && slot.generation.load(Relaxed) == ticket.generation;
    current.then_some(slot).ok_or(Stale)
}

/// The work of the APC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// The number of kernel frames in addition to those of the capture itself, if the kernel stack
    /// is requested: those to return and those to skip.
    pub kernel: Option<u16>,
    /// `None` if the user stack is not requested, an error if it must not be walked.
    pub user: Option<Result<(), Missing>>,
    /// Whether the user stack is walked also in a critical region.
    pub in_critical_region: bool,
    /// The maximum number of entries of the answer, 1 to 256.
    pub frames: u16,
}

impl Wanted {
    /// A thread that walks its own stack is in the critical region that the capture has entered. It
    /// holds no lock, because it called the driver.
    pub(crate) fn new(capture: &Capture, user: Result<(), Missing>, own: bool) -> Self {
        let Capture { flags, max_frames, frames_to_skip, .. } = *capture;
        Self {
            kernel: flags.has(Flags::KERNEL).then_some(max_frames + frames_to_skip),
            user: flags.has(Flags::USER).then_some(user),
            in_critical_region: own || flags.has(Flags::USER_IN_CRITICAL_REGION),
            frames: max_frames,
        }
    }

    /// The number of kernel frames to walk into a slot with space for `frames`, if the kernel stack
    /// is requested.
    pub(crate) fn kernel_room(self, frames: usize) -> Option<usize> {
        self.kernel.map(|kernel| (usize::from(kernel) + MACHINERY).min(frames))
    }

    /// The number of user frames to walk if `left` frames of the slot are left.
    pub(crate) fn user_room(self, left: usize) -> usize {
        usize::from(self.frames).min(left)
    }

    /// The result for the user stack while it is still being walked.
    pub(crate) fn unfinished(self) -> Walked {
        match self.user {
            None => Walked::Not,
            Some(Err(missing)) => Walked::Missing(missing),
            Some(Ok(())) => Walked::Missing(Missing::Unfinished),
        }
    }

    /// Both numbers of frames are below 2^11.
    fn pack(self) -> u32 {
        let user = match self.user {
            None => 0,
            Some(Ok(())) => 0xff,
            Some(Err(missing)) => missing as u32,
        };
        let in_critical_region = u32::from(self.in_critical_region);
        u32::from(self.kernel.unwrap_or(0))
            | u32::from(self.frames) << 12
            | in_critical_region << 23
            | user << 24
    }

    fn unpack(number: u32) -> Self {
        let user = match number >> 24 {
            0 => None,
            0xff => Some(Ok(())),
            missing => Some(Err(missing_of(missing))),
        };
        let kernel = Some((number & 0xfff) as u16).filter(|&kernel| kernel != 0);
        Self {
            kernel,
            user,
            in_critical_region: number >> 23 & 1 == 1,
            frames: (number >> 12 & 0x7ff) as u16,
        }
    }
}

/// The result of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Walked {
    /// The stack was not requested.
    #[default]
    Not,
    /// The number of frames in the slot.
    Frames(u16),
    Missing(Missing),
}

impl Walked {
    /// The number of frames in the slot.
    pub(crate) fn count(self) -> usize {
        match self {
            Walked::Frames(count) => count.into(),
            Walked::Not | Walked::Missing(_) => 0,
        }
    }

    fn pack(self) -> u32 {
        match self {
            Walked::Not => 0,
            Walked::Frames(count) => 1 << 16 | u32::from(count),
            Walked::Missing(missing) => 2 << 16 | missing as u32,
        }
    }

    fn unpack(number: u32) -> Self {
        match number >> 16 {
            0 => Walked::Not,
            1 => Walked::Frames(number as u16),
            _ => Walked::Missing(missing_of(number & 0xff)),
        }
    }
}

fn missing_of(number: u32) -> Missing {
    Missing::ALL.into_iter().find(|&missing| missing as u32 == number).unwrap_or(Missing::Nothing)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each reason why a stack can be missing, and `Ok`.
    fn reasons() -> impl Iterator<Item = Result<(), Missing>> {
        Missing::ALL.into_iter().map(Err).chain([Ok(())])
    }

    #[test]
    fn wanted_is_unpacked_as_packed() {
        for frames in [1, 2, 255, 256] {
            for kernel in [None, Some(1), Some(256), Some(512)] {
                for user in reasons().map(Some).chain([None]) {
                    for in_critical_region in [false, true] {
                        let wanted = Wanted { kernel, user, in_critical_region, frames };
                        assert_eq!(Wanted::unpack(wanted.pack()), wanted);
                    }
                }
            }
        }
    }

    #[test]
    fn walked_is_unpacked_as_packed() {
        let counts = [0, 1, 272, u16::MAX].map(Walked::Frames);
        let missing = Missing::ALL.map(Walked::Missing);
        for walked in counts.into_iter().chain(missing).chain([Walked::Not]) {
            assert_eq!(Walked::unpack(walked.pack()), walked);
        }
        assert_eq!(Walked::unpack(0), Walked::Not, "a slot that was never used");
    }

    #[test]
    fn each_phase_has_its_number() {
        use Phase::*;
        for phase in [Waiting, Running, KernelDone, Captured, RunDown, Abandoned] {
            assert_eq!(Phase::from_number(phase as u32), phase);
        }
    }

    #[test]
    fn a_slot_has_one_owner_at_a_time_and_each_claim_a_new_generation() {
        let slot = Slot::new((), [const { AtomicU64::new(0) }; 1]);
        let first = slot.claim(0, 4).expect("it is free");
        assert_eq!((slot.claim(0, 8), slot.owner()), (None, Some(4)));
        slot.free();
        let second = slot.claim(0, 8).expect("it is free again");
        assert_eq!(slot.owner(), Some(8));
        assert_ne!(first, second);
    }
}
