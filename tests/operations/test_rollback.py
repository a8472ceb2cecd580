"""Going back to an earlier version: rows, columns, positions and keys together, once, and nothing lost or doubled after it. [CF13]"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.kit.sizes import SetBudgets
from tests.kit.tables import (
    begin,
    check_table,
    clone,
    commit_batch,
    key_version,
    memory,
    positions,
    put_version,
    read_ids,
    rewind,
    rollback,
    rows,
    session,
    write,
)

import manifestcommit as mc
from manifestcommit.format.snapshot import KeyRecord, StreamRecord, Tag
from manifestcommit.log.version_chain import open_head, read_object
from manifestcommit.operations import alter
from manifestcommit.operations.describe import trace
from manifestcommit.operations.verify import verify
from manifestcommit.runtime.outcome import Outcome, error_of
from manifestcommit.store import Store
from manifestcommit.store.local import MemoryStore
from manifestcommit.testing.faults import CountingStore, FaultCall, FaultStore

SOURCE = "a topic/0 %=+#'é🦆"
DAY = "a b%20+=#'\"漢/…"


def batch(store: Store, start: int, end: int, *, source: str = SOURCE, key: str | None = None, **options: Any) -> int:
    """Rows start to end-1 of a source, as one keyed commit; its version."""
    data = rows(range(start, end), day=DAY if start % 20 else None)
    outcome = write(store, data, key=key or f"{start}-{end}", partition_by=["day"], watermarks={source: (start, end)}, **options)
    assert outcome.version is not None
    return outcome.version


def back(store: Store, version: int | None, **options: Any) -> Outcome:
    options.setdefault("reason", "a bad parser %é")
    return rollback(session(store), version, **options)


@pytest.fixture
def store() -> MemoryStore:
    """Three batches of ten rows, 0 to 30, at versions 2 to 4."""
    made = memory()
    assert [batch(made, start, start + 10) for start in (0, 10, 20)] == [2, 3, 4]
    return made


@pytest.fixture
def tight(set_budgets: SetBudgets) -> None:
    """Budgets so small that everything is spilled and merged after a few commits."""
    set_budgets(inline_entry_bytes=1000, inline_keys=2, inline_jobs=3, inline_removed_bytes=0, fan_in=2)


# --- what goes back, and what stays ---------------------------------------------------------------------------------------
def test_rows_columns_positions_and_keys_go_back_together(store: MemoryStore) -> None:
    """[CF13] [WM4] [OB10]"""
    target, before = (read_object(store, version) for version in (3, 4))
    assert target is not None and before is not None
    outcome = back(store, 3)
    made = open_head(store).snapshot
    assert (outcome.kind, outcome.version, outcome.dropped_keys) == ("committed", 5, ("20-30",))
    assert made.keys == {**target.snapshot.keys, "20-30": KeyRecord(version=5, digest="")} and made.set_back == {SOURCE: 5}
    for name in ("schema", "partition_by", "added", "manifests", "removed", "watermarks", "origins", "totals"):
        assert getattr(made, name) == getattr(target.snapshot, name), name
    (record,) = made.commits
    assert (record.operation, record.reason, record.restored) == ("rollback", "a bad parser %é", 3)
    lost = before.snapshot.totals
    assert (record.summary.removed_files, record.summary.removed_rows, record.summary.files) == (1, 10, 0)
    assert record.summary.removed_bytes == lost.bytes - made.totals.bytes
    assert read_ids(store) == list(range(20)) and positions(store) == {SOURCE: 20}
    check_table(store)


def test_what_belongs_to_the_chain_stays(store: MemoryStore) -> None:
    """Fence, expired, jobs, tags, properties and what gc has condemned. [CF13]"""
    stays: dict[str, Any] = {
        "fence": 4, "expired": 2, "tags": {"t é%": Tag(version=3)}, "properties": {"a": "b"}, "condemned": {"foreign %é.parquet": None}
    }  # fmt: skip
    before = put_version(store, open_head(store), **stays).snapshot
    outcome = back(store, 2)
    made = open_head(store).snapshot
    assert {name: getattr(made, name) for name in stays} == stays
    assert made.recent_jobs == {**before.recent_jobs, outcome.job_id: made.version}
    assert (made.table_id, made.proven, made.job_runs) == (before.table_id, before.proven, before.job_runs)


def test_what_was_rolled_back_is_done_again_by_the_same_reruns_and_the_rest_is_not(store: MemoryStore) -> None:
    """Nothing lost, nothing doubled. [CF13] [KY3] [WM2]"""
    back(store, 2)
    assert write(store, rows([0], day=DAY), key="0-10", watermarks={SOURCE: (0, 10)}).already_committed
    with pytest.raises(mc.errors.WatermarkGapError):
        batch(store, 20, 30)
    with pytest.raises(mc.errors.WatermarkOverlapError):
        batch(store, 0, 10, key="other")
    again = [batch(store, start, start + 10) for start in (10, 20)]
    assert [key_version(store, key) for key in ("0-10", "10-20", "20-30")] == [2, *again]
    assert read_ids(store) == list(range(30)) and positions(store) == {SOURCE: 30}
    check_table(store)


@pytest.mark.parametrize("budget", [1, 100])
def test_a_rollback_can_be_rolled_back(store: MemoryStore, set_budgets: SetBudgets, budget: int) -> None:
    """Its keys come back with its rows: a rerun would double them. [CF13] [KY3]"""
    set_budgets(inline_keys=budget)
    store_keys = ["0-10", "10-20", "20-30"]
    write(store, rows([100], day=DAY), key="without a source")
    assert back(store, 2).dropped_keys == ("10-20", "20-30", "without a source")
    assert [key_version(store, key) for key in store_keys] == [2, None, None]
    assert back(store, 5).dropped_keys == ()
    assert [key_version(store, key) for key in store_keys] == [2, 3, 4]
    assert write(store, rows([100], day=DAY), key="without a source").already_committed
    assert read_ids(store) == [*range(30), 100] and positions(store) == {SOURCE: 30}
    assert back(store, 6).dropped_keys == ("10-20", "20-30", "without a source"), "their records are older than that version"
    assert read_ids(store) == list(range(10))
    check_table(store)


@pytest.mark.usefixtures("tight")
@pytest.mark.parametrize("budget", [1 << 20, 0])
def test_files_that_the_target_had_removed_stay_removed(store: MemoryStore, set_budgets: SetBudgets, budget: int) -> None:
    """As a mark in the snapshot, or in a run of such marks; those that were removed later are there again. [OB2] [CM24]"""
    set_budgets(inline_removed_bytes=budget, inline_entry_bytes=1)
    write(store, pa.concat_tables(rows([number], day=f"{number}") for number in range(6)))
    for number in (0, 1):
        write(store, rows([10 + number], day=f"{number}"), overwrite={"day": f"{number}"})
    target, ids = open_head(store), read_ids(store)
    assert target.snapshot.removed_runs if budget == 0 else target.snapshot.removed
    for number in (2, 3):
        write(store, rows([10 + number], day=f"{number}"), overwrite={"day": f"{number}"})
    back(store, target.version)
    assert read_ids(store) == ids
    check_table(store)


@pytest.mark.usefixtures("tight")
def test_a_key_that_a_rewind_dropped_is_there_again_before_it_and_gone_after_it(store: MemoryStore) -> None:
    """[CF13] [WM5] [OB11]"""
    rewind(session(store), SOURCE, 10, reason="x")
    assert back(store, 4).dropped_keys == ()
    assert [key_version(store, key) for key in ("0-10", "10-20", "20-30")] == [2, 3, 4]
    assert back(store, 5).dropped_keys == ("10-20", "20-30")
    assert [key_version(store, key) for key in ("0-10", "10-20", "20-30")] == [2, None, None]
    assert positions(store) == {SOURCE: 10} and read_ids(store) == list(range(30))
    check_table(store)


# --- columns and partitions -----------------------------------------------------------------------------------------------
def test_columns_go_back_and_can_come_again(store: MemoryStore) -> None:
    """[CF13] [SC6]"""
    own = session(store)
    write(store, pa.table({"id": [100], "day": [DAY], "more é": ["x"]}), merge_schema=True)
    assert alter.edit_schema(own, lambda schema, _: mc.format.evolution.rename_column(schema, "id", "number")).committed
    outcome = back(store, 4)
    assert [field.name for field in open_head(store).snapshot.schema.fields] == ["id", "day"]
    assert outcome.committed and read_ids(store) == list(range(30))
    write(store, pa.table({"id": [101], "day": [DAY], "more é": [7]}), merge_schema=True)  # of another type now
    assert read_ids(store) == [*range(30), 101]
    back(store, 6)
    assert [field.name for field in open_head(store).snapshot.schema.fields] == ["number", "day", "more é"]
    check_table(store)


def test_back_to_a_table_without_rows_it_is_partitioned_as_it_was() -> None:
    """The first write's schema and partitioning are those of version 1. [CF13] [CM13]"""
    store = memory()
    batch(store, 0, 10)
    first = read_object(store, 1)
    assert first is not None
    back(store, 1)
    made = open_head(store).snapshot
    assert (made.schema, made.partition_by) == (first.snapshot.schema, first.snapshot.partition_by) and read_ids(store) == []
    batch(store, 0, 10)
    assert read_ids(store) == list(range(10))


