//! The APC, which runs in the thread whose stack is captured.

use stackhound_kstack_proto::Missing;

use crate::slot::{Phase, Walked, open};
use crate::{Kernel, Part, Progress, Slot, Stale, Ticket};

/// The state machine of an APC that has left its thread's queue: it runs, or its rundown routine is
/// called because the thread ends. Both paths end with the same cleanup. It must be stepped to its
/// end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Apc {
    ticket: Ticket,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Begin,
    Kernel,
    /// The kernel stack is published before the user stack is walked, because that walk may read in
    /// pages and hang.
    PublishKernel,
    User,
    Finish,
    RunDown,
    Signal,
    Release,
    Free,
}

impl Apc {
    /// The APC runs in its thread.
    pub fn ran(ticket: Ticket) -> Self {
        Self { ticket, stage: Stage::Begin }
    }

    /// The thread ends with the APC in its queue.
    pub fn run_down(ticket: Ticket) -> Self {
        Self { ticket, stage: Stage::RunDown }
    }

    /// Takes all remaining steps.
    ///
    /// # Errors
    /// As for [`Self::step`].
    pub fn finish<K: Kernel>(mut self, kernel: &K) -> Result<(), Stale> {
        while self.step(kernel)? == Progress::Again {}
        Ok(())
    }

    /// Takes the next step.
    ///
    /// # Errors
    /// If the slot no longer belongs to the APC, which cannot happen.
    pub fn step<K: Kernel>(&mut self, kernel: &K) -> Result<Progress<()>, Stale> {
        let slot = open(kernel, self.ticket)?;
        self.stage = match self.stage {
            // If the request was abandoned, nothing is walked.
            Stage::Begin if slot.advance(Phase::Waiting, Phase::Running) => Stage::Kernel,
            Stage::Begin => Stage::Release,
            Stage::Kernel => {
                slot.set_kernel(walk_kernel(kernel, slot));
                Stage::PublishKernel
            }
            Stage::PublishKernel if slot.advance(Phase::Running, Phase::KernelDone) => Stage::User,
            Stage::PublishKernel => Stage::Release,
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

/// Walks the kernel stack into the first frames of the slot.
pub(crate) fn walk_kernel<K: Kernel>(kernel: &K, slot: &Slot<K::Objects, K::Frames>) -> Walked {
    let frames = slot.frames();
    match slot.wanted().kernel_room(frames.len()) {
        None => Walked::Not,
        Some(room) => walked(kernel.walk(Part::Kernel, frames.get(..room).unwrap_or_default()), room),
    }
}

/// Walks the user stack into the frames of the slot after those of the kernel stack.
pub(crate) fn walk_user<K: Kernel>(kernel: &K, slot: &Slot<K::Objects, K::Frames>) -> Walked {
    let wanted = slot.wanted();
    let rest = slot.frames().get(slot.kernel().count()..).unwrap_or_default();
    match (wanted.user, wanted.user_room(rest.len())) {
        (None, _) => Walked::Not,
        (Some(Err(missing)), _) => Walked::Missing(missing),
        (Some(Ok(())), 0) => Walked::Missing(Missing::NoRoom),
        // Such a thread may hold a file system lock for which reading in a page would wait.
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
