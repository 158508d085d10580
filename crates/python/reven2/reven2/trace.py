"""The module ``stackhound.trace``."""

from stackhound.trace import *
from stackhound.trace import __all__ as __all__
