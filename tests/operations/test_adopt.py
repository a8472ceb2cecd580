"""Folders of Parquet files that something else wrote become tables where they are. [AF2] [DF4]"""

import base64
import contextlib
import datetime as dt
import json
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, get_args

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests.kit.footers import parquet_bytes
from tests.kit.sizes import SetBudgets, at_calls, in_turn, some
from tests.kit.tables import begin, check_table, clone, memory, read, read_ids, rows, session, write

import manifestcommit as mc
from manifestcommit.cli.main import main
from manifestcommit.format.partitioning import widen
from manifestcommit.log.version_chain import list_above, open_head
from manifestcommit.operations import adopt as adopting
from manifestcommit.operations.adopt import KEY, UNFINISHED, adopt
from manifestcommit.store import LocalStore, Store, open_store
from manifestcommit.store.local import MemoryStore
from manifestcommit.testing.faults import Died, Fault, FaultStore

HOSTILE = "a b%+=#'é🦆&?"
NULL = "__HIVE_DEFAULT_PARTITION__"
MISMATCH = mc.errors.SchemaMismatchError


def put(root: Path | str, name: str, data: pa.Table | None = None, **options: Any) -> Path:
    """A Parquet file, or one with the ids 1 and 2."""
    path = Path(root) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": [1, 2]}) if data is None else data, path, **options)
    return path


def ids(*numbers: int, **columns: Any) -> pa.Table:
    return pa.table({"id": pa.array(numbers, pa.int64()), **columns})


