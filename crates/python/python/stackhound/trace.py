"""Traces, contexts, transitions and ranges of contexts."""

from ._native import Context, ContextRange, Trace, Transition

__all__ = ["Context", "ContextRange", "Trace", "Transition"]
