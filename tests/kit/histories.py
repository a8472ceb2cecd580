"""Histories written by hand, for the checkers."""

from typing import Any

from manifestcommit.testing.history.checker import check
from manifestcommit.testing.history.operation import Contradiction, Operation


def op(name: str, begin: float, end: float | None, outcome: str = "committed", version: int | None = None, **more: Any) -> Operation:
    return Operation(
        id=more.pop("id", f"{name}-{begin!r}"), process=more.pop("process", "p"), name=name, begin=begin, end=end, outcome=outcome,  # type: ignore[arg-type]
        version=version, **more,
    )  # fmt: skip


def append(begin: float, end: float | None, version: int | None, *items: str, outcome: str = "committed", **more: Any) -> Operation:
    return op("append", begin, end, outcome, version, adds=dict.fromkeys(items, more.pop("partition", "day=1")), **more)


def read(begin: float, version: int, *items: str, **more: Any) -> Operation:
    return op("read", begin, begin + 0.5, "read", version, items=more.pop("items", items), **more)


def found(*history: Operation) -> Contradiction:
    wrong = check(history)
    assert wrong is not None
    return wrong
