"""Stacks, frames, events below frames, and the quality of evidence."""

from ._kinds import Continuity, Evidence, FrameEndType, FrameStartType, StackKind
from ._native import (
    Binary,
    CallRange,
    Count,
    FrameEnd,
    FrameStart,
    Inferred,
    Location,
    Observed,
    Open,
    Stack,
    StackEnter,
    StackEventIterator,
    StackFrame,
    StackLeave,
    TailCall,
)

__all__ = [
    "Binary",
    "CallRange",
    "Continuity",
    "Count",
    "Evidence",
    "FrameEnd",
    "FrameEndType",
    "FrameStart",
    "FrameStartType",
    "Inferred",
    "Location",
    "Observed",
    "Open",
    "Stack",
    "StackEnter",
    "StackEventIterator",
    "StackFrame",
    "StackKind",
    "StackLeave",
    "TailCall",
]
