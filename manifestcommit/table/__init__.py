"""Tables: reading, changing rows, undoing, looking after them.

Internal: import from `manifestcommit`.
"""

from ..commits.two_phase import Resolution as Resolution
from .functions import gc as gc
from .functions import read_committed as read_committed
from .table import Table as Table
