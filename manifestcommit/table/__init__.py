"""Tables: reading, changing rows, undoing, looking after them.

Internal: import from `manifestcommit`.
"""

from ..engine.job.resolve import Resolution as Resolution
from .functions import abort as abort
from .functions import gc as gc
from .functions import plan_gc as plan_gc
from .functions import read_committed as read_committed
from .functions import resolve as resolve
from .table import Table as Table
