"""A DataFrame is exactly the listed files, whatever they are called and whatever the session says. [SP4]"""

import time
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField
from pyspark.sql.types import StructType as StructOfSpark
from tests.kit.filter_kinds import CASES, KINDS
from tests.spark.clusters import HOSTILE
from tests.spark.settings import setting

import manifestcommit as mc
from manifestcommit.errors import CorruptMetadataError, StoreError, UsageError
from manifestcommit.format.fields import ArrayType, Field, MapType, Schema, StructType
from manifestcommit.spark import scan
from manifestcommit.spark.scan import FilesReader, ReadPlan, fitted, pack, read_files
from manifestcommit.store import StorageOptions

# Backslashes, globs, percent signs before and after, a newline: names that files added from outside may have.
NAMES = [
    "plain.parquet", "a b.parquet", "p%20q.parquet", "x+y.parquet", "d=1 2/k.parquet", "h#h.parquet", "q?q.parquet",
    "é漢🎉.parquet", "quo'te\".parquet", "st*r[1]{2}.parquet", "back\\slash.parquet", "__HIVE_DEFAULT_PARTITION__/z.parquet",
    "_day=1/u.parquet", "%/%25.parquet", "semi;co,ma.parquet", "new\nline.parquet", "~t&.parquet", "|pipe<>^`$.parquet",
]  # fmt: skip
SILENTLY_SKIPPED = ["_under.parquet", ".dot.parquet", "co:lon.parquet"]

SCHEMA = Schema(
    fields=(
        Field(id=1, name="i", type="long", metadata={"comment": "the number"}),
        Field(id=2, name="f", type="double"),
        Field(id=3, name="d", type="decimal(20,4)"),
        Field(id=4, name="late", type="string"),
    )
)


def put(root: Path, name: str, number: int) -> tuple[str, int]:
    """An old file: narrower types, and without the column that came later."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    decimals = pa.array([number], pa.int64()).cast(pa.decimal128(19, 0)).cast(pa.decimal128(12, 2), safe=False)
    pq.write_table(pa.table({"i": pa.array([number], pa.int32()), "f": pa.array([0.5], pa.float32()), "d": decimals}), path)
    return name, path.stat().st_size


@pytest.fixture(scope="module")
def hostile_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files") / HOSTILE


@pytest.fixture(scope="module")
def files(hostile_root: Path) -> list[tuple[str, int]]:
    return [put(hostile_root, name, number) for number, name in enumerate(NAMES)]


def numbers(df: Any) -> list[int]:
    return sorted(row.i for row in df.collect())


SETTINGS = {
    "as it is": ("spark.sql.caseSensitive", "false"),
    "missing files ignored": ("spark.sql.files.ignoreMissingFiles", "true"),
    "corrupt files ignored": ("spark.sql.files.ignoreCorruptFiles", "true"),
    "sink log ignored": ("spark.sql.streaming.fileStreamSink.ignoreMetadata", "true"),
    "case sensitive": ("spark.sql.caseSensitive", "true"),
    "row reader": ("spark.sql.parquet.enableVectorizedReader", "false"),
    "second file source": ("spark.sql.sources.useV1SourceList", ""),
    "rebased dates": ("spark.sql.parquet.datetimeRebaseModeInRead", "LEGACY"),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_every_listed_file_is_read_whatever_the_session_says(spark, hostile_root: Path, files, name: str) -> None:
    """[SP4] Hostile names, widened types, a column that came later: all rows, once each, by Spark's own scan."""
    with setting(spark, *SETTINGS[name]):
        df = read_files(spark, f"file://{hostile_root}", files, SCHEMA)
        # native, but where the session makes Spark list the folder
        assert ("FileScan parquet" in explained(df)) == (name != "sink log ignored"), explained(df)
        rows = sorted(df.collect())
    assert [row.i for row in rows] == list(range(len(NAMES)))
    assert {(row.f, str(row.d), row.late) for row in rows} == {(0.5, f"{n}.0000", None) for n in range(len(NAMES))}
    assert df.schema["i"].metadata == {"comment": "the number"}
    assert [(f.name, f.dataType.simpleString()) for f in df.schema] == [
        ("i", "bigint"), ("f", "double"), ("d", "decimal(20,4)"), ("late", "string"),
    ]  # fmt: skip


def explained(df: Any) -> str:
    return str(df._jdf.queryExecution().toString())


@pytest.mark.parametrize("name", NAMES)
def test_each_hostile_name_alone(spark, hostile_root: Path, files, name: str) -> None:
    """[SP4] Spark opens the very file that is listed, and no other."""
    listed = files[NAMES.index(name)]
    assert numbers(read_files(spark, f"file://{hostile_root}", [listed], SCHEMA)) == [NAMES.index(name)]


