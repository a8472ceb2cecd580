"""What is asked of a table: the file of a position, after rewinds too, and the age of its data. [RD9] [WM5] [OB8] [OB17]"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from tests.kit.clocks import DAY_S, Clock
from tests.kit.faults import carried, carry, put_intent, rival
from tests.kit.sizes import SetBudgets
from tests.kit.tables import (
    begin,
    change_of,
    check_table,
    key_version,
    memory,
    positions,
    put_version,
    read_ids,
    rewind,
    rows,
    session,
    write,
)

import manifestcommit as mc
from manifestcommit.errors import CommitConflictError, KeyReusedError, SnapshotExpiredError, UsageError, WatermarkOverlapError
from manifestcommit.format.change import Advance, is_left_by, merged, rewind_origins
from manifestcommit.log.version_chain import open_head
from manifestcommit.operations.describe import trace
from manifestcommit.store import open_store
from manifestcommit.store.local import MemoryStore
from manifestcommit.testing.faults import CountingStore

SOURCE = "a topic/0 %=+#'é🦆"


def batch(store: MemoryStore, start: int, end: int, *, source: str = SOURCE, key: str | None = None) -> int:
    """Rows start to end-1 of a source, as one keyed commit; its version."""
    outcome = write(store, rows(range(start, end)), key=key or f"{start}-{end}", watermarks={source: (start, end)})
    assert outcome.version is not None
    return outcome.version


@pytest.fixture
def store() -> MemoryStore:
    """Three batches of ten rows: 0 to 30."""
    made = memory()
    for start in (0, 10, 20):
        batch(made, start, start + 10)
    return made


# --- lineage ------------------------------------------------------------------------------------------------------------
def test_each_position_is_traced_to_the_version_and_the_file_that_hold_it(root: Path) -> None:
    """[RD9] [OB8]"""
    versions = [mc.write(rows(range(n, n + 10)), root, watermarks={SOURCE: (n, n + 10)}).version for n in (0, 10, 20)]
    table = mc.Table(root)
    by_version = dict(zip(table.files()["added_version"].to_pylist(), table.files()["path"].to_pylist(), strict=True))
    for position in range(30):
        found = table.lineage(SOURCE, position)
        assert found is not None and found.exact and found.version == versions[position // 10]
        assert [(f.path, f.start, f.end) for f in found.files] == [
            (by_version[found.version], position // 10 * 10, position // 10 * 10 + 10)
        ]
    assert table.lineage(SOURCE, 30) is None and table.lineage(SOURCE, -1) is None


def test_where_no_file_says_what_it_holds_the_version_is_told_by_the_history(store: MemoryStore) -> None:
    """Files of that version that do say it, and name other ranges, are not among them. [RD9]"""
    for start in (0, 50):
        with begin(store) as job:
            job.advance("s", start, start + 50)
            job.write(rows([1000 + start]))
            job.write(rows([2000 + start]), sources={"elsewhere": (0, 1)})
    head = open_head(store).snapshot
    found = trace(session(store), "s", 50)
    assert found is not None and not found.exact and found.version == head.version
    assert [f.path for f in found.files] == [e.path for e in head.added if e.added == head.version and not e.sources]
    assert len(found.files) == 1
    first = trace(session(store), "s", 49)
    assert first is not None and first.version == head.version - 1


def test_ranges_survive_in_manifests(store: MemoryStore, set_budgets: SetBudgets) -> None:
    """[OB8] [OB13] [RD9]"""
    set_budgets(inline_entry_bytes=1)
    versions = {}
    for start in (30, 40):
        with begin(store) as job:
            job.advance(SOURCE, start, start + 10)
            job.write(rows([start]), sources={"texts": ("a", "é%"), SOURCE: (start, start + 5)})
            job.write(rows([start + 5]), sources={SOURCE: (start + 5, start + 10)})
        versions[start] = open_head(store).version
    assert open_head(store).snapshot.manifests and not open_head(store).snapshot.added
    for position in range(30, 50):
        found = trace(session(store), SOURCE, position)
        assert found is not None and found.exact and found.version == versions[position // 10 * 10]
        assert [(f.version, f.start, f.end) for f in found.files] == [(found.version, position // 5 * 5, position // 5 * 5 + 5)]
    for position in (0, 15, 29):  # their files do not say it
        found = trace(session(store), SOURCE, position)
        assert found is not None and not found.exact and len(found.files) == 1


def test_many_sources_are_not_kept_with_every_file(tmp_path: Path) -> None:
    """The entries of a commit with thousands of sources stay short. [IV10]"""
    mc.write(rows([1]), tmp_path / "few", watermarks={f"s{n}": (0, 1) for n in range(256)})
    mc.write(rows([1]), tmp_path / "many", watermarks={f"s{n}": (0, 1) for n in range(257)})
    assert len(mc.Table(tmp_path / "few").snapshot().added[0].sources) == 256
    assert mc.Table(tmp_path / "many").snapshot().added[0].sources == ()
    found = mc.Table(tmp_path / "many").lineage("s7", 0)
    assert found is not None and not found.exact and len(found.files) == 1


def test_added_files_say_where_their_rows_come_from(root: Path) -> None:
    """[AF1] [OB8]"""
    import pyarrow.parquet as pq

    mc.write(rows([1]), root)
    pq.write_table(rows([2, 3]), root / "by hand 100%.parquet")
    with mc.begin(root) as job:
        job.add_files(["by hand 100%.parquet"], sources={"s": (5, 7)})
        job.advance("s", 5, 7)
    found = mc.Table(root).lineage("s", 6)
    assert found is not None and found.exact and [f.path for f in found.files] == ["by hand 100%.parquet"]


@pytest.mark.parametrize("wrong", [{"s": (1, 0)}, {"s": (0, "a")}, {"": (0, 1)}, {"s": 5}, {"s": (0, 2**63)}, {"s": (None, None)}])
def test_a_range_that_is_none_is_refused_before_anything_is_written(wrong: dict[str, object], root: Path) -> None:
    """[WM3] [OB8]"""
    mc.write(rows([1]), root)
    before = sorted(root.rglob("*.parquet"))
    with pytest.raises(UsageError), mc.begin(root) as job:
        job.write(rows([2]), sources=wrong)  # type: ignore[arg-type]
    assert sorted(root.rglob("*.parquet")) == before


def test_lineage_refuses_texts_and_unknown_sources(store: MemoryStore) -> None:
    """[RD9] [WM3]"""
    write(store, rows([100]), watermarks={"etags": ("a", "b")})
    for source, position, word in (
        ("etags", 1, "no order"),
        ("nowhere", 1, "a topic/0"),
        (SOURCE, "1", "whole number"),
        (SOURCE, True, "whole"),
    ):
        with pytest.raises(UsageError, match=word):
            trace(session(store), source, position)  # type: ignore[arg-type]


# --- rewind -------------------------------------------------------------------------------------------------------------
def test_a_rewind_is_a_commit_with_its_reason_that_drops_the_keys_whose_work_it_undoes(store: MemoryStore) -> None:
    """[WM5] [WM4] [OB10]"""
    before = open_head(store).snapshot
    outcome = rewind(session(store), SOURCE, 10, reason="a bad parser %é")
    after = open_head(store).snapshot
    assert (outcome.kind, outcome.version, outcome.dropped_keys) == ("committed", before.version + 1, ("10-20", "20-30"))
    assert after.watermarks == {SOURCE: 10} and after.origins == before.origins
    assert (after.commits[0].operation, after.commits[0].reason) == ("rewind", "a bad parser %é")
    assert (after.added, after.manifests, after.totals, after.schema) == (before.added, before.manifests, before.totals, before.schema)
    assert key_version(store, "0-10") is not None
    assert [key_version(store, key) for key in ("10-20", "20-30")] == [None, None]
    check_table(store)


def test_after_a_rewind_the_work_is_done_again_and_the_rest_is_not(store: MemoryStore) -> None:
    """A key of what was undone commits once more; one of what stands stays a no-op. [WM5] [KY3]"""
    rewind(session(store), SOURCE, 10, reason="again")
    assert write(store, rows([0]), key="0-10", watermarks={SOURCE: (0, 10)}).already_committed
    with pytest.raises(WatermarkOverlapError):
        write(store, rows([5]), key="other", watermarks={SOURCE: (0, 10)})
    again = batch(store, 10, 20)
    assert key_version(store, "10-20") == again
    assert write(store, rows([0]), key="10-20", watermarks={SOURCE: (10, 20)}).already_committed
    with pytest.raises(KeyReusedError):
        write(store, rows([0]), key="10-20", watermarks={SOURCE: (20, 30)})
    batch(store, 20, 30)
    assert positions(store) == {SOURCE: 30}


def test_a_rewind_into_the_middle_of_a_batch_drops_its_key(store: MemoryStore) -> None:
    """[WM5]"""
    assert rewind(session(store), SOURCE, 15, reason="x").dropped_keys == ("10-20", "20-30")
    assert positions(store) == {SOURCE: 15}


@pytest.mark.thorough
@pytest.mark.parametrize("budget", [0, 2, 100])
def test_keys_that_were_spilled_are_dropped_as_well(store: MemoryStore, set_budgets: SetBudgets, budget: int) -> None:
    """Runs never change: newer records say that a key was dropped, through merges and a second drop. [WM5] [OB11]"""
    set_budgets(inline_keys=budget, fan_in=2)
    for start in (30, 40):
        batch(store, start, start + 10)
    for _ in range(2):
        dropped = rewind(session(store), SOURCE, 20, reason="x").dropped_keys
        assert dropped == ("20-30", "30-40", "40-50")
        assert [key_version(store, key) is None for key in ("0-10", "10-20", *dropped)] == [False, False, True, True, True]
        versions = [batch(store, start, start + 10) for start in (20, 30, 40)]
        assert [key_version(store, key) for key in dropped] == versions
        for n in range(5):
            write(store, rows([1000 + n]), key=f"more {n}")
        assert [key_version(store, key) for key in dropped] == versions
    check_table(store)


def test_keys_of_other_sources_stay(store: MemoryStore) -> None:
    """[WM5]"""
    batch(store, 0, 5, source="other", key="other work")
    assert "other work" not in rewind(session(store), SOURCE, None, reason="x").dropped_keys
    assert key_version(store, "other work") is not None and positions(store) == {"other": 5}


def test_a_dropped_key_that_was_given_to_other_work_since_stays(store: MemoryStore) -> None:
    """The old record of a key, of work that was undone before, says nothing of its new one. [WM5]"""
    rewind(session(store), SOURCE, 20, reason="x")
    batch(store, 0, 5, source="other", key="20-30")
    assert rewind(session(store), SOURCE, None, reason="x").dropped_keys == ("0-10", "10-20")
    assert key_version(store, "20-30") is not None


def test_a_rewind_below_the_origin_moves_the_origin() -> None:
    """What lies before it will be read: a rerun of that may take it as done. [WM1] [WM5]"""
    store = memory()
    batch(store, 100, 110)
    rewind(session(store), SOURCE, 50, reason="older rows after all")
    batch(store, 50, 110)
    with pytest.raises(WatermarkOverlapError, check=lambda error: error.all_covered):
        write(store, rows([1]), key="k", watermarks={SOURCE: (50, 60)})


def test_a_text_leads_back_to_where_the_source_once_stood() -> None:
    """[WM3] [WM5]"""
    store = memory()
    for start, end in (("a", "b"), ("b", "c"), ("c", "d")):
        write(store, rows([1]), key=f"{start}{end}", watermarks={"s": (start, end)})
    with pytest.raises(UsageError, match="was never at 'x'"):
        rewind(session(store), "s", "x", reason="x")
    assert rewind(session(store), "s", "b", reason="x").dropped_keys == ("bc", "cd")
    assert rewind(session(store), "s", "a", reason="x").dropped_keys == ("ab",)  # its origin
    assert positions(store) == {"s": "a"}


@pytest.mark.parametrize(
    ("source", "to", "reason"),
    [(SOURCE, 30, "x"), (SOURCE, 31, "x"), (SOURCE, "10", "x"), (SOURCE, True, "x"), (SOURCE, 1.5, "x"), (SOURCE, -(2**63) - 1, "x"),
     ("nowhere", 1, "x"), (SOURCE, 10, ""), (SOURCE, 10, "  "), (SOURCE, 10, None)],
)  # fmt: skip
def test_a_rewind_that_is_none_is_refused(store: MemoryStore, source: str, to: object, reason: object) -> None:
    """[WM5] [WM3]"""
    before = open_head(store).digest
    with pytest.raises(UsageError):
        mc.Table(store.url).rewind(source, to, reason=reason)  # type: ignore[arg-type]
    assert open_head(store).digest == before


def test_a_rewind_loses_against_an_advance_that_came_between(store: MemoryStore, root: Path) -> None:
    """What it saw to be undone is no longer all. [WM5] [CF1]"""
    mc.write(rows([1]), root, key="a", watermarks={"s": (0, 10)})
    table = mc.Table(root)
    stale = table._ctx.open()
    mc.write(rows([2]), root, key="b", watermarks={"s": (10, 20)})
    table._ctx.open = lambda: stale  # type: ignore[method-assign]
    with pytest.raises(CommitConflictError, check=lambda error: error.rule == "watermark_was_moved"):
        table.rewind("s", 0, reason="x")
    assert mc.Table(root).watermarks() == {"s": 20}


def test_a_rewind_loses_where_the_source_moved_away_and_back_within_one_version(store: MemoryStore) -> None:
    """Two jobs that one create carries: no version says that it moved. Their keys would stay, and that work never be done again.

    [WM5] [CM24]
    """
    write(store, rows([100]), key="first", watermarks={"texts": ("a", "b")})
    own = session(store)
    stale = own.open()
    for key, start, end in (("away", "b", "c é%"), ("back", "c é%", "b")):
        job = begin(store, key)
        job.write(rows([200]))
        put_intent(store, msgspec.structs.replace(change_of(job), advances=(Advance(source="texts", start=start, end=end),)))
        rival(store)
    version = carry(store, 300).version
    assert version is not None and len(carried(store, version)) == 3 and positions(store)["texts"] == "b"
    own.open = lambda: stale  # type: ignore[method-assign]
    outcome = rewind(own, "texts", "a", reason="x")
    assert outcome.conflict is not None and outcome.conflict.rule == "watermark_was_moved"
    assert rewind(session(store), "texts", "a", reason="x").dropped_keys == ("away", "back", "first")


@pytest.mark.parametrize("ranges", [[("a", "b é%"), ("b é%", "a")], [("a", "a")], [(30, 30)], [(30, 30), (30, 30)]])
@pytest.mark.parametrize("behind", [False, True])
def test_a_rewind_drops_the_key_of_a_job_that_left_the_watermark_where_it_was(
    store: MemoryStore, ranges: list[tuple[Any, Any]], behind: bool
) -> None:
    """No watermark tells that it was there: its key would stay, and its rerun pass for done. [WM5] [CM24]"""
    texts = ranges[0][0] == "a"
    if texts:
        write(store, rows([98]), key="first", watermarks={SOURCE + "t": ("o", "a")})
    source, to = (SOURCE + "t", "o") if texts else (SOURCE, 20)
    own = session(store)
    stale = own.open()
    with begin(store, "K =+#'\"") as job:
        job.write(rows([99]))
        for start, end in ranges:
            job.advance(source, start, end)
    check_table(store)
    beside = session(store)
    beside.open = lambda: stale  # type: ignore[method-assign]
    lost = rewind(beside, source, to, reason="it has not seen the job")
    assert lost.conflict is not None and lost.conflict.rule == "watermark_was_moved"
    if behind:
        write(store, rows([100]), key="last", watermarks={source: (ranges[0][0], "z" if texts else 40)})
    dropped = rewind(session(store), source, to, reason="x").dropped_keys
    assert set(dropped) == {"K =+#'\"", "first" if texts else "20-30"} | ({"last"} if behind else set())
    write(store, rows([98]), key="again", watermarks={source: (to, ranges[0][0])})
    assert write(store, rows([99]), key="K =+#'\"", watermarks={source: (ranges[0][0], ranges[0][0])}).kind == "committed"


@pytest.mark.parametrize("again", [False, True])
def test_a_rewind_loses_where_a_key_that_it_is_to_drop_was_dropped_before_it(store: MemoryStore, again: bool) -> None:
    """By the rewind of another source of the same job. The key is for others since: for one that has committed, whose rerun would double
    its rows, or for one that is under way, and which nothing is in the way of. [WM5] [KY7]"""
    write(store, rows([100]), key="K", watermarks={"one": (0, 2), "other": (0, 2)})
    own = session(store)
    stale = own.open()
    assert rewind(session(store), "other", 0, reason="x").dropped_keys == ("K",)
    job = begin(store, "K")
    job.write(rows([200]))
    if again:
        assert job.commit().kind == "committed"
    own.open = lambda: stale  # type: ignore[method-assign]
    outcome = rewind(own, "one", 0, reason="x")
    assert outcome.conflict is not None and outcome.conflict.rule == "watermark_was_moved"
    if not again:
        assert job.commit().kind == "committed"
    assert rewind(session(store), "one", 0, reason="x").dropped_keys == ()
    assert write(store, rows([200]), key="K").kind == "already_committed"
    assert read_ids(store).count(200) == 1
    check_table(store)


def test_where_the_history_is_expired_the_keys_to_drop_cannot_be_told(store: MemoryStore) -> None:
    """[WM5] [RD3]"""
    version = open_head(store).version
    put_version(store, open_head(store), fence=version, expired=version)
    with pytest.raises(SnapshotExpiredError, match="keep_keys"):
        rewind(session(store), SOURCE, 5, reason="x")
    assert positions(store) == {SOURCE: 30}
    outcome = rewind(session(store), SOURCE, 5, reason="x", keep_keys=True)
    assert (positions(store), outcome.dropped_keys) == ({SOURCE: 5}, ())
    assert key_version(store, "0-10") is not None


def test_a_rewind_asks_for_no_more_history_than_it_undoes(store: MemoryStore) -> None:
    """The readable history begins where the source was at that position; what brought it there is not undone. [WM5] [RD3]"""
    version = open_head(store).version
    put_version(store, open_head(store), fence=version, expired=version)
    batch(store, 30, 40)
    outcome = rewind(session(store), SOURCE, 30, reason="x")
    assert (positions(store), outcome.dropped_keys) == ({SOURCE: 30}, ("30-40",))


def test_a_rewind_costs_one_request_for_each_version_that_it_undoes(store: MemoryStore) -> None:
    """[WM5]"""
    calls = CountingStore(store)
    rewind(session(calls), SOURCE, 20, reason="x")
    assert sum(calls.requests().values()) <= 3 + 2 + 5  # open, two versions back, create, list, hint


def test_the_pure_rules_of_rewinds() -> None:
    """[WM5]"""
    assert merged({"a": 5, "b": 6}, {"a": 3}) == {"a": 3, "b": 6}
    assert merged({"a": 5, "b": 6}, {"a": None}) == {"b": 6}
    assert rewind_origins({"a": 5}, "a", 7) == {"a": 5}
    assert rewind_origins({"a": 5}, "a", 3) == {"a": 3}
    assert rewind_origins({"a": None}, "a", 3) == {"a": None}
    assert rewind_origins({"a": 5}, "a", None) == {}
    assert [is_left_by(10, end) for end in (9, 10, 11, "10", None)] == [True, True, False, False, False]
    assert [is_left_by("b", end) for end in ("a", "b", 1)] == [False, True, False]
    assert not is_left_by(None, 0)


# --- When a table got rows last, and when each of its sources moved: upkeep does not hide that nothing arrives.


def table_of(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "day": pa.array([number % 2 for number in ids], pa.int64())})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def table(tmp_path: Path) -> mc.Table:
    """Rows of two sources; the second moved at last."""
    path = tmp_path / "t"
    for number in range(3):
        mc.write(table_of(number, number + 3), path, partition_by="day", watermarks={"a": (number, number + 1)}, key=f"k{number}")
    mc.write(table_of(7), path, watermarks={"b": (0, 9)})
    return mc.Table(path)


def compact_and_gc(table: mc.Table) -> None:
    """All history goes."""
    table.compact()
    for _ in range(2):
        table.gc(grace="0s", keep_versions=1, keep_for="0s")


def joint(table: mc.Table) -> None:
    """As a table that takes part and gets nothing."""
    with mc.transaction([table.url, f"{table.url}-other"]) as tx:
        tx[f"{table.url}-other"].write(table_of(1))


UPKEEP: dict[str, Callable[[mc.Table], object]] = {
    "gc and compaction": compact_and_gc,
    "delete": lambda table: table.delete("id = 0"),
    "update": lambda table: table.update({"day": 5}, "id = 1"),
    "tag": lambda table: table.tag("kept"),
    "properties": lambda table: table.set_properties({"owner": "us"}),
    "columns": lambda table: table.add_column("more", "int"),
    "no rows": lambda table: mc.write(table_of(), table.url, key="nothing came"),
    "rerun": lambda table: mc.write(table_of(0, 3), table.url, watermarks={"a": (0, 1)}, key="k0"),
    "emptied": lambda table: mc.write(table_of(), table.url, mode="overwrite"),
    "rollback": lambda table: table.rollback(2, reason="wrong"),
    "joint": joint,
}
BRINGS: dict[str, Callable[[mc.Table], object]] = {
    "append": lambda table: mc.write(table_of(8), table.url),
    "overwrite": lambda table: mc.write(table_of(8), table.url, mode="overwrite"),
    "merge": lambda table: table.merge(table_of(8), on="id"),
    "overwrite_where": lambda table: table.overwrite_where(table_of(8), "id >= 7"),
}


def ages(found: Any) -> dict[str, int]:
    """In days, as metrics have them."""
    assert found.data_age_s is not None
    return {"": int(found.data_age_s // DAY_S), **{source: int((age or -1) // DAY_S) for source, age in found.source_age_s.items()}}


@pytest.mark.parametrize("work", UPKEEP)
def test_what_brings_nothing_leaves_the_age_as_it_is(table: mc.Table, clock: Clock, work: str) -> None:
    """[OB17]"""
    clock.days(8)
    UPKEEP[work](table)
    assert ages(table.metrics()) == {"": 8, "a": 8, "b": 8}
    if work != "rerun":
        assert table.metrics().head_age_s < 60


@pytest.mark.parametrize("work", BRINGS)
def test_rows_make_the_table_young_and_no_source(table: mc.Table, clock: Clock, work: str) -> None:
    """[OB17]"""
    clock.days(8)
    BRINGS[work](table)
    assert ages(table.metrics()) == {"": 0, "a": 8, "b": 8}


def test_each_source_has_an_age_of_its_own(table: mc.Table, clock: Clock) -> None:
    """Also where it brings no row; a rewind is none, and a source that is forgotten has none. [OB17] [WM5]"""
    clock.days(2)
    mc.write(table_of(), table.url, watermarks={"b": (9, 12)})
    clock.days(3)
    assert ages(table.metrics()) == {"": 3, "a": 5, "b": 3}
    with mc.transaction([table.url, f"{table.url}-other"]) as tx:
        tx[table.url].advance("a", 3, 4)
        tx[f"{table.url}-other"].write(table_of(1))
    clock.days(1)
    table.rewind("b", 9, reason="wrong")
    assert ages(table.metrics()) == {"": 1, "a": 1, "b": 4}
    table.rewind("b", None, reason="wrong")
    assert ages(table.metrics()) == {"": 1, "a": 1}
    assert open_head(open_store(table.url)).snapshot.advanced_at.keys() == {"a"}


def test_a_table_that_never_got_anything_has_no_age(tmp_path: Path) -> None:
    """[OB17] [WM7]"""
    table = mc.create_table(tmp_path / "t", table_of().schema, sources={"a": 0})
    table.set_properties({"owner": "us"})
    found = table.metrics()
    assert (found.data_age_s, found.source_age_s) == (None, {"a": None})


def test_a_group_commit_counts_for_every_job_that_it_carries(tmp_path: Path) -> None:
    """[OB17] [CM24]"""
    from manifestcommit.protocol.commit_group import CombinedCommit, carry

    mc.write(table_of(1), tmp_path / "t")
    jobs = [mc.begin(tmp_path / "t") for _ in range(2)]
    for number, job in enumerate(jobs):
        job.advance(f"s{number}", 0, 1)
    head = open_head(open_store(str(tmp_path / "t"))).snapshot
    carried = CombinedCommit(snapshot=head)
    for number, job in enumerate(jobs):
        now_us = head.committed_at + number + 1
        carried = carry(carried, job.change(), commit_id="c", now_us=now_us, writer="w")
    made = carried.snapshot
    assert made.advanced_at == {f"s{number}": head.committed_at + number + 1 for number in range(2)}
    assert made.data_at == head.committed_at + 2
