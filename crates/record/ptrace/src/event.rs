//! What a traced program does, as far as stacks are concerned.

use std::ops::Range;

use crate::control::{Registers, Tid};
use crate::instruction::Instruction;

/// What the program did.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A thread is there from now on.
    Started {
        /// Before its first instruction.
        at: Registers,
        /// The memory that was given to it as its stack, as far as the system was told.
        stack: Option<Range<u64>>,
    },
    /// Another thread runs from now on.
    Switched {
        /// The thread.
        to: Tid,
        /// Where it goes on.
        at: Registers,
    },
    /// An instruction was executed, all its iterations if it is repeated; or its first ones, if a signal came.
    Executed {
        /// The instruction.
        instruction: Instruction,
        /// Before it.
        before: Registers,
        /// After it.
        after: Registers,
    },
    /// The system set up a signal handler.
    Delivered {
        /// Before that.
        before: Registers,
        /// At the handler's first instruction.
        after: Registers,
    },
    /// The program was replaced by another. All other threads are gone.
    Replaced {
        /// Before the first instruction of the new program.
        after: Registers,
    },
    /// A thread is gone.
    Ended {
        /// The thread.
        thread: Tid,
        /// While it executed an instruction, as a call of `exit`; else it was ended from elsewhere.
        executing: bool,
    },
}

/// How a program that was recorded ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With this exit code.
    Exited(i32),
    /// By this signal.
    Killed(i32),
    /// It was still running when the recording ended.
    Running,
}
