"""Two plans have one fingerprint only if each of their partitions has the same rows; where that is not known there is none. [AB6]"""

from __future__ import annotations

import contextlib
import importlib
import marshal
import os
import sys
import textwrap
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import manifestcommit as mc
from manifestcommit.spark.runtime import python_code_digest
from manifestcommit.spark.runtime.python_code_digest import NotUnderstoodError, code_digest
from manifestcommit.spark.write.plan_fingerprint import _machine, check_ranges, lineage_fingerprint, plan_fingerprint
from manifestcommit.spark.write.recoverable import _planned_alike

Make = Callable[[Any, str], DataFrame]


def through(batches: Any) -> Any:
    yield from batches


def fingerprint(df: DataFrame) -> str:
    """As a recoverable write takes it."""
    with _planned_alike(df.sparkSession):
        frame = df.toDF(*(f"c{index}" for index in range(len(df.columns)))).mapInArrow(through, "n long")
        check_ranges(frame)
        return plan_fingerprint(frame)


@pytest.fixture(scope="module")
def files(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Parquet: n from 0 to 99 in three files, k = n % 3, x = n / 7."""
    root = str(tmp_path_factory.mktemp("files") / "a b%20, range: 0-5#é")
    spark.range(0, 100, 1, 3).selectExpr("id as n", "id % 3 as k", "id / 7 as x", "cast(id as string) as s").write.parquet(root)
    return root


def read(spark: Any, files: str) -> DataFrame:
    return spark.read.parquet(files)


def text(value: str | None) -> Make:
    return lambda spark, files: spark.range(5).select(F.lit(value).cast("string").alias("v"))


def python(spark: Any, files: str, added: int = 1, kind: str = "mapInArrow") -> DataFrame:
    def add(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            column = pa.compute.add(batch.column(0), added)
            yield pa.RecordBatch.from_arrays([column], ["n"])

    if kind == "udf":
        return spark.range(5).select(F.udf(lambda n: n + added, "long")("id").alias("n"))
    if kind == "mapInPandas":
        return spark.range(5).mapInPandas(lambda frames: (frame + added for frame in frames), "id long")
    return spark.range(5).mapInArrow(add, "n long")


ODDITIES = "in (1,2,3,4,5,6,7,8,9,10,11,12,13)"  # so many that they become a set
UNDERSTOOD: dict[str, Make] = {
    "range": lambda spark, files: spark.range(0, 100, 1, 3),
    "range, longer": lambda spark, files: spark.range(0, 101, 1, 3),
    "range, in other parts": lambda spark, files: spark.range(0, 100, 1, 4),
    "null": text(None),
    "the text null": text("null"),
    "the text of a column": text("id#0"),
    "a number": lambda spark, files: spark.range(5).select(F.lit(1).alias("v")),
    "a text of it": text("1"),
    "numbers of many types": lambda spark, files: spark.range(5).selectExpr("1Y a", "1S b", "1L c", "1D d", "1F e", "1BD f", "1.50 g"),
    "values": lambda spark, files: spark.range(5).selectExpr(
        "array(1, null) a", "map('x', 1) m", "named_struct('p', 'q') s", "x'00ff' b", "interval 1 day i", "parse_json('[1]') v",
        "double('NaN') n", "date'2013-01-01' d", "make_interval(1, 2) c",
    ),
    "a set": lambda spark, files: spark.range(5).where(f"id {ODDITIES}"),
    "another set": lambda spark, files: spark.range(5).where(f"id {ODDITIES.replace('13', '14')}"),
    "files": read,
    "files, fewer columns": lambda spark, files: read(spark, files).select("n"),
    "files, filtered": lambda spark, files: read(spark, files).where("n > 3"),
    "files, filtered otherwise": lambda spark, files: read(spark, files).where("n > 4"),
    "files, by an option": lambda spark, files: spark.read.option("mergeSchema", "true").parquet(files),
    "files, with casts": lambda spark, files: read(spark, files).selectExpr("cast(s as int) + 1 as a"),
    "files, with casts that try": lambda spark, files: read(spark, files).selectExpr("try_cast(s as int) + 1 as a"),
    "shuffled": lambda spark, files: read(spark, files).repartition(3, "k"),
    "shuffled otherwise": lambda spark, files: read(spark, files).repartition(4, "k"),
    "dealt out, sorted": lambda spark, files: read(spark, files).repartition(4),
    "put together": lambda spark, files: read(spark, files).coalesce(1),
    "summed": lambda spark, files: read(spark, files).groupBy("k").agg(F.sum("n"), F.avg("x"), F.count("*"), F.max("s")),
    "summed, filtered": lambda spark, files: read(spark, files).groupBy("k").agg(F.sum("n")).where("sum(n) > 3"),
    "summed twice": lambda spark, files: read(spark, files).groupBy("k", "s").agg(F.sum("n").alias("n")).groupBy("k").agg(F.max("n")),
    "shuffled by steady values": lambda spark, files: (
        read(spark, files).groupBy("k").agg(F.max("s").alias("v"), F.sum("n"), F.min("n"), F.count("x")).repartition(3, "v")
    ),
    "distinct": lambda spark, files: read(spark, files).select("k").distinct(),
    "without duplicates": lambda spark, files: read(spark, files).dropDuplicates(["k"]),
    "joined": lambda spark, files: read(spark, files).join(spark.range(9).withColumnRenamed("id", "k"), "k"),
    "joined on the left": lambda spark, files: read(spark, files).join(spark.range(9).withColumnRenamed("id", "k"), "k", "left"),
    "joined by sorting": lambda spark, files: read(spark, files).hint("merge").join(read(spark, files).select("k"), "k"),
    "joined by hashing": lambda spark, files: read(spark, files).hint("shuffle_hash").join(read(spark, files).select("k"), "k"),
    "joined with itself": lambda spark, files: (s := read(spark, files).repartition(3, "k")).join(s.select("k").distinct(), "k"),
    "crossed": lambda spark, files: read(spark, files).crossJoin(spark.range(2)),
    "united": lambda spark, files: read(spark, files).union(read(spark, files)),
    "exploded": lambda spark, files: read(spark, files).select(F.explode(F.array("n", "k")).alias("e")),
    "grouping sets": lambda spark, files: read(spark, files).cube("k", "s").count(),
    "windowed": lambda spark, files: read(spark, files).selectExpr("row_number() over (partition by k order by x) r"),
    "sorted within": lambda spark, files: read(spark, files).sortWithinPartitions("n"),
    "python": python,
    "python, another value": lambda spark, files: python(spark, files, 2),
    "python, pandas": lambda spark, files: python(spark, files, 1, "mapInPandas"),
    "python, pandas, another value": lambda spark, files: python(spark, files, 2, "mapInPandas"),
    "python, a column": lambda spark, files: python(spark, files, 1, "udf"),
    "python, a column, another value": lambda spark, files: python(spark, files, 2, "udf"),
    "a local table": lambda spark, files: spark.createDataFrame(pa.table({"a": [1, 2], "b": ["x", None]})),
    "a local table, another value": lambda spark, files: spark.createDataFrame(pa.table({"a": [1, 3], "b": ["x", None]})),
    "a local table, another null": lambda spark, files: spark.createDataFrame(pa.table({"a": [1, 2], "b": ["x", "null"]})),
}  # fmt: skip


@pytest.mark.thorough
def test_equal_work_has_one_fingerprint_and_no_two_others(spark, files: str) -> None:
    """Whatever was done in the session before: each is planned twice, and the columns' ids have gone on between. [AB6]"""
    first = {name: fingerprint(make(spark, files)) for name, make in UNDERSTOOD.items()}
    again = {name: fingerprint(make(spark, files)) for name, make in UNDERSTOOD.items()}
    assert [name for name in UNDERSTOOD if first[name] != again[name]] == []
    assert len(set(first.values())) == len(UNDERSTOOD)


def lineage(df: DataFrame) -> str:
    with _planned_alike(df.sparkSession):
        return lineage_fingerprint(df.mapInArrow(through, df.schema).rdd._jrdd.rdd())


def test_how_partitions_come_from_others_counts(spark, files: str) -> None:
    """How many there are depends on the cores, and which are put together on where they lie: a plan does not say. [AB6]"""
    table = pa.table({"a": list(range(9))})
    makes: list[Callable[[], DataFrame]] = [
        lambda: spark.createDataFrame(table),
        lambda: spark.createDataFrame(table.slice(0, 1)),
        lambda: spark.range(0, 9, 1, 6).coalesce(4),
        lambda: spark.range(0, 9, 1, 7).coalesce(4),
        lambda: read(spark, files).repartition(3, "k"),
        lambda: read(spark, files),
    ]
    first = [lineage(make()) for make in makes]
    assert first == [lineage(make()) for make in makes] and len(set(first)) == len(makes)


def test_partitions_that_are_put_together_by_where_they_lie_count(spark) -> None:
    """The plan is the same, and so is the number of partitions; the rows of each are not. [AB6]"""
    jvm, context = spark._jvm, spark.sparkContext._jsc.sc()
    tag = getattr(jvm.scala.reflect, "ClassTag$").__getattr__("MODULE$").Any()
    nothing = getattr(jvm.scala, "None$").__getattr__("MODULE$")

    def placed(hosts: str) -> str:
        parts = [jvm.scala.Tuple2(number, jvm.PythonUtils.toSeq([host])) for number, host in enumerate(hosts)]
        return lineage_fingerprint(context.makeRDD(jvm.PythonUtils.toSeq(parts), tag).coalesce(2, False, nothing, None))

    assert placed("abab") == placed("abab") != placed("aabb")


def scalar(spark: Any, files: str) -> DataFrame:
    read(spark, files).createOrReplaceTempView("of_this_test")
    return spark.sql("select n + (select max(n) from of_this_test) as m from of_this_test")


def table(spark: Any, files: str) -> str:
    """A table of ours beside the files."""
    mc.register(spark)
    root = os.path.join(os.path.dirname(files), "table")
    if not os.path.exists(root):
        mc.write(pa.table({"n": [1, 2, 3]}), root)
    return root


def unsteady(make: Callable[[DataFrame], DataFrame]) -> Make:
    return lambda spark, files: make(read(spark, files)).repartition(3, "v")


NOT_UNDERSTOOD: dict[str, tuple[Make, str]] = {
    "sorted": (lambda spark, files: read(spark, files).orderBy("x"), "global sort"),
    "by range": (lambda spark, files: read(spark, files).repartitionByRange(3, "x"), "global sort"),
    "limited": (lambda spark, files: read(spark, files).limit(3), "any rows"),
    "the first": (lambda spark, files: read(spark, files).orderBy("x").limit(3), "equal rows|global sort"),
    "sampled": (lambda spark, files: read(spark, files).sample(0.5, seed=1), "draws rows"),
    "random": (lambda spark, files: read(spark, files).withColumn("r", F.rand(5)), "another result each time"),
    "numbered": (lambda spark, files: read(spark, files).withColumn("r", F.monotonically_increasing_id()), "another result each time"),
    "a uuid": (lambda spark, files: read(spark, files).withColumn("r", F.expr("uuid()")), "another result each time"),
    "random python": (
        lambda spark, files: read(spark, files).select(F.udf(lambda n: n, "long").asNondeterministic()("n")), "another result each time",
    ),
    "an RDD": (lambda spark, files: spark.createDataFrame([(1, "x")], "a int, b string"), "RDD"),
    "cached": (lambda spark, files: read(spark, files).where("n < 7").cache(), "cached"),
    "sorted and cached": (lambda spark, files: read(spark, files).orderBy("x").cache().where("n < 7"), "global sort"),
    "another source's scan": (lambda spark, files: spark.read.format("manifestcommit").load(table(spark, files)), "read_committed"),
    "a subquery": (scalar, "subquery"),
    "another source": (lambda spark, files: spark.read.format("binaryFile").load(files), "of a format that is not known"),
    "shuffled by sums of floats": (unsteady(lambda df: df.groupBy("k").agg(F.sum("x").alias("v"))), "order of rows"),
    "shuffled by means": (unsteady(lambda df: df.groupBy("k").agg(F.avg("n").alias("v"))), "order of rows"),
    "shuffled by row numbers": (unsteady(lambda df: df.selectExpr("row_number() over (partition by k order by s) v")), "order of rows"),
    "shuffled by the first": (unsteady(lambda df: df.dropDuplicates(["k"]).withColumnRenamed("s", "v")), "order of rows"),
    "shuffled by lists": (unsteady(lambda df: df.groupBy("k").agg(F.collect_list("s").alias("v"))), "order of rows|another result"),
    "shuffled by maxima of floats": (unsteady(lambda df: df.groupBy("k").agg(F.max("x").alias("v"))), "order of rows"),
    "shuffled by minima within": (unsteady(lambda df: df.groupBy("k").agg(F.min(F.struct("n", "x")).alias("v"))), "order of rows"),
    "shuffled by sums that try": (unsteady(lambda df: df.groupBy("k").agg(F.try_sum("n").alias("v"))), "order of rows"),
    "shuffled by groups of equal texts": (
        unsteady(lambda df: df.selectExpr("collate(s, 'UTF8_LCASE') s").distinct().selectExpr("collate(s, 'UTF8_BINARY') v")),
        "order of rows",
    ),
    "shuffled by maxima of equal texts": (
        unsteady(lambda df: df.groupBy("k").agg(F.expr("max(collate(s, 'UTF8_LCASE'))").alias("v"))), "order of rows",
    ),
    "shuffled by Python's results": (unsteady(lambda df: df.select(F.udf(lambda n: n, "long")("n").alias("v"))), "Python's results"),
    "shuffled by Arrow's results": (unsteady(lambda df: df.select("n").mapInArrow(through, "v long")), "Python's results"),
    "shuffled after Python": (
        unsteady(lambda df: df.repartition(3, "k").select("n").mapInArrow(through, "v long")), "order of rows",
    ),
    "a broadcast of row numbers": (
        lambda spark, files: read(spark, files).join(
            F.broadcast(read(spark, files).selectExpr("k", "row_number() over (partition by k order by s) v").where("v = 1")), "k"
        ),
        "order of rows",
    ),
    "too large a function": (lambda spark, files: python(spark, files, b"x" * 2_000_000), "too large"),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_UNDERSTOOD)
def test_what_may_differ_has_no_fingerprint(spark, files: str, name: str) -> None:
    """[AB6]"""
    make, reason = NOT_UNDERSTOOD[name]
    df = make(spark, files)
    try:
        with pytest.raises(NotUnderstoodError, match=reason):
            fingerprint(df)
    finally:
        df.unpersist()


def test_no_word_is_taken_for_what_ranges_have_cut(spark, files: str) -> None:
    """Nor where the sort is inside of what was cached, or is an RDD's. [AB6]"""
    for cached_adaptively in (True, False):
        with contextlib.nullcontext() if cached_adaptively else _planned_alike(spark):
            df = read(spark, files).orderBy("k", "x").where(f"n > {cached_adaptively:d}").cache()
        try:
            shown = df._jdf.queryExecution().executedPlan().toString()
            assert ("AdaptiveSparkPlan" in shown.partition("InMemoryRelation")[2]) == cached_adaptively
            with pytest.raises(NotUnderstoodError, match="global sort"):
                check_ranges(df.select("n"))
        finally:
            df.unpersist()
    jvm = spark._jvm
    tag = getattr(jvm.scala.reflect, "ClassTag$").__getattr__("MODULE$").Any()
    pairs = spark.sparkContext._jsc.sc().parallelize(jvm.PythonUtils.toSeq([jvm.scala.Tuple2(n, n) for n in range(9)]), 3, tag)
    pairs = jvm.org.apache.spark.api.java.JavaPairRDD.fromRDD(pairs, tag, tag)
    assert lineage_fingerprint(pairs.groupByKey(3).rdd())
    with pytest.raises(NotUnderstoodError, match="global sort"):
        lineage_fingerprint(pairs.sortByKey().rdd())


def test_rows_that_are_dealt_out_as_they_come_have_none(spark, files: str) -> None:
    """Neither from the plan nor, where the caller vouches for it, from what Spark says of itself. [AB6]"""
    spark.conf.set("spark.sql.execution.sortBeforeRepartition", "false")
    try:
        with pytest.raises(NotUnderstoodError, match="sortBeforeRepartition"):
            fingerprint(read(spark, files).repartition(3))
        shuffled = read(spark, files).groupBy("k").count().repartition(3)
        with pytest.raises(NotUnderstoodError, match="Spark itself says"):
            lineage_fingerprint(shuffled.rdd._jrdd.rdd())
    finally:
        spark.conf.unset("spark.sql.execution.sortBeforeRepartition")


def test_files_are_those_that_they_were(spark, tmp_path: Path) -> None:
    """Content that was replaced, a file more, a file less, another part of it: other work. [AB6]"""
    root = tmp_path / "in"
    spark.range(0, 100, 1, 2).write.parquet(str(root))
    seen = [fingerprint(read(spark, str(root)))]
    assert fingerprint(read(spark, str(root))) == seen[0]
    (first, second) = sorted(root.glob("*.parquet"))
    os.utime(first, (1_000_000_000, 1_000_000_000))
    seen.append(fingerprint(read(spark, str(root))))
    data = second.read_bytes()
    (root / "more.parquet").write_bytes(data)
    seen.append(fingerprint(read(spark, str(root))))
    second.unlink()
    seen.append(fingerprint(read(spark, str(root))))
    spark.conf.set("spark.sql.files.maxPartitionBytes", "200")
    try:
        seen.append(fingerprint(read(spark, str(root))))
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
    assert len(set(seen)) == 5


def test_a_file_that_was_replaced_after_spark_has_listed_it_is_noticed(spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session keeps the list of a DataFrame, and of a catalog's table, and so would show the file that was. [AB6]"""
    folder = tmp_path / "in é%20"
    folder.mkdir()
    for name in "ab":
        (folder / f"{name}.csv").write_text("1\n2\n", "utf-8")
        os.utime(folder / f"{name}.csv", (1_000_000_000, 1_000_000_000))
    frames = [spark.read.schema("n long").csv(str(folder)), spark.read.schema("n long").csv([str(folder / "a.csv"), str(folder / "b.csv")])]
    spark.sql(f"create table listed_of_test (n long) using csv location '{folder}'")
    try:
        frames.append(spark.table("listed_of_test"))
        before = [fingerprint(df) for df in frames]
        assert before == [fingerprint(df) for df in frames]
        for change in ("time", "size", "gone"):
            if change == "gone":
                (folder / "b.csv").unlink()
            else:
                (folder / "b.csv").write_text("3\n4\n" if change == "time" else "3\n4\n5\n", "utf-8")
                os.utime(folder / "b.csv", (1_000_000_000 + (change == "time"),) * 2)
            for df in (*frames, spark.table("listed_of_test")):
                with pytest.raises(NotUnderstoodError, match=r"b\.csv is another file than Spark has listed; refresh"):
                    fingerprint(df)
        spark.catalog.refreshTable("listed_of_test")
        assert fingerprint(spark.table("listed_of_test")) not in before
        monkeypatch.setattr("manifestcommit.spark.write.plan_fingerprint._MOST_FILES", 0)
        with pytest.raises(NotUnderstoodError, match="more than 0 files"):
            fingerprint(spark.table("listed_of_test"))
    finally:
        spark.sql("drop table listed_of_test")


def test_a_tables_version_is_the_same_work_whenever_it_is_read(spark, tmp_path: Path) -> None:
    """Though Spark reads it through a scratch folder, another one each time. [AB6]"""
    root = str(tmp_path / "table")
    mc.write(pa.table({"n": [1, 2, 3]}), root)
    first = fingerprint(mc.read_committed(root, spark=spark))
    assert fingerprint(mc.read_committed(root, spark=spark)) == first
    mc.write(pa.table({"n": [4]}), root)
    assert fingerprint(mc.read_committed(root, spark=spark)) != first
    assert fingerprint(mc.read_committed(root, spark=spark, version=mc.Table(root).snapshot().version - 1)) == first


def test_what_the_machine_says_is_part_of_the_work(spark) -> None:
    """Where nothing is set, the zone of times is the machine's; what upper case is goes by its language. [AB6]"""
    java, zone = spark._jvm.java, spark.conf.get("spark.sql.session.timeZone")
    own_zone, own_locale = java.util.TimeZone.getDefault(), java.util.Locale.getDefault()
    spark.conf.unset("spark.sql.session.timeZone")
    try:
        seen = [fingerprint(spark.range(3)), fingerprint(spark.range(3))]
        java.util.TimeZone.setDefault(java.util.TimeZone.getTimeZone("Asia/Tokyo"))
        seen.append(fingerprint(spark.range(3)))
        java.util.Locale.setDefault(java.util.Locale.forLanguageTag("tr"))
        seen.append(fingerprint(spark.range(3)))
    finally:
        java.util.TimeZone.setDefault(own_zone)
        java.util.Locale.setDefault(own_locale)
        spark.conf.set("spark.sql.session.timeZone", zone)
    assert len(set(seen)) == 3 and seen[0] == seen[1]
    executors = {"spark.executor.extraJavaOptions": "-Xss4m -Duser.timezone=Asia/Tokyo -Duser.dir=/x -Dfile.encoding=latin1"}
    assert _machine(spark, executors)[1] == ["-Duser.timezone=Asia/Tokyo", "-Dfile.encoding=latin1"]


@pytest.mark.parametrize(
    ("name", "value"), [("spark.sql.session.timeZone", "UTC"), ("spark.sql.ansi.enabled", "false"), ("spark.sql.legacy.x", "1")]
)
def test_what_is_set_is_part_of_the_work(spark, name: str, value: str) -> None:
    """[AB6]"""
    before = spark.conf.getAll.get(name)
    plain = fingerprint(spark.range(3))
    spark.conf.set(name, value)
    try:
        assert fingerprint(spark.range(3)) != plain
    finally:
        spark.conf.unset(name) if before is None else spark.conf.set(name, before)
    assert fingerprint(spark.range(3)) == plain


# --- Python functions -----------------------------------------------------------------------------------------------------


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of the user's own, on the path and never imported: lib_of_test.udfs, .core, .unused and a module beside it."""
    folder = tmp_path / "lib_of_test"
    (folder / "sub").mkdir(parents=True)
    sources = {
        "__init__.py": "",
        "udfs.py": "from . import core\nfrom .sub.deep import z\ndef f(n):\n    import beside_of_test\n    return core.g(n)\n",
        "core.py": "def g(n): return n\n",
        "unused.py": "x = 1\n",
        "sub/__init__.py": "",
        "sub/deep.py": "from ..leaf import z\n",
        "leaf.py": "z = 1\n",
        "../beside_of_test.py": "y = 1\n",
    }
    for name, source in sources.items():
        (folder / name).write_text(source, "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    return folder


FUNCTIONS = {
    "by value, imports inside": "def f(n):\n    from lib_of_test.udfs import f\n    return f(n)",
    "by value, a module": "import lib_of_test.udfs\ndef f(n):\n    return lib_of_test.udfs.f(n)",
    "by reference": "from lib_of_test.udfs import f",
}


def pickled(source: str) -> bytes:
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(textwrap.dedent(source), space)
    data: bytes = cloudpickle.dumps(space["f"])  # type: ignore[no-untyped-call]
    return data


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_a_functions_own_modules_count_however_it_reaches_them(library: Path, kind: str) -> None:
    """By name, inside its body, from a module that it imports: each change is other work; what it does not reach is not. [AB6]"""
    try:
        data = pickled(FUNCTIONS[kind])
        seen = [code_digest(data)]
        (library / "unused.py").write_text("x = 2\n", "utf-8")
        assert code_digest(data) == seen[0]
        for name in ("udfs.py", "core.py", "sub/__init__.py", "sub/deep.py", "leaf.py", "__init__.py", "../beside_of_test.py"):
            with (library / name).open("a", encoding="utf-8") as file:
                file.write("# changed\n")
            seen.append(code_digest(data))
        assert len(set(seen)) == 8
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] in ("lib_of_test", "beside_of_test")]:
            del sys.modules[name]


def in_main(code: CodeType, path: str) -> bytes:
    """The pickle of the function `f` of a script that is run."""
    space: dict[str, Any] = {"__name__": "__main__", "__file__": path}
    exec(code, space)
    data: bytes = cloudpickle.dumps(space["f"])  # type: ignore[no-untyped-call]
    return data


def test_a_script_that_was_compiled_has_the_functions_of_its_bytecode_cache() -> None:
    """The first run of `python -m job` compiles it, a rerun reads the cache: equal texts are no longer one object. [AB6]"""
    path = "/jobs/" + "job.py"
    source = "def f(n, a=b'x', b='/jobs/job.py'):\n    return (n, b'x', '/jobs/job.py', 0.5)\n"
    compiled = compile(source, path, "exec")
    fresh, cached = in_main(compiled, path), in_main(marshal.loads(marshal.dumps(compiled)), path)
    assert fresh != cached, "else there is nothing to see here"
    assert code_digest(fresh) == code_digest(cached)
    others = [source.replace(old, new) for old, new in (("0.5", "0.25"), ("b='/jobs/job.py'", "b='/jobs/job.pz'"), ("(n, b'x'", "(n, 'x'"))]
    others.append(source.replace("(n, b'x', '/jobs/job.py', 0.5)", "(n, '/jobs/job.py', b'x', 0.5)"))
    digests = {code_digest(in_main(compile(each, path, "exec"), path)) for each in others}
    assert len(digests) == len(others) and code_digest(fresh) not in digests


@pytest.mark.parametrize("broken", ["def (", None, b"\xff\xfe"])
def test_a_module_that_cannot_be_read_makes_a_function_unknown(library: Path, broken: str | bytes | None) -> None:
    """[AB6]"""
    data = pickled(FUNCTIONS["by value, imports inside"])
    (library / "core.py").unlink()
    if broken is None:
        (library / "core.py").mkdir()
        (library / "core.py").rmdir()
        (library / "core.py").symlink_to(library / "nowhere.py")
        assert code_digest(data), "a link to nothing is no module"
        return
    (library / "core.py").write_bytes(broken.encode() if isinstance(broken, str) else broken)
    with pytest.raises(NotUnderstoodError, match=r"lib_of_test\.core"):
        code_digest(data)


def test_a_module_without_a_source_makes_a_function_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """[AB6]"""
    module = type(sys)("made_up_of_test")
    monkeypatch.setitem(sys.modules, "made_up_of_test", module)
    for spec in (None, ModuleSpec("made_up_of_test", None)):
        module.__spec__ = spec
        with pytest.raises(NotUnderstoodError, match="made_up_of_test"):
            code_digest(cloudpickle.dumps("made_up_of_test"))  # type: ignore[no-untyped-call]


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    """Writes modules of the user's own by their dotted names; they come first on the path, and are forgotten after the test."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(name: str, source: str) -> None:
        path = tmp_path.joinpath(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        for parent in path.relative_to(tmp_path).parents[:-1]:
            (tmp_path / parent / "__init__.py").touch()
        path.write_text(source, "utf-8")
        importlib.invalidate_caches()

    def ours() -> set[str]:
        return {name for name, module in sys.modules.items() if str(getattr(module, "__file__", None)).startswith(str(tmp_path))}

    yield write
    for name in ours():
        del sys.modules[name]


@pytest.mark.parametrize(
    ("reaches", "function"),
    [
        ("import importlib\ndef f(n):\n    return importlib.import_module('pkg_of_test.rules').g(n)\n", "from pkg_of_test.plug import f"),
        ("def f(n):\n    return __import__('rules_of_test').g(n)\n", "from pkg_of_test.plug import f"),
        ("PARTS = {'g': 'pkg_of_test.rules'}\ndef f(n): return n\n", "from pkg_of_test.plug import f"),
        ("", "def f(n):\n    from pkg_of_test import rules\n    return rules.g(n)"),
        ("", "def f(n):\n    def h():\n        from pkg_of_test import plug, rules as r\n        return r.g(n)\n    return h()"),
        ("", "class A:\n    def g(self, n):\n        from pkg_of_test import rules\n        return rules.g(n)\ndef f(n): return A().g(n)"),
    ],
)
def test_a_module_that_is_reached_by_its_name_counts(modules: Callable[[str, str], None], reaches: str, function: str) -> None:
    """[AB6]"""
    modules("pkg_of_test.plug", reaches)
    for name in ("pkg_of_test.rules", "rules_of_test"):
        modules(name, "def g(n): return n\n")
    data = pickled(function)
    before = code_digest(data)
    assert code_digest(data) == before
    for name in ("pkg_of_test.rules", "rules_of_test"):
        modules(name, "def g(n): return n * 2\n")
    assert code_digest(data) != before


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import importlib\ndef f(n):\n    return importlib.import_module('.rules', __package__)\n", "that it computes"),
        ("import importlib\ndef f(n):\n    return importlib.import_module('.rules')\n", "that it computes"),
        (
            "from importlib import import_module\nname = 'rules'\ndef f(n):\n    return import_module(f'pkg_of_test.{name}')\n",
            "that it computes",
        ),
        ("from importlib import import_module as load\ndef f(n):\n    return load(f'pkg_of_test.{n}')\n", "that it computes"),
        ("import importlib\nload = importlib.import_module\ndef f(n):\n    return load(n)\n", "that it computes"),
        ("def f(n):\n    return __import__('rules', globals(), locals(), [], 1)\n", "that it computes"),
        ("def f(n):\n    import only_in_workers_of_test\n", "does not find"),
        ("def f(n):\n    from . import nothing\n    from .nowhere import g\n", "does not find"),
    ],
)
@pytest.mark.parametrize("by_value", [False, True])
def test_code_that_imports_what_cannot_be_told_is_unknown(
    modules: Callable[[str, str], None], source: str, reason: str, by_value: bool
) -> None:
    """In a module, and in a function that travels by itself. [AB6]"""
    modules("pkg_of_test.plug", source)
    with pytest.raises(NotUnderstoodError, match=reason):
        code_digest(pickled(source if by_value else "from pkg_of_test.plug import f"))


def test_a_module_named_as_pythons_own_is_told_from_it(modules: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's own are covered by its release. [AB6]"""
    own = python_code_digest._Sources()
    for name in ("json.decoder", "os.path", "sys", "winreg", "_struct", "sched", "xml.dom.minidom"):
        own.add(name, needed=True)
    assert own.digests == {}
    monkeypatch.delitem(sys.modules, "sched", raising=False)
    modules("sched", "def f(n): return n\n")
    data = pickled("from sched import f")
    before = code_digest(data)
    modules("sched", "def f(n): return n * 2\n")
    assert code_digest(data) != before


def test_a_package_that_was_built_anew_under_its_old_release_is_another(
    modules: Callable[[str, str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hashes that it was installed with tell; where there are none, its files are read. [AB6]"""
    info = tmp_path / "wheel_of_test-1.0.dist-info"
    info.mkdir()
    modules("wheel_of_test.core", "def f(n): return n\n")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: wheel-of-test\nVersion: 1.0\n", "utf-8")
    (info / "top_level.txt").write_text("wheel_of_test\n", "utf-8")
    record = "wheel_of_test/core.py,sha256={},9\n../../bin/tool,sha256={},9\n{}/direct_url.json,sha256={},9\n"

    def installed(core: str, folder: str) -> None:
        (info / "RECORD").write_text(record.format(core, folder, info.name, folder), "utf-8")

    folders = python_code_digest._folders
    monkeypatch.setattr(python_code_digest, "_folders", lambda *names: folders(*names) | ({str(tmp_path)} if "purelib" in names else set()))
    python_code_digest._distributions.cache_clear()
    try:
        data = pickled("from wheel_of_test.core import f")
        installed("A", "x")
        before = code_digest(data)
        modules("wheel_of_test.core", "# its own hash is told by the record\n")
        installed("A", "y")
        assert code_digest(data) == before
        installed("B", "y")
        assert code_digest(data) != before
        (info / "RECORD").unlink()
        python_code_digest._distributions.cache_clear()
        before = code_digest(data)
        modules("wheel_of_test.core", "def f(n): return n * 2\n")
        assert code_digest(data) != before
    finally:
        python_code_digest._distributions.cache_clear()


def test_what_is_installed_counts_by_its_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """[AB6]"""
    data = pickled("import pandas\ndef f(n):\n    return pandas.NA")
    sources = python_code_digest._Sources()
    sources.add("pandas.core.frame")
    sources.add("azure.storage.blob")
    assert sources.digests == {}, "its files are not read"
    before = code_digest(data)
    monkeypatch.setattr(python_code_digest, "_environment", lambda: ("another release",))
    assert code_digest(data) != before


def test_nothing_is_imported_or_run_to_find_out(library: Path) -> None:
    """[AB6] [SE2]"""
    (library / "__init__.py").write_text("raise SystemExit('it was imported')\n", "utf-8")
    assert code_digest(cloudpickle.dumps("lib_of_test.udfs"))  # type: ignore[no-untyped-call]
    assert "lib_of_test" not in sys.modules


@pytest.mark.parametrize("data", [b"", b"garbage", b"\x80\x05\x8c"])
def test_bytes_that_are_no_pickle_are_not_understood(data: bytes) -> None:
    """[AB6]"""
    with pytest.raises(NotUnderstoodError, match="pickle"):
        code_digest(data)
