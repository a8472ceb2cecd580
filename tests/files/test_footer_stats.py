"""What is kept of footers: true bounds of our own files, and everything that is asked of files from elsewhere."""

import io
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.footers import parquet_bytes
from tests.kit.tables import memory

from manifestcommit.errors import SchemaMismatchError, StoreError, UsageError
from manifestcommit.files import writer as files
from manifestcommit.files.footer_stats import BOUND_LENGTH
from manifestcommit.files.foreign_file import inspect_file
from manifestcommit.files.writer import DataFileWriter, WritePlan
from manifestcommit.format import codec, values
from manifestcommit.format.entries import ColumnStats, Entry, FooterRef
from manifestcommit.format.fields import ArrayType, Field, MapType, Schema, StructType
from manifestcommit.format.values import arrow_type
from manifestcommit.store.local import MemoryStore

JOB = f"v1-{'7' * 16}-{'b' * 32}"


def write_columns(schema: Schema, arrays: list[pa.Array], *, group_rows: int = 1_000_000, **options: Any) -> Entry:
    """One file of these columns, in row groups of about `group_rows`."""
    store = memory()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "ROW_GROUP_ROWS", group_rows)
        with DataFileWriter(store, WritePlan(url=store.url, job=JOB, schema=schema, **options), task=0, attempt="0" * 16) as writer:
            writer.write(pa.RecordBatch.from_arrays(arrays, names=[field.name for field in schema.fields]))
            entries = writer.close()
    (entry,) = entries
    return entry


INT64 = st.integers(-(2**63), 2**63 - 1)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(), "byte": st.integers(-128, 127), "short": st.integers(-(2**15), 2**15 - 1),
    "integer": st.integers(-(2**31), 2**31 - 1), "long": INT64,
    "float": st.floats(width=32) | st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf]),
    "double": st.floats() | st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf]), "decimal(5,2)": st.decimals(-999, 999, places=2),
    "decimal(18,0)": st.integers(-(10**18) + 1, 10**18 - 1).map(Decimal),
    "decimal(38,10)": st.integers(-(10**38) + 1, 10**38 - 1).map(lambda n: Decimal((n < 0, tuple(map(int, str(abs(n)))), -10))),
    "string": st.text(max_size=4)
    | st.builds(lambda c, n, t: c * n + t, st.sampled_from("aü\U0010ffff\ud7ff"), st.integers(62, 66), st.text(max_size=3)),
    "binary": st.binary(max_size=4)
    | st.builds(lambda c, n, t: c * n + t, st.sampled_from([b"a", b"\xff"]), st.integers(62, 66), st.binary(max_size=3)),
    "date": st.integers(-(2**31), 2**31 - 1), "timestamp": INT64, "timestamp_ntz": INT64, "interval day to second": INT64,
}  # fmt: skip


def comparable(wire: Any, type: str) -> Any:
    """The value that a wire value stands for, in an order that is the specification's."""
    if type in ("timestamp", "timestamp_ntz", "interval day to second"):
        return wire
    if type == "date":
        return values.to_array([wire], type).cast(pa.int32())[0].as_py()
    return values.decode(wire, type)


@pytest.mark.parametrize("type", VALUES)
@given(data=st.data())
def test_bounds_are_true_of_every_value(type: str, data: st.DataObject) -> None:
    """Counts are exact, bounds hold every value, and a bound that is not marked as cut is reached. [OB7]"""
    column = data.draw(st.lists(st.none() | VALUES[type], min_size=1, max_size=12))
    schema = Schema(fields=(Field(id=5, name="s", type=StructType(fields=(Field(id=6, name="x.y", type=type),))),))
    array = values.to_array([values.encode(value, type) for value in column], type)
    parents = pa.array(data.draw(st.lists(st.sampled_from([False, False, True]), min_size=len(column), max_size=len(column))))
    struct = pa.StructArray.from_arrays([array], names=["x.y"], mask=parents)
    entry = write_columns(schema, [struct], group_rows=data.draw(st.integers(1, 13)))
    wires = [None if gone else wire for wire, gone in zip(values.from_array(array, type), parents.to_pylist(), strict=True)]
    check_stats(entry.columns[6], wires, type)


