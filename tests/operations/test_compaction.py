"""The plan of a compaction, window by window, and small files rewritten in this process. [GC11] [GC16] [RC8]"""

import datetime as dt
import itertools
from collections.abc import Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.row_tables import NAN, content, copy
from tests.kit.sizes import rounds

import manifestcommit as mc
from manifestcommit.errors import CorruptMetadataError
from manifestcommit.format import values
from manifestcommit.format.entries import Entry, SourceRange, encode
from manifestcommit.format.fields import Field, Partitioned, Schema
from manifestcommit.format.manifest_table import partition_types, source_ranges
from manifestcommit.format.snapshot import Snapshot
from manifestcommit.log.manifests import put_manifest
from manifestcommit.log.table_context import TableContext
from manifestcommit.operations import compaction
from manifestcommit.operations import compaction as small_files
from manifestcommit.operations.compaction import CompactionOptions, describe_plan, find_groups
from manifestcommit.protocol.compaction_plan import Group, is_small, unite_ranges
from manifestcommit.runtime.environment import Env
from manifestcommit.scan.planning import entries_of, entries_table
from manifestcommit.store import Store, open_store
from manifestcommit.table import Table
from manifestcommit.testing import CountingStore

TABLE, JOB = "0" * 16, f"v1-{'0' * 16}-{'1' * 32}"
TARGET = 100
VERSION = 200
KINDS = {"p": "string", "n": "long", "day": "date", "d": "decimal(9,2)", "b": "boolean", "t": "timestamp", "id": "long"}
SCHEMA = Schema(fields=tuple(Field(id=number, name=name, type=kind) for number, (name, kind) in enumerate(KINDS.items(), 1)))
VALUES: dict[int, list[Any]] = {
    1: [None, "", "a b%=+#'", "é🦆", "__HIVE_DEFAULT_PARTITION__"],
    2: [None, -(2**63), -1, 0, 2**63 - 1],
    3: [None, dt.date(1, 1, 1), dt.date(2013, 1, 1)],
    4: [None, Decimal("-1.50"), Decimal("0.00")],
    5: [None, False, True],
    6: [None, dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, dt.UTC), dt.datetime(2013, 1, 1, tzinfo=dt.UTC)],
}
_count = itertools.count()


def table(
    manifests: Iterable[list[Entry]], by: tuple[int, ...], removed: Iterable[int] = (), store: Store | None = None
) -> tuple[TableContext, Snapshot]:
    """A table whose head lists these manifests, the first of them itself, and what was taken out of each of the others since."""
    store = store or open_store(f"memory://small/{next(_count)}")
    inlined, *others = manifests
    refs = [
        msgspec.structs.replace(put_manifest(store, each, Partitioned(SCHEMA, by), job=JOB, env=Env()), added=at + 2)
        for at, each in enumerate(others)
        if each
    ]
    gone = {ref.path: bits & ((1 << ref.files) - 1) for ref, bits in zip(refs, removed, strict=False)}
    snapshot = Snapshot(
        format_version=1, table_id=TABLE, version=VERSION, parent_digest="sha256:" + "0" * 64, commits=(), committed_at=0, writer="test",
        schema=SCHEMA, partition_by=by, manifests=tuple(refs), added=tuple(inlined),
        removed={path: encode(bits) for path, bits in gone.items() if bits},
    )  # fmt: skip
    return TableContext(store), snapshot


def entry(number: int, partition: tuple[Any, ...] = (), size: int = 10, added: int | None = VERSION, **more: Any) -> Entry:
    return Entry(
        path=f"f {number % 7}%/{number:05d}.parquet", partition=partition, rows=number % 5, bytes=size, job=JOB, added=added, **more
    )


RANGES = st.lists(
    st.builds(lambda s, a, n: SourceRange(source=s, start=a, end=a + n), st.sampled_from("st"), st.integers(0, 20), st.integers(1, 9)),
    max_size=2,
)
BY = st.sampled_from([(), (1,), (2,), (1, 3), (4, 5), (6, 1, 2)])


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[list[Entry]], tuple[int, ...], list[int]]:
    by = draw(BY)
    lists: list[list[Entry]] = [[] for _ in range(draw(st.integers(1, 5)))]
    few = [draw(st.tuples(*(st.sampled_from(VALUES[each]) for each in by))) for _ in range(3)]  # so that files meet
    for number in range(draw(st.integers(0, 30))):
        wires = tuple(
            values.encode(value, KINDS[SCHEMA.fields[each - 1].name]) for each, value in zip(by, draw(st.sampled_from(few)), strict=True)
        )
        where = draw(st.integers(0, len(lists) - 1))
        added = draw(st.sampled_from([2, 3, 60, 199, VERSION, None])) if where else draw(st.sampled_from([2, 3, 60, VERSION]))
        sources = tuple(draw(RANGES)) if draw(st.booleans()) else ()
        lists[where].append(entry(number, wires, draw(st.sampled_from([0, 1, 30, 40, 74, 75, 200])), added, sources=sources))
    return lists, by, [draw(st.integers(0, 2**12)) if draw(st.booleans()) else 0 for _ in lists]


