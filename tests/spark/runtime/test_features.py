"""What a Spark lacks is refused in a sentence, and the ways of older versions give the same rows. [SP45]"""

import datetime as dt
import re
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

import manifestcommit as mc
from manifestcommit.log.table_context import TableContext
from manifestcommit.spark import features, scan, tasks
from manifestcommit.spark.datasource import StreamOptions, TableStreamReader, _stream_options
from manifestcommit.spark.features import FEATURES, check_feature, frame_of, sound
from manifestcommit.store import StorageOptions, open_store

REPO = Path(__file__).resolve().parents[3]
SOME = "n long, `day.é =%` string, who string"


@pytest.mark.parametrize("name", [name for name, feature in FEATURES.items() if feature.since > features.OLDEST])
def test_what_a_version_lacks_is_refused_with_the_version_that_has_it(monkeypatch: pytest.MonkeyPatch, name: Any) -> None:
    """[SP45] One sentence: what, from which version on, which this is, and what to do instead."""
    feature = FEATURES[name]
    since = f"needs Spark {feature.since[0]}.{feature.since[1]} or newer, and this is Spark "
    check_feature(name)
    monkeypatch.setattr(features, "SPARK", (feature.since[0], feature.since[1] - 1) if feature.since[1] else (3, 5))
    with pytest.raises(mc.errors.UsageError, match=re.escape(since)) as raised:
        check_feature(name)
    assert str(raised.value).startswith(feature.what.replace("`", "")) and feature.instead in str(raised.value)


def test_every_feature_of_the_table_is_one_that_the_code_asks_for() -> None:
    """[SP45] A row of the table that nothing checks would be a promise without a safeguard."""
    assert FEATURES.keys() == set(get_args(features.Name))
    code = "\n".join(path.read_text("utf-8") for top in ("manifestcommit", "pyspark_manifestcommit") for path in (REPO / top).rglob("*.py"))
    asked = set(re.findall(r'\b(?:check_feature|has)\("([^"]+)"[,)]', code))
    lacked = {name for name, each in FEATURES.items() if each.since > features.OLDEST or each.connect != features.OLDEST}
    assert lacked <= asked <= FEATURES.keys()


def test_what_connect_lacks_is_refused_with_the_way_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """[SP45] By the same table: for good, or from which version on its sessions have it."""
    monkeypatch.setattr(features, "is_connect", lambda _: True)
    with pytest.raises(mc.errors.UsageError, match=r"recoverable=True is not available in Spark Connect sessions; .*leave it out"):
        check_feature("recoverable", object())
    check_feature("queries", object())
    monkeypatch.setattr(features, "SPARK", (3, 5))
    check_feature("queries")
    with pytest.raises(mc.errors.UsageError, match=r"queries of tables by mc.sql needs Spark Connect 4.0 or newer"):
        check_feature("queries", object())


