"""Entries through a manifest's table and back: nothing lost, nothing made up, whatever the schema did meanwhile. [OB6] [OB13]"""

import datetime as dt
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manifestcommit.format import manifest_table, values
from manifestcommit.format.entries import ColumnStats, Entry, ManifestRef, SourceRange
from manifestcommit.format.evolution import apply_edits, drop_column, widen_column
from manifestcommit.format.fields import Field, Partitioned, Schema
from manifestcommit.format.partitioning import Matcher, of_partition

SCHEMA = Schema(
    fields=(
        Field(id=1, name="day", type="date"), Field(id=2, name="word", type="string"), Field(id=3, name="n", type="integer"),
        Field(id=4, name="x", type="double"), Field(id=5, name="price", type="decimal(9,2)"),
    )
)  # fmt: skip
BY = (1, 2)
days = st.none() | st.dates(dt.date(1, 1, 1), dt.date(9999, 12, 31)).map(lambda day: values.encode(day, "date")) | st.just("@-800000")
words = st.none() | st.sampled_from(["", "a", "é", "🦆", "__HIVE_DEFAULT_PARTITION__", "null", " "])
doubles = st.floats().map(lambda x: values.encode(x, "double"))


def stats(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[ColumnStats]:
    some = st.none() | st.integers(0, 9)
    return st.builds(ColumnStats, nulls=some, nans=some, min=st.none() | inner, max=st.none() | inner, min_cut=st.booleans())


columns = st.fixed_dictionaries(
    {},
    optional={
        2: stats(st.text(max_size=3)),
        3: stats(st.integers(-(2**31), 2**31 - 1)),
        4: stats(doubles),
        5: stats(st.decimals(-1000, 1000, places=2).map(lambda d: values.encode(d, "decimal(9,2)"))),
    },
)
ranges = st.builds(
    SourceRange, source=st.text(max_size=3), start=st.none() | st.integers(-9, 9) | st.text(max_size=2), end=st.integers(0, 9)
)


@st.composite
def entry_lists(draw: st.DrawFn) -> list[Entry]:
    paths = draw(st.lists(st.text(st.sampled_from("ab =%+#é🦆/"), min_size=1, max_size=6), max_size=8, unique=True))
    return [
        Entry(
            path=f"p/{number}-{path.strip('/')}x".replace("//", "/"), partition=(draw(days), draw(words)), rows=draw(st.integers(0, 2**40)),
            bytes=draw(st.integers(0, 2**40)), digest=draw(st.none() | st.just("sha256:00")), added=draw(st.sampled_from([0, 3])),
            job=f"j{number}", columns=draw(columns), sources=tuple(draw(st.lists(ranges, max_size=2))),
            extra=draw(st.sampled_from([{}, {"future": [1, None]}])),
        )
        for number, path in enumerate(paths)
    ]  # fmt: skip


def plain(entries: list[Entry], *, inherited: int) -> dict[str, Entry]:
    """By path, as they must come back: their version spelled out, empty statistics left out."""
    return {
        entry.path: msgspec.structs.replace(
            entry, added=entry.added or inherited, columns={k: v for k, v in entry.columns.items() if v != ColumnStats()}
        )
        for entry in entries
    }


def back(table: pa.Table, schema: Schema = SCHEMA, inherited: int = 7) -> dict[str, Entry]:
    found = manifest_table.from_table(table, Partitioned(schema, BY), inherited=inherited)
    assert len({entry.path for entry in found}) == len(found)
    return {entry.path: entry for entry in found}


def to_table(entries: list[Entry], schema: Schema = SCHEMA) -> pa.Table:
    return manifest_table.to_table(entries, Partitioned(schema, BY))


@pytest.mark.thorough
@settings(max_examples=40)
@given(one=entry_lists(), two=entry_lists(), gone=st.integers(0, 255))
def test_united_manifests_hold_the_entries_of_all(one: list[Entry], two: list[Entry], gone: int) -> None:
    """What one of them knows of a column, and another does not, is unknown there and known here. [CM12] [OB13] [RD8]"""
    two = [msgspec.structs.replace(entry, path=f"two/{entry.path}") for entry in two]
    first, second = to_table(one), to_table(two)
    removed = gone & ((1 << first.num_rows) - 1)
    lost = {*first.column("path").to_pylist()} - {*manifest_table.live(first, removed).column("path").to_pylist()}
    kept = [manifest_table.with_versions(manifest_table.live(first, removed), 4), manifest_table.with_versions(second, 5)]
    united = manifest_table.unite(kept, Partitioned(SCHEMA, BY))
    expected = {path: e for path, e in plain(one, inherited=4).items() if path not in lost} | plain(two, inherited=5)
    assert back(united) == expected


def sorted_like_a_manifest(table: pa.Table) -> bool:
    keys = [f"partition.{each}" for each in BY] + ["path"]
    return bool(table.select(keys).equals(table.sort_by([(key, "ascending") for key in keys]).select(keys)))


@pytest.mark.thorough
@settings(max_examples=40)
@given(entries=entry_lists())
def test_rows_are_sorted_by_partition_then_path(entries: list[Entry]) -> None:
    """[OB13]"""
    assert sorted_like_a_manifest(to_table(entries))


@pytest.mark.thorough
@settings(max_examples=40)
@given(entries=entry_lists(), data=st.data())
def test_the_rows_of_a_scope_are_those_whose_partition_is_in_it(entries: list[Entry], data: st.DataObject) -> None:
    """[CF3] [CF7] [OB9]"""
    table = to_table(entries)
    pattern = st.fixed_dictionaries({}, optional={1: days, 2: words})
    matcher = Matcher(data.draw(st.lists(pattern, max_size=3)))
    chosen = frozenset(entry.path for entry in entries if data.draw(st.booleans()))
    found = manifest_table.rows_matching(table, Partitioned(SCHEMA, BY), scope=matcher, paths=chosen)
    hit = {*table.column("path").to_pylist()} - {*manifest_table.live(table, found).column("path").to_pylist()}
    assert hit == {e.path for e in entries if e.path in chosen or matcher.holds(of_partition(BY, e.partition))}


def test_a_manifest_from_before_a_widening_and_a_drop_reads_as_the_schema_is_now() -> None:
    """[SC5] [SC6]"""
    old = [
        Entry(
            path="a", partition=("2013-01-01", "w"), rows=1, bytes=1, job="j",
            columns={3: ColumnStats(min=1, max=2), 4: ColumnStats(nulls=0)},
        )
    ]  # fmt: skip
    table = to_table(old)
    edits = (*widen_column(SCHEMA, "n", "long"), *widen_column(SCHEMA, "price", "decimal(12,2)"), *drop_column(SCHEMA, "x"))
    now = apply_edits(SCHEMA, edits)
    new = [Entry(path="b", partition=(None, None), rows=1, bytes=1, job="j", columns={3: ColumnStats(min=2**40, max=2**40)})]
    united = manifest_table.unite([manifest_table.with_versions(table, 2), to_table(new, now)], Partitioned(now, BY))
    found = back(united, now)
    assert found["a"].columns == {3: ColumnStats(min=1, max=2)} == back(table, now)["a"].columns
    assert found["b"].columns == {3: ColumnStats(min=2**40, max=2**40)}


def test_a_widened_partition_column_keeps_its_values() -> None:
    """[SC5] [PT1]"""
    schema = Schema(fields=(Field(id=1, name="n", type="short"), Field(id=2, name="m", type="decimal(4,1)")))
    table = manifest_table.to_table([Entry(path="a", partition=(7, "1.5"), rows=1, bytes=1, job="j")], Partitioned(schema, (1, 2)))
    now = apply_edits(schema, (*widen_column(schema, "n", "long"), *widen_column(schema, "m", "decimal(9,1)")))
    united = manifest_table.unite([table], Partitioned(now, (1, 2)))
    for each in (table, united):
        assert manifest_table.from_table(each, Partitioned(now, (1, 2)), inherited=1)[0].partition == (7, "1.5")
        assert list(manifest_table.partitions(each, Partitioned(now, (1, 2)))) == [{1: 7, 2: "1.5"}]
    assert values.decode("1.5", "decimal(9,1)") == Decimal("1.5")


@pytest.mark.parametrize("name", ["future", "future.thing", "min.999999", "hash.1x", "a.b.c"])
def test_columns_that_a_reader_does_not_know_are_passed_over(name: str) -> None:
    """A newer writer's manifest must not stop an older one's merge. [OB13] [CP2]"""
    table = to_table([Entry(path="a", partition=(None, "w"), rows=1, bytes=1, job="j")])
    newer = table.append_column(name, pa.array([1.5]))
    assert back(newer) == back(table)
    united = manifest_table.unite(
        [newer, to_table([Entry(path="b", partition=(None, "w"), rows=1, bytes=1, job="j")])], Partitioned(SCHEMA, BY)
    )
    assert set(back(united)) == {"a", "b"}


def good_ref(table: pa.Table) -> ManifestRef:
    return ManifestRef(path="_manifest/manifests/m", bytes=1, digest="d", **manifest_table.describe(table, Partitioned(SCHEMA, BY)))


@pytest.mark.parametrize(
    "path",
    [
        "../x", "a/../b", "/etc/passwd", "a//b", "a/", ".", "./a", "_manifest/versions/1", "_MANIFEST/x", "_Manifest", "a\\b", "a\0b", "",
        "a/..",
    ],
)  # fmt: skip
def test_a_hostile_path_in_a_manifest_is_refused(path: str) -> None:
    """[LY1] [SE2] [OB4]"""
    table = to_table([Entry(path="ok", partition=(None, "w"), rows=1, bytes=1, job="j")])
    ref = good_ref(table)
    manifest_table.check_table(table, ref, BY)
    hostile = table.set_column(table.column_names.index("path"), "path", pa.array([path]))
    with pytest.raises(ValueError, match="not a path"):
        manifest_table.check_table(hostile, ref, BY)


@pytest.mark.parametrize("path", ["a/.hidden", "...", "a..b", "x_manifest/y", "a/_manifest/b", ".a", "a b/%2F+=#é🦆"])
def test_an_odd_but_harmless_path_is_accepted(path: str) -> None:
    """[LY1]"""
    table = to_table([Entry(path=path, partition=(None, "w"), rows=1, bytes=1, job="j")])
    manifest_table.check_table(table, good_ref(table), BY)


def test_a_manifest_that_is_not_what_its_reference_says_is_refused() -> None:
    """Fewer entries than the reference says are a smaller table: never an answer. [OB4]"""
    entries = [Entry(path=path, partition=(None, "w"), rows=1, bytes=1, job="j") for path in "abc"]
    table = to_table(entries)
    ref = good_ref(table)
    at = table.column_names.index
    broken = [
        table.slice(1), table.drop_columns(["path"]), table.drop_columns(["partition.2"]), table.drop_columns(["sources"]),
        table.set_column(at("rows"), "rows", pa.array([1, None, 1], pa.int64())),
        table.set_column(at("rows"), "rows", pa.array([1, -1, 1], pa.int64())),
        table.set_column(at("bytes"), "bytes", pa.array([1, 1, -1], pa.int64())),
        table.set_column(at("rows"), "rows", pa.array([1, 1, 1], pa.int32())),
        table.set_column(at("path"), "path", pa.array(["a", None, "c"])),
        table.set_column(at("job"), "job", pa.array(["a", None, "c"])),
    ]  # fmt: skip
    for each in broken:
        with pytest.raises(ValueError):
            manifest_table.check_table(each, ref, BY)
