//! The functions of the system that a capture needs.

use stackhound_kstack_proto::{Capture, Missing, Outcome};

use crate::sync::AtomicU64;
use crate::{Slot, Ticket};

/// The stack to walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// The kernel stack.
    Kernel,
    /// The user stack.
    User,
}

/// The relation of a thread to the thread that requests its stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ThreadRelation {
    /// The requesting thread itself.
    Own,
    /// Another thread.
    Other,
    /// An idle thread, which takes no APCs.
    Idle,
}

/// A thread that was found.
#[derive(Clone, Copy, Debug)]
pub struct Found<Thread> {
    /// The thread, referenced: it stays valid until [`Kernel::release_thread`].
    pub thread: Thread,
    /// The thread id that the system reports for the thread. A system may find a thread by other
    /// ids as well; Windows ignores the two lowest bits.
    pub tid: u32,
    /// The relation of the thread to the requesting thread.
    pub relation: ThreadRelation,
    /// The creation time, in 100 ns since 1601; 0 if the system does not report it.
    pub created: u64,
    /// `Ok` if the thread has a user stack that may be shown.
    pub user: Result<(), Missing>,
}

/// The result of removing an APC from the queue of its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Removal {
    /// The APC was removed. It will neither run nor be run down.
    Removed,
    /// The APC was no longer queued: it is running, has run, or was run down.
    NotQueued,
    /// This system cannot remove APCs.
    Unsupported,
}

/// The system: in the driver functions of ntoskrnl, in tests a model of them.
pub trait Kernel {
    /// The objects that the system keeps for one slot: an APC and an event.
    type Objects;
    /// The memory for the frames of one slot: [`crate::MACHINERY`] frames more than the longest
    /// answer.
    type Frames: AsRef<[AtomicU64]>;
    /// A referenced thread.
    type Thread: Copy;

    /// The slots. They are always the same, and exist as long as one of them may be used.
    fn slots(&self) -> &[Slot<Self::Objects, Self::Frames>];

    /// Finds the thread by its thread id, process id and creation time, and references it.
    ///
    /// # Errors
    /// [`Outcome::NoThread`] if no thread matches all of them.
    fn find(&self, capture: &Capture) -> Result<Found<Self::Thread>, Outcome>;

    /// Releases the reference of [`Self::find`].
    fn release_thread(&self, thread: Self::Thread);

    /// Initializes the slot's event, not signaled, and the slot's APC, for this thread.
    fn prepare(&self, ticket: Ticket, thread: Self::Thread);

    /// Queues the APC. From then on, even before this function returns, [`crate::Apc::ran`] or
    /// [`crate::Apc::run_down`] may be called for the ticket, once in total. Returns false if the
    /// thread takes no APCs any more; then neither is called.
    fn queue(&self, ticket: Ticket) -> bool;

    /// Whether this system can remove an APC from the queue of its thread.
    fn can_remove(&self) -> bool;

    /// Tries to remove the APC from the queue of its thread. Returns [`Removal::Unsupported`] if
    /// [`Self::can_remove`] returns false.
    fn remove(&self, ticket: Ticket) -> Removal;

    /// Waits for the slot's event. Returns false if it was not signaled within the timeout, in
    /// milliseconds.
    fn wait(&self, ticket: Ticket, milliseconds: u32) -> bool;

    /// Signals the slot's event.
    fn signal(&self, ticket: Ticket);

    /// Prevents the system from suspending the calling thread until
    /// [`Self::leave_critical_region`]. APCs of captures still run.
    fn enter_critical_region(&self);

    /// Reverts one call of [`Self::enter_critical_region`].
    fn leave_critical_region(&self);

    /// Whether the calling thread is in a critical region, and so may hold file system locks.
    fn in_critical_region(&self) -> bool;

    /// Walks the stack of the calling thread into the frames, innermost first, until they are full
    /// or the stack ends. Returns the number of frames.
    ///
    /// # Errors
    /// The reason why the stack is missing. A walk without frames returns [`Missing::Nothing`].
    fn walk(&self, part: Part, frames: &[AtomicU64]) -> Result<usize, Missing>;

    /// Whether an address is in the code of the driver.
    fn is_own(&self, address: u64) -> bool;

    /// The time, in 100 ns since an arbitrary moment.
    fn now(&self) -> u64;
}