@pytest.mark.parametrize("name", SILENTLY_SKIPPED)
def test_a_name_that_spark_would_skip_is_read_all_the_same(spark, tmp_path: Path, name: str) -> None:
    """[SP4] Spark drops such files from a scan without a word; they are read by the data source's own reader."""
    listed = [put(tmp_path, "plain.parquet", 1), put(tmp_path, name, 2)]
    df = read_files(spark, f"file://{tmp_path}", listed, SCHEMA)
    assert numbers(df) == [1, 2]
    assert df.count() == 2


@pytest.mark.parametrize("damage", ["missing", "corrupt"])
@pytest.mark.parametrize("ignoring", ["Missing", "Corrupt"])
def test_a_damaged_file_is_an_error_even_where_the_session_ignores_it(spark, tmp_path: Path, damage: str, ignoring: str) -> None:
    """[SP4] A session that ignores missing or corrupt files would silently read half of a snapshot."""
    listed = [put(tmp_path, "1.parquet", 1), put(tmp_path, "2.parquet", 2)]
    victim = tmp_path / "2.parquet"
    victim.unlink() if damage == "missing" else victim.write_bytes(b"x" * listed[1][1])
    with setting(spark, f"spark.sql.files.ignore{ignoring}Files", "true"):
        df = read_files(spark, f"file://{tmp_path}", listed, SCHEMA)
        with pytest.raises(Exception, match="FAILED_READ_FILE"):
            df.collect()


@pytest.mark.thorough
@pytest.mark.parametrize("rows", ["spark.sql.parquet.aggregatePushdown", "spark.sql.parquet.recordLevelFilter.enabled"])
def test_rows_of_minus_zero_are_not_lost_to_a_filter_on_zero(spark, tmp_path: Path, rows: str) -> None:
    """[DF6] [RD7] Spark takes -0.0 for 0.0; in its scan dictionaries, Bloom filters of others and Parquet's own comparison do not."""
    zeros, nested = pa.array([-0.0] * 3, pa.float64()), pa.array([{"f": -0.0}] * 3, pa.struct({"f": pa.float32()}))
    table = pa.table({"x": zeros, "s": nested, "n": [1, 2, 3]})
    pq.write_table(table, tmp_path / "own.parquet", write_statistics=["n"])
    blooms = {name: {"ndv": 3, "fpp": 0.01} for name in ("x", "s.f")}
    pq.write_table(table, tmp_path / "theirs.parquet", write_statistics=["n"], use_dictionary=False, bloom_filter_options=blooms)
    fields = (Field(id=1, name="x", type="double"), Field(id=2, name="s", type=StructType(fields=(Field(id=3, name="f", type="float"),))))
    schema = Schema(fields=(*fields, Field(id=4, name="n", type="long")))
    vectorized = str(rows == "spark.sql.parquet.aggregatePushdown").lower()
    with setting(spark, rows, "true"), setting(spark, "spark.sql.parquet.enableVectorizedReader", vectorized):
        for name in ("own.parquet", "theirs.parquet"):
            files = [(name, (tmp_path / name).stat().st_size)]
            df = read_files(spark, f"file://{tmp_path}", files, schema, trust_footers=name == "own.parquet")
            for condition in ("x = 0", "x >= 0", "not (x < 0)", "x in (0.0D, 1.0D)", "s.f >= 0", "x = 0 and n > 0"):
                assert df.filter(condition).count() == 3, (name, condition)


def test_the_greatest_value_is_not_taken_from_a_footer_that_hides_nan(spark, tmp_path: Path) -> None:
    """[DF6] [SP4] Spark's other Parquet source, where a session wants it and lets it, asks footers for it; to Spark it is NaN."""
    path = tmp_path / "theirs.parquet"
    pq.write_table(pa.table({"x": [1.0, float("nan"), 2.0]}), path)
    schema = Schema(fields=(Field(id=1, name="x", type="double"),))
    with setting(spark, "spark.sql.sources.useV1SourceList", ""), setting(spark, "spark.sql.parquet.aggregatePushdown", "true"):
        df = read_files(spark, f"file://{tmp_path}", [(path.name, path.stat().st_size)], schema, trust_footers=False)
        assert str(df.selectExpr("max(x)").collect()[0][0]) == "nan"


def test_an_unlisted_file_beside_the_listed_ones_is_not_read(spark, tmp_path: Path) -> None:
    """[SP4] What a zombie puts into the folder stays invisible, also to a DataFrame built before."""
    listed = [put(tmp_path, "day=1/1.parquet", 1)]
    df = read_files(spark, f"file://{tmp_path}", listed, SCHEMA)
    put(tmp_path, "day=1/2.parquet", 2)
    assert numbers(df) == [1]
    spark.catalog.refreshByPath(str(tmp_path))
    assert numbers(df.filter("i > 0")) == [1]
    assert numbers(read_files(spark, f"file://{tmp_path}", listed, SCHEMA)) == [1]


