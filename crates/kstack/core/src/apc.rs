//! What happens in the thread whose stack is captured.

use stackhound_kstack_proto::Missing;

use crate::slot::{Phase, Walked, open};
use crate::{Kernel, Part, Progress, Slot, Stale, Ticket};

/// The way of an APC after it left its thread's queue: it ran, or it was run down because the thread ended. Each ends with the same
/// clean-up. Taken step by step to its end, whatever happens meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Apc {
    ticket: Ticket,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Begin,
    Kernel,
    /// The kernel part is given out before the user part is walked, which may read in pages, and hang in that.
    GiveKernel,
    User,
    Finish,
    RunDown,
    Signal,
    Release,
    Free,
}

impl Apc {
    /// The APC runs, in its thread.
    pub fn ran(ticket: Ticket) -> Self {
        Self { ticket, stage: Stage::Begin }
    }

    /// The thread ended with the APC in its queue.
    pub fn run_down(ticket: Ticket) -> Self {
        Self { ticket, stage: Stage::RunDown }
    }

    /// All steps at once.
    ///
    /// # Errors
    /// As [`Self::step`].
    pub fn finish<K: Kernel>(mut self, kernel: &K) -> Result<(), Stale> {
        while self.step(kernel)? == Progress::Again {}
        Ok(())
    }

    /// The next step.
    ///
    /// # Errors
    /// If the slot is not the APC's, which cannot be.
    pub fn step<K: Kernel>(&mut self, kernel: &K) -> Result<Progress<()>, Stale> {
        let slot = open(kernel, self.ticket)?;
        self.stage = match self.stage {
            // Of one that nobody waits for, nobody wants to know the frames.
            Stage::Begin if slot.advance(Phase::Waiting, Phase::Running) => Stage::Kernel,
            Stage::Begin => Stage::Release,
            Stage::Kernel => {
                slot.set_kernel(walk_kernel(kernel, slot));
                Stage::GiveKernel
            }
            Stage::GiveKernel if slot.advance(Phase::Running, Phase::KernelDone) => Stage::User,
            Stage::GiveKernel => Stage::Release,
            Stage::User => {
                slot.set_user(walk_user(kernel, slot));
                Stage::Finish
            }
            Stage::Finish if slot.advance(Phase::KernelDone, Phase::Captured) => Stage::Signal,
            Stage::Finish => Stage::Release,
            Stage::RunDown if slot.advance(Phase::Waiting, Phase::RunDown) => Stage::Signal,
            Stage::RunDown => Stage::Release,
            Stage::Signal => {
                kernel.signal(self.ticket);
                Stage::Release
            }
            Stage::Release if slot.end_reference() => Stage::Free,
            Stage::Release => return Ok(Progress::Done(())),
            Stage::Free => {
                slot.free();
                return Ok(Progress::Done(()));
            }
        };
        Ok(Progress::Again)
    }
}

/// Walks the kernel part into the slot's first frames.
pub(crate) fn walk_kernel<K: Kernel>(kernel: &K, slot: &Slot<K::Objects, K::Frames>) -> Walked {
    let frames = slot.frames();
    match slot.wanted().kernel_room(frames.len()) {
        None => Walked::Not,
        Some(room) => walked(kernel.walk(Part::Kernel, frames.get(..room).unwrap_or_default()), room),
    }
}

/// Walks the user part into the slot's frames behind those of the kernel part.
pub(crate) fn walk_user<K: Kernel>(kernel: &K, slot: &Slot<K::Objects, K::Frames>) -> Walked {
    let wanted = slot.wanted();
    let rest = slot.frames().get(slot.kernel().count()..).unwrap_or_default();
    match (wanted.user, wanted.user_room(rest.len())) {
        (None, _) => Walked::Not,
        (Some(Err(missing)), _) => Walked::Missing(missing),
        (Some(Ok(())), 0) => Walked::Missing(Missing::NoRoom),
        // Such a thread may hold a lock of a file system, which reading in a page would wait for.
        (Some(Ok(())), _) if !wanted.in_critical_region && kernel.in_critical_region() => {
            Walked::Missing(Missing::CriticalRegion)
        }
        (Some(Ok(())), room) => walked(kernel.walk(Part::User, rest.get(..room).unwrap_or_default()), room),
    }
}

fn walked(result: Result<usize, Missing>, room: usize) -> Walked {
    match result {
        Ok(count) => Walked::Frames(count.min(room) as u16),
        Err(missing) => Walked::Missing(missing),
    }
}