def everything(root: Path) -> dict[str, bytes]:
    """Every file that is none of the table's own metadata."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and "_manifest" not in path.relative_to(root).parts
    }


def table_of(root: Path) -> pa.Table:
    return mc.Table(root).dataset().to_table().sort_by("id")


def refused(root: Path, match: str, error: type[Exception] = mc.errors.UsageError, **options: Any) -> None:
    """The folder is not adopted, and nothing is made in it."""
    before = sorted(root.rglob("*"))
    with pytest.raises(error, match=match):
        mc.Table(root).adopt(**options)
    assert sorted(root.rglob("*")) == before


# --- what is read afterwards --------------------------------------------------------------------------------------------
def test_a_flat_folder_becomes_a_table_in_place(tmp_path: Path) -> None:
    """One commit beside the creation; no file is touched; a second call finds nothing to do. [AF2]"""
    put(tmp_path, "part-0.parquet", ids(1, 2))
    put(tmp_path, f"{HOSTILE}.snappy.parquet", ids(3))
    put(tmp_path, "no suffix", ids(4))
    before = everything(tmp_path)
    found = mc.Table(tmp_path).adopt()
    assert (found.version, found.files, found.rows, found.partition_by) == (2, 3, 4, ())
    assert not found.already_adopted and found.bytes == sum(map(len, before.values()))
    assert everything(tmp_path) == before
    assert table_of(tmp_path).column("id").to_pylist() == [1, 2, 3, 4]
    check_table(LocalStore(str(tmp_path)))
    assert mc.Table(tmp_path).verify().is_sound
    assert [row["operation"] for row in mc.Table(tmp_path).history()] == ["adopt", "create"]
    assert UNFINISHED not in mc.Table(tmp_path).snapshot().properties
    again = mc.Table(tmp_path).adopt()
    assert again.already_adopted and again.version == 2 and len(mc.Table(tmp_path).history()) == 2


def test_partitions_of_folders_are_columns_although_no_file_has_them(tmp_path: Path) -> None:
    """Typed as Spark infers them; null, escapes and plain folders between; every filter selects what it should. [AF2] [DF4] [RD7]"""
    put(tmp_path, "day=2013-01-01/n=7/x%3Ay=a%20b%2F%25/sub/0.parquet", ids(1))
    put(tmp_path, f"day=2013-01-02/n=3000000000/x%3Ay={NULL}/0.parquet", ids(2))
    put(tmp_path, f"day={NULL}/n={NULL}/x%3Ay=é=ü/0.parquet", ids(3))
    assert mc.Table(tmp_path).adopt().partition_by == ("day", "n", "x:y")
    table = table_of(tmp_path)
    assert [(field.name, str(field.type)) for field in table.schema] == [
        ("id", "int64"), ("day", "date32[day]"), ("n", "int64"), ("x:y", "string"),
    ]  # fmt: skip
    assert table.to_pylist() == [
        {"id": 1, "day": dt.date(2013, 1, 1), "n": 7, "x:y": "a b/%"},
        {"id": 2, "day": dt.date(2013, 1, 2), "n": 3_000_000_000, "x:y": None},
        {"id": 3, "day": None, "n": None, "x:y": "é=ü"},
    ]
    dataset = mc.Table(tmp_path).dataset()
    n, day, text = pc.field("n"), pc.field("day"), pc.field("x:y")
    for condition, expected in (
        (n == 7, [1]), (n > 7, [2]), (n.is_null(), [3]), (~(n == 7), [2]), (day.is_null(), [3]), (day >= dt.date(2013, 1, 2), [2]),
        (text == "é=ü", [3]), (text.is_valid(), [1, 3]), (n > pc.field("id"), [1, 2]), ((day == dt.date(2013, 1, 1)) | n.is_null(), [1, 3]),
    ):  # fmt: skip
        assert sorted(dataset.to_table(filter=condition).column("id").to_pylist()) == expected, condition
        entries = mc.Table(tmp_path).files(filter=condition)
        assert entries.num_rows >= len(expected), "pruning loses nothing"
    assert mc.Table(tmp_path).files(filter=n == 7).num_rows == 1
    assert dataset.to_table(columns=["n"]).num_rows == 3 and dataset.count_rows() == 3
    assert dataset.to_table(columns=["day", "x:y"], filter=n == 7).to_pylist() == [{"day": dt.date(2013, 1, 1), "x:y": "a b/%"}]


def test_columns_unite_and_widen(tmp_path: Path) -> None:
    """[AF2] [SC5] [SC4]"""
    put(tmp_path, "1.parquet", pa.table({"id": pa.array([1], pa.int16()), "f": pa.array([0.5], pa.float32()), "d": [Decimal("1.25")]}))
    put(tmp_path, "2.parquet", pa.table({"new": ["x"], "id": pa.array([2], pa.int64()), "f": [0.25], "st": [{"a": 1}]}))
    put(tmp_path, "3.parquet", pa.table({"id": pa.array([3], pa.int32()), "d": [Decimal("12345.25")], "st": [{"a": 2, "b": "y"}]}))
    mc.Table(tmp_path).adopt()
    assert table_of(tmp_path).to_pylist() == [
        {"id": 1, "f": 0.5, "d": Decimal("1.25"), "new": None, "st": None},
        {"id": 2, "f": 0.25, "d": None, "new": "x", "st": {"a": 1, "b": None}},
        {"id": 3, "f": None, "d": Decimal("12345.25"), "new": None, "st": {"a": 2, "b": "y"}},
    ]
    assert [(f.name, f.type) for f in mc.Table(tmp_path).snapshot().schema.fields][:3] == [
        ("id", "long"), ("f", "double"), ("d", "decimal(7,2)"),
    ]  # fmt: skip
    for key, value, expected in (("id", 2, [2]), ("f", 0.5, [1]), ("d", Decimal("12345.25"), [3])):
        assert mc.Table(tmp_path).dataset().to_table(filter=pc.field(key) == value).column("id").to_pylist() == expected


def test_every_type_that_a_table_has_comes_back(tmp_path: Path) -> None:
    """INT96 as an instant, nested types, empty files. [AF2] [SC2]"""
    moment = dt.datetime(2013, 1, 1, 12, 30, tzinfo=dt.UTC)
    data = pa.table(
        {
            "id": [1, 2], "t": pa.array([moment, None], pa.timestamp("us", "UTC")),
            "ntz": pa.array([moment.replace(tzinfo=None), None], pa.timestamp("us")),
            "m": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int32())), "l": [[{"x": 1.5}], []], "b": [b"\xff", None],
            "u": pa.array([2**64 - 1, 0], pa.uint64()), "cat": pa.array(["a", "b"]).dictionary_encode(), "ok": [True, None],
        }
    )  # fmt: skip
    put(tmp_path / "new", "1.parquet", data)
    put(tmp_path / "new", "empty.parquet", data.slice(0, 0))
    mc.Table(tmp_path / "new").adopt()
    got = table_of(tmp_path / "new")
    assert [str(field.type) for field in got.schema][1:3] == ["timestamp[us, tz=UTC]", "timestamp[us]"]
    assert got.to_pylist() == [{**row, "u": Decimal(row["u"])} for row in data.to_pylist()]
    old = tmp_path / "old"
    put(old, "x.parquet", pa.table({"id": [1], "t": pa.array([moment], pa.timestamp("us", "UTC")), "in": [[moment]]}),
        use_deprecated_int96_timestamps=True)  # fmt: skip
    mc.Table(old).adopt()
    assert table_of(old).to_pylist() == [{"id": 1, "t": moment, "in": [moment]}]


def test_only_empty_files_make_an_empty_table(tmp_path: Path) -> None:
    put(tmp_path, f"k={HOSTILE.replace('%', '%25')}/1.parquet", ids())
    put(tmp_path, "k=b/1.parquet", ids())
    assert mc.Table(tmp_path).adopt().rows == 0
    assert table_of(tmp_path).num_rows == 0 and mc.Table(tmp_path).files().column("k").to_pylist() == [HOSTILE, "b"]


# --- partition columns ----------------------------------------------------------------------------------------------------
def test_a_column_of_the_folders_may_stand_in_the_files_too(tmp_path: Path) -> None:
    """Its type is the files'; a file without it takes its folder's value. [AF2] [DF4]"""
    put(tmp_path, "k=1/a.parquet", ids(1, 2, k=pa.array([1, 1], pa.int16())))
    put(tmp_path, "k=2/a.parquet", ids(3))
    put(tmp_path, f"k={NULL}/a.parquet", ids(4, k=pa.array([None], pa.int16())))
    mc.Table(tmp_path).adopt()
    table = table_of(tmp_path)
    assert table.schema.field("k").type == pa.int16() and table.column("k").to_pylist() == [1, 1, 2, None]


@pytest.mark.parametrize(
    ("folder", "inside"),
    [("k=1", [2, 2]), ("k=1", [1, 2]), (f"k={NULL}", [0, 0]), ("k=1", [None, None]), ("k=x", [1, 1]), ("k=1", [1, None])],
)
def test_a_folder_that_contradicts_its_file_is_refused(tmp_path: Path, folder: str, inside: list[int | None]) -> None:
    """[AF2]"""
    put(tmp_path, "k=7/a.parquet", ids(0, k=[7]))
    put(tmp_path, f"{folder}/a b.parquet", ids(1, 2, k=pa.array(inside, pa.int64())))
    refused(tmp_path, r"a b.parquet.*'k'", MISMATCH)
    assert not (tmp_path / "_manifest").exists(), "nothing was written"


def test_partition_by_names_columns_of_the_files(tmp_path: Path) -> None:
    """Folders that also stand in the files may then be layout only. [AF2] [PT1]"""
    put(tmp_path, "half=1.5/0.parquet", ids(1, half=[1.5], day=["a"]))
    put(tmp_path, "half=2.5/0.parquet", ids(2, half=[2.5], day=["b"]))
    refused(tmp_path, "'half' has the type double")
    refused(tmp_path, "partition", MISMATCH, partition_by="none")
    assert mc.Table(tmp_path).adopt(partition_by="day").partition_by == ("day",)
    assert table_of(tmp_path).to_pylist() == [{"id": 1, "half": 1.5, "day": "a"}, {"id": 2, "half": 2.5, "day": "b"}]


def test_no_value_of_a_folder_is_lost(tmp_path: Path) -> None:
    """[AF2]"""
    put(tmp_path, "k=1/0.parquet", ids(1))
    refused(tmp_path, r"'k' is in its folders only.*would be lost", MISMATCH, partition_by=[])
    put(tmp_path, "flat.parquet", ids(2))
    refused(tmp_path, r"flat.parquet", MISMATCH)
    refused(tmp_path, r"flat.parquet.*neither the file nor its folders", MISMATCH, partition_by=["k"])


@pytest.mark.parametrize("other", ["b=1/a=1/0.parquet", "a=1/0.parquet", "A=1/b=1/0.parquet", "a=1/b=1/c=1/0.parquet"])
def test_folders_of_other_columns_are_refused_with_two_files(tmp_path: Path, other: str) -> None:
    """[AF2]"""
    put(tmp_path, "a=0/b=1/0.parquet")
    put(tmp_path, other)
    refused(tmp_path, rf"(?s)(?=.*a=0/b=1/0.parquet)(?=.*{re.escape(other)})", MISMATCH)


@pytest.mark.parametrize("name", ["=1/0.parquet", "a=1/a=2/0.parquet", "a=%FF/0.parquet", "%FF=1/0.parquet", "a\\b.parquet"])
def test_names_that_tell_nothing_clear_are_refused(tmp_path: Path, name: str) -> None:
    """[LY1]"""
    put(tmp_path, name)
    error, said = (mc.errors.UsageError, "backslash") if "\\" in name else (MISMATCH, "folders that name no partition")
    refused(tmp_path, said, error)


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["2013-01"], "string"), (["2013"], "integer"), (["2013-1-1"], "string"), (["2013-01-01", None], "date"), ([None], None),
        (["007", "7"], "string"), (["01234"], "string"), (["+5", "-3"], "string"), (["0", "-3"], "integer"),
        (["3000000000", "1"], "long"), (["-2147483648"], "integer"),
        (["2147483648"], "long"), (["9" * 20, "1"], "decimal(20,0)"), (["1", "9" * 38], "decimal(38,0)"), (["9" * 39], "string"),
        (["9" * 500], "string"), (["true"], "string"), (["2013-01-01 00:00:00"], "timestamp_ntz"), (["0000-01-01"], "string"),
        (["2013-01-01 00:00:00.5", "2013-01-01"], "string"), (["2013-01-01 00:00:00.50"], "string"),
        (["2013-02-30"], "string"), (["a", "1"], "string"),
        (["2013-01-01", "1"], "string"),
        (["1_000"], "string"), (["0x10"], "string"), (["1.5"], "string"), (["1e3"], "string"),
        ([""], "string"), (["1", ""], "string"), (["1", "a", "2"], "string"),
        (["-0"], "string"), (["0" * 40], "string"), (["9" * 20, "3000000000"], "decimal(20,0)"),
    ],
)  # fmt: skip
def test_folder_values_are_typed_as_spark_infers_them(texts: list[str | None], kind: str | None) -> None:
    """In any order; text where Spark's type would lose a name. [AF2]"""
    for order in (texts, texts[::-1]):
        found = None
        for text in order:
            found = widen(found, text)
        assert found == kind


