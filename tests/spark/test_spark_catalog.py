"""Tables of Spark's own catalog that read an export: their rows are those of this library's readers. [EX10]"""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.export.kinds import KINDS, foreign, numbered
from tests.kit.sizes import rounds
from tests.kit.tables import table_with
from tests.spark.settings import setting

import manifestcommit as mc
from manifestcommit.export.spark_catalog import FOLDER
from manifestcommit.spark.features import SPARK, has

pytestmark = pytest.mark.versions

# Before, Spark's Parquet reader has no wider type for a narrow column: an error, never other rows.
WIDENS = SPARK >= (4, 0)

# Kinds that Spark's catalog cannot express, and a word of the reason.
REFUSED = {
    "renamed": "was renamed", "dropped and added again": "was renamed or added again", "compacted": "was renamed",
    "adopted and renamed": "was renamed", "adopted folders": "does not hold its partition column",
}  # fmt: skip
PROPERTY = {"export.formats": "spark-catalog"}
QUICK = {*REFUSED, "all types", "partitions of text", "hostile names", "overwritten", "adopted"}
_NUMBER = itertools.count()


def local(table: mc.Table) -> str:
    return table.url.removeprefix("file://")


@contextmanager
def named(spark: SparkSession, statement: str, name: str) -> Iterator[str]:
    spark.sql(statement)
    try:
        yield name
    finally:
        spark.sql(f"DROP TABLE {name}")


def in_catalog(spark: SparkSession, table: mc.Table) -> Any:
    """The table's export under a name of its own."""
    name = f"exported_{next(_NUMBER)}"
    return named(spark, table.create_table_sql(name), name)


def rows(df: DataFrame) -> list[str]:
    shown = F.to_json(F.struct(*map(column, df.columns)), {"ignoreNullFields": "false"})
    return sorted(row[0] for row in df.select(shown).collect())


def column(name: str) -> Any:
    return F.col("`" + name.replace("`", "``") + "`")


def check(spark: SparkSession, table: mc.Table, name: str) -> None:
    """The catalog's table has the rows, filters and partitions of the newest version."""
    spark.sql(f"REFRESH TABLE {name}")
    shown, wanted = spark.table(name), mc.read_committed(table.url, spark=spark)
    assert dict(shown.dtypes) == dict(wanted.dtypes)
    shown = shown.select(*map(column, wanted.columns))
    assert rows(shown) == rows(wanted)
    for each in partition_columns(table):
        assert rows(shown.groupBy(column(each)).count()) == rows(wanted.groupBy(column(each)).count())
        for value in [*some_texts(wanted, each), None]:
            chosen = column(each).eqNullSafe(value)
            assert rows(shown.where(chosen)) == rows(wanted.where(chosen)), value


def some_texts(df: DataFrame, name: str) -> list[str]:
    return [row[0] for row in df.select(column(name)).distinct().limit(20).collect()] if dict(df.dtypes)[name] == "string" else []


def partition_columns(table: mc.Table) -> list[str]:
    found: Any = table.describe()["partition_by"]
    return list(found)


def stops_at_widened(spark: SparkSession, name: str) -> None:
    with pytest.raises(Exception, match="cannot be converted"):
        spark.table(name).collect()


