"""Rows in the order that a table asks for: sorted on the way by compaction, each file once. [GC20] [UK2]"""

import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import manifestcommit as mc
from manifestcommit.cli.main import main
from manifestcommit.errors import UsageError
from manifestcommit.format import manifest_table
from manifestcommit.format.entries import Entry
from manifestcommit.format.fields import Field, Partitioned, Schema
from manifestcommit.operations import compaction
from manifestcommit.protocol import compaction_plan
from manifestcommit.protocol.compaction_plan import SmallFile, largest_sorted, plan_files

SORT = "layout.sort-by"
SMALL = {"write.target-file-size-bytes": "20000"}
COLUMNS = pa.schema([("x", pa.float64()), ("y", pa.int64()), ("note", pa.string()), ("day", pa.int64())])


def made(path: Path, by: str | None, **options: Any) -> mc.Table:
    properties = SMALL | ({SORT: by} if by else {})
    return mc.create_table(path, COLUMNS, properties=properties, **options)


def write(table: mc.Table, files: int, seed: int = 0, days: Sequence[int] = (1,), rows: int = 800) -> None:
    """Files of random values, among them nulls and NaN."""
    chance = random.Random(seed)
    for number in range(files):
        x = [chance.choice([None, float("nan"), 0.5]) if chance.random() < 0.02 else chance.random() for _ in range(rows)]
        columns = [x, [chance.randrange(3) for _ in x], [f"{chance.random()}" for _ in x], [days[number % len(days)]] * rows]
        mc.write(
            pa.table(dict(zip(COLUMNS.names, columns, strict=True)), COLUMNS), table.url, watermarks={f"s{seed}": (number, number + 1)}
        )


def content(table: mc.Table) -> list[str]:
    return sorted(map(str, table.to_arrow().select(COLUMNS.names).to_pylist()))


def entries(table: mc.Table) -> tuple[Entry, ...]:
    return table.snapshot().added


def paths(table: mc.Table) -> set[str]:
    return set(table.files().column("path").to_pylist())


def ordered(table: mc.Table, path: str, by: Sequence[str]) -> bool:
    """Whether a file's rows are in order, by plain Python: nulls, then values, then NaN."""

    def place(value: Any) -> tuple[int, Any]:
        return (0, 0) if value is None else (2, 0) if value != value else (1, value)

    columns = [pq.read_table(f"{table.url.removeprefix('file://')}/{path}").column(name).to_pylist() for name in by]
    keys = [tuple(map(place, row)) for row in zip(*columns, strict=True)]
    return keys == sorted(keys)


def compacted(table: mc.Table) -> dict[str, Any]:
    """What `maintain` said of its compaction."""
    return next(row for row in mc.maintain(table).to_pylist() if row["step"] == "compact")


@pytest.mark.parametrize(("by", "most"), [("x", 128 << 20), ("x", 40_000), ("y,x", 40_000), ("note", 40_000)])
def test_what_is_not_sorted_is_sorted_and_is_not_touched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str, most: int) -> None:
    """Also in parts, where the rows do not fit into memory at once. [GC20]"""
    monkeypatch.setattr(compaction, "MOST_SORTED", most)
    table = made(tmp_path / "t", by)
    write(table, 8)
    before, names = content(table), by.split(",")
    assert compacted(table)["state"] == "done" and content(table) == before
    first = paths(table)
    assert len(first) > 3 and all(ordered(table, path, names) for path in first)
    ids = tuple(field.id for name in names for field in table.snapshot().schema.fields if field.name == name)
    assert {entry.sorted for entry in entries(table)} == {ids}
    assert {span.end for entry in entries(table) for span in entry.sources} == {8}
    assert compacted(table)["state"] == "not due" and table.compact().version is None and paths(table) == first
    write(table, 8, seed=1)
    before = content(table)
    assert compacted(table)["state"] == "done" and content(table) == before
    assert first < paths(table), "what was sorted was rewritten"
    assert table.verify(deep=True).is_sound