ID, N = pa.field("id", pa.int64()), pa.field("n", pa.int32(), nullable=False)


# --- who goes on ----------------------------------------------------------------------------------------------------------
def test_files_and_columns_for_a_table_that_has_none_again_are_refused() -> None:
    """[CF8] [CF13]"""
    store = memory()
    with begin(store) as job:
        job.advance("s", 0, 1)
    assert read_object(store, 2) is not None and not open_head(store).snapshot.schema.fields
    write(store, rows([1]))
    late, job = session(store), begin(store)
    late.open()
    job.write(rows([2]))
    back(store, 2)
    with pytest.raises(mc.errors.CommitConflictError, match="no columns any more"):
        job.commit()
    late.open = lambda: late.known  # type: ignore[method-assign,assignment,return-value]  # it decided before
    with pytest.raises(mc.errors.UsageError):
        alter.edit_schema(session(store), lambda schema, _: ())
    write(store, rows([3]))
    assert read_ids(store) == [3]


def test_a_source_that_the_target_does_not_know_may_not_go_on_behind_what_was_taken(store: MemoryStore) -> None:
    """As a new source it might begin anywhere, and what is no longer there would be lost. [CF13] [WM2]"""
    for start, end in ((70, 80), (80, 90)):
        batch(store, start, end, source="late é")
    write(store, rows([500], day=DAY), watermarks={"texts": ("a", "b"), "from nothing": (None, "x")})
    back(store, 4)
    assert positions(store) == {SOURCE: 30, "late é": 70, "texts": "a"}
    assert open_head(store).snapshot.origins == {SOURCE: 0, "late é": 70, "texts": "a", "from nothing": None}
    with pytest.raises(mc.errors.WatermarkGapError):
        batch(store, 90, 100, source="late é")
    batch(store, 70, 80, source="late é")
    assert trace(session(store), "late é", 75) is not None and trace(session(store), "late é", 65) is None
    rewind(session(store), "texts", None, reason="it was another's")
    assert read_ids(store) == [*range(30), *range(70, 80)]
    back(store, 7)
    assert positions(store) == {SOURCE: 30, "late é": 90, "texts": "b", "from nothing": "x"}
    assert verify(session(store)).is_sound


