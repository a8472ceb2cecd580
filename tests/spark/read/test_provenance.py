"""What was read carries its version, and a write of it conflicts with every commit since. [CF17] [SP41] [SP42]"""

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F
from tests.kit.change_tables import check, new_table, overwrite, rows
from tests.kit.sizes import rest_thorough
from tests.spark.clusters import environment, python_path

import manifestcommit as mc
from manifestcommit import register
from manifestcommit.spark.datasource import ManifestCommitDataSource

pytestmark = pytest.mark.usefixtures("registered")

FORMAT = "manifestcommit"


def ids(root: str) -> list[int]:
    return sorted(mc.Table(root).dataset().to_table().column("id").to_pylist())


@pytest.fixture
def table(root: str) -> str:
    """Two commits, so that the version is not the first one."""
    for number in (1, 2):
        mc.write(pa.table({"id": [number], "text": [f"row {number}"]}), root)
    return root


def literal(text: str) -> str:
    """As Spark SQL reads it."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def append(root: str, number: int = 3) -> int:
    version = mc.write(pa.table({"id": [number], "text": ["meanwhile"]}), root).version
    assert version is not None
    return version


READERS: dict[str, Callable[[Any, str], Any]] = {
    "read_committed": lambda spark, root: mc.read_committed(root, spark=spark),
    "a filter that nothing matches": lambda spark, root: mc.read_committed(root, spark=spark, filter=F.col("id") > 100),
    "columns": lambda spark, root: mc.read_committed(root, spark=spark, columns=["text", "id"]),
    "format": lambda spark, root: spark.read.format(FORMAT).load(root),
}
TRANSFORMS: dict[str, Callable[[Any, Any], Any]] = {
    "as it is": lambda spark, df: df.select("id", "text"),
    "all computed": lambda spark, df: df.select((F.col("id") * 10).alias("id"), F.upper("text").alias("text")),
    "aggregated": lambda spark, df: df.groupBy(F.upper("text").alias("text")).agg(F.sum("id").alias("id")).select("id", "text"),
    "joined": lambda spark, df: (
        spark.range(5).join(df.withColumnRenamed("id", "other"), F.col("id") == F.col("other")).select("id", "text")
    ),
    "in a union": lambda spark, df: spark.createDataFrame([(9, "new")], "id long, text string").union(df.select("id", "text")),
    "cached": lambda spark, df: df.select("id", "text").cache(),
    "repartitioned and sorted": lambda spark, df: df.select("id", "text").repartition(3).sort("id"),
}


def _view(spark: Any, df: Any) -> Any:
    df.createOrReplaceTempView("read_before")
    found = spark.sql("WITH of AS (SELECT * FROM read_before) SELECT id, text FROM of")
    spark.catalog.dropTempView("read_before")
    return found


def _subquery(spark: Any, df: Any) -> Any:
    df.createOrReplaceTempView("read_before")
    found = spark.sql("SELECT id, 'x' AS text FROM range(1, 9) WHERE id > (SELECT coalesce(max(id), 0) FROM read_before)")
    spark.catalog.dropTempView("read_before")
    return found


TRANSFORMS |= {"through a view": _view, "in a subquery": _subquery}


PAIRS = [("read_committed", each) for each in TRANSFORMS] + [(each, "as it is") for each in READERS if each != "read_committed"]
PAIRS += [("format", "all computed"), ("format", "in a subquery")]


@pytest.mark.parametrize(("reader", "transform"), rest_thorough(PAIRS, *PAIRS[:4], ("format", "as it is")))
def test_an_overwrite_of_what_was_read_conflicts_with_every_commit_since(spark, table: str, reader: str, transform: str) -> None:
    """The append is not lost. Read again, the overwrite takes it along. [CF17] [SP41]"""
    df = TRANSFORMS[transform](spark, READERS[reader](spark, table))
    version = append(table)
    with pytest.raises(mc.errors.CommitConflictError, match=f"version {version} .*wrote there since {version - 1}") as raised:
        mc.write(df, table, mode="overwrite")
    assert raised.value.rule == "partition_was_touched" and ids(table) == [1, 2, 3]
    again = TRANSFORMS[transform](spark, READERS[reader](spark, table))
    expected = sorted(row.id for row in again.collect())
    assert mc.write(again, table, mode="overwrite").committed and ids(table) == expected
    df.unpersist()
    again.unpersist()


# --- the data source: Spark shows its writer the columns, and no plan -------------------------------------------------------
def test_an_overwrite_by_the_data_source_conflicts_with_every_commit_since(spark, table: str) -> None:
    """One column that came through unchanged is enough. Where none did, basedOn says it. [SP41] [CF17]"""
    df = spark.read.format(FORMAT).load(table)
    read_at = mc.Table(table).snapshot().version
    version = append(table)
    for changed in (df.select("id", F.upper("text").alias("text")), df.groupBy("id").agg(F.max("text").alias("text"))):
        with pytest.raises(Exception, match=f"CommitConflictError: .*version {version} .*wrote there since {read_at}"):
            changed.write.format(FORMAT).mode("overwrite").save(table)
    computed = df.select((F.col("id") * 10).alias("id"), F.upper("text").alias("text"))
    with pytest.raises(Exception, match=f"CommitConflictError: .*wrote there since {read_at}"):
        computed.write.format(FORMAT).mode("overwrite").option("basedOn", read_at).save(table)
    for wrong, said in (
        ("yesterday", 'option("basedOn", ...) is a whole number'),
        ("-1", "invalid basedOn -1"),
        ("0", "invalid basedOn 0"),
    ):
        with pytest.raises(mc.errors.UsageError, match=re.escape(said)):
            ManifestCommitDataSource({"path": table, "basedOn": wrong}).writer(computed.schema, True)
    assert ids(table) == [1, 2, 3]
    df.write.format(FORMAT).mode("overwrite").option("basedOn", version).save(table)
    assert ids(table) == [1, 2]


@pytest.mark.thorough
def test_what_is_inserted_through_an_old_view_conflicts(spark, table: str) -> None:
    """A view stays at its version, also behind what was inserted through it. Created again it goes on. [SP41] [CF16] [CF17]"""

    def create() -> None:
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW of_table USING manifestcommit OPTIONS (path {literal(table)})")

    create()
    spark.sql("INSERT INTO of_table SELECT id + 10, text FROM of_table")
    assert ids(table) == [1, 2, 11, 12]
    for statement, said in (
        ("INSERT INTO of_table SELECT id + 100, upper(text) FROM of_table", "has read the whole table"),
        ("INSERT OVERWRITE of_table SELECT id, text FROM of_table WHERE id = 1", "overwrites the whole table"),
        ("INSERT OVERWRITE of_table SELECT id + 1, upper(text) FROM of_table", "overwrites the whole table"),
    ):
        with pytest.raises(Exception, match=f"CommitConflictError: .*{said}, but version"):
            spark.sql(statement)
    assert ids(table) == [1, 2, 11, 12]
    create()
    spark.sql("INSERT OVERWRITE of_table SELECT id, upper(text) FROM of_table WHERE id > 1")
    assert ids(table) == [2, 11, 12]
    spark.catalog.dropTempView("of_table")


def test_nothing_is_inserted_through_a_dataframe_of_the_library(spark, table: str) -> None:
    """Spark would put the rows into a folder that is gone, and say nothing. [SP42]"""
    for name, read in READERS.items():
        if name == "format":
            continue
        read(spark, table).createOrReplaceTempView("read_before")
        for statement in ("INSERT INTO read_before VALUES (9, 'lost')", "INSERT OVERWRITE read_before VALUES (9, 'lost')"):
            with pytest.raises(Exception, match="UNSUPPORTED_INSERT"):
                spark.sql(statement)
        with pytest.raises(Exception, match="UNSUPPORTED_INSERT"):
            spark.createDataFrame([(9, "lost")], "id long, text string").write.insertInto("read_before")
    spark.catalog.dropTempView("read_before")
    assert ids(table) == [1, 2]


@pytest.mark.thorough
def test_the_mark_is_in_no_schema_and_no_file_of_a_table(spark, table: str, tmp_path: Any) -> None:
    """[SP41]"""
    df = spark.read.format(FORMAT).load(table)
    assert all("manifestcommit.read" in field.metadata for field in df.schema)
    other = str(tmp_path / "other")
    df.write.format(FORMAT).mode("append").save(other)
    mc.write(df, other)
    assert all("manifestcommit.read" not in field.metadata for field in mc.Table(other).snapshot().schema.fields)
    assert all(not field.metadata for field in mc.read_committed(other, spark=spark).schema)
    assert not any(b"manifestcommit.read" in path.read_bytes() for path in (tmp_path / "other").rglob("*.parquet"))


@pytest.mark.thorough
def test_a_table_of_the_catalog_cannot_be_used(spark, table: str, tmp_path: Any) -> None:
    """Spark makes an entry for CREATE TABLE without asking the source; every use of it says what to do instead. [SP5]"""
    spark.sql(f"CREATE TABLE of_catalog (id long, text string) USING manifestcommit LOCATION {literal(str(tmp_path / 'x'))}")
    try:
        for statement in ("SELECT * FROM of_catalog", "INSERT INTO of_catalog VALUES (9, 'x')"):
            with pytest.raises(Exception, match=r"UsageError: .*CREATE TEMPORARY VIEW .* DROP TABLE"):
                spark.sql(statement).collect()
    finally:
        spark.sql("DROP TABLE of_catalog")
    with pytest.raises(Exception, match="UsageError"):
        spark.sql("CREATE TABLE of_query USING manifestcommit AS SELECT 1L AS id")
    assert ids(table) == [1, 2]


@pytest.mark.thorough
def test_a_session_that_was_stopped_is_named(tmp_path: Any) -> None:
    """Neither is another one started in its place, nor does Spark's own error come through."""
    script = """
import sys, logging, pyarrow as pa, manifestcommit as mc
logging.basicConfig(stream=sys.stdout, format="LOG %(name)s %(message)s")
root = sys.argv[1]
mc.write(pa.table({"id": [1]}), root)
df = mc.read_committed(root)
spark = df.sparkSession
spark.stop()
for called in (
    lambda: mc.read_committed(root), lambda: mc.read_committed(root, spark=spark), lambda: mc.Table(root).read(),
    lambda: mc.write(df, root), lambda: mc.Table(root).delete("pmod(id, 2) = 1"), lambda: mc.Table(root).delete("id = 1", spark=spark),
    lambda: mc.Table(root).merge(pa.table({"id": [1]}), on="id", spark=spark), lambda: mc.Table(root).merge(df, on="id"),
):
    try:
        called()
        print("CAME THROUGH")
    except mc.errors.ManifestCommitError as error:
        print(type(error).__name__, error)
print("version", mc.Table(root).snapshot().version)
"""
    found = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "t")], capture_output=True, text=True, timeout=300,
        env=environment(tmp_path, hooks=False) | {"PYTHONPATH": python_path(hooks=False)},
    )  # fmt: skip
    lines = found.stdout.splitlines()
    assert sum("LOG manifestcommit.spark no Spark session is active, so one is started" in line for line in lines) == 1, found.stderr
    refused = [line for line in lines if line.startswith("UsageError ")]
    # a condition that only Spark evaluates waits for a session to be started, whether or not there was one
    missing = [line for line in refused if "pmod" in line and "No Spark session is active" in line]
    stopped = [line for line in refused if "stopped" in line]
    assert (len(refused), len(missing), len(stopped)) == (8, 1, 7), found.stdout + found.stderr
    assert "CAME THROUGH" not in found.stdout and lines[-1] == "version 2", found.stdout + found.stderr


