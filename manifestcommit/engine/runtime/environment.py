"""The environment of the engine, besides a store: time, randomness, waiting. It is one value, so
that a simulator can replace it.

Not here: any decision.
"""

from __future__ import annotations

import random
import secrets
import time
from typing import Protocol


class Env(Protocol):
    """Clock, randomness and waiting. Correctness does not depend on clocks."""

    def now_us(self) -> int:
        """Microseconds since the epoch."""
        ...

    def randomness(self, count: int) -> bytes:
        """Bytes that nobody else draws."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...

    def jitter(self) -> float:
        """A number in [0, 1)."""
        ...


class SystemEnv:
    """The environment of a real process."""

    def now_us(self) -> int:
        return time.time_ns() // 1000

    def randomness(self, count: int) -> bytes:
        return secrets.token_bytes(count)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def jitter(self) -> float:
        return random.random()