def test_a_query_of_which_nothing_is_left_begins_with_its_first_batch_or_not_at_all() -> None:
    """Without a record it could begin anywhere, and all that was taken would be lost. [KY6] [CF13]"""
    store = memory()
    write(store, rows([100]))
    target = open_head(store).version
    for number in range(3):
        commit_batch(store, number, query="q1", name="name é")
    made = back(store, target)
    assert open_head(store).snapshot.streams == {"name é": StreamRecord(query="q1", batch=-1, version=made.version or 0)}
    for name in ("name é", "another name", "q1"):
        error = error_of(commit_batch(store, 3, query="q1", name=name), store.url)
        assert (
            isinstance(error, mc.errors.WatermarkGapError)
            and error.have == 0
            and "since a rollback" in str(commit_batch(store, 3).conflict)
        )
    error = error_of(commit_batch(store, 3, query="q2", name="name é"), store.url)
    assert isinstance(error, mc.errors.KeyReusedError) and "no batches, since a rollback" in str(error)
    assert read_ids(store) == [100]
    copy = clone(store)
    assert commit_batch(store, 0, query="q1", name="name é").kind == "committed"
    assert commit_batch(copy, 0, query="q2", name="name é").kind == "committed", "nothing of the first is there to be doubled"
    middle = open_head(copy).version
    commit_batch(copy, 1, query="q2", name="name é")
    assert error_of(commit_batch(copy, 0, query="q1", name="name é"), copy.url) is not None
    back(copy, middle)
    assert commit_batch(copy, 1, query="q2", name="name é").kind == "committed"
    back(copy, made.version)
    streams = open_head(copy).snapshot.streams
    assert {each.query: each.batch for each in streams.values()} == {"q1": -1, "q2": -1} and len(streams) == 2
    for query, name in (("q1", "name é"), ("q2", "name é"), ("q2", "other")):
        assert not commit_batch(copy, 2, query=query, name=name).committed


