"""Stores whose clocks are wrong: what they say of when an object was modified is another time, or none. [GC1]"""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

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
