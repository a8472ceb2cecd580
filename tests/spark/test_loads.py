"""Loads whose chunks Spark's tasks read: each row once, whatever dies, is repeated, or differs from what was planned. [LD11]"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from tests.spark.clusters import Driver, release, set_trap, sprung, trapped_attempt

import manifestcommit as mc
from manifestcommit.errors import ConstraintError, SchemaMismatchError, SourceError, StoreError, UsageError
from manifestcommit.sources import on_spark

ROWS, FILES = 4_000, 4


class Origin(NamedTuple):
    """code: makes the source in any process; ids: those of its rows."""

    code: str
    ids: list[int]


@pytest.fixture(scope="module")
def brokers() -> Any:
    """A cluster of this process; it lives as long as its client."""
    return Producer({"test.mock.num.brokers": 2, "bootstrap.servers": "these", "log_level": 0})


@pytest.fixture
def files(tmp_path: Path) -> Origin:
    """So large that each is a part."""
    (landing := tmp_path / "landing").mkdir()
    for number in range(FILES):
        lines = "".join(f"{number * ROWS + row},{'x' * 1_100}\n" for row in range(ROWS))
        (landing / f"{number}.csv").write_text("id,text\n" + lines)
    return Origin(f"mc.sources.files({str(landing)!r}, settle='0s', file_column='file')", list(range(FILES * ROWS)))


@pytest.fixture
def kafka(brokers: Any, request: pytest.FixtureRequest) -> Origin:
    """Three partitions; some records are no rows."""
    servers = ",".join(f"{each.host}:{each.port}" for each in brokers.list_topics(timeout=10).brokers.values())
    producer = Producer({"bootstrap.servers": servers, "log_level": 0})
    topic = f"topic{abs(hash(request.node.nodeid))}"
    for number in range(2_000):
        producer.produce(topic, json.dumps({"id": number, "text": "x" * 50}).encode(), partition=number % 3)
    for number in range(2):
        producer.produce(topic, b"{no json", partition=number)
    assert producer.flush(30) == 0
    code = f"mc.sources.kafka({servers!r}, {topic!r}, record_columns=['partition', 'offset'], on_broken='refuse')"
    return Origin(code, list(range(2_000)))


@pytest.fixture(params=["files", "kafka"])
def origin(request: pytest.FixtureRequest) -> Origin:
    found: Origin = request.getfixturevalue(request.param)
    return found


def source_of(origin: Origin) -> Any:
    return eval(origin.code)


def ids(table: Any) -> list[int]:
    return sorted(mc.Table(table).to_arrow(["id"]).column("id").to_pylist())


def check(table: str, origin: Origin) -> None:
    """Each row is once in the table, in files of some tasks, and a rerun finds nothing."""
    assert ids(table) == origin.ids
    assert mc.load(source_of(origin), table).chunks == 0
    if "kafka" in origin.code:
        refused = mc.Table(f"{table}.refused").to_arrow().to_pylist()
        assert sorted((row["partition"], row["value"]) for row in refused) == [(0, b"{no json"), (1, b"{no json")]
    else:
        assert sorted(mc.Table(f"{table}.files").to_arrow().column("name").to_pylist()) == [f"{n}.csv" for n in range(FILES)]


def test_tasks_write_the_parts_of_a_chunk_and_the_driver_commits_them_with_the_position(spark: Any, root: str, origin: Origin) -> None:
    """[LD11]"""
    outcome = mc.load(source_of(origin), root, spark=spark)
    assert (outcome.rows, outcome.chunks) == (len(origin.ids), 1) and outcome.files >= 2
    check(root, origin)


# --- What dies or is done twice -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("moment", ["after", pytest.param("before", marks=pytest.mark.thorough)])
def test_an_executor_that_is_killed_loses_and_doubles_no_row(driver: Driver, root: str, origin: Origin, moment: str) -> None:
    """Another attempt reads the part, under other names. [LD11] [SP2]"""
    trap = set_trap(driver.scratch, f"task-1-{moment}-put", "kill")
    assert driver.run("load_from", code=origin.code, path=root) == len(origin.ids)
    assert sprung(trap)["executor"]
    check(root, origin)


@pytest.mark.thorough
def test_of_two_attempts_at_a_part_one_counts(driver: Driver, root: str, origin: Origin) -> None:
    """Spark speculates on the one that waits. [LD11] [SP2]"""
    trap = set_trap(driver.scratch, "task-1-after-put", "wait")
    assert driver.run("load_from", code=origin.code, path=root) == len(origin.ids)
    release(trap)
    assert not any(trapped_attempt(trap) in path for path in mc.Table(root).files())
    check(root, origin)


@pytest.mark.thorough
@pytest.mark.parametrize("point", ["task-0-writing", "task-1-after-put", "commit-before-create", "commit-after-create"])
def test_a_driver_that_is_killed_has_loaded_a_chunk_or_nothing(spark: Any, doomed: Driver, root: str, origin: Origin, point: str) -> None:
    """[LD11] [LD1]"""
    more = {"file": pa.string()} if "file_column" in origin.code else {"_partition": pa.int32(), "_offset": pa.int64()}
    mc.create_table(root, pa.schema({"id": pa.int64(), "text": pa.string(), **more}))
    trap = set_trap(doomed.scratch, point, "wait")
    doomed.send("load_from", code=origin.code, path=root)
    doomed.reaches(trap)
    doomed.close()
    assert ids(root) in ([], origin.ids)
    mc.load(source_of(origin), root, spark=spark)
    check(root, origin)


# --- Rows that violate a constraint -------------------------------------------------------------------------------------
def constrained(path: str) -> None:
    """A table of the files, which refuses each tenth row."""
    mc.create_table(
        path, pa.schema([("id", pa.int64()), ("text", pa.string()), ("file", pa.string())]), constraints={"odd": "id % 10 <> 0"}
    )


def check_split(path: str, origin: Origin) -> None:
    """Each row is once in one of both tables, which have one commit, and a rerun finds nothing."""
    assert mc.load(source_of(origin), path, on_violation="quarantine").chunks == 0
    assert ids(path) == [each for each in origin.ids if each % 10] and ids(f"{path}.refused") == origin.ids[::10]
    assert {row["refused_by"][0] for row in mc.Table(f"{path}.refused").to_arrow(["refused_by"]).to_pylist()} == {"odd"}
    joint = [mc.Table(f"{path}{suffix}").history(1)[0]["joint"] for suffix in ("", ".files", ".refused")]
    assert len({each["attempt"] for each in joint}) == 1


def test_tasks_split_the_rows_and_both_tables_have_one_commit(spark: Any, root: str, files: Origin) -> None:
    """[LD13] [LD11] [CK7]"""
    constrained(root)
    outcome = mc.load(source_of(files), root, spark=spark, on_violation="quarantine")
    assert (outcome.rows, outcome.chunks) == (len(files.ids) * 9 // 10, 1) and outcome.files >= 2
    check_split(root, files)


@pytest.mark.thorough
@pytest.mark.parametrize("moment", ["after", "before"])
def test_an_executor_that_is_killed_splits_no_row_twice(driver: Driver, root: str, files: Origin, moment: str) -> None:
    """[LD13] [SP2]"""
    constrained(root)
    trap = set_trap(driver.scratch, f"task-1-{moment}-put", "kill")
    driver.run("load_from", code=files.code, path=root, on_violation="quarantine")
    assert sprung(trap)["executor"]
    check_split(root, files)


@pytest.mark.thorough
@pytest.mark.parametrize("point", ["task-1-after-put", "commit-before-create", "commit-after-create"])
def test_a_driver_that_is_killed_has_split_a_chunk_or_nothing(spark: Any, doomed: Driver, root: str, files: Origin, point: str) -> None:
    """[LD13] [MT1]"""
    constrained(root)
    trap = set_trap(doomed.scratch, point, "wait")
    doomed.send("load_from", code=files.code, path=root, on_violation="quarantine")
    doomed.reaches(trap)
    doomed.close()
    assert ids(root) in ([], [each for each in files.ids if each % 10])
    mc.load(source_of(files), root, spark=spark, on_violation="quarantine")
    check_split(root, files)


@pytest.mark.usefixtures("each_a_part")
def test_columns_that_only_a_task_finds_are_in_both_tables(spark: Any, tmp_path: Path) -> None:
    """[LD13]"""
    source = land(tmp_path / "l", a_jsonl='{"id": 1}\n', b_jsonl='{"id": 10, "more": "x"}\n{"id": 2, "more": "y"}\n')
    mc.create_table(tmp_path / "t", pa.schema([("id", pa.int64()), ("file", pa.string())]), constraints={"odd": "id % 10 <> 0"})
    assert mc.load(source, tmp_path / "t", spark=spark, merge_schema=True, on_violation="quarantine").rows == 2
    assert ids(tmp_path / "t") == [1, 2]
    assert mc.Table(tmp_path / "t.refused").to_arrow(["id", "more"]).to_pylist() == [{"id": 10, "more": "x"}]


# --- What differs from what was planned ---------------------------------------------------------------------------------
@pytest.fixture
def each_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small files are parts, too, as many as there are cores."""
    monkeypatch.setattr(on_spark, "_LEAST_BYTES", 1)


