//! Where a capture is made, shared by the one who asks and the APC.
//!
//! A slot has an owner (the number of the thread whose stack is captured) and is free without one. It is held by references: one of the
//! requester and, from before it is queued, one of the APC. Whoever ends the last one frees the slot, which changes its generation: a ticket of an
//! earlier one opens nothing.
//!
//! What orders the accesses of different threads: the owner, all changes of which and all looks at which by those who claim are
//! read-modify-writes, so that each comes after all that were before; the phase; and the end of the references. What the APC reads is
//! ordered by the system, which runs it after it was queued. `tests/loom.rs` fails where one of these is weakened, but for the half of an
//! ordering at the owner that matters only to processors on which read-modify-writes of different memory pass each other: loom has none.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use stackhound_kstack_proto::{Capture, Flags, Missing};

use crate::sync::{AtomicU32, AtomicU64};
use crate::{Kernel, MACHINERY};

/// The right to use a slot until its reference ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// Which slot.
    pub index: u32,
    /// Of the slot, while the ticket is good.
    pub generation: u32,
}

/// A ticket was used after its slot had been freed. It cannot happen; that it is noticed is the last line of defence, and what the
/// exploration of all orders looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stale;

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress<T> {
    /// There are more steps.
    Again,
    /// This was the last step.
    Done(T),
}

/// How far a capture is. Each change is made by one party only: the APC changes by comparing, the requester's giving up is a swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Phase {
    /// The APC has not begun.
    Waiting,
    /// The APC walks the kernel part.
    Running,
    /// The kernel part is there, and the APC walks the user part.
    KernelDone,
    /// All frames are there.
    Captured,
    /// The thread ended before the APC ran.
    RunDown,
    /// Nobody waits any more.
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

/// What a capture is made in.
#[derive(Debug)]
pub struct Slot<Objects, Frames> {
    /// The thread whose stack is captured, 0 for none.
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

    /// A free slot. Loom's atomics cannot be made at compile time.
    #[cfg(loom)]
    pub fn new(objects: Objects, frames: Frames) -> Self {
        Self::of(core::array::from_fn(|_| AtomicU32::new(0)), objects, frames)
    }

    const fn of(zeros: [AtomicU32; 7], objects: Objects, frames: Frames) -> Self {
        let [owner, generation, references, phase, wanted, kernel, user] = zeros;
        Self { owner, generation, references, phase, wanted, kernel, user, frames, objects }
    }

    /// The system's part.
    pub fn objects(&self) -> &Objects {
        &self.objects
    }

    /// References to it; 0 for a free one.
    pub fn references(&self) -> u32 {
        self.references.load(Relaxed)
    }

    /// The thread it is taken for, if it is.
    pub fn owner(&self) -> Option<u32> {
        Some(self.owner.load(Relaxed)).filter(|&owner| owner != 0)
    }

    /// Takes the slot for a thread if it is free.
    pub(crate) fn claim(&self, index: u32, tid: u32) -> Option<Ticket> {
        self.owner.compare_exchange(0, tid, AcqRel, Relaxed).ok()?;
        Some(Ticket { index, generation: self.generation.load(Relaxed) })
    }

    /// Whether the slot is taken for a thread. Of two that have claimed slots and then ask this of each other's, one at least is told that
    /// it is: a load could be too early for both, what changes the owner comes before or after what the other did.
    pub(crate) fn is_of(&self, tid: u32) -> bool {
        self.owner.fetch_add(0, AcqRel) == tid
    }

    /// Makes a claimed slot a new capture's: nothing of an earlier one is left to be read, and the requester has a reference.
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

    /// The APC gets its reference.
    pub(crate) fn refer(&self) {
        self.references.fetch_add(1, Relaxed);
    }

    /// Ends a reference. True if it was the last: then [`Self::free`] must follow.
    pub(crate) fn end_reference(&self) -> bool {
        self.references.fetch_sub(1, AcqRel) == 1
    }

    /// Gives the slot back. Only for the one who ended the last reference.
    pub(crate) fn free(&self) {
        self.generation.fetch_add(1, Relaxed);
        self.owner.swap(0, AcqRel);
    }

