"""The export for Spark's catalog, without Spark: what is put, what is refused, what gc leaves. [EX2] [EX4] [EX9] [EX10]"""

import json
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pytest
from tests.export.clients import local
from tests.export.kinds import foreign, numbered
from tests.kit.tables import table_with

import manifestcommit as mc
from manifestcommit.export import exporter
from manifestcommit.export import spark_catalog as spark_export
from manifestcommit.log.table_context import TableContext
from manifestcommit.store import open_store
from manifestcommit.testing import CountingStore, Died, FaultStore

PROPERTY = {"export.formats": "spark-catalog"}
LOG, GUARD, NOT_A_TABLE = spark_export.LOG, spark_export.GUARD, spark_export.NOT_A_TABLE


def exported(path: str) -> mc.Table:
    mc.create_table(path, numbered(0).schema, properties=PROPERTY)
    mc.write(numbered(2), path)
    return mc.Table(path)


def shown(table: mc.Table) -> tuple[int, set[str]]:
    """The version that the log names, and the files with bytes, relative to the table."""
    lines = open_store(table.url).get(LOG).decode().splitlines()
    assert lines[0] == "v1"
    files = [json.loads(line) for line in lines[1:]]
    root = f"{table.url}/"
    listed = {unquote(each["path"]).removeprefix(root) for each in files if each["size"]}
    return files[0]["manifestcommit"]["version"], listed


def live(table: mc.Table, version: int | None = None) -> set[str]:
    return {each["path"] for each in table.files(version=version).to_pylist() if each["rows"]}


def check(table: mc.Table) -> None:
    assert shown(table) == (table.version, live(table))


def refuses(table: mc.Table, kind: type[Exception], reason: str) -> None:
    """Each call that exports, and the property."""
    with pytest.raises(kind, match=reason):
        table.export("spark-catalog")
    with pytest.raises(kind, match=reason):
        table.set_properties(PROPERTY)
    with pytest.raises(kind, match=reason):
        table.create_table_sql("t")


def test_each_commit_rewrites_the_log(tmp_path: Path) -> None:
    """[EX1] [EX2] [EX10]"""
    table = exported(str(tmp_path / "a b%+#"))
    check(table)
    mc.write(numbered(3), table.url, key="k")
    mc.write(numbered(0), table.url)
    table.delete("n = 2")
    table.compact()
    table.rollback(3, reason="a test")
    check(table)
    mc.write(numbered(0), table.url, mode="overwrite")
    assert shown(table) == (table.version, set())
    assert table.metrics().export_lag == {"spark-catalog": 0}


def test_what_readers_see_is_whole_wherever_an_exporter_dies(tmp_path: Path) -> None:
    """[EX2] [EX10]"""
    table = exported(str(tmp_path / "t"))
    table.set_properties({"export.formats": None})
    mc.write(numbered(3), table.url)
    whole = [(version, live(table, version)) for version in range(2, table.version + 1)]
    for fault in ("dies_before", "dies_after"):
        for number in range(1, 40):
            session = TableContext(FaultStore(open_store(table.url), {number: fault}))
            try:
                exporter.export_format(session, session.open(), "spark-catalog")
                break
            except Died:
                assert shown(table) in whole
        else:
            pytest.fail("the exporter never came to its end")
    check(table)


def test_an_exporter_that_lags_shows_nothing_older(tmp_path: Path) -> None:
    """Neither where it looks before the other puts, nor where it puts after it. [EX2] [EX10]"""
    table = exported(str(tmp_path / "t"))
    table.set_properties({"export.formats": None})
    old = TableContext(open_store(table.url)).open()
    mc.write(numbered(3), table.url)
    table.export("spark-catalog")
    assert exporter.export_format(TableContext(open_store(table.url)), old, "spark-catalog").version == table.version
    check(table)

    class Late(CountingStore):
        """Others commit and export between the look at the log and the put."""

        def put(self, name: str, data: bytes) -> None:
            if name == LOG and (others := self.others):
                self.others = False
                assert others
                mc.write(numbered(1), table.url)
                table.export("spark-catalog")
                check(table)
            super().put(name, data)

        others = True

    mc.write(numbered(1), table.url)
    session = TableContext(Late(open_store(table.url)))
    assert exporter.export_format(session, session.open(), "spark-catalog").version == table.version
    check(table)


def test_the_log_of_another_table_is_left(path: str) -> None:
    """[EX4] [EX9]"""
    table = table_with(numbered(1), path)
    for data in (b"v1\n", b"", b"v1\n{}", (b'v1\n{"manifestcommit":{"table":"other","version":7},'), b"\xff" * 500):
        open_store(path).put(LOG, data)
        refuses(table, mc.errors.UsageError, "of another table or program")
        table.gc(grace="0s", keep_for="0s")
        assert open_store(path).get(LOG) == data and not (Path(local(table)) / GUARD).exists()