def land(folder: Path, **files: str) -> Any:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    return mc.sources.files(folder, settle="0s", file_column="file")


@pytest.mark.usefixtures("each_a_part")
def test_columns_that_only_a_task_finds_are_planned_for_before_a_row_of_it_is_written(spark: Any, tmp_path: Path) -> None:
    """[LD11]"""
    source = land(tmp_path / "l", a_jsonl='{"id": 1}\n', b_jsonl='{"id": 2, "more": "x"}\n', c_jsonl='{"other": 2.5, "id": 3}\n')
    with pytest.raises(SchemaMismatchError, match=r"^[bc]\.jsonl: .*merge_schema=True"):
        mc.load(source, tmp_path / "t", spark=spark)
    assert ids(tmp_path / "t") == []
    assert mc.load(source, tmp_path / "t", spark=spark, merge_schema=True).rows == 3
    found = mc.Table(tmp_path / "t").to_arrow(["id", "more", "other"]).sort_by("id").to_pylist()
    assert [(row["more"], row["other"]) for row in found] == [(None, None), ("x", None), (None, 2.5)]


@pytest.mark.usefixtures("each_a_part")
def test_a_broken_part_ends_the_load_or_is_recorded(spark: Any, tmp_path: Path) -> None:
    """[LD4]"""
    source = land(tmp_path / "l", a_csv="id\n1\n", b_csv="id\nnone\n", c_csv="id\n3\n")
    mc.create_table(tmp_path / "t", pa.schema([("id", pa.int64()), ("file", pa.string())]))
    with pytest.raises(SourceError, match=r"b\.csv: .*Nothing of this chunk was committed"):
        mc.load(source, tmp_path / "t", spark=spark)
    assert ids(tmp_path / "t") == []
    outcome = mc.load(source, tmp_path / "t", spark=spark, max_errors=1)
    assert (outcome.rows, list(outcome.broken)) == (2, ["b.csv"])
    found = mc.Table(f"{tmp_path / 't'}.files").to_arrow(["name", "loaded"]).sort_by("name").to_pylist()
    assert [row["loaded"] for row in found] == [True, False, True]


