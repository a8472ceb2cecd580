"""Retries requests to a busy or silent store: bounded in time and number, with jitter. [ST14]

Only requests that may be carried out twice. A create is put again by its callers, which recognise
their own object: `create` of runtime.environment, and commits.create_version. Which answers are
retried: each backend's `translate`. The retries of the libraries below are turned off, so these
numbers are complete.
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
    """The same request may succeed later. sent: the store may have carried it out."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long a request is repeated. attempts: requests at most; the pauses double, up to the
    longest; *_s: seconds."""

    attempts: int
    deadline_s: float
    first_pause_s: float
    longest_pause_s: float = 8.0


USUAL = Patience(attempts=8, deadline_s=60.0, first_pause_s=0.1)
# For a store that has not answered this process yet: a wrong endpoint is likelier than an outage.
FIRST_CONTACT = Patience(attempts=3, deadline_s=15.0, first_pause_s=0.2)


def persist(
    request: Callable[[], T],
    patience: Callable[[], Patience],
    again: Callable[[], None] = lambda: None,
) -> T:
    """The result of the request, as soon as the store answers; StoreError once the time is over.
    [ST14]

    again: called before every repeat.
    """
    began = time.monotonic()
    tried = 0
    while True:
        tried += 1
        try:
            return request()
        except TransientError as error:
            limit = patience()
            pause = min(
                limit.longest_pause_s, limit.first_pause_s * 2.0 ** (tried - 1)
            ) * random.uniform(0.5, 1.0)
            if tried >= limit.attempts or time.monotonic() - began + pause > limit.deadline_s:
                raise StoreError(f"{error} (asked {tried} times)") from None
        time.sleep(pause)
        again()
