//! What a capture needs of the system it runs in.

use stackhound_kstack_proto::{Capture, Missing, Outcome};

use crate::sync::AtomicU64;
use crate::{Slot, Ticket};

/// A part of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// Frames of the kernel.
    Kernel,
    /// Frames of the program.
    User,
}

/// Who a thread is to the one that asks for its stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ThreadRelation {
    /// It asks for its own.
    Own,
    /// Another thread.
    Other,
    /// An idle thread, which no APC reaches.
    Idle,
}

/// A thread that was found.
#[derive(Clone, Copy, Debug)]
pub struct Found<Thread> {
    /// The thread, referenced: it does not go away before [`Kernel::release_thread`].
    pub thread: Thread,
    /// Its number, as the system says it of the thread: a system may find a thread by other numbers as well, as Windows does, which
    /// ignores the two lowest bits.
    pub tid: u32,
    /// Who it is.
    pub location: ThreadRelation,
    /// When it was created, in 100 ns since 1601; 0 if the system does not tell.
    pub created: u64,
    /// Whether it has a user part that may be shown, or why not.
    pub user: Result<(), Missing>,
}

/// What became of the wish to take an APC out of its thread's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Removal {
    /// It is out, and will neither run nor be run down.
    Removed,
    /// It was no longer queued: it runs, has run, or was run down.
    NotQueued,
    /// This system cannot do it.
    Unsupported,
}

/// The system. In the driver these are functions of ntoskrnl, in tests a model of them.
pub trait Kernel {
    /// What the system keeps for one slot: an APC and an event.
    type Objects;
    /// The memory for the frames of one slot; [`crate::MACHINERY`] more than are ever answered.
    type Frames: AsRef<[AtomicU64]>;
    /// A referenced thread.
    type Thread: Copy;

    /// The slots: always the same, for as long as anybody may use one.
    fn slots(&self) -> &[Slot<Self::Objects, Self::Frames>];

    /// Finds the thread by its number, its process and the time of its creation, and references it.
    ///
    /// # Errors
    /// [`Outcome::NoThread`] if there is none to whom all of it applies.
    fn find(&self, capture: &Capture) -> Result<Found<Self::Thread>, Outcome>;

    /// Ends the reference of [`Self::find`].
    fn release_thread(&self, thread: Self::Thread);

    /// Makes the slot's event one that is not signalled, and its APC one for this thread.
    fn prepare(&self, ticket: Ticket, thread: Self::Thread);

    /// Queues the APC. From then on, and before this returns, [`crate::Apc::ran`] or [`crate::Apc::run_down`] may be called for
    /// the ticket, once in all. False if the thread takes no APCs any more; then neither will be.
    fn queue(&self, ticket: Ticket) -> bool;

    /// Whether the system can take an APC out of its thread's queue at all.
    fn can_remove(&self) -> bool;

    /// Tries to take the APC out of its thread's queue; [`Removal::Unsupported`] where [`Self::can_remove`] says no.
    fn remove(&self, ticket: Ticket) -> Removal;

    /// Waits for the slot's event; false if it was not signalled for so many milliseconds.
    fn wait(&self, ticket: Ticket, milliseconds: u32) -> bool;

    /// Signals the slot's event.
    fn signal(&self, ticket: Ticket);

    /// Keeps the system from suspending the calling thread, until [`Self::leave_critical_region`]. APCs of captures still run.
    fn enter_critical_region(&self);

    /// Ends what [`Self::enter_critical_region`] began, once for each.
    fn leave_critical_region(&self);

    /// Whether the calling thread is in a critical region, and so may hold locks of file systems.
    fn in_critical_region(&self) -> bool;

    /// Walks the calling thread's stack into the frames, the innermost first, until they are full or the part ends.
    ///
    /// # Errors
    /// Why the part is missing. No frames are [`Missing::Nothing`].
    fn walk(&self, part: Part, frames: &[AtomicU64]) -> Result<usize, Missing>;

    /// Whether an address lies in the code that captures.
    fn is_own(&self, address: u64) -> bool;

    /// The time, in 100 ns since some moment.
    fn now(&self) -> u64;
}
