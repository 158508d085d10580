//! Generated executions of programs, transition by transition, and the truth about their stacks.
//!
//! A simulated machine with memory, a stack pointer and several stacks does at random what programs, their run-time
//! libraries and systems do: calls, returns, tail calls, `longjmp`, exceptions, coroutines, threads, interrupts, signals on
//! alternate stacks, frames that somebody else puts on a stack, overwritten return addresses, retpolines, memory that is
//! given back. For each it notes in [`Truth`] what a tracker must say of it, from what it meant to do: it never looks for
//! frames by comparing stack pointers with slots.
//!
//! Knows the types of `calltree`, and no tracker.

mod action;
mod machine;
mod random;
pub mod truth;

use stackhound_calltree::StackKind;
use stackhound_calltree::tracker::{Space, Step, Thread};
use stackhound_types::Address;

use truth::Truth;

/// An execution to generate. The same one is always the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Execution {
    /// Different seeds give different executions.
    pub seed: u64,
    /// It ends soon after this transition, when the action then at hand is done.
    pub transitions: u64,
    /// Whether memory can be read. If not, changed return addresses show only when they are used.
    pub readable: bool,
}

/// What a recorder sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A transition.
    Step(Step),
    /// So many transitions that concern no stack.
    Skip(u32),
    /// The next transition sets up memory as a stack.
    Declare {
        /// Where.
        space: Space,
        /// The lowest address.
        low: Address,
        /// The address behind the highest.
        high: Address,
        /// What for.
        kind: StackKind,
    },
    /// The next transition gives memory back.
    Release {
        /// Where.
        space: Space,
        /// The lowest address.
        low: Address,
        /// The address behind the highest.
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

    /// Runs it. `each` is given every event in order, and the memory after it.
    pub fn run(self, mut each: impl FnMut(Event, Memory)) -> Truth {
        machine::Machine::new(self, &mut each).run()
    }
}