def test_a_job_that_was_rolled_back_has_committed_and_never_does_again(path: str) -> None:
    """[CM1] [AB3] [CF13]"""
    mc.write(rows([1]), path)
    job = mc.begin(path, key="k")
    job.write(rows([2]))
    prepared = job.prepare()
    version = mc.commit(path, prepared).version
    table = mc.Table(path)
    table.rollback(2, reason="x")
    assert (table.resolve(prepared), table.resolve(prepared).version) == ("committed", version)
    assert mc.commit(path, prepared).version == version, "it returns what it did, and does nothing"
    assert mc.Table(path).abort(prepared) == "committed"
    assert table.dataset().to_table().column("id").to_pylist() == [1]
    assert mc.write(rows([2]), path, key="k").version == 5
    assert sorted(table.dataset().to_table().column("id").to_pylist()) == [1, 2]


# --- history, lineage, changes, streams -----------------------------------------------------------------------------------
def test_where_the_restored_version_is_expired_the_history_ends(store: MemoryStore) -> None:
    """Objects below `expired` that are still there are not read. [RD3] [RD9]"""
    for number in range(5):  # files that do not say what they hold
        with begin(store) as job:
            job.advance("silent", number, number + 1)
            job.write(rows([1000 + number], day=DAY))
            job.write(rows([2000 + number], day=DAY), sources={"elsewhere": (0, 1)})
    back(store, 7)
    copy = clone(store)
    put_version(store, open_head(store), fence=9, expired=9)
    with pytest.raises(mc.errors.SnapshotExpiredError):
        trace(session(store), "silent", 1)
    put_version(copy, open_head(copy), fence=9, expired=9, tags={"t": Tag(version=7)})
    for position in (1, 2):  # version 6 would tell the move from 2 to 3
        with pytest.raises(mc.errors.SnapshotExpiredError):
            trace(session(copy), "silent", position)