def test_the_public_calls_refuse_before_anything_is_done(spark: Any, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """[SP45] [SP5] Nothing is written where the version lacks what was asked for."""
    df = spark.createDataFrame([(1, "a", "x")], SOME)
    monkeypatch.setattr(features, "SPARK", (4, 0))
    with pytest.raises(mc.errors.UsageError, match="maxFilesPerTrigger"):
        _stream_options({"maxFilesPerTrigger": "3"})
    monkeypatch.setattr(features, "SPARK", (3, 5))
    with pytest.raises(mc.errors.UsageError, match=r"recoverable=True needs Spark 4\.0"):
        mc.write(df, root, key="k", recoverable=True, fingerprint="f")
    with pytest.raises(mc.errors.UsageError, match="foreachBatch with a key"):
        mc.register(spark)
    assert not Path(root).exists()


@pytest.fixture
def without_data_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ways of Spark 3.5, on this Spark."""
    monkeypatch.setattr(features, "has", lambda name: name != "format")
    monkeypatch.setattr(scan, "registered_name", None)


@pytest.mark.thorough
@pytest.mark.usefixtures("without_data_sources")
def test_without_data_sources_every_row_is_written_and_read_once(spark: Any, root: str) -> None:
    """[SP45] [SP1] [SP4] Through mapInArrow: writes, reads in tasks, merges and deletes; empty data, hostile names."""
    rows = [(n, f"x {n % 3} é=%'\"" if n % 3 else None, "a") for n in range(40)]
    df = spark.createDataFrame(rows, SOME).repartition(3)
    assert not mc.write(df, root, key="k", partition_by=["day.é =%"]).already_committed
    assert mc.write(df, root, key="k", partition_by=["day.é =%"]).already_committed
    mc.write(df.filter("n < 0"), root)
    table = mc.Table(root)
    changed = table.merge(spark.createDataFrame([(3, None, "b"), (50, "new", "b")], SOME), on="n")
    assert (changed.rows_updated, changed.rows_inserted) == (1, 1)
    table.delete(F.col("n") >= 30, spark=spark)
    wanted = [(n, day, "b" if n == 3 else who) for n, day, who in rows if n < 30]
    assert sorted(map(tuple, mc.read_committed(root, spark=spark).collect())) == wanted


@pytest.mark.usefixtures("without_data_sources")
def test_without_data_sources_refusals_of_tasks_keep_their_type(spark: Any, root: str) -> None:
    """[SP45] [SP6]"""
    mc.create_table(root, pa.schema([pa.field("n", pa.int64(), nullable=False)]))
    with pytest.raises(mc.errors.SchemaMismatchError):
        mc.write(spark.sql("select if(id = 1, null, id) as n from range(3)"), root)


def test_options_are_never_sent_through_files() -> None:
    """[SP45] [SE1] Spark writes a large function to files, and what is in it."""
    large = bytes(600_000)
    tasks.check_sent(lambda: large, StorageOptions())
    with pytest.raises(mc.errors.UsageError, match=r"through files.*environment"):
        tasks.check_sent(lambda: large, StorageOptions({"secret": "s3cr3t"}))


@pytest.mark.thorough
def test_what_sparks_scan_does_not_take_is_read_in_tasks(spark: Any, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """[SP45] [SP4] Columns of the type void, before Spark 4.1."""
    mc.write(spark.sql("select id as n, null as v, array(null) as a from range(3)"), root)
    native = mc.read_committed(root, spark=spark)
    monkeypatch.setattr(features, "UNREAD_TYPES", frozenset({"void"}))
    monkeypatch.setattr(scan, "_hadoop_base", None)  # its scan is not even tried
    in_tasks = mc.read_committed(root, spark=spark)
    assert in_tasks.schema == native.schema and sorted(in_tasks.collect()) == sorted(native.collect())


@pytest.mark.thorough
def test_small_frames_are_the_same_without_arrow(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """[SP45] Spark 3.5 takes no Arrow tables: rows of partition values go there as Python's values."""
    at = dt.datetime(2013, 7, 1, 12, tzinfo=dt.UTC)
    table = pa.table(
        {"n": [1, None], "s": ["é", ""], "d": [dt.date(2013, 1, 1), None], "at": pa.array([at, None], pa.timestamp("us", "UTC"))}
    )
    wanted = frame_of(spark, table)
    monkeypatch.setattr(features, "SPARK", (3, 5))
    found = frame_of(spark, table)
    assert found.schema == wanted.schema and found.collect() == wanted.collect()


def test_a_stream_goes_on_where_its_last_batch_ended(root: str) -> None:
    """[SP45] [SP8] Before 4.2 Spark asks for the next files without saying where the stream is."""
    for n in range(3):
        mc.write(pa.table({"n": [n]}), root)
    head = TableContext(open_store(root)).open().snapshot

    def reader() -> TableStreamReader:
        return TableStreamReader(
            open_store(root).url, head.schema, scan.spark_schema(head.schema), pinned=head.version, options=StreamOptions(),
            storage_options=StorageOptions(),
        )  # fmt: skip

    first = reader()
    end = first.latestOffset()
    assert sum(len(part.files) for part in first.partitions(first.initialOffset(), end)) == 3
    assert first.latestOffset() == end
    again = reader()
    assert again.partitions(end, end) == []  # as Spark does when it starts the query again
    assert again.latestOffset() == end
    mc.write(pa.table({"n": [3]}), root)
    assert sum(len(part.files) for part in again.partitions(end, again.latestOffset())) == 1


def test_lists_without_offsets_are_made_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """[SP45] Spark before 4.2 leaves the offsets of empty lists out, and pyarrow's `nbytes` ends the process there."""
    inner = pa.Array.from_buffers(pa.list_(pa.int32()), 0, [None, pa.py_buffer(b"")], children=[pa.array([], pa.int32())])
    nested = pa.ListArray.from_arrays(pa.array([0, 0, 0], pa.int32()), inner)
    batch = pa.RecordBatch.from_arrays([nested, pa.array([1, 2])], names=["x", "n"])
    monkeypatch.setattr(features, "SPARK", (4, 1))
    mended = sound(batch)
    assert batch.column(0).values.buffers()[1].size == 0 < mended.column(0).values.buffers()[1].size
    assert mended.to_pylist() == [{"x": [], "n": 1}, {"x": [], "n": 2}] and mended.schema == batch.schema
