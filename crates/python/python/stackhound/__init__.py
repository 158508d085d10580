"""Contexts, stacks, frames and call trees of execution traces and ETW traces.

>>> import stackhound
>>> frame = stackhound.open("stacks.idx").trace.context_before(200000).stack.frame()

The names are those of the reven2 stack API: with ``import stackhound as reven2``, scripts that look at stacks run. See
``stackhound.trace`` for traces, contexts and transitions, ``stackhound.stack`` for stacks and frames.
"""

from . import stack, trace
from ._native import Table, Tables, TraceFile, __version__, open, read

__all__ = ["Table", "Tables", "TraceFile", "__version__", "open", "read", "stack", "trace"]