def test_a_filter_opens_fewer_files_of_a_sorted_table(tmp_path: Path) -> None:
    """All others are gone when it is read. [GC20] [RD6]"""
    opened, found = {}, {}
    condition = (pc.field("x") > 0.4) & (pc.field("x") < 0.41)
    for by in ("", "x"):
        table = made(tmp_path / f"by {by}", by)
        write(table, 12)
        table.compact()
        wanted = set(table.files(condition).column("path").to_pylist())
        opened[by] = len(wanted), len(paths(table))
        for path in paths(table) - wanted:
            (tmp_path / f"by {by}" / path).unlink()
        found[by] = sorted(table.to_arrow(filter=condition).column("note").to_pylist())
    assert found[""] == found["x"] and len(found["x"]) > 20
    assert opened[""] == (12, 12) and opened["x"][0] <= 2 and opened["x"][1] >= 8, opened


def test_files_of_any_size_are_sorted_once_the_property_is_set(tmp_path: Path) -> None:
    """[GC20]"""
    table = made(tmp_path / "t", None)
    write(table, 3, rows=1500)
    assert min(entry.bytes for entry in entries(table)) > 15_000 and table.compact().version is None
    table.set_properties({SORT: "x"})
    assert compacted(table)["state"] == "done" and all(entry.sorted for entry in entries(table))
    table.set_properties({SORT: "y"})
    assert compacted(table)["state"] == "done"
    assert all(ordered(table, path, ["y"]) for path in paths(table))
    assert table.compact().version is None
    assert table.compact(sort_by=[]).version is None, "for once in no order"


def test_partitions_are_sorted_by_themselves_and_few_small_files_wait(tmp_path: Path) -> None:
    """[GC20] [UK2]"""
    table = made(tmp_path / "t", "x", partition_by="day")
    write(table, 16, days=(1, 2))
    write(table, 1, seed=1, days=(3,), rows=10)
    before = content(table)
    (plan,) = {row["reason"] for row in table.plan_compaction(min_files=8).to_pylist()}
    assert "8 files not sorted yet" in plan
    assert compacted(table)["state"] == "done" and content(table) == before
    assert {entry.partition for entry in entries(table) if not entry.sorted} == {(3,)}
    assert all(len({entry.partition}) == 1 for entry in entries(table))


def test_manifests_keep_by_what_files_are_sorted(tmp_path: Path) -> None:
    """Beside members that this release does not know. [GC20] [OB12]"""
    schema = Schema(fields=(Field(id=7, name="x", type="long"),))
    one = Entry(path="a.parquet", rows=1, bytes=1, job="j", sorted=(7, 9), extra={"later": [1]})
    two = Entry(path="b.parquet", rows=1, bytes=1, job="j", extra={"later": 2})
    table = manifest_table.to_table([one, two], Partitioned(schema, ()))
    manifest_table.check_rows(table)
    assert manifest_table.from_table(table, Partitioned(schema, ()), inherited=0) == [one, two]
    assert manifest_table.sorted_by(table.column("extra"), (7, 9)).to_pylist() == [True, False]
    assert manifest_table.sorted_by(table.column("extra"), (7,)).to_pylist() == [False, False]


@pytest.mark.parametrize("value", ["7", "[7.5]", '["7"]', "[true]", "null", "[-7]", "{}"])
def test_what_is_no_list_of_ids_is_damage(value: str) -> None:
    """[GC20] [OB4]"""
    one = Entry(path="a.parquet", rows=1, bytes=1, job="j")
    table = manifest_table.to_table([one], Partitioned(Schema(fields=()), ()))
    at = table.column_names.index("extra")
    table = table.set_column(at, "extra", pa.array([f'{{"sorted": {value}}}'], pa.string()))
    with pytest.raises(ValueError, match="sorted"):
        manifest_table.check_rows(table)


