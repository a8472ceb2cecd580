"""Stores whose clocks are wrong: what they say of when an object was modified is another time, or none. [GC1]"""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from tests.kit.tables import rows

from manifestcommit.job import Job
from manifestcommit.log.table_context import TableContext
from manifestcommit.runtime.environment import Env
from manifestcommit.store import ObjectInfo, Store


class StoreClock:
    """A store whose clock is another one."""

    def __init__(self, inner: Store, tell: Callable[[float], float]) -> None:
        self._inner, self._tell = inner, tell

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def list(self, prefix: str, *, start_from: str = "") -> Iterator[ObjectInfo]:
        for info in self._inner.list(prefix, start_from=start_from):
            yield msgspec.structs.replace(info, modified=self._tell(info.modified))


CLOCKS: dict[str, Callable[[float], float]] = {
    "right": lambda modified: modified, "ahead": lambda modified: modified + 36_000, "behind": lambda modified: modified - 36_000,
    "silent": lambda modified: 0.0, "whole seconds": lambda modified: float(int(modified)), "backwards": lambda modified: 4e9 - modified,
    "mad": lambda modified: (modified * 1e6 % 97) * 1e8,
}  # fmt: skip


DAY_S = 86_400


class Clock:
    """The time of this process, which can be moved on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.on_us, now_us = 0, Env.now_us
        monkeypatch.setattr(Env, "now_us", lambda env: now_us(env) + self.on_us)

    def days(self, number: int) -> None:
        self.on_us += number * DAY_S * 1_000_000


MINUTE, HOUR, YEAR = 60 * 10**6, 3600 * 10**6, 365 * 24 * 3600 * 10**6


class At(Env):
    """A machine whose clock stands still."""

    def __init__(self, now_us: int) -> None:
        self.us = now_us

    def now_us(self) -> int:
        return self.us


class Elsewhere:
    """The store as a machine with another clock has it; told_s: the time that the store's answers tell."""

    def __init__(self, inner: Store, now_us: int, told_s: float | None = None) -> None:
        self._inner, self.env, self.now_s = inner, At(now_us), told_s

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def chain(store: Store, times: list[int], told_s: float | None = None) -> Store:
    """A table whose versions 2, 3, … were committed by clocks that showed these times; the first row of version n is n."""
    for number, each in enumerate(times, 1):
        write_there(Elsewhere(store, each, told_s), number)
    return store


def write_there(there: Any, number: int) -> None:
    job = Job(TableContext(there))
    job.write(rows([number]))
    assert job.commit().committed