@pytest.mark.thorough
def test_ten_thousand_files_plan_quickly(spark, tmp_path: Path) -> None:
    """[SP4] Nothing is listed or opened while planning: the files need not even exist."""
    listed = [(f"day={n % 31}/{n:05d}.parquet", 1000) for n in range(10_000)]
    read_files(spark, f"file://{tmp_path}", listed[:1], SCHEMA)
    started = time.monotonic()
    df = read_files(spark, f"file://{tmp_path}", listed, SCHEMA)
    assert time.monotonic() - started < 5.0  # a tenth of this on a quiet machine; listing takes 20 s
    assert len(df._jdf.inputFiles()) == 10_000


def test_the_scratch_folder_is_gone_when_the_dataframe_is_there(spark, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(scan.tempfile, "tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    df = read_files(spark, f"file://{tmp_path}", [put(tmp_path, "1.parquet", 1)], SCHEMA)
    assert list((tmp_path / "scratch").iterdir()) == []
    assert numbers(df) == [1]


def test_local_files_take_no_storage_options(spark, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"given: key"):
        read_files(spark, f"file://{tmp_path}", [], SCHEMA, storage_options={"key": "secret"})


# --- the reader that runs in tasks ----------------------------------------------------------------------------------------
NESTED = Schema(
    fields=(
        Field(id=1, name="s", type=StructType(fields=(Field(id=2, name="a", type="long"), Field(id=3, name="new", type="string")))),
        Field(id=4, name="l", type=ArrayType(element=Field(id=5, name="element", type="double"))),
        Field(
            id=6,
            name="m",
            type=MapType(
                key=Field(id=7, name="key", type="string", nullable=False),
                value=Field(id=8, name="value", type=StructType(fields=(Field(id=9, name="x", type="long"),))),
            ),
        ),
    )
)


@pytest.mark.thorough
def test_both_readers_agree_on_old_nested_files(spark, tmp_path: Path, monkeypatch) -> None:
    """[SP4] Members that came later are null, widened ones are widened, nulls at every depth stay where they were."""
    pairs = [[("k", {"x": 1}), ("n", None)], None, [], [("z", {"x": None})]]
    old = pa.table(
        {
            "s": pa.array([{"a": 1}, None, {"a": None}, {"a": 4}], pa.struct([("a", pa.int32())])),
            "l": pa.array([[1.5, None], [], None, [2.5]], pa.list_(pa.float32())),
            "m": pa.array(pairs, pa.map_(pa.string(), pa.struct([("x", pa.int32())]))),
        }
    )
    pq.write_table(old.slice(0, 2), tmp_path / "1.parquet")
    pq.write_table(old.slice(1, 3), tmp_path / "2.parquet")
    listed = [(name, (tmp_path / name).stat().st_size) for name in ("1.parquet", "2.parquet")]
    native = read_files(spark, f"file://{tmp_path}", listed, NESTED)
    monkeypatch.setattr(scan, "_hadoop_base", lambda *_: None)
    in_tasks = read_files(spark, f"file://{tmp_path}", listed, NESTED)
    assert "manifestcommit_files" in explained(in_tasks)
    assert in_tasks.schema == native.schema
    key = repr
    assert sorted(in_tasks.collect(), key=key) == sorted(native.collect(), key=key)
    assert in_tasks.filter("s.a = 4").first().m == {"z": (None,)}


def test_a_sliced_batch_keeps_its_rows(tmp_path: Path) -> None:
    """Offsets of a slice do not start at zero; a list or map that is null must not take its neighbour's values."""
    target = pa.schema([("l", pa.list_(pa.int64())), ("m", pa.map_(pa.string(), pa.int64()))])
    lists = [[1, 2], None, [], [3], [4, 5, 6], None]
    maps = [[("a", 1)], [], None, [("b", None), ("c", 3)], None, [("d", 4)]]
    source = pa.table({"l": pa.array(lists, pa.list_(pa.int32())), "m": pa.array(maps, pa.map_(pa.string(), pa.int32()))})
    for start in range(len(lists)):
        (batch,) = source.slice(start).to_batches()
        assert fitted(batch, target, target.names, {}).to_pydict() == {"l": lists[start:], "m": maps[start:]}


def test_column_names_with_dots_are_not_taken_for_members(tmp_path: Path) -> None:
    path = tmp_path / "1.parquet"
    pq.write_table(pa.table({"a.b": [1], "a": pa.array([{"b": 2}], pa.struct([("b", pa.int64())]))}), path)
    target = pa.schema([("x", pa.int64()), ("y", pa.struct([("b", pa.int64())])), ("z", pa.string())])
    (stored,) = pq.ParquetFile(path).iter_batches(columns=["a.b", "a"])
    batch = fitted(stored, target, ["a.b", "a", "none"], {})
    assert batch.to_pylist() == [{"x": 1, "y": {"b": 2}, "z": None}]


def test_files_are_packed_in_order_and_none_is_lost() -> None:
    sizes = [1, 200 << 20, 1, 1, 64 << 20, 64 << 20, 1]
    listed = [(str(n), size) for n, size in enumerate(sizes)]
    groups = pack(listed, itemgetter(1))
    assert [file for group in groups for file in group] == listed
    assert len(groups) > 2 and all(groups)
    assert pack([], itemgetter(1)) == []
    assert len(pack([(str(n), 1) for n in range(62)], itemgetter(1))) == 2


def test_sparks_own_scan_follows_no_link(spark: Any, root: str) -> None:
    """Of a file nor of its folder; the JVM would read what is behind it. A root that is a link is read. [SE2] [SP4]"""
    mc.write(pa.table({"x": [1], "p": ["a b"]}), root, partition_by=["p"])
    link = Path(root).with_name("link")
    link.symlink_to(root)
    assert [row.x for row in mc.read_committed(link, spark=spark).collect()] == [1]
    (file,) = Path(root).glob("p=*/*.parquet")
    outside = Path(root).with_name("outside")
    file.parent.rename(outside)
    file.parent.symlink_to(outside)
    with pytest.raises(StoreError, match="'p=a b' is a symbolic link"):
        mc.read_committed(root, spark=spark)
    file.parent.unlink()
    file.parent.mkdir()
    file.symlink_to(outside / file.name)
    with pytest.raises(StoreError, match="parquet: is a symbolic link"):
        mc.read_committed(root, spark=spark)


def test_a_damaged_page_is_named_by_the_task_that_reads_it(tmp_path: Path) -> None:
    """[RD2] pyarrow says only that some page is wrong."""
    sound, broken = put(tmp_path, "sound.parquet", 1), put(tmp_path, "broken.parquet", 2)
    data = bytearray((tmp_path / "broken.parquet").read_bytes())
    data[6:40] = b"\xee" * 34
    (tmp_path / "broken.parquet").write_bytes(data)
    struct = StructOfSpark([StructField("i", LongType())])
    reader = FilesReader(ReadPlan(url=str(tmp_path), files=(sound, broken), schema=SCHEMA), struct, StorageOptions(None))
    (group,) = reader.partitions()
    with pytest.raises(CorruptMetadataError, match=r"data file broken\.parquet is damaged"):
        list(reader.read(group))


# --- rows that filters find ---------------------------------------------------------------------------------------------
@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["own", "adopted"])
def test_filters_at_the_extremes(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """[RD7] [DF6]"""
    table = KINDS[kind](str(tmp_path / "t"))
    cases = [case for case in CASES if case.sql[0] in "xd"]
    asked = [(case.sql, case.found) for case in cases] + [(case.arrow, case.found) for case in cases[::8]]
    for condition, expected in asked:
        found = mc.read_committed(table.url, filter=condition).select("n").collect()
        assert {row.n for row in found} == expected, str(condition)


# --- rows of NaN --------------------------------------------------------------------------------------------------------
ROWS = pa.table({"id": [1, 2, 3], "x": [1.0, float("nan"), 3.0]})
WANTED = {"x > 5": [2], "x = double('NaN')": [2], "NOT (x <= 5)": [2], "x <=> double('NaN')": [2], "x >= 3": [2, 3]}


@pytest.mark.thorough
@pytest.mark.parametrize("writer", ["arrow", "spark", "another"])
def test_a_filter_keeps_the_rows_of_nan(spark: Any, tmp_path: Path, writer: str) -> None:
    """As in memory, whoever wrote the file: a job of ours from Arrow or Spark, or something else. [SP4] [RD7] [DF6]"""
    root = tmp_path / "t"
    if writer == "another":
        mc.create_table(root, ROWS.schema)
        pq.write_table(ROWS, root / "other.parquet")
        with mc.begin(root) as job:
            job.add_files(["other.parquet"])
    else:
        mc.write(ROWS if writer == "arrow" else spark.createDataFrame(ROWS.to_pylist(), "id long, x double"), root)
    df = mc.read_committed(root, spark=spark)
    for condition, ids in WANTED.items():
        assert sorted(row.id for row in df.where(condition).collect()) == ids, condition