@pytest.mark.usefixtures("each_a_part")
def test_rows_that_a_constraint_refuses_end_the_load(spark: Any, tmp_path: Path) -> None:
    """[CK2]"""
    source = land(tmp_path / "l", a_csv="id\n1\n", b_csv="id\n-2\n")
    mc.create_table(tmp_path / "t", pa.schema([("id", pa.int64()), ("file", pa.string())]))
    mc.Table(tmp_path / "t").add_constraint("positive", "id > 0")
    with pytest.raises(ConstraintError, match="positive"):
        mc.load(source, tmp_path / "t", spark=spark)
    assert ids(tmp_path / "t") == [] and mc.Table(tmp_path / "t").watermarks() == {}


class Odd:
    """A source of two parts, of which the second one is not always the same; it counts its reads in a folder, in any process."""

    name = "odd"

    def __init__(self, folder: Path, how: str) -> None:
        self.folder, self.how = folder, how
        folder.mkdir()

    def chunks(self, positions: Any, *, max_bytes: int) -> Any:
        if self.name not in positions:
            yield mc.sources.Chunk(ranges={self.name: (None, 1)}, what="all of it", bytes=10)

    def parts(self, chunk: Any, *, count: int) -> Any:
        return [mc.sources.Chunk(ranges=chunk.ranges, plan=number) for number in range(count)]

    def rows(self, chunk: Any) -> Any:
        read = len(list(self.folder.iterdir()))
        if chunk.plan == 1:
            (self.folder / str(read)).touch()
        if chunk.plan == 1 and self.how == "changed" and not read:
            raise mc.sources.ChangedInputError("it was replaced")
        more = {f"more{read}": [0]} if chunk.plan == 1 and self.how == "other columns" else {}
        yield pa.table({"id": [chunk.plan], **more})