def test_the_bounds_of_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """[GC20]"""
    monkeypatch.setattr(compaction_plan, "SORTED_BYTES", 500)
    assert [largest_sorted(target) for target in (100, 1000)] == [500, 1000]
    files = [SmallFile(path=f"{number}", rows=1, bytes=90, unsorted=number % 2 == 0) for number in range(14)]
    groups = list(plan_files(files, target=100, max_bytes=1 << 30, min_files=8))
    assert [(len(group.paths), group.unsorted) for group in groups] == [(5, True), (2, True)]
    assert {int(path) % 2 for group in groups for path in group.paths} == {0}, "a sorted file of the target's size was taken"
    alone = [SmallFile(path="a", rows=1, bytes=90, unsorted=True)]
    assert not list(plan_files(alone, target=100, max_bytes=1 << 30))
    assert [group.paths for group in plan_files(alone, target=50, max_bytes=1 << 30)] == [("a",)]


@pytest.mark.parametrize(
    "value", ["nope", "x,nope", "day", "DAY", "x,x", "x,X", "tags", "tags.element", "s", "s.a", "nothing", "c", "code"]
)
def test_a_column_without_an_order_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """By the property and by the argument alike, and no Spark is started. [GC20]"""
    monkeypatch.setitem(sys.modules, "manifestcommit.spark.row_changes", None)
    collated = {b"SPARK::metadata::json": b'{"__COLLATIONS": {"c": "icu.UTF8_LCASE"}}'}
    char = {b"SPARK::metadata::json": b'{"__CHAR_VARCHAR_TYPE_STRING": "char(5)"}'}
    more = [
        pa.field("tags", pa.list_(pa.int64())),
        pa.field("s", pa.struct([("a", pa.int64())])),
        pa.field("nothing", pa.null()),
        pa.field("c", pa.string(), metadata=collated),
        pa.field("code", pa.string(), metadata=char),
    ]
    schema = pa.schema([*COLUMNS, *more])
    table = mc.create_table(tmp_path / "t", schema, partition_by="day")
    version = table.version
    with pytest.raises(UsageError, match=SORT):
        table.set_properties({SORT: value})
    with pytest.raises(UsageError, match=SORT):
        mc.create_table(tmp_path / "new", schema, partition_by="day", properties={SORT: value})
    assert not (tmp_path / "new").exists()
    for call in (table.compact, table.plan_compaction):
        with pytest.raises(UsageError, match="sort_by"):
            call(sort_by=value.split(","))
    assert table.version == version, "something was committed"


@pytest.mark.parametrize("value", ["", " ", ","])
def test_an_order_of_no_column_is_refused(tmp_path: Path, value: str) -> None:
    """[GC20]"""
    table = made(tmp_path / "t", "x")
    with pytest.raises(UsageError, match=f"{SORT}.* names no column.*remove"):
        table.set_properties({SORT: value})
    with pytest.raises(UsageError, match="there is no property"):
        table.set_properties({"layout.sorted": "x"})
    table.set_properties({SORT: None})
    assert SORT not in table.snapshot().properties


@pytest.mark.parametrize("by", ["x", "y, X"])
def test_a_column_that_orders_the_table_is_neither_dropped_nor_renamed(tmp_path: Path, by: str) -> None:
    """Not before the property is removed; by the command's dry run neither. [GC20] [SC6]"""
    table = made(tmp_path / "t", by)
    write(table, 2)
    version = table.version
    for change in (lambda: table.drop_column("x"), lambda: table.rename_column("X", "z")):
        with pytest.raises(UsageError, match=f"{SORT}.*'x'.*nothing was changed.*{SORT}.*None"):
            change()
    assert main(["drop-column", table.url, "x", "--dry-run"]) == 2
    assert table.version == version and table.compact().version is not None
    table.rename_column("note", "text")
    table.drop_column("text")
    table.set_properties({SORT: None})
    table.rename_column("x", "z")
    table.set_properties({SORT: "z"})
    for _ in range(2):
        mc.write(table.to_arrow().slice(0, 10), table.url)
    assert table.compact().version is not None


