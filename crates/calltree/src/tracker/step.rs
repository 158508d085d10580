//! What the tracker is told and what it answers.

use stackhound_types::Address;

use crate::change::Change;
use crate::id::{ContextId, Cpu, LocationId, StackId};
use crate::kind::{EndType, StackKind, StartType};

/// An address space, as its producer numbers them. Stacks of the kernel half, which all processes share, have one of
/// their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Space(pub u64);

/// A thread, by the number the system gives it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Thread(pub u32);

/// Where a processor stands in one context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// The instruction that comes next.
    pub pc: Address,
    /// The stack pointer.
    pub sp: Address,
}

/// One transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// What was executed, or what happened.
    pub class: Class,
    /// The context before. For [`Class::Switch`] that of the thread that is left.
    pub before: Point,
    /// The context after.
    pub after: Point,
    /// The address space that the stack pointer lies in afterwards.
    pub space: Space,
}

/// What a transition is, as far as stacks are concerned.
///
/// All iterations of a repeated instruction (`rep movs`) are one transition; whoever makes steps joins them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A call. It has put its return address where the stack pointer points afterwards.
    Call {
        /// The address of the instruction behind the call.
        return_address: Address,
    },
    /// A return: it took the address at the stack pointer, also where it frees arguments besides (`ret 16`).
    Return,
    /// A jump that leaves the function, as far as can be told. Jumps within a function are `Other`.
    Jump,
    /// Changes the stack pointer by an amount or aligns it, relative to what it was: push, pop, `sub rsp, …`, `enter`,
    /// `and rsp, -16`. Never a change of stacks, however far it goes.
    Static,
    /// Gives the stack pointer a value from elsewhere: `mov rsp, …`, `pop rsp`, `xchg`, `leave`, `lea rsp, [rbp+…]`.
    Dynamic,
    /// A system call or the return from one. Where it brings another stack pointer, it is looked at as `Dynamic`.
    System,
    /// An interrupt, an exception or a fault that the processor delivers.
    Interrupt {
        /// Where it has put the address to return to.
        slot: Address,
    },
    /// A signal that the system delivers to a handler. The handler's return address is at the new stack pointer.
    Signal {
        /// What the stack pointer is when the system is asked to return from the signal. On x86-64 Linux that is 8
        /// above the new stack pointer.
        slot: Address,
    },
    /// The return from an interrupt (`iret`) or from a signal (the system call `sigreturn`).
    InterruptReturn,
    /// Another thread goes on.
    Switch {
        /// Which.
        to: Thread,
    },
    /// Anything else.
    Other,
}

/// What the tracker found. Of one stack the items come in order, and all come with the transition they belong to, except
/// the start of a frame that may be none (see [the rules](super)): that comes up to [`DOUBT_MAX`](super::DOUBT_MAX)
/// transitions late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tracked {
    /// A stack is defined. Numbers are given one after another, from 0.
    Stack {
        /// Its number.
        stack: StackId,
        /// What it is for. Not declared: `User` where a thread started or went on, `Alternate` where a program or a signal
        /// switched to it, `Kernel` where an interrupt did.
        kind: StackKind,
        /// The thread that used it first.
        thread: Thread,
        /// Where it lies.
        space: Space,
        /// Its memory, if it was declared.
        region: Option<(Address, Address)>,
    },
    /// As [`Change::Enter`].
    Enter {
        /// The stack.
        stack: StackId,
        /// The first context at which it is active.
        first: ContextId,
    },
    /// As [`Change::Leave`].
    Leave {
        /// The last context at which the stack entered last was active.
        last: ContextId,
    },
    /// As [`Change::Open`].
    Open {
        /// The stack.
        stack: StackId,
        /// Its first context.
        first: ContextId,
        /// How it started.
        start: StartType,
        /// The function, at its start. For the frame of a signal: where the handler will return to.
        function: Option<Address>,
    },
    /// As [`Change::Close`].
    Close {
        /// The stack.
        stack: StackId,
        /// Its last context.
        last: ContextId,
        /// How it ended.
        end: EndType,
    },
    /// As [`Change::Below`].
    Below {
        /// The stack.
        stack: StackId,
        /// Where the return led.
        function: Address,
    },
}

impl Tracked {
    /// The change it is, with the number that `location` gives the address. `None` for the definition of a stack.
    pub fn change(self, cpu: Cpu, location: impl FnOnce(Address) -> LocationId) -> Option<Change> {
        Some(match self {
            Tracked::Stack { .. } => return None,
            Tracked::Enter { stack, first } => Change::Enter { cpu, stack, first },
            Tracked::Leave { last } => Change::Leave { cpu, last },
            Tracked::Open { stack, first, start, function } => {
                Change::Open { stack, first, start, location: function.map(location) }
            }
            Tracked::Close { stack, last, end } => Change::Close { stack, last, end },
            Tracked::Below { stack, function } => Change::Below { stack, location: Some(location(function)) },
        })
    }
}

/// What was seen besides frames, and what was refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Jumps out of a function whose stack was as empty as at its start. Their target has the frame of the function.
    pub tail_calls: u64,
    /// Returns to an address that was pushed or written for them: retpolines, `push …; ret`.
    pub returns_as_jumps: u64,
    /// Calls that only asked for their own address, or filled the return predictor.
    pub calls_without_frame: u64,
    /// Frames that were not opened because of [`FRAMES_MAX`](super::FRAMES_MAX).
    pub frames_refused: u64,
    /// Stacks that were not defined because of [`STACKS_MAX`](super::STACKS_MAX), or threads not remembered because of
    /// [`THREADS_MAX`](super::THREADS_MAX).
    pub stacks_refused: u64,
}
