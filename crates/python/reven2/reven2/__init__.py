"""The package ``stackhound`` under the name ``reven2``, for scripts that import it under this name."""

from stackhound import TraceFile, open

from . import stack, trace

__all__ = ["TraceFile", "open", "stack", "trace"]
