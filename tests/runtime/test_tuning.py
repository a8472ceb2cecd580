"""Limits and budgets reach commits by what they are passed in, and leave no trace behind. [CM12]"""

import pyarrow as pa
import pytest
from tests.kit.sizes import budgets, tuned

from manifestcommit.job import Job
from manifestcommit.log.table_context import TableContext
from manifestcommit.log.version_chain import open_head
from manifestcommit.protocol.apply import Budgets
from manifestcommit.runtime.environment import Tuning, tune, tuning
from manifestcommit.store.local import MemoryStore

ROWS = pa.table({"id": [1]})
NO_KEYS = Tuning(budgets=Budgets(inline_keys=0))


def spills_keys(store: MemoryStore, own: Tuning | None) -> bool:
    """Whether a commit spills its key, with the context's own tuning or the process'."""
    before = len(open_head(store).snapshot.key_runs) if list(store.list("")) else 0
    job = Job(TableContext(store, tuning=own), key=f"key {before} {own}")
    job.write(ROWS)
    assert job.commit().committed
    return len(open_head(store).snapshot.key_runs) > before


def test_a_context_is_tuned_by_what_it_was_given_and_else_by_the_process(store: MemoryStore) -> None:
    assert not spills_keys(store, None) and spills_keys(store, NO_KEYS)
    with tuned(NO_KEYS):
        assert not spills_keys(store, Tuning()) and spills_keys(store, None)
    assert not spills_keys(store, None)


def test_what_was_before_comes_back_whatever_happens() -> None:
    usual = tuning()
    with budgets(inline_jobs=1), budgets(fan_in=2):
        assert tuning().budgets == Budgets(inline_jobs=1, fan_in=2) and tuning().limits == usual.limits
    with pytest.raises(ZeroDivisionError), budgets(inline_jobs=1):
        raise ZeroDivisionError
    assert tuning() is usual and tune(NO_KEYS) is usual and tune(usual) is NO_KEYS
