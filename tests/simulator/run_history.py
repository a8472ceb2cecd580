"""The operations of a simulated run, as its actors begin and end them. [IV2] [IV4]"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from manifestcommit.testing.history.operation import Operation, Running


class History:
    """Operations in the order in which they began. Times are ticks: no two events share one. before: earlier operations; beside: the
    history of another table, by the same ticks."""

    def __init__(self, before: Iterable[Operation] = (), beside: History | None = None) -> None:
        self._operations = {operation.id: operation for operation in before}
        first = 2 * len(self._operations) + 1
        self._ticks: Iterator[int] = itertools.count(first) if beside is None else beside._ticks

    @property
    def operations(self) -> tuple[Operation, ...]:
        return tuple(self._operations.values())

    def begin(self, process: str, name: str, **what: Any) -> Running:
        """Record that an operation begins now."""
        tick = next(self._ticks)
        operation = Operation(id=f"{process}/{tick}", process=process, name=name, begin=tick, **what)
        self._keep(operation)
        return Running(operation, self._keep)

    def end(self, running: Running) -> None:
        """Record its result."""
        running.note(end=next(self._ticks))

    def _keep(self, operation: Operation) -> None:
        self._operations[operation.id] = operation
