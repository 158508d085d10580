//! Events of a traced program that concern stacks.

use std::ops::Range;

use crate::control::{Registers, Tid};
use crate::instruction::Instruction;

/// An event of the traced program.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A thread has started.
    Started {
        /// The registers before its first instruction.
        at: Registers,
        /// Its stack, if the system call that created the thread specified it.
        stack: Option<Range<u64>>,
    },
    /// Another thread runs from now on.
    Switched {
        to: Tid,
        /// The registers of that thread.
        at: Registers,
    },
    /// An instruction was executed. If it is repeated, with all its iterations, or with the first
    /// ones if a signal arrived.
    Executed { instruction: Instruction, before: Registers, after: Registers },
    /// The system set up a signal handler.
    Delivered {
        before: Registers,
        /// The registers at the first instruction of the handler.
        after: Registers,
    },
    /// The program was replaced by another one. All other threads have ended.
    Replaced {
        /// The registers before the first instruction of the new program.
        after: Registers,
    },
    /// A thread has ended.
    Ended {
        thread: Tid,
        /// Whether it ended by an instruction, such as a call of `exit`; otherwise it was ended
        /// from outside.
        executing: bool,
    },
}

/// The end of a recorded program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The program exited with this code.
    Exited(i32),
    /// The program was killed by this signal.
    Killed(i32),
    /// The program was still running when the recording ended.
    Running,
}