# --- what is passed over, and what is refused ---------------------------------------------------------------------------
def test_what_no_reader_of_a_folder_takes_is_passed_over_and_told(tmp_path: Path) -> None:
    """[AF2]"""
    put(tmp_path, "_k=1/data.parquet", ids(1))
    names = ["_SUCCESS", "_metadata", "_common_metadata", ".part-0.parquet.crc", "_temporary/0/x.parquet", "_k=1/.hidden/y.parquet",
             "_k=1/a.parquet._COPYING_", "_k=1_$folder$"]  # fmt: skip
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"no parquet")
    found = mc.Table(tmp_path).adopt()
    assert {each.name for each in found.skipped} == set(names) and found.skipped_files == len(names)
    assert found.partition_by == ("_k",) and table_of(tmp_path).to_pylist() == [{"id": 1, "_k": 1}]


def test_files_that_are_no_parquet_are_named_and_nothing_is_done(tmp_path: Path) -> None:
    """[AF2]"""
    put(tmp_path, "a.parquet")
    (tmp_path / "b.csv").write_text("x")
    (tmp_path / "c.parquet").write_bytes(b"")
    whole = put(tmp_path, "d.parquet").read_bytes()
    (tmp_path / "d.parquet").write_bytes(whole[:-20])
    refused(tmp_path, r"(?s)b.csv.*c.parquet.*d.parquet")
    for number in range(40):
        (tmp_path / f"b{number}.csv").write_text("x")
    with pytest.raises(mc.errors.UsageError, check=lambda error: str(error).count("cannot be read") == 10):
        mc.Table(tmp_path).adopt()
    assert not (tmp_path / "_manifest").exists()