    /// Goes on to `to` if the phase is `from`; says whether it was. What was written before is seen by whoever abandons then.
    pub(crate) fn advance(&self, from: Phase, to: Phase) -> bool {
        self.phase.compare_exchange(from as u32, to as u32, Release, Relaxed).is_ok()
    }

    /// Nobody waits any more. Gives the phase that was reached before.
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
/// If it was freed since.
pub(crate) fn open<K: Kernel>(kernel: &K, ticket: Ticket) -> Result<&Slot<K::Objects, K::Frames>, Stale> {
    let slot = kernel.slots().get(ticket.index as usize).ok_or(Stale)?;
    let current = slot.owner.load(Relaxed) != 0 && slot.generation.load(Relaxed) == ticket.generation;
    current.then_some(slot).ok_or(Stale)
}

/// What the APC is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Frames of the kernel part beside those of the capture itself, if it is wanted: those to answer, and those to skip.
    pub kernel: Option<u16>,
    /// The user part, unless there is a reason not to look at it.
    pub user: Option<Result<(), Missing>>,
    /// Whether the user part is walked in a critical region, too.
    pub in_critical_region: bool,
    /// Entries of the answer, 1 to 256.
    pub frames: u16,
}

impl Wanted {
    /// A thread that walks its own stack is in a critical region that the capture has entered, and holds no lock: it called the driver.
    pub(crate) fn new(capture: &Capture, user: Result<(), Missing>, own: bool) -> Self {
        let Capture { flags, max_frames, frames_to_skip, .. } = *capture;
        Self {
            kernel: flags.has(Flags::KERNEL).then_some(max_frames + frames_to_skip),
            user: flags.has(Flags::USER).then_some(user),
            in_critical_region: own || flags.has(Flags::USER_IN_CRITICAL_REGION),
            frames: max_frames,
        }
    }

    /// How many frames of the kernel part are walked into a slot that has so many, if any are wanted.
    pub(crate) fn kernel_room(self, frames: usize) -> Option<usize> {
        self.kernel.map(|kernel| (usize::from(kernel) + MACHINERY).min(frames))
    }

    /// How many frames of the user part are walked where so many are left.
    pub(crate) fn user_room(self, left: usize) -> usize {
        usize::from(self.frames).min(left)
    }

    /// What there is of the user part while it is being walked.
    pub(crate) fn unfinished(self) -> Walked {
        match self.user {
            None => Walked::Not,
            Some(Err(missing)) => Walked::Missing(missing),
            Some(Ok(())) => Walked::Missing(Missing::Unfinished),
        }
    }

    /// Both numbers of frames are far below 2^11.
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

/// What walking a part gave: entries of the slot's frames, or why there are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Walked {
    /// It was not asked for.
    #[default]
    Not,
    /// So many frames.
    Frames(u16),
    Missing(Missing),
}

impl Walked {
    /// How many frames it gave.
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

    /// One of all that a part can be missing for, and that it is not.
    fn reasons() -> impl Iterator<Item = Result<(), Missing>> {
        Missing::ALL.into_iter().map(Err).chain([Ok(())])
    }

    #[test]
    fn what_is_wanted_comes_back() {
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
    fn what_was_walked_comes_back() {
        let counts = [0, 1, 272, u16::MAX].map(Walked::Frames);
        let missing = Missing::ALL.map(Walked::Missing);
        for walked in counts.into_iter().chain(missing).chain([Walked::Not]) {
            assert_eq!(Walked::unpack(walked.pack()), walked);
        }
        assert_eq!(Walked::unpack(0), Walked::Not, "a slot that was never used says nothing");
    }

    #[test]
    fn a_phase_comes_back() {
        use Phase::*;
        for phase in [Waiting, Running, KernelDone, Captured, RunDown, Abandoned] {
            assert_eq!(Phase::from_number(phase as u32), phase);
        }
    }

    #[test]
    fn a_slot_is_taken_by_one_at_a_time_and_every_time_anew() {
        let slot = Slot::new((), [const { AtomicU64::new(0) }; 1]);
        let first = slot.claim(0, 4).expect("it is free");
        assert_eq!((slot.claim(0, 8), slot.owner()), (None, Some(4)));
        slot.free();
        let second = slot.claim(0, 8).expect("it is free again");
        assert_eq!(slot.owner(), Some(8));
        assert_ne!(first, second);
    }
}
