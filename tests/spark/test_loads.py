"""Loads whose chunks Spark's tasks read: each row once, whatever dies, is repeated, or differs from what was planned. [LD11]"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from tests.spark.clusters import Driver, release, set_trap, sprung, trapped_attempt

import manifestcommit as mc
from manifestcommit.errors import SchemaMismatchError, SourceError, StoreError, UsageError
from manifestcommit.sources import on_spark

ROWS, FILES = 4_000, 4


class Origin(NamedTuple):
    """code: makes the source in any process; ids: those of the rows that the table gets; refused: of those that go beside."""

    code: str
    ids: list[int]
    refused: Sequence[int] = ()

    @property
    def how(self) -> Any:
        return {"on_violation": "quarantine"} if self.refused else {}


@pytest.fixture(autouse=True)
def each_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small files are parts, too, as many as there are cores."""
    monkeypatch.setattr(on_spark, "_LEAST_BYTES", 1)


@pytest.fixture(scope="module")
def brokers() -> Any:
    """A cluster of this process; it lives as long as its client."""
    return Producer({"test.mock.num.brokers": 2, "bootstrap.servers": "these", "log_level": 0})


@pytest.fixture
def files(tmp_path: Path) -> Origin:
    """So large that each is a part, in any process."""
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


@pytest.fixture
def split(files: Origin, root: str) -> Origin:
    """Of the files, whose table refuses each tenth row, so that tasks split them. [LD13]"""
    columns = pa.schema([("id", pa.int64()), ("text", pa.string()), ("file", pa.string())])
    mc.create_table(root, columns, constraints={"odd": "id % 10 <> 0"})
    return Origin(files.code, [each for each in files.ids if each % 10], files.ids[::10])


@pytest.fixture(params=["files", "kafka", "split"])
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
    assert mc.load(source_of(origin), table, **origin.how).chunks == 0
    if origin.refused:
        assert ids(f"{table}.refused") == origin.refused
        assert len({mc.Table(f"{table}{each}").history(1)[0]["joint"]["attempt"] for each in ("", ".files", ".refused")}) == 1
    if "kafka" in origin.code:
        refused = mc.Table(f"{table}.refused").to_arrow().to_pylist()
        assert sorted((row["partition"], row["value"]) for row in refused) == [(0, b"{no json"), (1, b"{no json")]
    else:
        assert sorted(mc.Table(f"{table}.files").to_arrow().column("name").to_pylist()) == [f"{n}.csv" for n in range(FILES)]


@pytest.mark.thorough
def test_tasks_write_the_parts_of_a_chunk_and_the_driver_commits_them_with_the_position(spark: Any, root: str, origin: Origin) -> None:
    """[LD11]"""
    outcome = mc.load(source_of(origin), root, spark=spark, **origin.how)
    assert (outcome.rows, outcome.chunks) == (len(origin.ids), 1) and outcome.files >= 2
    check(root, origin)


@pytest.mark.thorough
@pytest.mark.parametrize("moment", ["after", pytest.param("before", marks=pytest.mark.thorough)])
def test_an_executor_that_is_killed_loses_and_doubles_no_row(driver: Driver, root: str, origin: Origin, moment: str) -> None:
    """Another attempt reads the part, under other names. [LD11] [SP2]"""
    trap = set_trap(driver.scratch, f"task-1-{moment}-put", "kill")
    assert driver.run("load_from", code=origin.code, path=root, **origin.how) == len(origin.ids)
    assert sprung(trap)["executor"]
    check(root, origin)


@pytest.mark.thorough
def test_of_two_attempts_at_a_part_one_counts(driver: Driver, root: str, origin: Origin) -> None:
    """Spark speculates on the one that waits. [LD11] [SP2]"""
    trap = set_trap(driver.scratch, "task-1-after-put", "wait")
    assert driver.run("load_from", code=origin.code, path=root, **origin.how) == len(origin.ids)
    release(trap)
    assert not any(trapped_attempt(trap) in path for path in mc.Table(root).files())
    check(root, origin)


