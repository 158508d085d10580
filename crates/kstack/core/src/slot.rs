//! Where a capture is made, shared by the one who asks and the APC.
//!
//! A slot has an owner (the number of the thread whose stack is captured) and is free without one. It is held by references: one of the
//! requester and, from before it is queued, one of the APC. Whoever ends the last one frees the slot, which changes its generation: a ticket of an
//! earlier one opens nothing.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

use stackhound_kstack_proto::{Flags, Missing};

use crate::Kernel;
use crate::sync::{AtomicU32, AtomicU64, fence};

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
    /// The APC walks.
    Running,
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
            2 => Phase::Captured,
            3 => Phase::RunDown,
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
        self.references.load(Acquire)
    }

    /// The thread it is taken for, if it is.
    pub fn owner(&self) -> Option<u32> {
        Some(self.owner.load(Acquire)).filter(|&owner| owner != 0)
    }

    /// Takes the slot for a thread if it is free. Of two that claim slots and then look at each other's owner, one at least sees that
    /// the other did: that is what the fence is for.
    pub(crate) fn claim(&self, index: u32, tid: u32) -> Option<Ticket> {
        self.owner.compare_exchange(0, tid, Acquire, Relaxed).ok()?;
        fence(SeqCst);
        Some(Ticket { index, generation: self.generation.load(Relaxed) })
    }

    /// Makes a claimed slot a new capture's: nothing of an earlier one is left to be read, and the requester has a reference.
    pub(crate) fn begin(&self, wanted: Wanted) {
        self.wanted.store(wanted.pack(), Relaxed);
        self.kernel.store(Walked::default().pack(), Relaxed);
        self.user.store(Walked::default().pack(), Relaxed);
        self.phase.store(Phase::Waiting as u32, Relaxed);
        self.references.store(1, Release);
    }

    pub(crate) fn wanted(&self) -> Wanted {
        Wanted::unpack(self.wanted.load(Relaxed))
    }

    /// The APC gets its reference.
    pub(crate) fn refer(&self) {
        self.references.fetch_add(1, AcqRel);
    }

    /// Ends a reference. True if it was the last: then [`Self::free`] must follow.
    pub(crate) fn end_reference(&self) -> bool {
        self.references.fetch_sub(1, AcqRel) == 1
    }

    /// Gives the slot back. Only for the one who ended the last reference.
    pub(crate) fn free(&self) {
        self.generation.fetch_add(1, Relaxed);
        self.owner.store(0, Release);
    }

    /// Goes on to `to` if the phase is `from`; says whether it was. What was written before is seen by whoever sees `to`.
    pub(crate) fn advance(&self, from: Phase, to: Phase) -> bool {
        self.phase.compare_exchange(from as u32, to as u32, AcqRel, Acquire).is_ok()
    }

    /// Nobody waits any more. Gives the phase that was reached before.
    pub(crate) fn abandon(&self) -> Phase {
        Phase::from_number(self.phase.swap(Phase::Abandoned as u32, AcqRel))
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
    pub kernel: bool,
    /// The user part, unless there is a reason not to look at it.
    pub user: Option<Result<(), Missing>>,
    /// Entries of the answer, 1 to 256.
    pub frames: u16,
}

impl Wanted {
    pub(crate) fn new(flags: Flags, user: Result<(), Missing>, frames: u16) -> Self {
        Self { kernel: flags.has(Flags::KERNEL), user: flags.has(Flags::USER).then_some(user), frames }
    }

    fn pack(self) -> u32 {
        let user = match self.user {
            None => 0,
            Some(Ok(())) => 0xff,
            Some(Err(missing)) => missing as u32,
        };
        u32::from(self.kernel) | user << 8 | u32::from(self.frames) << 16
    }

    fn unpack(number: u32) -> Self {
        let user = match number >> 8 & 0xff {
            0 => None,
            0xff => Some(Ok(())),
            missing => Some(Err(missing_of(missing))),
        };
        Self { kernel: number & 1 != 0, user, frames: (number >> 16) as u16 }
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