@pytest.mark.parametrize("kind", [kind if kind in QUICK else pytest.param(kind, marks=pytest.mark.thorough) for kind in KINDS])
def test_rows_are_those_of_readers(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """[EX1] [EX9] [EX10]"""
    table = KINDS[kind](str(tmp_path / "t"))
    if kind in REFUSED:
        with pytest.raises(mc.errors.UsageError, match=REFUSED[kind]):
            table.export("spark-catalog")
        with pytest.raises(mc.errors.UsageError, match=REFUSED[kind]):
            table.set_properties({"export.formats": "spark-catalog"})
        assert not (Path(local(table)) / FOLDER).exists()
        return
    made = table.export("spark-catalog")
    assert (made.format, made.version, made.location) == ("spark-catalog", table.version, f"file://{local(table)}/_spark_catalog")
    with in_catalog(spark, table) as name:
        if "widened" in kind and not WIDENS:
            stops_at_widened(spark, name)
            return
        check(spark, table, name)
        assert "Location: MetadataLogFileIndex" in str(spark.table(name)._jdf.queryExecution().executedPlan().toString())


@pytest.mark.thorough
def test_each_commit_is_shown_after_a_refresh(spark: SparkSession, tmp_path: Path) -> None:
    """And who read the log before keeps a whole one. [EX2] [EX10]"""
    path = str(tmp_path / "a b'ü")
    mc.create_table(path, numbered(0, part=pa.array([], pa.string())).schema, partition_by="part", properties=PROPERTY)
    table = mc.Table(path)
    with in_catalog(spark, table) as name:
        check(spark, table, name)
        for parts in (["1", "2"], ["2013-01-01", None], ["x"]):
            before, names = rows(spark.table(name)), set(folder(table))
            mc.write(numbered(len(parts), part=parts), path)
            assert table.metrics().export_lag == {"spark-catalog": 0}
            assert rows(spark.table(name)) == before and (names == set(folder(table)) or not before)
            check(spark, table, name)
        table.delete("part = '1'")
        table.rollback(3, reason="a test")
        check(spark, table, name)
        mc.write(numbered(0, part=pa.array([], pa.string())), path, mode="overwrite")
        check(spark, table, name)
        assert spark.table(name).count() == 0


@pytest.mark.thorough
def test_columns_have_the_types_of_the_newest_version(spark: SparkSession, path: str) -> None:
    """Not those of the files that Spark finds first. [EX10]"""
    mc.write(pa.table({"part": ["a", "b"], "x": pa.array([1, 2], pa.int32())}), path, partition_by="part")
    table = table_with(pa.table({"part": ["c"], "x": pa.array([2**40]), "more": ["m"]}), path, merge_schema=True)
    with in_catalog(spark, table) as name:
        if WIDENS:
            check(spark, table, name)
        else:
            stops_at_widened(spark, name)


@pytest.mark.thorough
def test_partition_values_are_those_of_files(spark: SparkSession, path: str) -> None:
    """[EX10] Whatever Spark would take the names of their folders for."""
    values = ["000", "1", "2013-01-01", " ", "%41", "#?&", "ü𝄞", "'\"`\\", "NaN", "\t\x01", "a/b", "true", "", "null", "x" * 300, None]
    mc.write(numbered(len(values), part=values), path, partition_by="part")
    with in_catalog(spark, mc.Table(path)) as name:
        check(spark, mc.Table(path), name)


@pytest.mark.thorough
def test_a_table_that_someone_made_by_hand_is_no_empty_one(spark: SparkSession, tmp_path: Path) -> None:
    """Without the option for values in files, Spark would find no file. [EX10]"""
    table = table_with(numbered(2), str(tmp_path / "t"))
    location = table.export("spark-catalog").location
    with pytest.raises(Exception, match=r"(?i)conflicting"):
        spark.sql(f"CREATE TABLE by_hand (n BIGINT) USING parquet LOCATION '{location}'")
    with in_catalog(spark, table) as name, setting(spark, "spark.sql.streaming.fileStreamSink.ignoreMetadata", "true"):
        spark.sql(f"REFRESH TABLE {name}")
        for action in (spark.table(name).collect, spark.table(name).count):
            with pytest.raises(Exception, match="not-a-table"):
                action()


def test_nothing_is_written_through_it(spark: SparkSession, tmp_path: Path, path: str) -> None:
    """An INSERT INTO fails, again and again; a stream adds no file. [EX10]"""
    table = table_with(numbered(2, part=["a", None]), path, partition_by="part")
    table.set_properties(PROPERTY)
    with in_catalog(spark, table) as name:
        more, before = spark.sql("SELECT 9L AS n, 'q' AS part"), folder(table)
        for _ in range(2):
            for insert in (
                lambda: spark.sql(f"INSERT INTO {name} VALUES (9, 'q')"),
                lambda: spark.sql(f"INSERT INTO {name} SELECT * FROM {name}"),
                lambda: more.write.mode("append").saveAsTable(name),
                lambda: more.write.insertInto(name),
            ):
                with pytest.raises(Exception, match=r"ParentNotDirectory|Parent path is not a directory"):
                    insert()
                assert folder(table) == before
        for number in range(rounds(1, 2) * has("format")):
            mc.write(numbered(1, part=["s"]), str(tmp_path / "source"))
            query = spark.readStream.format("manifestcommit").load(str(tmp_path / "source"))
            stream = query.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).toTable(name)
            stream.awaitTermination()
            assert number in (0, 1) and {each for each in folder(table) if "_spark_metadata" in each and ".crc" not in each} == {
                each for each in before if "_spark_metadata" in each
            }
        check(spark, table, name)


@pytest.mark.thorough
def test_an_overwrite_empties_the_folder_and_the_next_export_mends_it(spark: SparkSession, path: str) -> None:
    """The table itself is as it was. [EX2] [EX10]"""
    table = table_with(numbered(2, part=["a", None]), path, partition_by="part")
    table.set_properties(PROPERTY)
    wanted = rows(mc.read_committed(path, spark=spark))
    with in_catalog(spark, table) as name:
        for mend in (lambda: table.export("spark-catalog"), lambda: mc.write(numbered(1, part=["n"]), path)):
            own = {each: each.stat().st_mtime_ns for each in Path(path).rglob("*") if "_spark_catalog" not in str(each)}
            spark.sql(f"INSERT OVERWRITE {name} VALUES (9, 'q')")
            assert all(each.stat().st_mtime_ns == modified for each, modified in own.items())
            assert rows(mc.read_committed(path, spark=spark)) == wanted and table.verify().is_sound
            told = [each.problem for each in table.verify().findings if each.kind == "export_is_behind"]
            assert told == ["nothing is exported to spark-catalog yet, or others have removed what was"]
            mend()
            check(spark, table, name)
            assert not [each for each in table.verify().findings if each.kind == "export_is_behind"]
            with pytest.raises(Exception, match=r"ParentNotDirectory|Parent path is not a directory"):
                spark.sql(f"INSERT INTO {name} VALUES (9, 'q')")


@pytest.mark.thorough
def test_bounds_without_nan_skip_no_row(spark: SparkSession, path: str) -> None:
    """Of files that other programs wrote, also where these come after the table was made. [EX8] [EX10]"""
    table = table_with(numbered(1, f=[1.0]), path)
    table.set_properties(PROPERTY)
    with in_catalog(spark, table) as name:
        foreign(path, "other/a.parquet", numbered(3, f=[1.0, float("nan"), -0.0]))
        with mc.begin(path) as job:
            job.add_files(["other/a.parquet"])
        spark.sql(f"REFRESH TABLE {name}")
        for condition, count in (("f > 100", 1), ("f = 0", 1), ("f >= 0", 4), ("f = 'NaN'", 1)):
            assert spark.table(name).where(condition).count() == count, condition


def folder(table: mc.Table) -> list[str]:
    return sorted(str(each.relative_to(local(table))) for each in (Path(local(table)) / FOLDER).rglob("*") if each.is_file())