def test_changes_and_history_tell_what_a_rollback_did(tmp_path: Path) -> None:
    """[RD8] [OB10]"""
    table = mc.Table(tmp_path / "t")
    for number in range(3):
        mc.write(rows([number]), table.url)
    paths = {version: set(table.files(version=version)["path"].to_pylist()) for version in (2, 4)}
    table.rollback(2, reason="why é")
    changes = table.changed_files(4)
    assert set(changes["removed"]["path"].to_pylist()) == paths[4] - paths[2] and changes["added"].num_rows == 0
    assert table.changed_files(2)["removed"].num_rows == 0
    newest = table.history(1)[0]
    assert (newest["operation"], newest["reason"], newest["restored"]) == ("rollback", "why é", 2)
    assert [row["restored"] for row in table.history()] == [2, None, None, None, None]
    assert table.verify().is_sound


# --- what is refused ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("version", [4, 0, -1, 99, True, "3", None, 2.0])
def test_a_version_that_is_none_to_go_back_to_is_refused(store: MemoryStore, version: Any) -> None:
    """[CF13] [RD4]"""
    before = open_head(store).digest
    with pytest.raises((mc.errors.UsageError, mc.errors.VersionNotFoundError)):
        back(store, version)
    assert open_head(store).digest == before


def test_an_expired_version_is_no_target_unless_a_tag_keeps_it(store: MemoryStore) -> None:
    """[RD3] [CF13]"""
    put_version(store, open_head(store), fence=4, expired=4, tags={"kept é%": Tag(version=2)})
    with pytest.raises(mc.errors.SnapshotExpiredError):
        back(store, 3)
    with pytest.raises(mc.errors.VersionNotFoundError, match="kept é%"):
        back(store, None, tag="other")
    with pytest.raises(mc.errors.UsageError, match="one of"):
        back(store, 2, tag="kept é%")
    assert back(store, None, tag="kept é%").version == 6
    assert read_ids(store) == list(range(10))


def test_a_rollback_conflicts_with_whatever_was_committed_meanwhile(store: MemoryStore) -> None:
    """Between any two of its requests: an append, or a gc that expires the target. [CF13] [CF1]"""

    def append(inner: Store) -> None:
        write(inner, rows([100], day=DAY), key="meanwhile")

    def expire(inner: Store) -> None:
        put_version(inner, open_head(inner), fence=4, expired=4)

    healthy = FaultStore(clone(store))
    back(healthy, 2)
    create = next(call.number for call in healthy.calls if call.kind == "put_if_absent" and call.name.startswith("_manifest/versions"))
    for act in (append, expire):
        for number in range(1, healthy.count + 1):
            inner = clone(store)

            def between(call: FaultCall, number: int = number, inner: Store = inner, act: Callable[[Store], None] = act) -> None:
                if call.number == number:
                    act(inner)

            try:
                outcome: Any = back(FaultStore(inner, on_call=between), 2)
            except (mc.errors.UsageError, mc.errors.SnapshotExpiredError) as error:
                outcome = error
            if number > create:  # both are there, in this order
                assert outcome.kind == "committed" and outcome.version == 5
                assert read_ids(inner) == [*range(10), *([100] if act is append else [])]
            elif isinstance(outcome, Outcome) and outcome.committed:  # it came before the head was read
                assert act is append and number <= 3 and read_ids(inner) == list(range(10))
            else:
                if isinstance(outcome, Outcome):
                    assert outcome.conflict is not None and outcome.conflict.rule == "rolled_back_over"
                assert read_ids(inner) == [*range(30), *([100] if act is append else [])], number
            check_table(inner)


# --- crashes --------------------------------------------------------------------------------------------------------------
def test_it_costs_a_get_of_the_target_and_of_what_only_one_of_the_two_lists(store: MemoryStore) -> None:
    """[IV10]"""
    calls = CountingStore(store)
    back(calls, 2)
    assert sum(calls.requests().values()) == 3 + 1 + 1 + 3  # open, target, head again, commit
    assert calls.requests(under="_manifest/manifests/") == {}