@pytest.mark.usefixtures("each_a_part")
def test_what_changes_while_tasks_read_it_is_read_again(spark: Any, tmp_path: Path) -> None:
    """[LD11]"""
    assert mc.load(Odd(tmp_path / "o", "changed"), tmp_path / "t", spark=spark).rows == 2
    assert ids(tmp_path / "t") == [0, 1]


@pytest.mark.usefixtures("each_a_part")
def test_rows_of_other_columns_each_time_end_the_load(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_spark, "STARTS", 2)
    with pytest.raises(SourceError, match="all of it had other columns each time"):
        mc.load(Odd(tmp_path / "o", "other columns"), tmp_path / "t", spark=spark, merge_schema=True)
    assert mc.Table(tmp_path / "t").watermarks() == {}


@pytest.mark.usefixtures("each_a_part")
def test_a_part_that_no_task_tells_of_commits_nothing(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """[LD11]"""
    from manifestcommit.spark import tasks

    real = tasks.messages_of
    monkeypatch.setattr(tasks, "messages_of", lambda *given: real(*given)[1:])
    with pytest.raises(StoreError, match="Spark lost a part"):
        mc.load(Odd(tmp_path / "o", "same"), tmp_path / "t", spark=spark)
    assert mc.Table(tmp_path / "t").watermarks() == {}


# --- Other sources ------------------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("each_a_part")
def test_a_followed_table_is_loaded_by_its_versions_and_as_a_whole(spark: Any, tmp_path: Path) -> None:
    for number in range(5):
        mc.write(pa.table({"id": [number]}), tmp_path / "from")
    source = mc.sources.table(tmp_path / "from", on="id")
    assert mc.load(source, tmp_path / "t", spark=spark).rows == 5
    mc.Table(tmp_path / "from").delete("id = 2")
    assert mc.load(source, tmp_path / "t", spark=spark).rows == 1
    assert ids(tmp_path / "t") == [0, 1, 2, 2, 3, 4]
    assert mc.load(source, tmp_path / "t", spark=spark, restart=True).rows == 4
    assert mc.load(source, tmp_path / "t", spark=spark, restart=True).rows == 4
    assert ids(tmp_path / "t") == [0, 1, 3, 4]


def test_a_follower_loads_by_tasks(spark: Any, tmp_path: Path) -> None:
    source = land(tmp_path / "l", a_csv="id\n1\n")
    rounds = mc.follow(source, tmp_path / "t", spark=spark, every="1s")
    assert next(rounds).rows == 1
    land(tmp_path / "l", b_csv="id\n2\n")
    assert next(rounds).rows == 1 and ids(tmp_path / "t") == [1, 2]


class Whole:
    """A source without parts."""

    name = "whole"

    def chunks(self, positions: Any, *, max_bytes: int) -> Any:
        raise AssertionError

    rows = chunks


def test_what_tasks_cannot_load_is_refused_by_name(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="spark: a Whole has no `parts`"):
        mc.load(Whole(), tmp_path / "t", spark=spark)
    with pytest.raises(UsageError, match="memory of one process"):
        mc.load(land(tmp_path / "l", a_csv="id\n1\n"), "memory://loads/t", spark=spark)
    assert not (tmp_path / "t").exists()