def check_stats(stats: ColumnStats, wires: list[Any], type: str) -> None:
    assert stats.nulls == wires.count(None)
    assert stats.nans == (wires.count("NaN") if type in ("float", "double") else None)
    missing = ("NaN", None) if type in ("float", "double") else (None,)
    known = [comparable(wire, type) for wire in wires if wire not in missing]
    if not known:
        assert stats.min is None and stats.max is None
        return
    if stats.min is None:  # what cannot be rounded up
        assert stats.max is None and not stats.min_cut
        return
    low = comparable(stats.min, type)
    assert low <= min(known)
    assert stats.min_cut or low == min(known)
    assert len(low) <= BOUND_LENGTH if type in ("string", "binary") else not stats.min_cut
    if stats.max is None:
        assert max(known)[:BOUND_LENGTH] in ("\U0010ffff" * BOUND_LENGTH, b"\xff" * BOUND_LENGTH)
        return
    high = comparable(stats.max, type)
    assert high >= max(known)
    assert stats.max_cut or high == max(known)
    assert len(high) <= BOUND_LENGTH if type in ("string", "binary") else not stats.max_cut
    if type in ("float", "double"):
        assert "NaN" not in (stats.min, stats.max)
        assert low != 0 or math.copysign(1, low) == -1
        assert high != 0 or math.copysign(1, high) == 1


def test_a_row_group_of_nans_does_not_hide_the_bounds_of_the_others() -> None:
    """A file whose first row group holds nothing but NaN keeps the bounds of the rest. [OB7]"""
    schema = Schema(fields=(Field(id=1, name="x", type="double"),))
    entry = write_columns(schema, [pa.array([math.nan, math.nan, 1.0, 2.0])], group_rows=2)
    assert entry.columns[1] == ColumnStats(nulls=0, nans=2, min=1.0, max=2.0)


def test_text_that_parquet_keeps_no_statistics_of_is_unknown() -> None:
    """A value too long for the footer leaves the bounds unknown, never wrong. [OB7]"""
    schema = Schema(fields=(Field(id=1, name="s", type="string"),))
    assert write_columns(schema, [pa.array(["b", "a" * 100_000, "c"])]).columns[1] == ColumnStats(nulls=0)


def test_what_has_no_order_has_no_bounds() -> None:
    """Collated strings, variants, void, arrays and maps have no bounds; only the first leaves have statistics at all. [OB7]"""
    collated = {"__COLLATIONS": {"c": "icu.de"}}
    key = Field(id=4, name="key", type="long", nullable=False)
    schema = Schema(
        fields=(
            Field(id=1, name="a", type=ArrayType(element=Field(id=2, name="element", type="long"))),
            Field(id=3, name="m", type=MapType(key=key, value=Field(id=5, name="value", type="long"))),
            Field(id=6, name="c", type="string", metadata=collated),
            Field(id=7, name="v", type="variant"),
            Field(id=8, name="u", type="void"),
            Field(id=9, name="n", type="long"),
            Field(id=10, name="late", type="long"),
        )
    )
    arrays = [
        pa.array([[7, 8]]), pa.array([[(7, 8)]], pa.map_(pa.int64(), pa.int64())), pa.array(["x"]),
        pa.array([{"value": b"\x00", "metadata": b"\x01\x00\x00"}], arrow_type("variant")), pa.nulls(1), pa.array([5]), pa.array([6]),
    ]  # fmt: skip
    entry = write_columns(schema, arrays, bounds_columns=4)
    assert entry.columns == {6: ColumnStats(nulls=0), 9: ColumnStats(nulls=0, min=5, max=5)}
    assert write_columns(schema, arrays, bounds_columns=0).columns == {}
    assert write_columns(schema, arrays, bounds_columns=5).columns[10] == ColumnStats(nulls=0, min=6, max=6)


def test_a_column_with_a_dot_is_not_a_member_of_a_struct() -> None:
    """`a.b` and the member b of a keep their own statistics. [OB7]"""
    inner = StructType(fields=(Field(id=2, name="b", type="long"),))
    schema = Schema(fields=(Field(id=1, name="a", type=inner), Field(id=3, name="a.b", type="long")))
    entry = write_columns(schema, [pa.array([{"b": 1}]), pa.array([2])])
    assert entry.columns == {2: ColumnStats(nulls=0, min=1, max=1), 3: ColumnStats(nulls=0, min=2, max=2)}


