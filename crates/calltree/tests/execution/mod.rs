//! Generated executions of programs, transition by transition, with the truth about their stacks.
//!
//! A simulated machine with memory, a stack pointer and several stacks randomly executes typical
//! actions of programs, run-time libraries and operating systems: calls, returns, tail calls,
//! `longjmp`, exceptions, coroutines, threads, interrupts, signals on alternate stacks, frames that
//! other code creates on a stack, overwritten return addresses, retpolines, and release of memory.
//! For each action it records in [`Truth`] the results that a tracker must report, derived from the
//! intent of the action: it never finds frames by comparing stack pointers with slots.
//!
//! Uses the types of `calltree`, but no tracker.

mod action;
mod machine;
mod random;
pub mod truth;

use stackhound_calltree::StackKind;
use stackhound_calltree::tracker::{Space, Step, Thread};
use stackhound_types::Address;

use truth::Truth;

/// The parameters of an execution. The same parameters always generate the same execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Execution {
    /// The seed of the random numbers.
    pub seed: u64,
    /// The execution ends soon after this transition, when the current action is complete.
    pub transitions: u64,
    /// Whether memory can be read. If not, changed return addresses are only detected when they are
    /// used.
    pub readable: bool,
}

/// An event that a recorder observes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A transition.
    Step(Step),
    /// A number of transitions that concern no stack.
    Skip(u32),
    /// The next transition sets up memory as a stack.
    Declare {
        /// The address space.
        space: Space,
        /// The lowest address.
        low: Address,
        /// The end address.
        high: Address,
        /// The kind of the stack.
        kind: StackKind,
    },
    /// The next transition releases memory.
    Release {
        /// The address space.
        space: Space,
        /// The lowest address.
        low: Address,
        /// The end address.
        high: Address,
    },
    /// A thread ends by the next transition.
    Exit(Thread),
}

/// Reads a word of the machine's memory, as it is after the event.
pub type Memory<'a> = &'a dyn Fn(Address) -> Option<Address>;

impl Execution {
    /// The thread that runs first.
    pub const FIRST_THREAD: Thread = Thread(1);

    /// A thousand transitions with readable memory.
    pub fn new(seed: u64) -> Execution {
        Execution { seed, transitions: 1_000, readable: true }
    }

    /// Runs the execution. Calls `each` with every event in order, and with the memory after it.
    pub fn run(self, mut each: impl FnMut(Event, Memory)) -> Truth {
        machine::Machine::new(self, &mut each).run()
    }
}