# --- changes of rows ----------------------------------------------------------------------------------------------------
def told(rows: list[Any]) -> Counter[str]:
    return Counter(repr(row.asDict(recursive=True)) for row in rows)


def busy_table(tmp_path: Path) -> mc.Table:
    """An append, a rewrite, a deletion of whole files, a compaction and a rollback."""
    table = new_table(tmp_path)
    mc.write(rows(1, 2, 2, 3, None), table.url)
    mc.write(rows(6, 7, 11), table.url)
    table.update({"dec": "dec + 1"}, "id = 2 OR id = 7")
    table.delete("id = 3")
    table.compact()
    overwrite(table, rows(1, 12))
    table.rollback(4, reason="by mistake")
    table.rename_column("x", "Der Wert, %")
    return table


@pytest.mark.thorough
def test_a_data_frame_has_the_rows_that_arrow_has(spark, tmp_path: Path) -> None:
    """With all types, whose values Spark shows as those of the table. [CH1] [CH2] [CH4]"""
    table = busy_table(tmp_path)
    expected = check(table, 1, table.version, "id")
    found = table.changed_rows(1, on="id", spark=spark)
    assert found.columns == table.changed_rows(1).schema.names
    chosen = ["id", "day", "dec", "tags", "_change_type", "_commit_version"]
    of_spark = Counter(repr(tuple(row)) for row in found.select(*chosen).collect())
    assert of_spark == Counter(repr(tuple(row[name] for name in chosen)) for row in expected)
    of_nested = Counter(map(repr, (row.m for row in found.select("m").collect())))
    assert of_nested == Counter(repr(row["m"] if row["m"] is None else dict(row["m"])) for row in expected)
    assert table.changed_rows(table.version, spark=spark).count() == 0