def test_a_folder_without_any_parquet_file_is_told_so(tmp_path: Path) -> None:
    """[AF2]"""
    (tmp_path / "b.csv").write_text("x")
    refused(tmp_path, r"no Parquet file .*manifestcommit\.write.*b\.csv")
    assert [each.name for each in tmp_path.iterdir()] == ["b.csv"]


@pytest.mark.parametrize(
    ("log", "what"),
    [
        ("_delta_log/00000000000000000000.json", "Delta Lake"), (".hoodie/hoodie.properties", "Hudi"),
        ("metadata/v1.metadata.json", "Iceberg"), ("metadata/00000-5f.gz.metadata.json", "Iceberg"),
        ("sub/x/_delta_log/0.json", "Delta Lake"), ("sub/metadata/v9.metadata.json", "Iceberg"),
        ("_manifest_not/_delta_log/1.json", "Delta Lake"), ("part=1/.hoodie_partition_metadata", "Hudi"),
    ],
)  # fmt: skip
def test_tables_of_other_formats_are_refused(tmp_path: Path, log: str, what: str) -> None:
    """Their folders hold files that were deleted long ago. [AF2]"""
    put(tmp_path, "a.parquet")
    (tmp_path / log).parent.mkdir(parents=True)
    (tmp_path / log).write_text("{}")
    refused(tmp_path, what, mc.errors.NotATableError)


