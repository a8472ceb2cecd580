"""How long a commit tries, how much a snapshot carries inline, and which files a row change holds
in memory: values that are passed in, so that tests and simulators use small ones. [CM8] [CM12]
[CM19] [RC8]
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import msgspec

from ...core.commit.spill_policy import Budgets


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How long a commit tries. attempts: versions contended for; lost_alone: of them lost before it
    asks for help where nobody else does; unclear_tries: puts of the same bytes; *_s: seconds. [CM8]
    [CM19]

    The pauses double up to the longest: between versions they let others pass, after unclear
    answers they let the store recover.
    """

    attempts: int = 1000
    lost_alone: int = 2
    first_pause_s: float = 0.005
    longest_pause_s: float = 0.5
    unclear_tries: int = 10
    first_unclear_pause_s: float = 0.1
    longest_unclear_pause_s: float = 8.0


class Tuning(msgspec.Struct, frozen=True, kw_only=True):
    """What one process is tuned by. read_once_bytes: of the files of a row change, which are read
    once and held in memory if they are no larger together, and else once to count and once to
    rewrite. [RC8]"""

    limits: Limits = Limits()
    budgets: Budgets = Budgets()
    read_once_bytes: int = 16 << 20


_process = Tuning()


def tuning() -> Tuning:
    """This process' tuning."""
    return _process


def tune(changed: Tuning) -> Tuning:
    """Set this process' tuning, for all of its threads; return the one before."""
    global _process
    before, _process = _process, changed
    return before


@contextlib.contextmanager
def tuned(changed: Tuning) -> Iterator[None]:
    """With another tuning of this process, in all of its threads."""
    before = tune(changed)
    try:
        yield
    finally:
        tune(before)
