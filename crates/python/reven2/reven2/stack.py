"""The module ``stackhound.stack``."""

from stackhound.stack import *
from stackhound.stack import __all__ as __all__