@pytest.mark.parametrize("by", ["x, y", "Y,x"])
def test_a_column_that_orders_the_table_does_not_partition_it(tmp_path: Path, by: str) -> None:
    """Transforms of it may; a dry run says so too, and so does the command. [GC20] [SC13]"""
    table = made(tmp_path / "t", by)
    write(table, 2)
    version = table.version
    for names, dry in ((["y"], False), (["day", "Y"], True)):
        with pytest.raises(UsageError, match=f"{SORT}.*'y'.*nothing was changed.*{SORT}.*None"):
            table.set_partitioning(names, dry_run=dry)
    assert main(["set-partitioning", table.url, "--partition-by", "y"]) == 2 and table.version == version
    table.set_partitioning(["bucket(2, y)", "day"])
    assert table.compact().version is not None and all(entry.sorted for entry in entries(table))


def test_a_column_of_an_order_that_is_not_applied_stays_too(tmp_path: Path) -> None:
    """[GC20]"""
    table = made(tmp_path / "t", "x,y")
    write(table, 1, rows=10)
    partitioned(table)
    for change in (lambda: table.drop_column("y"), lambda: table.rename_column("x", "z")):
        with pytest.raises(UsageError, match=f"{SORT}.*nothing was changed.*{SORT}.*None"):
            change()
    table.set_properties({SORT: None})
    table.rename_column("x", "z")


def lacking(table: mc.Table) -> None:
    mc.write(table.to_arrow(["y", "note", "day"]), table.url, mode="overwrite", replace_schema=True)


def nested(table: mc.Table) -> None:
    rows = table.to_arrow()
    mc.write(rows.set_column(0, "x", pa.array([{"a": 1}] * rows.num_rows)), table.url, mode="overwrite", replace_schema=True)


def partitioned(table: mc.Table) -> None:
    rows = table.to_arrow()
    rows = rows.set_column(0, "x", pa.array([1] * rows.num_rows))
    mc.write(rows, table.url, mode="overwrite", replace_schema=True, partition_by="x")


def rolled_back(table: mc.Table) -> None:
    version = table.version
    table.add_column("later", "long")
    table.set_properties({SORT: "later"})
    table.rollback(version, reason="test")
    assert table.snapshot().properties[SORT] == "later"


@pytest.mark.parametrize("lose", [lacking, nested, partitioned, rolled_back])
def test_an_order_that_the_table_has_lost_is_passed_over(tmp_path: Path, lose: Callable[[mc.Table], None]) -> None:
    """Compaction goes on unsorted, and upkeep says why. [GC20] [UK5]"""
    table = mc.create_table(tmp_path / "t", COLUMNS, properties={SORT: "x"})
    write(table, 2, rows=10)
    lose(table)
    for _ in range(8):
        mc.write(table.to_arrow().slice(0, 5), table.url)
    before = len(table.to_arrow())
    row = compacted(table)
    assert row["state"] == "done" and f"{SORT!r}" in row["reason"] and "is not applied" in row["reason"]
    assert not any(entry.sorted for entry in entries(table)) and len(table.to_arrow()) == before
    row = compacted(table)
    assert row["state"] == "not due" and "is not applied" in row["reason"]
    mc.write(table.to_arrow().slice(0, 5), table.url)
    assert table.compact().version is not None
    table.set_properties({SORT: "y"})
    assert "is not applied" not in compacted(table)["reason"]


def test_a_step_that_fails_before_it_is_due_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not that the time is used up. [UK4] [UK5]"""
    table = made(tmp_path / "t", None)
    write(table, 2)

    def fail(*given: object, **named: object) -> None:
        raise mc.errors.StoreError("the store is away")

    monkeypatch.setattr(mc.Table, "plan_compaction", fail)
    row = compacted(table)
    assert (row["state"], row["result"]) == ("failed", "the store is away")
    assert row["reason"] == "it is not known whether it is due"
    assert {each["reason"] for each in mc.maintain(table, max_time="0s").to_pylist()} == {"the time is used up"}