@pytest.mark.thorough
@settings(max_examples=rounds(120, 1500))
@given(made=tables(), window=st.integers(1, 9), max_bytes=st.sampled_from([1, 100, 10**9]))
def test_a_plan_made_window_by_window_is_that_of_the_whole_table(made: Any, window: int, max_bytes: int) -> None:
    """[GC16] No file is passed over or in two groups, and the order is the same, wherever windows end and however manifests overlap."""
    session, snapshot = table(*made)
    expected = plan_of_the_whole(session, snapshot, max_bytes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(small_files, "WINDOW_FILES", window)
        patch.setattr(small_files, "_VALUES_AT_ONCE", 2)
        patch.setattr(small_files, "_MANIFESTS_AT_ONCE", 2)
        assert list(find_groups(TableContext(session.store), snapshot, CompactionOptions(target=TARGET, max_bytes=max_bytes))) == expected
    for group in expected:
        assert set(entries_of(session, snapshot, group.paths).column("path").to_pylist()) == set(group.paths)


def plan_of_the_whole(session: TableContext, snapshot: Snapshot, max_bytes: int) -> list[Group]:
    """By the clause's words, of every live file at once."""
    live, by = entries_table(session, snapshot), snapshot.partition_by
    live = live.sort_by([*((f"partition.{each}", "ascending") for each in by), ("added", "ascending"), ("path", "ascending")])
    types = partition_types(snapshot)
    wires = [values.from_array(live.column(f"partition.{id}"), kind) for id, kind in zip(by, types, strict=True)]
    kinds: dict[Any, list[list[Any]]] = {}
    for at, row in enumerate(live.select(["path", "rows", "bytes", "sources"]).to_pylist()):
        if not is_small(row["bytes"], TARGET):
            continue
        row |= {"at": at, "sources": source_ranges(row["sources"])}
        lists = kinds.setdefault((tuple(column[at] for column in wires), bool(row["sources"])), [[]])
        if sum(each["bytes"] for each in lists[-1]) + row["bytes"] > TARGET:
            lists.append([])
        lists[-1].append(row)
    groups = sorted(
        ((rows, kind[0]) for kind, lists in kinds.items() for rows in lists if len(rows) > 1), key=lambda each: each[0][0]["at"]
    )
    made = [
        Group(
            partition=partition,
            paths=tuple(row["path"] for row in rows),
            rows=sum(row["rows"] for row in rows),
            bytes=sum(row["bytes"] for row in rows),
            sources=unite_ranges(found for row in rows for found in row["sources"]),
            reason=f"{len(rows)} files below three quarters of {TARGET} bytes become one",
        )
        for rows, partition in groups
    ]
    left, planned = max_bytes, []
    for group in made:
        planned.append(msgspec.structs.replace(group, left=group.bytes > left))
        left -= 0 if planned[-1].left else group.bytes
    return planned


def test_no_more_files_than_a_window_are_at_hand_and_few_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """[GC16] The plan for a million files took a gigabyte: now it holds a window, also where all are in one partition."""
    at_hand: list[int] = []
    inner = small_files.SmallFiles._in_values

    def watched(self: small_files.SmallFiles, found: pa.Table) -> Iterator[Any]:
        at_hand.append(found.num_rows)
        return inner(self, found)

    monkeypatch.setattr(small_files.SmallFiles, "_in_values", watched)
    for by, partition in (((2,), lambda n: (n % 50,)), ((), lambda n: ())):
        lists = [[entry(n, partition(n), 50, 1 + n % VERSION) for n in range(at, 2000, 10)] for at in range(10)]
        counting = CountingStore(open_store(f"memory://small/{next(_count)}"))
        _, snapshot = table(lists, by, store=counting)
        for window, reads in ((2000, 1), (400, 6)):
            monkeypatch.setattr(small_files, "WINDOW_FILES", window)
            counting.reset()
            at_hand.clear()
            groups = list(find_groups(TableContext(counting), snapshot, CompactionOptions(target=TARGET)))
            assert sum(len(group.paths) for group in groups) == 2000
            assert counting.requests() == {"get": 9 * reads}, "each once, and where there are many again for each window"
            assert max(at_hand) <= window + 40 and sum(at_hand) == 2000, "a place has forty files here at most"


def test_a_plan_for_people_is_in_as_few_pieces_as_its_files_fill(monkeypatch: pytest.MonkeyPatch) -> None:
    """[GC16] A piece keeps up to twice what it holds of the memory that it was built in, so that some are put together anew."""
    monkeypatch.setattr(compaction, "_DESCRIBED_AT_ONCE", 10)
    session, snapshot = table([[entry(n, (n % 50,), 30) for n in range(1000)]], (2,))
    groups = list(find_groups(session, snapshot, CompactionOptions(target=TARGET)))
    described = describe_plan(session, snapshot, groups)
    assert described.column("paths").to_pylist() == [list(group.paths) for group in groups] and len(groups) > 300
    assert described.column("paths").num_chunks < len(groups) / 10, "three groups are described at once, and four such pieces become one"


def test_only_windows_with_files_of_a_manifest_read_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """[GC16] Manifests that follow one another, as compaction leaves them, are read twice each, or three times where a window ends."""
    monkeypatch.setattr(small_files, "WINDOW_FILES", 100)
    lists = [[], *([entry(n, (n // 10,), 50) for n in range(at, at + 50)] for at in range(0, 1000, 50))]
    counting = CountingStore(open_store(f"memory://small/{next(_count)}"))
    _, snapshot = table(lists, (2,), store=counting)
    counting.reset()
    assert sum(len(group.paths) for group in find_groups(TableContext(counting), snapshot, CompactionOptions(target=TARGET))) == 1000
    assert counting.requests() == {"get": 40}


def test_a_manifest_that_is_not_what_its_reference_says_is_no_table_of_fewer_files() -> None:
    """[OB4] [GC16]"""
    session, snapshot = table([[], [entry(1), entry(2)], [entry(3)]], ())
    for change in ({"files": 3}, {"digest": snapshot.manifests[1].digest}, {"bytes": 7}):
        false = msgspec.structs.replace(snapshot.manifests[0], **change)
        with pytest.raises(CorruptMetadataError, match=false.path):
            list(
                find_groups(
                    TableContext(session.store), msgspec.structs.replace(snapshot, manifests=(false,)), CompactionOptions(target=TARGET)
                )
            )


# --- Small files rewritten in this process, without Spark.


@pytest.mark.parametrize("name", ["partitioned", "plain"])
def test_every_row_is_there_once_whatever_its_values(base: Any, tmp_path: Path, name: str) -> None:
    """In a file for each partition, of files with columns renamed and added. [GC11] [SC4] [SC6]"""
    table, _ = copy(base, name, tmp_path)
    before, files = content(table), table.files().num_rows
    done = table.compact()
    assert (done.files_before, done.files_after, done.rows, done.lost_groups) == (files, 5 if name == "partitioned" else 1, 40, 0)
    assert content(table) == before and table.files().num_rows == done.files_after
    assert table.verify(deep=True).is_sound
    assert table.compact().version is None


def test_partitions_are_chosen_and_rows_sorted_on_request(base: Any, tmp_path: Path) -> None:
    """By SQL and by a pyarrow expression; a column that is none is refused before any work. [GC16]"""
    table, _ = copy(base, "partitioned", tmp_path)
    version = table.version
    for wrong in ({"sort_by": "nowhere"}, {"where": "id > 3"}, {"where": pc.field("id") == 3}):
        with pytest.raises(mc.errors.UsageError, match=r"nowhere|where"):
            table.compact(**wrong)  # type: ignore[arg-type]
    for where in ("day IS NULL", "day = '''\"ü漢+'", pc.field("day") == "a b%20"):
        assert table.plan_compaction(where=where).column("files").to_pylist() == [4]
    assert table.version == version
    done = table.compact(where="day IS NULL", sort_by=["x", "ID"])
    path = next(each.path for each in table.snapshot().added if each.added == done.version)
    found = pq.read_table(f"{table.url.removeprefix('file://')}/{path}", partitioning=None).column("id").to_pylist()
    assert found == [8, 18, 28, 38, 3, 13, 23, 33], "nulls first"
    assert table.files().num_rows == 4 * 4 + 1


def test_adopted_files_get_the_partition_that_only_their_folder_names(tmp_path: Path) -> None:
    """[DF4]"""
    folder = tmp_path / "adopted" / "day=k%3Dv%23x%3F"
    folder.mkdir(parents=True)
    for first in (0, 10):
        pq.write_table(pa.table({"id": [first, None], "x": [NAN, -0.0]}), folder / f"from {first}.parquet")
    mc.Table(tmp_path / "adopted").adopt()
    table = Table(tmp_path / "adopted")
    before = content(table)
    assert table.compact().files_after == 1
    assert content(table) == before and {row["day"] for row in table.dataset().to_table().to_pylist()} == {"k=v#x?"}
