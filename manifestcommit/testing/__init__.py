"""Tools for testing pipelines, ours and the users': a store that counts requests, a store that
injects faults, a deterministic simulator, and a checker of the histories of real processes."""

from .faults import CountingStore, Died, FaultStore
from .history.checker import check as check_history
from .history.checker import check_joint as check_joint_history
from .history.operation import Contradiction, Operation, Recorder, read_history
from .history.serial_order import UndecidedError
from .pipelines import PipelineViolationError, simulate
from .simulated_store import SimulatedStore
from .source_kit import check_source

__all__ = ["Contradiction", "CountingStore", "Died", "FaultStore", "Operation"]
__all__ += ["PipelineViolationError", "Recorder", "SimulatedStore", "UndecidedError"]
__all__ += ["check_history", "check_joint_history", "check_source", "read_history", "simulate"]