# --- files from elsewhere -----------------------------------------------------------------------------------------------------
SCHEMA = Schema(
    fields=(
        Field(id=101, name="n", type="long"),
        Field(id=102, name="day", type="date"),
        Field(id=103, name="t", type="timestamp"),
        Field(id=104, name="renamed", physical="s", type="string"),
        Field(id=105, name="d", type="decimal(10,2)"),
        Field(id=106, name="st", type=StructType(fields=(Field(id=107, name="x", type="double"),))),
        Field(id=108, name="need", type="integer", nullable=False),
    )
)
NEED = {"need": pa.array([1, 2], pa.int32())}


def put(store: MemoryStore, path: str, columns: dict[str, Any] | pa.Table, **options: Any) -> None:
    store.put(path, parquet_bytes(columns if isinstance(columns, pa.Table) else pa.table(columns), **options))


def inspect(store: MemoryStore, path: str, partition_by: tuple[int, ...] = (), **options: Any) -> Entry:
    schema = options.pop("schema", SCHEMA)
    return inspect_file(store, path, schema=schema, partition_by=partition_by, job=JOB, **options)


def test_an_added_file_is_told_as_it_is(store: MemoryStore) -> None:
    """Rows, bytes and footer are exact; digest and NaNs are unknown; bounds are the footer's, text bounds count as cut. [AF1] [OB7]"""
    prices = pa.array([Decimal("1.20"), None], pa.decimal128(10, 2))
    put(store, "x/y z%.parquet", {**NEED, "n": [3, None], "s": ["b", "a"], "st": [{"x": math.nan}, {"x": 1.0}], "d": prices})
    entry, data = inspect(store, "x/y z%.parquet"), store.get("x/y z%.parquet")
    end = data[-8 - int.from_bytes(data[-8:-4], "little") :]
    assert entry == Entry(
        path="x/y z%.parquet", rows=2, bytes=len(data), footer=FooterRef(bytes=len(end), digest=codec.digest(end)), job=JOB,
        columns={
            101: ColumnStats(nulls=1, min=3, max=3),
            104: ColumnStats(nulls=0, min="a", max="b", min_cut=True, max_cut=True),
            105: ColumnStats(nulls=1, min="1.20", max="1.20"),
            107: ColumnStats(nulls=0, min=1.0, max=1.0),
            108: ColumnStats(nulls=0, min=1, max=2),
        },
    )  # fmt: skip


MISFITS = {
    "unknown": ({**NEED, "other": [1, 2]}, "'other'"),
    "name in another case": ({**NEED, "N": [1, 2]}, "'N'"),
    "the user's name, not the file's": ({**NEED, "renamed": ["a", "b"]}, "'renamed'"),
    "missing": ({"n": [1, 2]}, "'need'"),
    "null where none may be": ({"need": pa.array([1, None], pa.int32())}, "'need'"),
    "text for a number": ({**NEED, "n": ["1", "2"]}, "'n'"),
    "narrowed": ({"need": pa.array([1, 2], pa.int64())}, "'need'"),
    "zone lost": ({**NEED, "t": pa.array([1, 2], pa.timestamp("us"))}, "'t'"),
    "nanoseconds": ({**NEED, "t": pa.array([1, 2], pa.timestamp("ns", "UTC"))}, "'t'"),
    "other scale": ({**NEED, "d": pa.array([1, 2], pa.decimal128(10, 3))}, "'d'"),
    "unknown member": ({**NEED, "st": [{"x": 1.0, "y": 1}, None]}, "'st.y'"),
    "array for a struct": ({**NEED, "st": [[1.0], None]}, "'st'"),
    "time of day": ({**NEED, "n": pa.array([1, 2], pa.time64("us"))}, "'n'"),
    "half floats": ({**NEED, "st": pa.array([{"x": np.float16(1.0)}, None], pa.struct([("x", pa.float16())]))}, "'st.x'"),
}


@pytest.mark.parametrize("case", MISFITS)
def test_a_file_that_does_not_fit_names_itself_and_the_column(case: str) -> None:
    """[AF1]"""
    columns, name = MISFITS[case]
    store = memory()
    put(store, "f.parquet", columns)
    with pytest.raises(SchemaMismatchError) as caught:
        inspect(store, "f.parquet")
    assert f"{store.url}/f.parquet" in str(caught.value)
    assert name in str(caught.value)


