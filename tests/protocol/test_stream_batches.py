"""Batches of streaming queries: at most once, in order, under one name. [KY6]"""

import contextlib

import pytest
from tests.kit.tables import NAME, check_table, clone, commit_batch, memory, read_ids

import manifestcommit as mc
from manifestcommit.errors import KeyReusedError, WatermarkGapError
from manifestcommit.format.change import StreamBatch
from manifestcommit.format.snapshot import StreamRecord
from manifestcommit.log.version_chain import open_head
from manifestcommit.protocol.change_feed import judge
from manifestcommit.runtime.outcome import error_of
from manifestcommit.store.local import MemoryStore
from manifestcommit.testing.faults import Died, FaultStore


@pytest.mark.parametrize(
    ("last", "query", "batch", "expected"),
    [(None, "q", 0, "next"), (None, "q", 7, "next"), (3, "q", 4, "next"), (3, "q", 3, "done"), (3, "q", 2, "behind"),
     (3, "q", 0, "behind"), (3, "q", 5, "gap"), (3, "other", 0, "reused"), (3, "other", 4, "reused")],
)  # fmt: skip
def test_which_batch_a_table_waits_for(last: int | None, query: str, batch: int, expected: str) -> None:
    """[KY6]"""
    record = None if last is None else StreamRecord(query="q", batch=last, version=9)
    assert judge(record, StreamBatch(name="n", query=query, batch=batch)) == expected


def test_a_batch_is_committed_once_however_often_it_is_replayed(store: MemoryStore) -> None:
    """[KY6]"""
    versions = [commit_batch(store, number).version for number in range(3)]
    for _ in range(2):
        again = commit_batch(store, 2, id=100)
        assert (again.kind, again.version) == ("already_committed", versions[2])
    assert read_ids(store) == [0, 1, 2]
    assert open_head(store).snapshot.streams == {NAME: StreamRecord(query="q1", batch=2, version=versions[2] or 0)}
    check_table(store)


def test_a_checkpoint_that_is_older_than_the_table_is_an_error(store: MemoryStore) -> None:
    """Restored from a backup, it reads other rows under numbers that were committed: taken for done, they would be lost. [KY6]"""
    for number in range(4):
        commit_batch(store, number)
    for number in (2, 0):
        error = error_of(commit_batch(store, number, id=100), store.url)
        assert isinstance(error, KeyReusedError) and "older than the table" in str(error) and "up to 3" in str(error)
    assert read_ids(store) == [0, 1, 2, 3]


def test_batches_between_that_are_in_no_version_are_a_gap(store: MemoryStore) -> None:
    """As after a rollback: what Spark took for committed is not here. [KY6]"""
    commit_batch(store, 4)
    outcome = commit_batch(store, 6)
    assert outcome.conflict is not None and outcome.conflict.rule == "stream_skips_batches"
    error = error_of(outcome, store.url)
    assert isinstance(error, WatermarkGapError) and (error.source, error.have, error.want) == (NAME, 5, 6)
    assert read_ids(store) == [4]


def test_the_name_of_a_query_that_was_rolled_back_does_not_hide_what_another_query_has_committed(store: MemoryStore) -> None:
    """Started again with that name for its key, it repeats its last batch, whose rows are in the table. [KY6] [CF13]"""
    commit_batch(store, 0, query="q1", name="A", id=10)
    mc.Table(store.url).rollback(1, reason="the input was wrong")
    version = commit_batch(store, 0, query="q2", name="B", id=20).version
    again = commit_batch(store, 0, query="q2", name="A", id=21)
    assert (again.kind, again.version) == ("already_committed", version)
    assert commit_batch(store, 1, query="q2", name="A", id=22).kind == "committed"
    assert read_ids(store) == [20, 22]


def test_a_query_whose_name_another_has_taken_is_still_without_its_batches(store: MemoryStore) -> None:
    """A rollback has taken them, and another query has begun under that name. Under a name of its own it begins with its first. [KY6]"""
    for number in range(2):
        commit_batch(store, number, query="q1", name="A")
    mc.Table(store.url).rollback(1, reason="the input was wrong")
    assert commit_batch(store, 0, query="q2", name="A", id=20).committed
    refused = commit_batch(store, 2, query="q1", name="B")
    assert refused.conflict is not None and refused.conflict.rule == "stream_skips_batches"
    for number in range(3):
        assert commit_batch(store, number, query="q1", name="B").committed
        assert commit_batch(store, number + 1, query="q2", name="A", id=21 + number).committed
    assert read_ids(store) == [0, 1, 2, 20, 21, 22, 23]


def test_another_query_under_the_same_key_is_refused(store: MemoryStore) -> None:
    """A deleted checkpoint makes a new query, which begins at batch 0 and would double, or lose, everything. [KY6]"""
    for number in range(3):
        commit_batch(store, number)
    for number in (0, 3):
        error = error_of(commit_batch(store, number, query="q2"), store.url)
        assert isinstance(error, KeyReusedError)
        assert all(word in str(error) for word in ("q1", "q2", "up to 2", NAME))
    assert commit_batch(store, 0, query="q2", name="another key", id=50).kind == "committed"
    assert read_ids(store) == [0, 1, 2, 50]


def test_a_query_that_goes_on_under_another_name_is_the_same_query(store: MemoryStore) -> None:
    """Its checkpoint is what it was: a batch that is replayed after a key was added, changed or taken away is there already. [KY6]"""
    for number, names in enumerate((("q1", "copy"), ("copy", "other"), ("other", "q1"), ("copy", "q1"))):
        first, second = names
        assert commit_batch(store, number, name=first).kind == "committed"
        assert commit_batch(store, number, name=second).kind == "already_committed"
        assert commit_batch(store, number + 2, name=second).kind == "conflict"
    assert read_ids(store) == [0, 1, 2, 3]


@pytest.mark.thorough
def test_a_crash_at_any_call_of_a_batch_and_its_replay_leave_it_there_once() -> None:
    """[KY6] [IV3]"""
    base = memory()
    commit_batch(base, 0)
    calls = FaultStore(clone(base))
    commit_batch(calls, 1)
    for number in range(1, calls.count + 1):
        for fault in ("dies_before", "dies_after"):
            store = clone(base)
            with contextlib.suppress(Died):
                commit_batch(FaultStore(store, {number: fault}), 1)  # type: ignore[dict-item]
            assert commit_batch(store, 1).committed
            assert commit_batch(store, 2).kind == "committed"
            assert read_ids(store) == [0, 1, 2], (number, fault)
            check_table(store)
