//! Input and output of the tracker.

use stackhound_types::Address;

use crate::change::Change;
use crate::id::{ContextId, Cpu, LocationId, StackId};
use crate::kind::{EndType, StackKind, StartType};

/// An address space, with a number that the producer assigns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Space(pub u64);

impl Space {
    /// The kernel's part of all address spaces, which all processes share.
    pub const KERNEL: Space = Space(u64::MAX);
}

/// The privilege level of the processor. In the trace of a single program, it is always `User`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Ring {
    /// User mode: ring 3.
    #[default]
    User,
    /// Kernel mode: ring 0.
    Kernel,
}

/// A thread, with the number that the system assigns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Thread(pub u32);

/// The registers of a processor at one context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// The address of the next instruction.
    pub pc: Address,
    /// The stack pointer.
    pub sp: Address,
    /// The privilege level.
    pub ring: Ring,
}

/// One transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The class of the executed instruction, or of the event.
    pub class: Class,
    /// The context before. For [`Class::Switch`], that of the previous thread.
    pub before: Point,
    /// The context after.
    pub after: Point,
    /// The address space of the stack pointer after the transition. [`Space::KERNEL`] only in kernel
    /// mode.
    pub space: Space,
}

/// The effect of a transition on stacks.
///
/// All iterations of a repeated instruction (`rep movs`) are one transition; the producer of the
/// steps joins them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A call. Its return address is at the stack pointer of the context after.
    Call {
        /// The address of the instruction after the call.
        return_address: Address,
    },
    /// A return that consumed the address at the stack pointer, including returns that also free
    /// arguments (`ret 16`).
    Return,
    /// A jump that leaves the function, as far as this is known. Jumps within a function are
    /// `Other`.
    Jump,
    /// An addition to the stack pointer, or its alignment: push, pop, `sub rsp, …`, `enter`, `and
    /// rsp, -16`. It never changes the stack, regardless of the distance.
    Static,
    /// A new value for the stack pointer: `mov rsp, …`, `pop rsp`, `xchg`, `leave`, `lea rsp,
    /// [rbp+…]`.
    Dynamic,
    /// A system call, or the return from a system call. If it changes the stack pointer and not the
    /// privilege level, it is treated as `Dynamic`.
    System,
    /// An interrupt, an exception or a fault that the processor delivers.
    Interrupt {
        /// The address of the stored return address. Not used for interrupts from user mode.
        slot: Address,
    },
    /// A signal that the system delivers to a handler. The handler's return address is at the new
    /// stack pointer.
    Signal {
        /// The stack pointer at the system call that returns from the signal. On x86-64 Linux, it
        /// is 8 above the new stack pointer.
        slot: Address,
    },
    /// The return from an interrupt (`iret`) or from a signal (the system call `sigreturn`).
    InterruptReturn,
    /// A switch to another thread.
    Switch {
        /// The new thread.
        to: Thread,
    },
    /// Any other instruction or event.
    Other,
}

/// One observation of the tracker. The items of one stack are in order, and each item is reported
/// with its transition. Only the start of a doubtful frame (see [the rules](super)) is reported up
/// to [`DOUBT_MAX`](super::DOUBT_MAX) transitions late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tracked {
    /// Defines a stack. Stacks have consecutive numbers, from 0.
    Stack {
        /// The number of the stack.
        stack: StackId,
        /// The kind of the stack. For undeclared stacks: `Kernel` in kernel mode, or if an interrupt
        /// switched to it. In user mode, `User` if a thread started or continued on it, `Alternate`
        /// if a program or a signal switched to it.
        kind: StackKind,
        /// The first thread that used it. `None` for declared stacks of interrupts, which belong to
        /// the processor.
        thread: Option<Thread>,
        /// The address space of the stack.
        space: Space,
        /// Its memory, if it was declared.
        region: Option<(Address, Address)>,
    },
    /// See [`Change::Enter`].
    Enter {
        /// The stack.
        stack: StackId,
        /// The first context at which it is active.
        first: ContextId,
    },
    /// See [`Change::Leave`].
    Leave {
        /// The last context at which the previous stack was active.
        last: ContextId,
    },
    /// See [`Change::Open`].
    Open {
        /// The stack.
        stack: StackId,
        /// Its first context.
        first: ContextId,
        /// How it started.
        start: StartType,
        /// The function, at its start. For the frame of a signal: the return address of the
        /// handler.
        function: Option<Address>,
    },
    /// See [`Change::Close`].
    Close {
        /// The stack.
        stack: StackId,
        /// Its last context.
        last: ContextId,
        /// How it ended.
        end: EndType,
    },
    /// See [`Change::TailCall`]. A jump, or a return that served as one, with the stack pointer at the
    /// frame's return address.
    Jump {
        /// The stack.
        stack: StackId,
        /// The first context in the other function.
        first: ContextId,
        /// The function that the frame started in, or that its last jump led to, if it is known.
        from: Option<Address>,
        /// The target of the jump.
        function: Address,
    },
    /// See [`Change::Below`].
    Below {
        /// The stack.
        stack: StackId,
        /// The target of the return.
        function: Address,
    },
}

impl Tracked {
    /// Converts it to a [`Change`]. `location` maps an address to the number of its location.
    /// Returns `None` for the definition of a stack.
    pub fn change(self, cpu: Cpu, location: impl FnOnce(Address) -> LocationId) -> Option<Change> {
        Some(match self {
            Tracked::Stack { .. } => return None,
            Tracked::Enter { stack, first } => Change::Enter { cpu, stack, first },
            Tracked::Leave { last } => Change::Leave { cpu, last },
            Tracked::Open { stack, first, start, function } => {
                Change::Open { stack, first, start, location: function.map(location) }
            }
            Tracked::Close { stack, last, end } => Change::Close { stack, last, end },
            Tracked::Jump { stack, first, function, .. } => {
                Change::TailCall { stack, first, location: location(function) }
            }
            Tracked::Below { stack, function } => Change::Below { stack, location: Some(location(function)) },
        })
    }
}

/// Counts of events without frames, and of refused objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// [`Class::Jump`]s out of a function whose stack was as empty as at its start. The frame of the
    /// function continues in the target.
    pub tail_calls: u64,
    /// Returns to an address that was pushed or written for them: retpolines, `push …; ret`.
    pub returns_as_jumps: u64,
    /// Calls that only read the instruction pointer, or filled the return predictor.
    pub calls_without_frame: u64,
    /// Frames that were not opened because of [`FRAMES_MAX`](super::FRAMES_MAX).
    pub frames_refused: u64,
    /// Stacks that were not defined because of [`STACKS_MAX`](super::STACKS_MAX), and threads that
    /// were not stored because of [`THREADS_MAX`](super::THREADS_MAX).
    pub stacks_refused: u64,
}
