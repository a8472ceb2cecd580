"""How long a request is repeated. [ST14]"""

from __future__ import annotations

import pytest

from manifestcommit.errors import StoreError
from manifestcommit.store import backend
from manifestcommit.store.backend import Patience, TransientError, persist


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses, on a clock that only they move, with the longest jitter."""
    pauses: list[float] = []
    monkeypatch.setattr(backend.time, "monotonic", lambda: sum(pauses))
    monkeypatch.setattr(backend.time, "sleep", pauses.append)
    monkeypatch.setattr(backend.random, "uniform", lambda low, high: high)
    return pauses


def fail() -> None:
    raise TransientError("busy", sent=True)


def test_no_try_is_started_after_the_deadline(slept: list[float]) -> None:
    """However many are left. [ST14]"""
    patience = Patience(attempts=10**6, deadline_s=20.0, first_pause_s=1.0, longest_pause_s=4.0)
    with pytest.raises(StoreError, match=r"^busy \(asked 7 times\)$"):
        persist(fail, lambda: patience)
    assert slept == [1.0, 2.0, 4.0, 4.0, 4.0, 4.0], "19 s; one more would begin after the deadline"


def test_no_more_is_tried_than_allowed(slept: list[float]) -> None:
    """However much time is left. [ST14]"""
    with pytest.raises(StoreError, match="asked 8 times"):
        persist(fail, lambda: backend.USUAL)
    assert len(slept) == 7 and sum(slept) < backend.USUAL.deadline_s
