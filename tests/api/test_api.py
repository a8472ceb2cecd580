"""What Python callers rely on: jobs, outcomes, tables, errors with a way out. No Spark here."""

import contextlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from tests.kit.tables import table_with

import manifestcommit as mc

MONTH = pa.table({"day": ["2013-01-01", "2013-01-01", "2013-01-02"], "flight": [1545, 1714, 725]})


def day(text: str, *flights: int) -> pa.Table:
    return pa.table({"day": pa.array([text] * len(flights), pa.string()), "flight": pa.array(flights, pa.int64())})


def flights(table: mc.Table | Path, **choice: Any) -> list[int]:
    table = table if isinstance(table, mc.Table) else mc.Table(table)
    return sorted(table.dataset(**choice).to_table()["flight"].to_pylist())


def everything_below(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "flights"


class Exploding:
    """Rows that nobody may read."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        raise AssertionError("the data was read")


# --- write -----------------------------------------------------------------------------------------------------------
def test_a_write_returns_the_version_that_holds_it(root: Path) -> None:
    """[CM10]"""
    first = mc.write(MONTH, root, partition_by=["day"])
    second = mc.write(day("2013-01-03", 11), str(root))
    assert (second.version, second.already_committed) == (first.version + 1, False)
    assert flights(root) == [11, 725, 1545, 1714]
    assert flights(root, version=first.version) == [725, 1545, 1714]
    assert mc.Table(root).resolve(second.job_id) == "committed" and mc.Table(root).resolve(second.job_id).version == second.version


@pytest.mark.parametrize("spelled", ["{}", "{}/", "file://{}", "file://localhost{}", "local://{}", "{}/x/.."])
def test_one_place_is_one_table_however_it_is_spelled(root: Path, spelled: str) -> None:
    """[ST4]"""
    mc.write(MONTH, root)
    mc.write(day("2013-01-03", 11), spelled.format(root))
    assert len(flights(root)) == 4
    assert mc.Table(spelled.format(root)).url == f"file://{root}"


def test_rows_outside_the_named_partition_are_refused(root: Path) -> None:
    """They would be doubled by a rerun. The error names both and the way out. [PT3]"""
    mc.write(MONTH, root, partition_by="day")
    with pytest.raises(mc.errors.UsageError, match=r"2013-01-02.*2013-01-09.*nothing was committed.*dynamic"):
        mc.write(day("2013-01-09", 1), root, mode="overwrite", overwrite={"day": "2013-01-02"})
    assert len(flights(root)) == 3


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"overwrite": "dynamic"}, "overwrite"), ({"mode": "overwrite", "overwrite": "static"}, "overwrite"),
        ({"mode": "overwrite", "overwrite": {}}, "overwrite"), ({"mode": "overwrite", "conflict": "later"}, "conflict"),
        ({"conflict": "fail"}, "conflict"), ({"watermarks": {"MyTopic:0": 50}}, "MyTopic:0"),
        ({"watermarks": {"MyTopic:0": (50, 0)}}, "MyTopic:0"), ({"watermarks": {"MyTopic:0": (0, 1.5)}}, "MyTopic:0"),
        ({"watermarks": {"": (0, 1)}}, "source"), ({"watermarks": {"MyTopic:0": (0, 2**63)}}, "MyTopic:0"),
        ({"recoverable": True}, "recoverable"), ({"recoverable": True, "key": "k"}, "needs a fingerprint"),
        ({"partition_by": ["nope"]}, "nope"), ({"partition_by": ["day", "day"]}, "day"),
        ({"storage_options": {"key": "hunter2"}}, "storage_options"), ({"data": [1, 2]}, "pandas"), ({"data": "x"}, "polars"),
        ({"data": {"a": [1]}}, "pyarrow"), ({"data": None}, "pyarrow"), ({"data": pl.LazyFrame({"a": [1]})}, r"collect\(\)"),
        ({"data": pa.array([1])}, "columns"),
    ],
)  # fmt: skip
def test_a_wrong_argument_is_named_and_nothing_is_made(root: Path, options: dict[str, Any], named: str) -> None:
    """UsageError before anything is read or written: no folder is left, no table, no file. [SC3]"""
    with pytest.raises(mc.errors.UsageError, match=named):
        mc.write(options.pop("data", MONTH), root, **options)
    assert not root.exists()


def test_a_duckdb_connection_is_told_to_give_its_relation(root: Path) -> None:
    """What its execute() returns. [SC3]"""
    with duckdb.connect() as connection, pytest.raises(mc.errors.UsageError, match=r"the relation that its \.sql\(…\) returns"):
        mc.write(connection.execute("select 1 as a"), root)
    assert not root.exists()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"day": ["x"], "flight": ["text"]}, r"'flight' is long in the table and string in the data.*Cast"),
        ({"day": ["x"], "flight": [1.5]}, r"'flight'.*double does not fit the column's type long.*Cast"),
        ({"day": ["x"], "flight": [1], "extra": [1]}, r"'extra'.*merge_schema=True"),
        ({"Day": ["x"], "day": ["y"], "flight": [1]}, r"'Day'"),
    ],
)
def test_data_that_does_not_fit_is_refused_by_the_name_of_the_column(root: Path, data: dict[str, Any], message: str) -> None:
    """Before a file is written, with the way out. [SC3]"""
    mc.write(MONTH, root)
    before = everything_below(root)
    with pytest.raises(mc.errors.SchemaMismatchError, match=message):
        mc.write(pa.table(data), root)
    assert everything_below(root) == before


def test_a_property_of_the_table_sets_the_size_of_files(root: Path) -> None:
    """[CM9]"""
    data = pa.table({"flight": pc.random(100_000, initializer=1)})
    mc.create_table(root, data.schema, properties={"write.target-file-size-bytes": "100000", "write.bounds-columns": "1"})
    mc.write(data, root)
    assert mc.Table(root).files().num_rows > 3
    mc.Table(root).set_properties({"write.target-file-size-bytes": None, "owner": "air traffic"})
    assert mc.Table(root).snapshot().properties == {"write.bounds-columns": "1", "owner": "air traffic"}
    mc.write(data, root, mode="overwrite")
    assert mc.Table(root).files().num_rows == 1
    for wrong in ({"write.target-file-size-bytes": "0"}, {"owner": 7}, {7: "x"}):
        with pytest.raises(mc.errors.UsageError, match="property"):
            mc.Table(root).set_properties(wrong)  # type: ignore[dict-item]


# --- begin -----------------------------------------------------------------------------------------------------------
def test_a_block_commits_all_its_writes_at_once(root: Path) -> None:
    """Nothing is visible before the block is left; then all of it is, as one version. [CM3] [SP1]"""
    mc.write(MONTH, root)
    with mc.begin(root) as job:
        job.write(day("2013-01-03", 11))
        job.write(day("2013-01-04", 12))
        job.advance("MyTopic:0", 50, 100)
        assert job.outcome is None
        assert len(flights(root)) == 3 and mc.Table(root).watermarks() == {}
    assert job.outcome is not None and job.outcome.version == 3
    assert flights(root) == [11, 12, 725, 1545, 1714]
    assert mc.Table(root).watermarks() == {"MyTopic:0": 100}


def test_whoever_changes_what_a_table_told_changes_nothing_in_the_table(root: Path) -> None:
    """A caller that keeps its own books in the watermarks it was given must not move the table's, in this process' next commit. [RD1]"""
    mc.write(MONTH, root, key="k", watermarks={"a": (0, 5), "b": (0, 7)})
    mc.Table(root).set_properties({"p": "1"})
    table = mc.Table(root)
    watermarks, snapshot, described, commit = table.watermarks(), table.snapshot(), table.describe(), table.history()[0]
    watermarks["a"] = 100
    del watermarks["b"]
    snapshot.keys.clear()
    snapshot.watermarks.clear()
    snapshot.added[0].columns.clear()
    described["properties"]["p"] = "2"
    commit["summary"]["checks"]["c"] = False
    table.set_properties({"q": "3"})
    mc.write(day("2013-01-03", 11), root)
    assert table.watermarks() == {"a": 5, "b": 7}
    head = table.snapshot()
    assert head.properties == {"p": "1", "q": "3"} and list(head.keys) == ["k"] and all(entry.columns for entry in head.added)
    assert mc.write(MONTH, root, key="k", watermarks={"a": (0, 5), "b": (0, 7)}).already_committed
    assert mc.Table(root).describe(version=snapshot.version)["commits"][0]["summary"]["checks"] == {}


def test_a_block_left_by_an_exception_changes_nothing(root: Path) -> None:
    """Its files stay in the store and are listed by nothing. [AB1] [IV5]"""
    mc.write(MONTH, root)
    job = mc.begin(root, key="k")
    with contextlib.suppress(KeyboardInterrupt), job:
        job.write(day("2013-01-03", 11))
        job.advance("MyTopic:0", 0, 100)
        raise KeyboardInterrupt
    table = mc.Table(root)
    assert job.outcome is None and table.snapshot().version == 2
    assert len(flights(root)) == 3 and table.watermarks() == {} and mc.Table(root).resolve(job.id) == "not_committed"
    assert len([name for name in everything_below(root) if name.endswith(".parquet")]) == 2
    with pytest.raises(mc.errors.UsageError, match="aborted; begin a new one"):
        job.write(MONTH)


# --- keys ------------------------------------------------------------------------------------------------------------
def test_the_same_key_again_returns_the_first_version_and_reads_no_data(root: Path) -> None:
    """Found out before any work: the rows are not even opened. [KY1] [KY3]"""
    first = mc.write(MONTH, root, key="flights:2013-01", watermarks={"faa": (0, 3)})
    before = everything_below(root)
    again = mc.write(Exploding(), root, key="flights:2013-01", watermarks={"faa": (0, 3)})
    assert (again.version, again.already_committed) == (first.version, True)
    with mc.begin(root, key="flights:2013-01") as job:
        assert job.already_committed
        job.write(Exploding())
        job.add_files(["no/such/file.parquet"])
        job.advance("faa", 0, 3)
    assert job.outcome is not None and job.outcome.already_committed and job.outcome.version == first.version
    assert everything_below(root) == before and len(flights(root)) == 3


@pytest.mark.parametrize(
    "other",
    [
        {"watermarks": {"faa": (0, 4)}},
        {"watermarks": {"faa": (0, 3)}, "fingerprint": "v2"},
        {"watermarks": {"faa": (0, 3)}, "mode": "overwrite"},
        {"watermarks": {"faa": (0, 3)}, "mode": "overwrite", "overwrite": "dynamic"},
        {"watermarks": {"faa": (0, 3)}, "mode": "overwrite", "overwrite": {"day": "2013-01-01"}},
        {},
    ],
)
def test_a_key_with_another_declaration_is_an_error(root: Path, other: dict[str, Any]) -> None:
    """[KY2]"""
    mc.write(MONTH, root, partition_by="day", key="k", watermarks={"faa": (0, 3)})
    with pytest.raises(mc.errors.KeyReusedError, match=r"'k' was committed at version 2.*nothing was committed now.*another key"):
        mc.write(MONTH, root, key="k", **other)
    assert mc.Table(root).snapshot().version == 2


# --- watermarks and conflicts ----------------------------------------------------------------------------------------
def test_an_overwrite_that_lost_says_rule_mine_and_winner(root: Path) -> None:
    """[CF1] [CF3]"""
    mc.write(MONTH, root, partition_by="day")
    job = mc.begin(root)
    job.overwrite("dynamic")
    job.write(day("2013-01-01", 1))
    mc.write(day("2013-01-01", 2), root)
    with pytest.raises(mc.errors.CommitConflictError, match=r"Nothing of it was committed.*again") as conflict:
        job.commit()
    assert conflict.value.rule and "2013-01-01" in conflict.value.mine and "version 3" in conflict.value.winner
    assert job.outcome is None and 1 not in flights(root)


# --- add_files -------------------------------------------------------------------------------------------------------
def put_parquet(root: Path, path: str, table: pa.Table = MONTH) -> str:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, root / path)
    return path


def test_files_of_others_are_listed_where_they_are(root: Path) -> None:
    """In hive-style folders too, as long as the partition column is inside; spaces and signs in names are kept. [AF1] [LY1]"""
    mc.write(MONTH, root, partition_by="day")
    paths = [
        put_parquet(root, "day=2013-01-03/part-1.parquet", day("2013-01-03", 11)),
        put_parquet(root, "elsewhere/a b+%41#'ü.parquet", day("2013-01-04", 12, 13)),
    ]
    with mc.begin(root) as job:
        job.add_files(paths)
        assert len(flights(root)) == 3
    assert flights(root) == [11, 12, 13, 725, 1545, 1714]
    files = {row["path"]: row for row in mc.Table(root).files().to_pylist()}
    for path, rows in zip(paths, (1, 2), strict=True):
        assert files[path]["rows"] == rows and files[path]["bytes"] == (root / path).stat().st_size and files[path]["job"] == job.id
    assert mc.Table(root).files(filter=pc.field("day") == "2013-01-04")["path"].to_pylist() == paths[1:]


@pytest.mark.parametrize(
    ("path", "table", "message"),
    [
        ("missing.parquet", None, r"missing\.parquet"), ("../outside.parquet", None, "outside"), ("/etc/passwd", None, "etc/passwd"),
        ("a/../b.parquet", None, r"\.\."), ("", None, "''"), ("a//b.parquet", None, "a//b"), ("_manifest/hint", None, "_manifest"),
        ("_MANIFEST/x.parquet", None, "_MANIFEST"), ("a\\b.parquet", None, "b.parquet"),
        ("text.parquet", b"PAR1 is not enough", r"text\.parquet cannot be read as a Parquet file"),
        ("empty.parquet", b"", r"empty\.parquet cannot be read as a Parquet file"), ("folder", ..., "folder"),
        ("wrong.parquet", pa.table({"day": ["x"], "flight": ["text"]}), r"wrong\.parquet.*'flight'"),
        ("more.parquet", pa.table({"day": ["x"], "flight": [1], "extra": [1]}), r"more\.parquet.*'extra'"),
        ("nanos.parquet", pa.table({"day": ["x"], "flight": pa.array([1], pa.uint64())}), r"nanos\.parquet.*'flight'"),
        ("several.parquet", MONTH, r"several\.parquet.*'day'.*several values"),
        ("day=2013-01-01/lacking.parquet", pa.table({"flight": [1]}), r"lacking\.parquet.*'day'"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_a_part_of_the_table_is_refused_by_name(root: Path, path: str, table: Any, message: str) -> None:
    """Missing, climbing, no Parquet, another schema, several partitions: nothing was committed. [AF1] [LY1] [SE2]"""
    mc.write(MONTH, root, partition_by="day")
    put_parquet(root.parent, "outside.parquet")
    if isinstance(table, pa.Table):
        put_parquet(root, path, table)
    elif isinstance(table, bytes):
        (root / path).write_bytes(table)
    elif table is ...:
        (root / path).mkdir()
    with pytest.raises((mc.errors.UsageError, mc.errors.SchemaMismatchError, mc.errors.StoreError), match=message), mc.begin(root) as job:
        job.add_files([path])
    assert mc.Table(root).snapshot().version == 2 and len(flights(root)) == 3


def test_the_first_file_gives_a_table_its_columns(root: Path) -> None:
    """[AF1] [CM13]"""
    with mc.begin(root) as job:
        job.add_files([put_parquet(root, "x/part-1.parquet")])
    assert len(flights(root)) == 3
    assert mc.Table(root).dataset().schema == MONTH.schema


def test_add_files_takes_a_list(root: Path) -> None:
    """A text would be taken letter by letter. [AF1]"""
    mc.write(MONTH, root)
    with pytest.raises(mc.errors.UsageError, match="list of paths"), mc.begin(root) as job:
        job.add_files("x.parquet")


# --- where a table may be --------------------------------------------------------------------------------------------
def test_a_folder_of_plain_parquet_is_not_taken_over(root: Path) -> None:
    """The error names a file and `adopt`; nothing is added to the folder. [LY6]"""
    put_parquet(root, "part-1.parquet")
    with pytest.raises(mc.errors.NotATableError, match=r"part-1\.parquet.*adopt"):
        mc.write(MONTH, root)
    with pytest.raises(mc.errors.NotATableError, match="adopt"):
        mc.create_table(root, MONTH.schema)
    with pytest.raises(mc.errors.NotATableError):
        mc.begin(root)
    assert everything_below(root) == ["part-1.parquet"]


@pytest.mark.parametrize("partition_by", [None, "day"])
def test_tables_do_not_nest(root: Path, partition_by: str | None) -> None:
    """Neither inside nor around another table; the error names the other table. [LY6]"""
    mc.write(MONTH, root / "middle", partition_by=partition_by)
    before = everything_below(root)
    for inside in (root / "middle" / "in", root / "middle" / "day=2013-01-01" / "x" / "y"):
        with pytest.raises(mc.errors.NotATableError, match=r"inside the table at .*middle"):
            mc.write(MONTH, inside)
    for around in (root, root.parent):
        with pytest.raises(mc.errors.NotATableError, match=r"table inside it, at '(flights/)?middle'"):
            mc.write(MONTH, around)
    assert everything_below(root) == before
    mc.write(MONTH, root / "middle2")
    assert len(flights(root / "middle2")) == 3


def test_a_place_without_versions_is_no_table(root: Path) -> None:
    """Reading never makes one. [LY9] [RD1]"""
    table = mc.Table(root)
    for read in (table.snapshot, table.files, table.dataset, table.history, table.watermarks, lambda: table.changed_files(1)):
        with pytest.raises(mc.errors.TableNotFoundError, match=r"no table at file://.*flights"):
            read()
    for change in (
        lambda: table.add_column("a", "long"),
        lambda: table.set_properties({"a": "b"}),
        lambda: mc.Table(root).resolve(f"v1-{0:016}-{0:032}"),
    ):
        with pytest.raises(mc.errors.TableNotFoundError):
            change()
    assert not root.exists()


# --- reading ---------------------------------------------------------------------------------------------------------
@pytest.fixture
def four(root: Path) -> mc.Table:
    """Versions 2, 3 and 4 with one flight more each, at times of their own."""
    for flight in (1, 2, 3):
        mc.write(day(f"2013-01-0{flight}", flight), root, partition_by="day", key=f"day:{flight}")
        time.sleep(0.002)
    return mc.Table(root)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"version": 5}, "no version 5; it has 1 to 4"), ({"version": 0}, "no version 0"), ({"version": -1}, "no version -1"),
        ({"as_of": "1999-12-31"}, "as old as 1999-12-31.*oldest is 1"), ({"tag": "release"}, "no tag 'release'; it has: none"),
    ],
)  # fmt: skip
def test_what_is_not_there_is_named_with_what_is(four: mc.Table, choice: dict[str, Any], message: str) -> None:
    """[RD4] [RD5]"""
    for read in (four.snapshot, four.files, four.dataset):
        with pytest.raises(mc.errors.VersionNotFoundError, match=message):
            read(**choice)


@pytest.mark.parametrize("renamed", [False, True])
def test_a_file_that_is_gone_is_an_error_never_fewer_rows(four: mc.Table, root: Path, renamed: bool) -> None:
    """For pyarrow, DuckDB and polars, with a filter too. [RD2]"""
    if renamed:
        four.rename_column("flight", "number")
    dataset = four.dataset()
    gone = four.files(filter=pc.field("day") == "2013-01-02")["path"].to_pylist()[0]
    (root / gone).unlink()
    reads: list[Callable[[], Any]] = [
        dataset.to_table,
        lambda: dataset.to_table(columns=["day"]),
        lambda: list(dataset.to_batches(filter=pc.field("day") >= "2013-01-02")),
        lambda: duckdb.from_arrow(dataset).fetchall(),
        lambda: pl.scan_pyarrow_dataset(dataset).collect(),
        dataset.count_rows,
    ]
    for read in reads:
        with pytest.raises(Exception, match=gone.rpartition("/")[2]):
            read()
    with pytest.raises(mc.errors.DataFileMissingError, match="`manifestcommit verify` names all") as raised:
        four.dataset()
    assert raised.value.path == gone and isinstance(raised.value, FileNotFoundError)
    assert four.dataset(version=2).count_rows() == 1  # which does not list it


def test_history_tells_who_did_what(four: mc.Table) -> None:
    """Newest first, as many as asked for. [RD3]"""
    rows = four.history()
    assert [row["version"] for row in rows] == [4, 3, 2, 1]
    assert [row["operation"] for row in rows] == ["append"] * 3 + ["create"]
    assert [row["key"] for row in rows] == ["day:3", "day:2", "day:1", None]
    assert [row["totals"]["rows"] for row in rows] == [3, 2, 1, 0]
    assert all(row["summary"]["rows"] == 1 and row["summary"]["files"] == 1 for row in rows[:3])
    assert [row["committed_at"] for row in rows] == sorted((row["committed_at"] for row in rows), reverse=True)
    assert rows[0]["committed_at"].tzinfo is not None
    assert four.history(limit=2) == rows[:2] and four.history(limit=0) == []


def test_changes_are_the_files_between_two_versions(four: mc.Table, root: Path) -> None:
    """Files that came and went in between are in neither. [RD8]"""
    mc.write(day("2013-01-02", 22), root, mode="overwrite", overwrite={"day": "2013-01-02"})
    between = four.changed_files(3)
    assert sorted(between["added"]["day"].to_pylist()) == ["2013-01-02", "2013-01-03"]
    assert between["removed"]["day"].to_pylist() == ["2013-01-02"]
    assert four.changed_files(3, 4)["removed"].num_rows == 0 and four.changed_files(3, 4)["added"]["added_version"].to_pylist() == [4]
    assert four.changed_files(5)["added"].num_rows == four.changed_files(2, 2)["removed"].num_rows == 0
    with pytest.raises(mc.errors.UsageError, match="version 4 is newer than 2"):
        four.changed_files(4, 2)
    with pytest.raises(mc.errors.VersionNotFoundError, match="no version 9"):
        four.changed_files(9)


def test_read_committed_says_what_it_needs(root: Path) -> None:
    """Without a session it is an error of ours, not a crash. [RD2]"""
    with pytest.raises(mc.errors.TableNotFoundError):
        mc.read_committed(root)


# --- secrets ---------------------------------------------------------------------------------------------------------
SECRET = "wJalrXUtnFEMI"  # in every form in which users put one into a URL


@pytest.mark.parametrize(
    "url",
    [
        f"s3://AKIA:{SECRET}@bucket/x", f"s3a://AKIA:{SECRET}@bucket/x", f"s3://AKIA:{SECRET}/K7MDENG@bucket/x",
        f"S3://AKIA:{SECRET}@bucket/x", f"gs://token:{SECRET}@bucket/x", f"abfss://user:{SECRET}@account.dfs.core.windows.net/x",
        f"https://user:{SECRET}@host/x", f"hdfs://user:{SECRET}@host:8020/x", f"file://user:{SECRET}@host/x",
        f"memory://user:{SECRET}@host/x", f"memory://user:{SECRET}/K7MDENG@host/x", f"s3://bucket/x?X-Amz-Signature={SECRET}",
    ],
)  # fmt: skip
def test_a_secret_in_a_url_is_in_no_error(url: str) -> None:
    """Every call refuses such a URL, and says so without repeating it. [SE1] [ST4]"""
    calls: list[Callable[[], Any]] = [
        lambda: mc.write(MONTH, url),
        lambda: mc.begin(url),
        lambda: mc.Table(url),
        lambda: mc.create_table(url, MONTH.schema),
        lambda: mc.Table(url).resolve("v1-x"),
    ]
    for call in calls:
        with pytest.raises(mc.errors.ManifestCommitError) as caught:
            call()
        error: BaseException | None = caught.value
        while error is not None:
            assert SECRET not in str(error) and SECRET not in repr(error)
            error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


@pytest.mark.parametrize("scheme", ["s3://bucket/x", "gs://bucket/x", "memory://bucket/x", "/tmp/x", "nosuch://x/y"])
def test_values_of_storage_options_are_in_no_error(scheme: str) -> None:
    """[SE1] [ST7]"""
    options = {"key": "AKIA", "secret": SECRET, "endpoint_url": "http://127.0.0.1:9", "client_kwargs": {"aws_session_token": SECRET}}
    for call in (
        lambda: mc.write(MONTH, scheme, storage_options=options),
        lambda: mc.begin(scheme, storage_options=options),
        lambda: mc.Table(scheme, storage_options=options).snapshot(),
    ):
        with pytest.raises(mc.errors.ManifestCommitError, check=lambda error: SECRET not in f"{error} {error!r}"):
            call()


def test_a_store_without_a_proven_create_is_refused_before_anything_is_touched() -> None:
    """[ST7]"""
    for url in ("hdfs://host/x", "ftp://host/x"):
        with pytest.raises(mc.errors.UnsafeStoreError, match=url.partition(":")[0]):
            mc.write(MONTH, url)


@pytest.mark.parametrize("path", ["", " ", "file://relative/x", "file://"])
def test_a_path_that_names_no_place_is_refused(path: str) -> None:
    """[ST4]"""
    with pytest.raises(mc.errors.UsageError, match="path"):
        mc.write(MONTH, path)


def test_outcomes_and_tables_show_themselves_without_what_they_were_opened_with(root: Path) -> None:
    """[SE1] [CM10]"""
    outcome = mc.write(MONTH, root)
    assert "committed" in repr(outcome) and str(outcome.version) in repr(outcome)
    assert outcome.committed
    with pytest.raises(AttributeError):
        outcome.version = 7  # type: ignore[misc]
    assert str(root) in repr(mc.Table(root))


# --- names -----------------------------------------------------------------------------------------------------------
HOSTILE_ROOTS = ["a b", "%41", "a+b=c", "#x", "'q'", '"', "été 日本", "🦆", "a?b", "a;b", "[x]*", "-n", "a\nb", "\u202e", "C:x"]


@pytest.mark.parametrize("name", HOSTILE_ROOTS)
def test_a_root_with_a_hostile_name_is_kept_as_it_is(tmp_path: Path, name: str) -> None:
    """Spaces, escapes, signs, unicode: written, read by every way, found again. [LY1]"""
    root = tmp_path / name / "t"
    table = table_with(MONTH, root, partition_by="day", key=name, watermarks={name: (0, 3)})
    assert (root / "_manifest").is_dir() and table.watermarks() == {name: 3}
    assert duckdb.from_arrow(table.dataset()).count("*").fetchall() == [(3,)]
    assert mc.write(MONTH, root, key=name, watermarks={name: (0, 3)}).already_committed
    assert json.loads(json.dumps(table.files().to_pylist(), default=str))


def test_a_dot_in_a_name_is_not_a_struct(tmp_path: Path) -> None:
    """The column a.b and the member b of a are told apart in `files` and in filters. [RD6] [SC1]"""
    data = pa.table({"a.b": [1], "a": pa.array([{"b": 7}], pa.struct([("b", pa.int64())]))})
    table = table_with(data, tmp_path / "t")
    assert table.files(filter=ds.field("a.b") == 1).num_rows == 1 and table.files(filter=ds.field("a.b") == 7).num_rows == 0
    assert table.files(filter=ds.field("a", "b") == 7).num_rows == 1 and table.files(filter=ds.field("a", "b") == 1).num_rows == 0
    shown = [each["max"] for each in table.files()["bounds"].to_pylist()[0].values()]
    assert sorted(shown) == [1, 7], "neither hides the other's bounds"