@pytest.mark.thorough
@pytest.mark.parametrize("point", ["task-0-writing", "task-1-after-put", "commit-before-create", "commit-after-create"])
def test_a_driver_that_is_killed_has_loaded_a_chunk_or_nothing(spark: Any, new_driver: Any, root: str, origin: Origin, point: str) -> None:
    """[LD11] [LD1]"""
    more = {"file": pa.string()} if "file_column" in origin.code else {"_partition": pa.int32(), "_offset": pa.int64()}
    mc.create_table(root, pa.schema({"id": pa.int64(), "text": pa.string(), **more}), exist_ok=True)
    doomed = new_driver()
    trap = set_trap(doomed.scratch, point, "wait")
    doomed.send("load_from", code=origin.code, path=root, **origin.how)
    doomed.reaches(trap)
    doomed.close()
    assert ids(root) in ([], origin.ids)
    mc.load(source_of(origin), root, spark=spark, **origin.how)
    check(root, origin)


# --- What differs from what was planned ---------------------------------------------------------------------------------
def land(folder: Path, **files: str) -> Any:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    return mc.sources.files(folder, settle="0s", file_column="file")


def test_columns_that_only_a_task_finds_are_planned_for_before_a_row_of_it_is_written(spark: Any, tmp_path: Path) -> None:
    """[LD11]"""
    source = land(tmp_path / "l", a_jsonl='{"id": 1}\n', b_jsonl='{"id": 2, "more": "x"}\n', c_jsonl='{"other": 2.5, "id": 3}\n')
    with pytest.raises(SchemaMismatchError, match=r"^[bc]\.jsonl: .*merge_schema=True"):
        mc.load(source, tmp_path / "t", spark=spark)
    assert ids(tmp_path / "t") == []
    assert mc.load(source, tmp_path / "t", spark=spark, merge_schema=True).rows == 3
    found = mc.Table(tmp_path / "t").to_arrow(["id", "more", "other"]).sort_by("id").to_pylist()
    assert [(row["more"], row["other"]) for row in found] == [(None, None), ("x", None), (None, 2.5)]
    mc.create_table(tmp_path / "u", pa.schema([("id", pa.int64()), ("file", pa.string())]), constraints={"no_two": "id <> 2"})
    assert mc.load(source, tmp_path / "u", spark=spark, merge_schema=True, on_violation="quarantine").rows == 2
    assert mc.Table(tmp_path / "u.refused").to_arrow(["id", "more"]).to_pylist() == [{"id": 2, "more": "x"}]


@pytest.mark.thorough
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


def test_what_changes_while_tasks_read_it_is_read_again(spark: Any, tmp_path: Path) -> None:
    """[LD11]"""
    assert mc.load(Odd(tmp_path / "o", "changed"), tmp_path / "t", spark=spark).rows == 2
    assert ids(tmp_path / "t") == [0, 1]


@pytest.mark.thorough
def test_rows_of_other_columns_each_time_end_the_load(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_spark, "STARTS", 2)
    with pytest.raises(SourceError, match="all of it had other columns each time"):
        mc.load(Odd(tmp_path / "o", "other columns"), tmp_path / "t", spark=spark, merge_schema=True)
    assert mc.Table(tmp_path / "t").watermarks() == {}


def test_a_part_that_no_task_tells_of_commits_nothing(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """[LD11]"""
    from manifestcommit.spark import tasks

    real = tasks.messages_of
    monkeypatch.setattr(tasks, "messages_of", lambda *given: real(*given)[1:])
    with pytest.raises(StoreError, match="Spark lost a part"):
        mc.load(Odd(tmp_path / "o", "same"), tmp_path / "t", spark=spark)
    assert mc.Table(tmp_path / "t").watermarks() == {}


@pytest.mark.thorough
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


def test_what_tasks_cannot_load_is_refused_by_name(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="spark: a PostgresRows has no `parts`"):
        mc.load(mc.sources.postgres("", "orders"), tmp_path / "t", spark=spark)
    with pytest.raises(UsageError, match="memory of one process"):
        mc.load(land(tmp_path / "l", a_csv="id\n1\n"), "memory://loads/t", spark=spark)
    assert not (tmp_path / "t").exists()