def test_a_field_id_under_another_name_is_refused(store: MemoryStore) -> None:
    """A file whose ids say that a column is another one would be read wrongly by name. [AF1] [SC1]"""
    swapped = pa.schema([pa.field("n", pa.int64(), metadata={"PARQUET:field_id": "108"}), pa.field("need", pa.int32())])
    put(store, "f.parquet", pa.table([pa.array([1]), pa.array([1], pa.int32())], schema=swapped))
    with pytest.raises(SchemaMismatchError, match="field id"):
        inspect(store, "f.parquet")


@pytest.mark.parametrize(
    "columns",
    [
        {"n": pa.array([1, 2], pa.int8())},
        {"n": pa.array([1, 2], pa.uint32())},
        {"t": pa.array([1, 2], pa.timestamp("ms", "UTC"))},
        {"t": pa.array([1, 2], pa.timestamp("us", "Europe/Berlin"))},
        {"s": pa.array(["a", "a"], pa.large_string())},
        {"s": pa.array(["a", "a"]).dictionary_encode()},
        {"d": pa.array([1, 2], pa.decimal128(5, 2))},
        {"st": pa.array([{"x": 1.0}, {"x": 2.0}], pa.struct([("x", pa.float32())]))},
    ],
    ids=lambda columns: str(next(iter(columns.values())).type),
)
def test_narrower_and_otherwise_encoded_columns_fit(columns: dict[str, pa.Array], store: MemoryStore) -> None:
    """Bounds of narrower columns are in the table's terms. [AF1] [OB7]"""
    put(store, "f.parquet", {**NEED, **columns})
    entry = inspect(store, "f.parquet")
    (name, array), *_ = columns.items()
    if name == "t":
        factor = 1_000 if array.type.unit == "ms" else 1
        assert (entry.columns[103].min, entry.columns[103].max) == (factor, 2 * factor)
    if name == "d":
        assert (entry.columns[105].min, entry.columns[105].max) == ("1.00", "2.00")
    if name == "st":
        assert (entry.columns[107].min, entry.columns[107].max) == (1.0, 2.0)
    if name == "n" and array.type == pa.int8():
        assert (entry.columns[101].min, entry.columns[101].max) == (1, 2)


def test_sparks_int96_timestamps_fit_and_have_no_bounds(store: MemoryStore) -> None:
    """INT96 has no order in Parquet: its statistics are never trusted. [AF1] [OB7]"""
    put(store, "f.parquet", {**NEED, "t": pa.array([5, 6], pa.timestamp("us", "UTC"))}, use_deprecated_int96_timestamps=True)
    with store.open_input("f.parquet") as stream:
        assert pq.ParquetFile(stream).schema.column(1).physical_type == "INT96"
    stats = inspect(store, "f.parquet").columns.get(103, ColumnStats())
    assert (stats.min, stats.max) == (None, None)
    wall_clock = Schema(fields=(Field(id=103, name="t", type="timestamp_ntz"), Field(id=108, name="need", type="integer")))
    with pytest.raises(SchemaMismatchError, match="'t'"):
        inspect(store, "f.parquet", schema=wall_clock)
    day = Schema(fields=(Field(id=103, name="t", type="timestamp"), Field(id=108, name="need", type="integer")))
    put(store, "g.parquet", {**NEED, "t": pa.array([5, 5], pa.timestamp("us", "UTC"))}, use_deprecated_int96_timestamps=True)
    assert inspect(store, "g.parquet", (103,), schema=day).partition == (5,)


