"""Asking a busy or silent store again: bounded in time and in requests, with jitter, in this one place. [ST14]

Only for requests that may be carried out twice. A create is not one of them: who sends it again has to compare afterwards
(engine.commit). The libraries below have their own retries turned off, so that these numbers are the whole truth.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

import msgspec

from ..errors import StoreError

T = TypeVar("T")


class TransientError(Exception):
    """The same request may succeed a moment later. sent: whether the store may have carried it out."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long a request is repeated. attempts: requests at most; the pauses double, up to the longest; *_s: seconds."""

    attempts: int
    deadline_s: float
    first_pause_s: float
    longest_pause_s: float = 8.0


USUAL = Patience(attempts=8, deadline_s=60.0, first_pause_s=0.1)
# A store that has not answered this process yet: a wrong endpoint is likelier than a bad moment.
FIRST_CONTACT = Patience(attempts=3, deadline_s=15.0, first_pause_s=0.2)


def persist(request: Callable[[], T], patience: Callable[[], Patience], again: Callable[[], None] = lambda: None) -> T:
    """What the request returns, as soon as the store answers it; StoreError once patience is over. [ST14]

    again: called before the request is sent once more.
    """
    began = time.monotonic()
    tried = 0
    while True:
        tried += 1
        try:
            return request()
        except TransientError as error:
            limit = patience()
            pause = min(limit.longest_pause_s, limit.first_pause_s * 2.0 ** (tried - 1)) * random.uniform(0.5, 1.0)
            if tried >= limit.attempts or time.monotonic() - began + pause > limit.deadline_s:
                raise StoreError(f"{error} (asked {tried} times)") from None
        time.sleep(pause)
        again()