def test_gc_leaves_what_is_shown_and_then_what_makes_readers_fail(tmp_path: Path) -> None:
    """[EX4] [EX10]"""
    table = exported(str(tmp_path / "t"))
    mc.write(numbered(1), table.url, mode="overwrite")
    report = table.gc(grace="0s", keep_for="0s")
    assert report.foreign.count == report.unknown.count == 0
    check(table)
    table.set_properties({"export.formats": None})
    mc.write(numbered(4), table.url, mode="overwrite")
    for _ in range(2):  # the first expires the version, the second finds it expired for the grace period
        planned = table.plan_gc(grace="0s", keep_for="0s").num_rows
        deleted = table.gc(grace="0s", keep_for="0s").deleted
        assert sum(each.count for each in deleted.values()) >= planned
    root = Path(local(table))
    assert not (root / LOG).exists() and (root / GUARD).exists() and (root / NOT_A_TABLE).exists()
    with pytest.raises(pa.ArrowInvalid):
        pa.parquet.read_table(root / NOT_A_TABLE)


def test_a_table_that_spark_cannot_reach_is_refused() -> None:
    """[EX9]"""
    mc.write(numbered(1), "memory://catalog/t")
    refuses(mc.Table("memory://catalog/t"), mc.errors.UsageError, "Spark has no file system for memory:")


@pytest.mark.parametrize(
    ("kind", "reason"), [(pa.duration("us"), "has the type interval day to second"), (pa.list_(pa.null()), "has the type void")]
)
def test_columns_that_the_catalog_cannot_have_are_refused(tmp_path: Path, kind: pa.DataType, reason: str) -> None:
    """[EX9]"""
    mc.create_table(str(tmp_path), pa.schema([("a", kind)]))
    refuses(mc.Table(str(tmp_path)), mc.errors.UnsupportedTypeError, reason)


def test_files_that_spark_passes_over_are_refused(path: str) -> None:
    """Whose rows would be missing. [EX9]"""
    mc.write(numbered(1), path)
    foreign(path, "other/a:b.parquet", numbered(2))
    with mc.begin(path) as job:
        job.add_files(["other/a:b.parquet"])
    with pytest.raises(mc.errors.UsageError, match="has a name that Spark skips"):
        mc.Table(path).export("spark-catalog")


def test_a_file_without_its_partition_column_is_refused_also_after_a_rollback(path: str) -> None:
    """Spark would read nulls from it. [EX9]"""
    foreign(path, "part=a/a.parquet", numbered(2))
    table, reason = mc.Table(path), "does not hold its partition column 'part', .* to Spark's catalog"
    with_it = mc.Table(path).adopt().version
    refuses(table, mc.errors.UsageError, reason)
    mc.write(numbered(1, part=["b"]), path, mode="overwrite")
    table.set_properties(PROPERTY)
    table.export("spark-catalog")
    check(table)
    table.rollback(with_it, reason="a test")
    for _ in range(2):
        refuses(table, mc.errors.UsageError, reason)
        mc.write(numbered(1, part=["c"]), path)
    assert table.metrics().export_lag == {"spark-catalog": 3}


@pytest.mark.parametrize("name", [".", "a.", ".a", "a..b", "a. "])
def test_a_name_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    """[EX10]"""
    table = exported(str(tmp_path / "t"))
    with pytest.raises(mc.errors.UsageError, match=r"name: .* is no name of a table"):
        table.create_table_sql(name)


def test_the_statement_quotes_what_it_names(tmp_path: Path) -> None:
    """[EX10]"""
    path = str(tmp_path / "it's a \\ b")
    columns = {"a`b": [1], "day": ["x"], "s": pa.array([{"in side": 1}], pa.struct([("in side", pa.int8())]))}
    table = table_with(pa.table(columns), path, partition_by="day")
    table.comment_column("a`b", "it's \\ a comment")
    made = table.create_table_sql("lake.fli`ghts v1")
    assert made.startswith("CREATE TABLE `lake`.`fli``ghts v1` (\n  `a``b` BIGINT COMMENT 'it\\'s \\\\ a comment',\n")
    assert "  `s` STRUCT<`in side`: TINYINT>\n" in made and "  `day` STRING,\n" in made
    location = table.url.replace("\\", "\\\\").replace("'", "\\'")
    assert made.endswith(f"LOCATION '{location}/_spark_catalog'")
    check(table)


def test_without_rows_files_of_partitions_are_left_out(path: str) -> None:
    """[EX10]"""
    mc.write(numbered(2, part=["a", "b"]), path, partition_by="part")
    table = table_with(numbered(0, part=pa.array([], pa.string())), path)
    table.export("spark-catalog")
    check(table)
    lines = [json.loads(line) for line in open_store(path).get(LOG).decode().splitlines()[1:]]
    empty = [each["path"].removeprefix(f"{table.url}/") for each in lines if not each["size"]]
    assert empty[0] == GUARD and all(each.startswith("_spark_catalog/") for each in empty)
