"""How long a request is repeated. [ST14]"""

import pytest
from tests.kit.stores import answered, scripted

from manifestcommit.errors import StoreError
from manifestcommit.store import object_store
from manifestcommit.store.object_store import Patience


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses, on a clock that only they move, with the longest jitter."""
    pauses: list[float] = []
    monkeypatch.setattr(object_store.time, "monotonic", lambda: sum(pauses))
    monkeypatch.setattr(object_store.time, "sleep", pauses.append)
    monkeypatch.setattr(object_store.random, "uniform", lambda low, high: high)
    return pauses


def test_no_try_is_started_after_the_deadline(slept: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """However many are left. [ST14]"""
    patience = Patience(attempts=10**6, deadline_s=20.0, first_pause_s=1.0, longest_pause_s=4.0)
    monkeypatch.setattr(object_store, "FIRST_CONTACT", patience)
    monkeypatch.setattr(object_store, "USUAL", patience)
    with pytest.raises(StoreError, match=r"HTTP 503\) \(asked 7 times\)$"):
        scripted().ask(answered(lambda: 503))
    assert slept == [1.0, 2.0, 4.0, 4.0, 4.0, 4.0], "19 s; one more would begin after the deadline"


def test_no_more_is_tried_than_allowed(slept: list[float]) -> None:
    """However much time is left. [ST14]"""
    store = scripted()
    store.ask(answered(lambda: 200))  # from now on it is known to answer
    with pytest.raises(StoreError, match="asked 8 times"):
        store.ask(answered(lambda: 503))
    assert len(slept) == 7 and sum(slept) < object_store.USUAL.deadline_s
