"""What the engine takes from the outside besides a store: time, randomness, waiting. One value, so that a simulator can be the outside.

Not here: any decision.
"""

from __future__ import annotations

import random
import secrets
import time
from typing import Protocol


class Env(Protocol):
    """The clock, the dice and the waiting room. No rule of the protocol depends on the clock being right."""

    def now_us(self) -> int:
        """Microseconds since the epoch."""
        ...

    def randomness(self, count: int) -> bytes:
        """Bytes that no one else draws."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...

    def jitter(self) -> float:
        """A number in [0, 1)."""
        ...


class SystemEnv:
    """The real outside."""

    def now_us(self) -> int:
        return time.time_ns() // 1000

    def randomness(self, count: int) -> bytes:
        return secrets.token_bytes(count)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def jitter(self) -> float:
        return random.random()
