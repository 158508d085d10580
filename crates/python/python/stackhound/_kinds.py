"""What frames and stacks can be, and how well something is known."""

import enum


class FrameStartType(enum.Enum):
    """How a frame started."""

    Call = 0
    """By a call instruction, or, in a recording, by what counts as one (a system call)."""
    Interrupt = 1
    """By an interrupt, an exception or a signal."""
    Manual = 2
    """Set up while its stack was not the active one: callbacks from the kernel, signal handlers."""
    Damaged = 3
    """Stands for frames whose return addresses were changed while their stack was not active."""
    Unknown = 4
    """It is there, but its start was not seen."""


class FrameEndType(enum.Enum):
    """How a frame ended. The members are this project's own; nothing is known of those of reven2."""

    Return = 0
    """A return instruction, to the address the call had left."""
    ReturnElsewhere = 1
    """A return instruction took the frame's return address away, but led elsewhere."""
    InterruptReturn = 2
    """A return from an interrupt or a signal."""
    Unwound = 3
    """The stack pointer rose above the frame without a return: ``longjmp``, an exception, the end of a thread."""
    Replaced = 4
    """The stack became active again and the return address was another one."""
    Abandoned = 5
    """The stack's memory was given up or used for something else."""
    TraceEnd = 6
    """Still open at the end of the trace."""
    Gone = 7
    """In a recording: a later snapshot no longer shows it."""


class StackKind(enum.Enum):
    """What a stack is for."""

    User = 0
    """A thread's stack in user mode."""
    Kernel = 1
    """A thread's stack in the kernel."""
    Interrupt = 2
    """What a processor does in interrupt service routines."""
    Deferred = 3
    """What a processor does in deferred procedure calls."""
    Alternate = 4
    """A stack for signal handlers, or one a program switches to by itself."""
    Wow64 = 5
    """The stack of 64-bit code of a thread of a 32-bit program, beside its user stack, which is the 32-bit one."""


class Evidence(enum.Enum):
    """What a frame's existence rests on."""

    Exact = 0
    """Its call, its interrupt or its return was seen as an instruction."""
    Boundary = 1
    """Both its ends are events of the recording: a system call, an interrupt routine."""
    Snapshot = 2
    """It was seen in recorded call stacks."""
    Walked = 3
    """It was found by walking memory."""
    Stitched = 4
    """It was seen in a user part that was recorded later than the event, and joined to it."""


class Continuity(enum.Enum):
    """Whether a frame is known to be the same one all the time."""

    Observed = 0
    """Nothing between its ends went unseen."""
    Assumed = 1
    """It was seen more than once; between two of those times it may have returned and been called again."""