def test_a_store_that_fails_below_arrow_is_a_store_error(store: MemoryStore) -> None:
    """A broken connection is not reported as a broken file. [ST5] [AF1]"""
    put(store, "f.parquet", NEED)

    class Broken(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise OSError("connection reset")

    store.open_input = lambda name: Broken(store.get(name))  # type: ignore[method-assign]  # the fault that is tested
    with pytest.raises(StoreError, match=r"f\.parquet could not be read: connection reset"):
        inspect(store, "f.parquet")


def test_statistics_with_nan_are_not_trusted(store: MemoryStore) -> None:
    """Another writer's all-NaN column has no bounds. [OB7]"""
    put(store, "f.parquet", {**NEED, "st": [{"x": math.nan}, {"x": math.nan}]})
    stats = inspect(store, "f.parquet").columns[107]
    assert (stats.nulls, stats.nans, stats.min, stats.max) == (0, None, None, None)


DAY = pa.array([15706, 15706], pa.int32()).cast(pa.date32())
TWO_DAYS = pa.array([15706, 15707], pa.int32()).cast(pa.date32())
DAY_AND_NULL = pa.array([15706, None], pa.int32()).cast(pa.date32())


@pytest.mark.parametrize("statistics", [True, False])
@pytest.mark.parametrize(
    ("columns", "partition"),
    [
        ({"day": DAY, "s": ["a", "a"]}, ("2013-01-01", "a")),
        ({"day": pa.nulls(2, pa.date32()), "s": ["", ""]}, (None, "")),
        ({"day": DAY, "s": ["x" * 100, "x" * 100]}, ("2013-01-01", "x" * 100)),
        ({"day": TWO_DAYS, "s": ["a", "a"]}, None),
        ({"day": DAY_AND_NULL, "s": ["a", "a"]}, None),
        ({"day": DAY, "s": ["x" * 100 + "a", "x" * 100 + "b"]}, None),
    ],
)
def test_partition_values_come_from_the_content(columns: dict[str, Any], partition: Any, statistics: bool, store: MemoryStore) -> None:
    """One value per partition column or a refusal, with and without statistics; folders do not count. [AF1] [DF3]"""
    put(store, "day=1999-09-09/s=z/f.parquet", {**NEED, **columns}, write_statistics=statistics)
    if partition is None:
        with pytest.raises(SchemaMismatchError, match=r"several values"):
            inspect(store, "day=1999-09-09/s=z/f.parquet", (102, 104))
        return
    assert inspect(store, "day=1999-09-09/s=z/f.parquet", (102, 104)).partition == partition
    assert inspect(store, "day=1999-09-09/s=z/f.parquet", (102, 104), partition=partition).partition == partition
    with pytest.raises(SchemaMismatchError, match="partition's value"):
        inspect(store, "day=1999-09-09/s=z/f.parquet", (102, 104), partition=("1999-09-09", "z"))


def test_partition_values_outside_the_file_only_where_they_are_given(store: MemoryStore) -> None:
    """A file without its partition columns reads as null in them: refused, unless the caller knows better. [AF1] [DF4]"""
    path = "day=2013-01-01/s=a/f.parquet"
    put(store, path, NEED)
    with pytest.raises(SchemaMismatchError, match="not in the file"):
        inspect(store, path, (102, 104))
    assert inspect(store, path, (102, 104), partition=("2000-01-01", None)).partition == ("2000-01-01", None)


@pytest.mark.parametrize("nested_null", [False, True])
def test_nulls_below_a_non_nullable_member_are_found(nested_null: bool) -> None:
    """A promise inside a struct is checked against the rows where statistics cannot tell. [AF1] [SC3]"""
    schema = Schema(fields=(Field(id=1, name="st", type=StructType(fields=(Field(id=2, name="x", type="long", nullable=False),))),))
    store = memory()
    put(store, "f.parquet", {"st": pa.array([None, {"x": None if nested_null else 1}], pa.struct([("x", pa.int64())]))})
    if nested_null:
        with pytest.raises(SchemaMismatchError, match=r"f\.parquet.*'st\.x' may not be null"):
            inspect(store, "f.parquet", schema=schema)
    else:
        assert inspect(store, "f.parquet", schema=schema).rows == 2


def test_a_file_without_rows_is_an_entry_without_rows(store: MemoryStore) -> None:
    """[AF1]"""
    put(store, "f.parquet", pa.table({"need": pa.array([], pa.int32()), "day": pa.array([], pa.date32())}))
    entry = inspect(store, "f.parquet", (102,))
    assert (entry.rows, entry.partition) == (0, (None,))


@pytest.mark.parametrize("damage", ["empty", "text", "truncated", "footer"])
def test_what_is_no_parquet_file_is_named(damage: str, store: MemoryStore) -> None:
    """[AF1]"""
    put(store, "f.parquet", NEED)
    whole = store.get("f.parquet")
    data = {"empty": b"", "text": b"day,n\n1,2\n" * 10, "truncated": whole[:-20], "footer": whole[:-60] + b"\xff" * 52 + whole[-8:]}[damage]
    store.put("f.parquet", data)
    with pytest.raises(UsageError, match=r"f\.parquet cannot be read as a Parquet file"):
        inspect(store, "f.parquet")


# --- streams ----------------------------------------------------------------------------------------------------------------
