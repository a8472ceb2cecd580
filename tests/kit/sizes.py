"""How much a test tries: less in the usual run, which is to stay short, and all of it in `make proof` (PROOF=1).

And other budgets of snapshots and commits than the usual ones: for a block, or for the rest of a test.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

import msgspec
import pytest

from manifestcommit.runtime.environment import Tuning, tune, tuning

T = TypeVar("T")

PROOF = os.environ.get("PROOF", "") not in ("", "0")


def rounds(usual: int, proof: int) -> int:
    """How many rounds, examples or seeds this run tries."""
    return proof if PROOF else usual


def in_turn(cases: Sequence[T], number: int, usual: int) -> Sequence[T]:
    """All cases in `make proof`; in the usual run that many of them for each number, so that neighbours have different ones."""
    if PROOF or len(cases) <= usual:
        return cases
    return [cases[(number * usual + index) % len(cases)] for index in range(usual)]


def rest_thorough(cases: Iterable[T], *quick: T) -> Sequence[object]:
    """All cases for `parametrize`, those that are not named marked as thorough: left to `make test-all`."""
    every = list(cases)
    assert quick and all(case in every for case in quick), f"not among the cases: {quick}"
    left_out = [case if isinstance(case, tuple) else (case,) for case in every]
    return [
        case if case in quick else pytest.param(*values, marks=pytest.mark.thorough) for case, values in zip(every, left_out, strict=True)
    ]


# A test that fails, or is killed, at a call of the store: at each fourth one in `make test`, at each one in `make test-rest`.
at_calls = pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.thorough)])


def some(cases: Iterable[T], usual: int) -> Sequence[T]:
    """All cases in `make proof`; in the usual run that many of them, spread evenly from the first to the last."""
    every = list(cases)
    if PROOF or len(every) <= usual:
        return every
    if usual == 1:
        return every[:1]
    return [every[index * (len(every) - 1) // (usual - 1)] for index in range(usual)]


class SetBudgets(Protocol):
    """The fixture `set_budgets`: these budgets are others for the rest of the test."""

    def __call__(self, **changes: int) -> None: ...


@contextlib.contextmanager
def tuned(changed: Tuning) -> Iterator[None]:
    """Within the block this process is tuned so, in all of its threads."""
    before = tune(changed)
    try:
        yield
    finally:
        tune(before)


@contextlib.contextmanager
def budgets(**changes: int) -> Iterator[None]:
    """Within the block these budgets are others."""
    usual = tuning()
    with tuned(msgspec.structs.replace(usual, budgets=msgspec.structs.replace(usual.budgets, **changes))):
        yield
