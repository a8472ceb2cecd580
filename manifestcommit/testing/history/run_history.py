"""The operations of a simulated run, as its actors begin and end them. [IV2] [IV4]

Not here: the contents of an operation (testing.history.operation), operations of real processes,
which are written to files (testing.history.recorder).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .operation import Operation
from .recorder import Running


class History:
    """Operations in the order in which they began. Times are ticks: no two events share one.
    before: earlier operations."""

    def __init__(self, before: Iterable[Operation] = ()) -> None:
        self._operations = {operation.id: operation for operation in before}
        self._ticks = 2 * len(self._operations)

    @property
    def operations(self) -> tuple[Operation, ...]:
        return tuple(self._operations.values())

    def begin(self, process: str, name: str, **what: Any) -> Running:
        """Record that an operation begins now."""
        self._ticks += 1
        operation = Operation(
            id=f"{process}/{self._ticks}", process=process, name=name, begin=self._ticks, **what
        )
        self._keep(operation)
        return Running(operation, self._keep)

    def end(self, running: Running) -> None:
        """Record its result."""
        self._ticks += 1
        running.note(end=self._ticks)

    def _keep(self, operation: Operation) -> None:
        self._operations[operation.id] = operation
