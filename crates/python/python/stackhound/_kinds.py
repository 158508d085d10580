"""Kinds of frames and stacks, and the quality of evidence."""

import enum


class FrameStartType(enum.Enum):
    """How a frame started."""

    Call = 0
    """By a call instruction or, in an ETW trace, by a system call."""
    Interrupt = 1
    """By an interrupt, an exception or a signal."""
    Manual = 2
    """Set up while its stack was not the active one: callbacks from the kernel, signal handlers."""
    Damaged = 3
    """Represents frames whose return addresses were changed while their stack was not active."""
    Unknown = 4
    """It exists, but its start was not observed."""


class FrameEndType(enum.Enum):
    """How a frame ended. The members are this project's own; nothing is known of those of reven2."""

    Return = 0
    """A return instruction, to the address the call had left."""
    ReturnElsewhere = 1
    """A return instruction consumed the frame's return address, but returned elsewhere."""
    InterruptReturn = 2
    """A return from an interrupt or a signal."""
    Unwound = 3
    """The stack pointer rose above the frame without a return: ``longjmp``, an exception, the end of a thread."""
    Replaced = 4
    """The stack became active again with a different return address."""
    Abandoned = 5
    """The stack's memory was released or reused."""
    TraceEnd = 6
    """Still open at the end of the trace."""
    Gone = 7
    """In an ETW trace: a later stack no longer contains it."""


class StackKind(enum.Enum):
    """The kind of a stack."""

    User = 0
    """A thread's stack in user mode."""
    Kernel = 1
    """A thread's stack in the kernel."""
    Interrupt = 2
    """The stack of a processor's interrupt service routines."""
    Deferred = 3
    """The stack of a processor's deferred procedure calls."""
    Alternate = 4
    """A stack for signal handlers, or one a program switches to by itself."""
    Wow64 = 5
    """The stack of 64-bit code of a thread of a 32-bit program, whose user stack is the 32-bit one."""


class Evidence(enum.Enum):
    """The evidence for a frame's existence."""

    Exact = 0
    """Its call, its interrupt or its return was observed as an instruction."""
    Boundary = 1
    """Both its start and end are events: a system call, an interrupt routine."""
    Snapshot = 2
    """It was observed in recorded call stacks."""
    Walked = 3
    """It was found by walking memory."""
    Stitched = 4
    """It was observed in a user part that was recorded after the event and joined to it."""


class Continuity(enum.Enum):
    """Whether a frame is known to be the same frame throughout its range."""

    Observed = 0
    """Everything between its start and its end was observed."""
    Assumed = 1
    """It was seen more than once; between two of those times it may have returned and been called again."""
