"""For tests of pipelines, ours and the users': a store that counts, one that fails where it is told to, and a simulator of whole worlds."""

from .counting import CountingStore
from .faults import FaultStore
from .pipelines import BrokenPipelineError, simulate
from .simulated_store import SimulatedStore

__all__ = ["BrokenPipelineError", "CountingStore", "FaultStore", "SimulatedStore", "simulate"]
