"""Bloom filters on demand, and never one by which a reader would lose a row. [DF11]"""

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.kit.tables import rewrite_here

import manifestcommit as mc
from manifestcommit.files.writer import WRITES_BLOOM_FILTERS
from manifestcommit.log.table_context import TableContext
from manifestcommit.operations.compaction import CompactionOptions, compact
from manifestcommit.store import open_store

pytestmark = pytest.mark.skipif(not WRITES_BLOOM_FILTERS, reason="pyarrow before 24 writes none")
NAMES = ["id", "it's é", "bytes", "day", "at"]


def rows(count: int = 1000) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(range(0, 2 * count, 2), pa.int32()), "it's é": [f"key {n}" for n in range(count)],
            "bytes": [b"\xff%d" % n for n in range(count)], "day": pa.array(range(count), pa.date32()),
            "at": pa.array(range(count), pa.timestamp("us", "UTC")), "x": [n / 7 for n in range(count)],
            "part": [n % 2 for n in range(count)],
        }
    )  # fmt: skip


def file_of(root: Path) -> str:
    return str(root / mc.Table(root).files().column("path")[-1].as_py())


def excluded(file: str, column: str, value: object) -> bool:
    """Whether DuckDB reads from the filter that no row has this value."""
    with duckdb.connect() as connection:
        (found,) = connection.execute("select bloom_filter_excludes from parquet_bloom_probe(?, ?, ?)", [file, column, value]).fetchall()
    return bool(found[0])


def with_filter(file: str) -> list[str]:
    chunk = pq.read_metadata(file).row_group(0)
    return [chunk.column(at).path_in_schema for at in range(chunk.num_columns) if chunk.column(at).bloom_filter_offset is not None]


@pytest.mark.thorough
def test_a_reader_passes_over_what_is_not_there_and_nothing_else(root: Path) -> None:
    """[DF11] Every type that can have one; each value that is there is found."""
    data = rows()
    mc.create_table(root, data.schema, properties={"write.bloom-filter-columns": ",".join(NAMES)}, partition_by=["part"])
    mc.write(data, root)
    file = file_of(root)
    assert with_filter(file) == NAMES
    here = pq.read_table(file, partitioning=None)
    for name in ("id", "it's é"):
        assert not any(excluded(file, name, value) for value in here.column(name).to_pylist()[::25])
    assert sum(excluded(file, "id", odd) for odd in range(1, 200, 2)) > 90
    assert sum(excluded(file, "it's é", f"no {n}") for n in range(100)) > 90


def test_without_the_property_there_are_none(root: Path) -> None:
    """[DF11] Nor of a column that has been renamed since; it is asked for anew by its name."""
    mc.write(rows(10), root)
    assert with_filter(file_of(root)) == []
    table = mc.Table(root)
    table.set_properties({"write.bloom-filter-columns": "id , day"})
    table.rename_column("day", "date")
    mc.write(rows(10).rename_columns({"day": "date"}), root)
    assert [with_filter(str(root / path)) for path in table.files().column("path").to_pylist()].count(["id"]) == 1


def test_files_that_compaction_writes_have_them_too(root: Path) -> None:
    """[DF11] Else the first night's maintenance would take them away."""
    mc.create_table(root, rows(10).schema, properties={"write.bloom-filter-columns": "id"})
    for _ in range(2):
        mc.write(rows(10), root)
    store = open_store(root)
    compact(TableContext(store), CompactionOptions(), rewrite_here(store))
    assert mc.Table(root).files().num_rows == 1
    assert with_filter(file_of(root)) == ["id"]


@pytest.mark.parametrize(("value", "match"), [("nope", "no column"), ("id,x", "double"), ("tags", "array"), ("c", "string")])
def test_a_column_that_readers_would_lose_rows_of_is_refused(tmp_path: Path, value: str, match: str) -> None:
    """[DF11] 0.0 equals -0.0 and has other bytes; so has a text that a collation finds equal."""
    collated = pa.field("c", pa.string(), metadata={b"SPARK::metadata::json": b'{"__COLLATIONS": {"c": "icu.UTF8_LCASE"}}'})
    schema = pa.schema([("id", pa.int64()), ("x", pa.float64()), ("tags", pa.list_(pa.string())), collated])
    table = mc.create_table(tmp_path / "t", schema)
    with pytest.raises(mc.errors.UsageError, match=match):
        table.set_properties({"write.bloom-filter-columns": value})
    with pytest.raises(mc.errors.UsageError, match=match):
        mc.create_table(tmp_path / "other", schema, properties={"write.bloom-filter-columns": value})
    assert table.snapshot().properties == {}


def test_a_member_of_the_columns_name_gets_none_by_which_its_zeros_would_be_lost(root: Path) -> None:
    """[DF11] pyarrow knows columns by names alone; in a Bloom filter of doubles 0.0 is not -0.0."""
    data = pa.table({"a.b": ["x"], "c.d": ["y"], "a": [{"b": -0.0}]})
    mc.create_table(root, data.schema, properties={"write.bloom-filter-columns": "a.b,c.d"})
    mc.write(data, root)
    assert with_filter(file_of(root)) == ["c.d"]