def write_nanoseconds(path: Path, writer: str, moments: list[dt.datetime | None]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if writer == "pandas":
        pd.DataFrame({"t": pd.to_datetime(moments).astype("datetime64[ns]"), "v": range(len(moments))}).to_parquet(path)
    else:
        frame = pl.DataFrame({"t": moments, "v": list(range(len(moments)))}, schema={"t": pl.Datetime("ns"), "v": pl.Int64()})
        frame.with_columns(pl.struct("t").alias("s"), pl.concat_list("t").alias("l")).write_parquet(path)


@pytest.mark.parametrize("writer", ["pandas", "polars"])
def test_whole_microseconds_in_nanoseconds_are_adopted_by_rewriting(tmp_path: Path, writer: str) -> None:
    """Only the files that hold them; the others are listed where they are, and all stay. [AF2]"""
    moments = [dt.datetime(2020, 1, 1, 1, 2, 3, 456789), None, dt.datetime(1969, 12, 31, 23, 59, 59, 999999)]
    write_nanoseconds(tmp_path / "n=1" / "x.parquet", writer, moments)
    pq.write_table(pa.table({"t": pa.array(moments, pa.timestamp("us")), "v": [0, 1, 2]}), tmp_path / "n=1" / "y.parquet")
    write_nanoseconds(tmp_path / "n=__HIVE_DEFAULT_PARTITION__" / "z.parquet", writer, moments)
    table, before = mc.Table(tmp_path), {each: each.read_bytes() for each in tmp_path.rglob("*.parquet")}
    with pytest.raises(MISMATCH, match=r"timestamp\[ns\].*adopt\(rewrite=True\)"):
        table.adopt()
    adopted = table.adopt(rewrite=True)
    assert (adopted.files, adopted.rows, adopted.rewritten_files, adopted.partition_by) == (3, 9, 2, ("n",))
    found = sorted(table.to_arrow(columns=["n", "v", "t"]).to_pylist(), key=repr)
    assert found == sorted(({"n": n, "v": v, "t": t} for n in (1, 1, None) for v, t in enumerate(moments)), key=repr)
    assert table.schema.field("t").type == pa.timestamp("us")
    assert {each: each.read_bytes() for each in before} == before
    assert {each["path"] for each in table.files().to_pylist()} & {"n=1/x.parquet", "n=1/y.parquet"} == {"n=1/y.parquet"}
    assert table.verify(deep=True).is_sound and table.adopt(rewrite=True).already_adopted
    table.gc()
    assert all(each.exists() for each in before)


@pytest.mark.parametrize("writer", ["pandas", "polars"])
def test_nanoseconds_that_would_be_lost_are_refused(tmp_path: Path, writer: str) -> None:
    """Before there is a table, though the value is the last one of a second file. [AF2]"""
    write_nanoseconds(tmp_path / "x.parquet", writer, [dt.datetime(2020, 1, 1)])
    value = pa.array([0, 1_577_840_523_456_789_001], pa.timestamp("ns"))
    pq.write_table(pa.table({"t": value, "v": [1, 2]}), tmp_path / "y.parquet")
    refused(tmp_path, r"y\.parquet: .*'?t'?.*Nothing was adopted", MISMATCH, rewrite=True)


RESERVED = [("file_path", pa.string(), "2147483546"), ("pos", pa.int64(), "2147483545")]
POSITIONS = pa.schema([pa.field(name, kind, metadata={"PARQUET:field_id": id}) for name, kind, id in RESERVED])
DELETES = [
    pa.table({"file_path": ["a"], "pos": [0]}, schema=POSITIONS),
    ids(1).replace_schema_metadata({"delete-type": "equality", "delete-field-ids": "1"}),
    pa.table({"file_path": ["a"], "pos": [0]}).replace_schema_metadata({"delete-type": "position"}),
]


@pytest.mark.parametrize("deletes", DELETES, ids=["ids", "equality", "position"])
def test_delete_files_of_iceberg_are_no_rows(tmp_path: Path, deletes: pa.Table) -> None:
    """Wherever they were copied to. [AF1] [AF2]"""
    path = tmp_path / "copied" / "x.parquet"
    path.parent.mkdir()
    with pq.ParquetWriter(path, deletes.schema) as writer:
        writer.write_table(deletes)
        writer.add_key_value_metadata(deletes.schema.metadata or {})
    refused(path.parent, r"x\.parquet is a delete file of Iceberg.*Nothing was adopted.*from_=\"iceberg\"")
    mc.create_table(tmp_path / "t", deletes.schema)
    path.rename(tmp_path / "t" / "x.parquet")
    with (
        pytest.raises(mc.errors.UsageError, match=r"x\.parquet is a delete file of Iceberg.*Nothing was added"),
        mc.begin(tmp_path / "t") as job,
    ):
        job.add_files(["x.parquet"])


def test_tables_do_not_nest_by_adoption(tmp_path: Path) -> None:
    """[LY6]"""
    put(tmp_path, "a.parquet")
    mc.write(ids(1), tmp_path / "inner one")
    refused(tmp_path, "inside it, at 'inner one'", mc.errors.NotATableError)
    put(tmp_path / "inner one" / "deep", "b.parquet")
    refused(tmp_path / "inner one" / "deep", "lies inside the table", mc.errors.NotATableError)


def test_a_table_is_not_adopted_and_an_empty_folder_neither(tmp_path: Path) -> None:
    """[AF2] [LY6]"""
    mc.write(ids(1), tmp_path / "t")
    refused(tmp_path / "t", "is a table already: there is nothing to do")
    for folder in ("missing", "hidden"):
        (tmp_path / "hidden").mkdir(exist_ok=True)
        (tmp_path / "hidden" / "_SUCCESS").touch()
        refused(tmp_path / folder, "holds no Parquet files", mc.errors.NotATableError)
    put(tmp_path / "plain", "a.parquet")
    with pytest.raises(mc.errors.NotATableError, match=r"Table\.adopt"):
        mc.write(ids(1), tmp_path / "plain")


@pytest.mark.parametrize(
    ("one", "other", "column"),
    [
        ({"x": pa.array([1])}, {"x": pa.array(["a"])}, "x"),
        ({"x": pa.array([1])}, {"x": pa.array([1.5])}, "x"),
        ({"x": pa.array(["a"])}, {"x": pa.nulls(1)}, "x"),
        ({"x": pa.nulls(1)}, {"x": pa.array(["a"])}, "x"),
        ({"X é": pa.array([1])}, {"x É": pa.array([1])}, "X é"),
        ({"x": pa.array([Decimal("1.25")])}, {"x": pa.array([Decimal("1.125")])}, "x"),
        ({"x": pa.array([Decimal("1.125")])}, {"x": pa.array([Decimal("123456.25")])}, "x"),
        ({"x": pa.array([{"a": 1}])}, {"x": pa.array([{"a": "b"}])}, "x.a"),
        ({"x": pa.array([[1]])}, {"x": pa.array([1])}, "x"),
        ({"x": pa.array([[{"a": 1}]])}, {"x": pa.array([[{"A": 1}]])}, "x.element.a"),
        ({"x": pa.array([0], pa.timestamp("us"))}, {"x": pa.array([0], pa.timestamp("us", "UTC"))}, "x"),
    ],
)
def test_columns_that_do_not_unite_are_refused_with_two_files(tmp_path: Path, one: Any, other: Any, column: str) -> None:
    """[AF2] [SC5]"""
    put(tmp_path, "0 first.parquet", ids(0))
    put(tmp_path, "1 one.parquet", pa.table(one))
    put(tmp_path, "2 like one.parquet", pa.table(one))
    put(tmp_path, "3 other.parquet", pa.table(other))
    with pytest.raises(MISMATCH) as caught:
        mc.Table(tmp_path).adopt()
    message = str(caught.value)
    assert f"'{column}'" in message and "1 one.parquet" in message and "3 other.parquet" in message
    assert not (tmp_path / "_manifest").exists()


@pytest.mark.parametrize("type", [pa.time64("us"), pa.timestamp("ns"), pa.float16()])
def test_a_type_that_not_every_reader_takes_is_refused_with_its_file(tmp_path: Path, type: pa.DataType) -> None:
    """[AF2] [SC2]"""
    put(tmp_path, "the file.parquet", pa.table({"x": pa.nulls(1, type)}))
    refused(tmp_path, r"the file.parquet", MISMATCH)


# --- Spark's streaming sink ---------------------------------------------------------------------------------------------
def sink(root: Path, batches: dict[str, list[tuple[str, str]]], base: str | None = None) -> None:
    """The log of a streaming query: name of a batch -> (name of a file, action)."""
    log = root / "_spark_metadata"
    log.mkdir(parents=True, exist_ok=True)
    for batch, entries in batches.items():
        lines = [
            json.dumps({"path": (base or root.as_uri()) + "/" + Path("/x", name).as_uri().removeprefix("file:///x/"), "size": 1,
                        "isDir": False, "modificationTime": 0, "blockReplication": 1, "blockSize": 1, "action": action})
            for name, action in entries
        ]  # fmt: skip
        (log / batch).write_text("\n".join(["v1", *lines]))


def test_exactly_the_files_of_a_sinks_log_are_taken(tmp_path: Path) -> None:
    """Compacted logs, deletions, files of attempts that failed, hostile names. [AF2]"""
    hostile = HOSTILE.replace("%", "%25")
    in_one = [f"a%20b=1/{name}.parquet" for name in ("lost attempt", "deleted", "2")]
    names = ["a%20b=1/0.parquet", f"a%20b={hostile}/1.parquet", *in_one]
    for number, name in enumerate(names):
        put(tmp_path, name, ids(number))
    sink(tmp_path, {"0": [("elsewhere", "add")], "1.compact": [(names[0], "add"), (names[3], "add")],
                    "2": [(names[1], "add"), (names[3], "delete")], "3": [(names[4], "add")]})  # fmt: skip
    found = mc.Table(tmp_path).adopt()
    assert table_of(tmp_path).column("id").to_pylist() == [0, 1, 4]
    assert {each.name for each in found.skipped} == {names[2], names[3]} and "_spark_metadata" in found.skipped[0].reason


@pytest.mark.parametrize("damage", ["moved", "gap", "torn", "missing file", "version"])
def test_a_sinks_log_that_cannot_be_followed_is_an_error(tmp_path: Path, damage: str) -> None:
    """[AF2]"""
    put(tmp_path, "0.parquet", ids(0))
    put(tmp_path, "1.parquet", ids(1))
    sink(tmp_path, {"0": [("0.parquet", "add")], "1": [], "2": [("1.parquet", "add")]}, "file:///elsewhere" if damage == "moved" else None)
    log = tmp_path / "_spark_metadata"
    if damage == "gap":
        (log / "1").unlink()
    elif damage == "torn":
        (log / "2").write_text((log / "2").read_text()[:-10])
    elif damage == "missing file":
        (tmp_path / "1.parquet").unlink()
    elif damage == "version":
        (log / "2").write_text("v2\n")
    refused(tmp_path, "_spark_metadata")


def test_a_sink_below_the_folder_is_refused(tmp_path: Path) -> None:
    put(tmp_path, "sub/a.parquet")
    sink(tmp_path / "sub", {"0": []})
    refused(tmp_path, "streaming query", mc.errors.NotATableError)


# --- what is done with the table afterwards -----------------------------------------------------------------------------
def test_an_adopted_table_is_written_altered_and_overwritten(tmp_path: Path) -> None:
    """[DF4] [SC6] [CF3]"""
    put(tmp_path, "day=2013-01-01/0.parquet", ids(1, v=["a"], w=[1]))
    put(tmp_path, "day=2013-01-02/0.parquet", ids(2, v=["b"], w=[2]))
    mc.Table(tmp_path).adopt()
    table = mc.Table(tmp_path)
    one, two = dt.date(2013, 1, 1), dt.date(2013, 1, 2)
    mc.write(pa.table({"id": [3], "v": ["c"], "w": [3], "day": [two]}), tmp_path)
    assert table_of(tmp_path).column("day").to_pylist() == [one, two, two]
    table.rename_column("day", "the day")
    table.rename_column("v", "text")
    table.drop_column("w")
    assert table_of(tmp_path).to_pylist() == [
        {"id": 1, "text": "a", "the day": one}, {"id": 2, "text": "b", "the day": two}, {"id": 3, "text": "c", "the day": two},
    ]  # fmt: skip
    assert table.dataset().to_table(filter=pc.field("the day") == one).column("id").to_pylist() == [1]
    assert table.dataset().to_table(columns=["the day"]).num_rows == 3
    mc.write(pa.table({"id": [9], "text": ["z"], "the day": [two]}), tmp_path, mode="overwrite", overwrite={"the day": "2013-01-02"})
    assert table_of(tmp_path).to_pylist() == [{"id": 1, "text": "a", "the day": one}, {"id": 9, "text": "z", "the day": two}]
    mc.write(pa.table({"id": [8], "text": ["y"], "the day": [one]}), tmp_path, mode="overwrite", overwrite="dynamic")
    assert table.verify(deep=True).findings == ()
    assert table_of(tmp_path).column("id").to_pylist() == [8, 9]
    assert mc.Table(tmp_path).dataset(version=2).to_table().num_rows == 2 and table.verify().is_sound
    check_table(LocalStore(str(tmp_path)))


def test_a_partition_column_that_only_folders_hold_widens(tmp_path: Path) -> None:
    """[DF4] [SC5] [RD7]"""
    put(tmp_path, "n=7/0.parquet", ids(1))
    mc.Table(tmp_path).adopt()
    mc.write(ids(2, n=[2**40]), tmp_path, merge_schema=True)
    assert table_of(tmp_path).column("n").to_pylist() == [7, 2**40]
    assert mc.Table(tmp_path).dataset().to_table(filter=pc.field("n") == 7).column("id").to_pylist() == [1]


def test_it_is_the_same_on_a_real_object_store(rgw: Any) -> None:
    """[AF2] [DF4]"""
    url = f"s3://{rgw.bucket()}/a b/{HOSTILE.replace('?', '')}"
    store = open_store(url, rgw.storage_options)
    for number in range(3):
        store.put(f"k=é {number}%25/{HOSTILE}.parquet", parquet_bytes(ids(number)))
    store.put("_SUCCESS", b"")
    found = mc.Table(url, storage_options=rgw.storage_options).adopt()
    assert (found.files, found.rows, found.skipped_files) == (3, 3, 1)
    table = mc.Table(url, storage_options=rgw.storage_options).dataset().to_table().sort_by("id")
    assert table.to_pylist() == [{"id": number, "k": f"é {number}%"} for number in range(3)]
    assert mc.Table(url, storage_options=rgw.storage_options).adopt().already_adopted


def test_files_that_appear_later_are_not_listed(tmp_path: Path) -> None:
    """[AF2]"""
    put(tmp_path, "k=1/0.parquet", ids(1))
    mc.Table(tmp_path).adopt()
    put(tmp_path, "k=1/1.parquet", ids(2))
    assert mc.Table(tmp_path).adopt().already_adopted and table_of(tmp_path).num_rows == 1


# --- many files, crashes, others ----------------------------------------------------------------------------------------
def folder(files: int = 4, *, inside: bool = False) -> MemoryStore:
    """Files with the ids 0, 1, 2… in two partitions; inside: they hold the partition column."""
    made = memory()
    for number in range(files):
        part = f"é {number % 2}"
        made.put(f"p={part}/{number:05}.parquet", parquet_bytes(rows([number], p=part) if inside else ids(number)))
    return made


@pytest.fixture
def tight(set_budgets: SetBudgets) -> None:
    """Four entries are too many for a head, and two fill a manifest."""
    set_budgets(inline_entry_bytes=500, adopted_entries=2)


@pytest.mark.thorough
@pytest.mark.usefixtures("tight")
@pytest.mark.parametrize("fault", get_args(Fault))
@pytest.mark.parametrize("files", some([4, 1], 1))
@at_calls
def test_a_fault_at_any_call_leaves_no_table_or_one_that_a_rerun_completes(fault: Fault, files: int, step: int) -> None:
    """The same table, each file once. [AF2] [IV3] [IV4]"""
    base = folder(files=files)
    healthy = FaultStore(clone(base))
    adopt(session(healthy))
    for number in range(1, healthy.count + 1):
        if healthy.calls[number - 1].kind != "put_if_absent" and fault not in in_turn(get_args(Fault), number, 1 + (step == 1)):
            continue
        store = clone(base)
        done = None
        with contextlib.suppress(Died, mc.errors.ManifestCommitError):
            done = adopt(session(FaultStore(store, {number: fault})))
        versions = list_above(store, 0).versions
        before = open_head(store).snapshot if versions else None
        if before is not None:
            assert read_ids(store) in ([], list(range(files))), "nothing or all"
            assert (UNFINISHED in before.properties) == (read_ids(store) == [])
        if done is not None:
            assert read_ids(store) == list(range(files))
        again = adopt(session(store))
        head = open_head(store).snapshot
        assert read_ids(store) == list(range(files)) and head.version == 2 == again.version
        assert before is None or head.table_id == before.table_id
        check_table(store)


@pytest.mark.thorough
@pytest.mark.usefixtures("tight")
@pytest.mark.parametrize("files", some([4, 1], 1))
@at_calls
def test_whatever_others_write_before_any_call_no_row_is_lost_or_doubled(files: int, step: int) -> None:
    """A write that finds the table made and not filled, a file that another job has added already, another adoption. [AF2] [IV6]"""

    def writes(store: Store) -> list[int]:
        write(store, rows([100], p="é 0"))
        return [100]

    def adds(store: Store) -> list[int]:
        with begin(store) as job:
            job.add_files(["p=é 0/00000.parquet"])
        return []

    def adopts(store: Store) -> list[int]:
        adopt(session(store))
        return []

    base = folder(files=files, inside=True)
    calls = FaultStore(clone(base))
    adopt(session(calls))
    acts: list[Callable[[Store], list[int]]] = [writes, adds, adopts]
    joined = 0
    for number in range(1, calls.count + 1):
        for act in in_turn(acts, number, 1 + (step == 1)):
            store = clone(base)
            more: list[int] = []

            def before(call: Any, store: Store = store, act: Any = act, more: list[int] = more, number: int = number) -> None:
                if call.number == number:
                    with contextlib.suppress(mc.errors.NotATableError, mc.errors.CommitConflictError):  # no table yet; adopted by now
                        more += act(store)

            adopt(session(FaultStore(store, on_call=before)))
            joined += open_head(store).version > 2
            assert read_ids(store) == sorted([*range(files), *more]), (number, act)
            assert adopt(session(store)).already_adopted
            check_table(store)
    assert joined > 4, "some come between the table and its files"


def test_an_unfinished_adoption_takes_what_has_come_since(monkeypatch: pytest.MonkeyPatch) -> None:
    """New columns, new files; files of the table's own jobs are not taken twice. [AF2]"""
    store = folder()

    class Stopped(BaseException):
        pass

    def stop(*_: Any, **__: Any) -> None:
        raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(adopting, "commit", stop)
        with pytest.raises(Stopped):
            adopt(session(store))
    assert read_ids(store) == [] and open_head(store).version == 1
    write(store, rows([100], p="é 0"))
    store.put("p=é 7/7.parquet", parquet_bytes(ids(7, new=["x"])))
    with pytest.raises(mc.errors.UsageError, match="earlier call began"):
        adopt(session(clone(store)), partition_by=["p", "id"])
    found = adopt(session(store))
    assert found.files == 5 and found.skipped_files == 1 and "a job of this table" in found.skipped[0].reason
    assert read_ids(store) == [0, 1, 2, 3, 7, 100]
    assert [value for value in read(store).column("new").to_pylist() if value] == ["x"]
    check_table(store)


@pytest.mark.parametrize("what", ["replaced", "removed"])
def test_a_file_that_changes_while_it_is_looked_at_is_an_error(what: str) -> None:
    """[AF2] [IV6]"""
    store = folder(files=2)

    def act(call: Any) -> None:
        if call.kind == "open_input" and call.name.endswith("00001.parquet"):
            store.put(call.name, parquet_bytes(ids(*range(50)))) if what == "replaced" else store.delete([call.name])

    with pytest.raises(mc.errors.UsageError, match=f"00001.parquet was {what} while it was looked at"):
        adopt(session(FaultStore(store, on_call=act)))
    assert not list_above(store, 0).versions


# --- the command ----------------------------------------------------------------------------------------------------------
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(tmp_path / "a", "k=1/0.parquet", ids(1))
    (tmp_path / "a" / "_SUCCESS").touch()
    assert main(["adopt", str(tmp_path / "a"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["version"] == 2 and document["partition_by"] == ["k"] and document["skipped"][0]["name"] == "_SUCCESS"
    assert main(["adopt", str(tmp_path / "a")]) == 0
    assert "nothing to do" in capsys.readouterr().err
    put(tmp_path / "b", "k=1/0.parquet", ids(1, k=[1], day=["x"]))
    (tmp_path / "b" / "_SUCCESS").touch()
    assert main(["adopt", str(tmp_path / "b"), "--partition-by", "day, k"]) == 0
    out = capsys.readouterr().out
    assert "rows             1\n" in out and "partition by     day, k\n" in out and "_SUCCESS" in out
    mc.write(ids(1), tmp_path / "c")
    assert main(["adopt", str(tmp_path / "c")]) == 2
    assert main(["adopt", str(tmp_path / "nothing")]) == 3
    assert KEY in mc.Table(tmp_path / "a").snapshot().keys


def test_a_time_zone_that_is_no_text_is_refused(tmp_path: Path) -> None:
    """A damaged Arrow schema in the footer, of which pyarrow decodes the zone only when it is asked for. [AF3]"""
    file = tmp_path / "x.parquet"
    pq.write_table(pa.table({"at": pa.array([1], pa.timestamp("us", tz="Europe/Berlin"))}), file)
    data, stored = file.read_bytes(), pq.read_metadata(file).metadata[b"ARROW:schema"]
    damaged = base64.b64decode(stored).replace(b"Europe", b"Europ\xff")
    file.write_bytes(data.replace(stored, base64.b64encode(damaged)))
    with pytest.raises(mc.errors.SchemaMismatchError, match=r"x\.parquet: A name or zone is not UTF-8: b'Europ\\xff/Berlin'"):
        mc.Table(tmp_path).adopt()
    assert [each.name for each in tmp_path.iterdir()] == ["x.parquet"]