@pytest.mark.thorough
@pytest.mark.versions
@pytest.mark.needs("format")
def test_a_stream_of_changes_gives_each_change_once_and_a_repeated_batch_the_same_rows(spark, tmp_path: Path) -> None:
    """[CH7]"""
    register(spark)
    table = busy_table(tmp_path)
    found: dict[int, Counter[str]] = {}

    def run(checkpoint: str, **options: Any) -> list[tuple[int, Counter[str]]]:
        batches: list[tuple[int, Counter[str]]] = []
        stream = spark.readStream.format("manifestcommit").options(onOverwrite="changes", on="ID", startingVersion=2, **options)
        writer = stream.load(table.url).writeStream.foreachBatch(lambda df, number: batches.append((number, told(df.collect()))))
        query = writer.option("checkpointLocation", str(tmp_path / checkpoint)).trigger(availableNow=True).start()
        assert query.awaitTermination(120)
        return batches

    found = dict(run("c"))
    expected = told(table.changed_rows(1, on="id", spark=spark).collect())
    assert sum(found.values(), Counter()) == expected
    for path in (tmp_path / "c" / "commits").iterdir():  # planned, and not known to be done
        path.unlink()
    assert dict(run("c"))[0] == found[0]
    table.delete("id = 6")
    (later,) = [batch for _, batch in run("c") if batch]
    assert sum(later.values()) == 1 and "'_change_type': 'delete'" in next(iter(later))
