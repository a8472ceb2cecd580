"""For tests of pipelines, ours and the users': a store that counts, one that fails where it is told to, a simulator of whole worlds, and a
checker of what real processes were told."""

from .checker import check as check_history
from .counting import CountingStore
from .faults import FaultStore
from .operation import Contradiction, Operation, read_history
from .pipelines import BrokenPipelineError, simulate
from .recorder import Recorder
from .simulated_store import SimulatedStore

__all__ = [
    "BrokenPipelineError",
    "Contradiction",
    "CountingStore",
    "FaultStore",
    "Operation",
    "Recorder",
    "SimulatedStore",
    "check_history",
    "read_history",
    "simulate",
]
