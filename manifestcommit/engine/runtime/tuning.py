"""How long a commit tries, and how much a snapshot carries inline: values that are passed in, so
that tests and simulators use small ones. [CM8] [CM12] [CM19]

Not here: what the budgets decide (core.commit.spill_policy).
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
    """What one process' commits are tuned by."""

    limits: Limits = Limits()
    budgets: Budgets = Budgets()


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
