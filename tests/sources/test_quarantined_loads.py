"""Rows that violate a constraint go beside in the commit of a load, where that is asked for. [LD13]"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from tests.kit.sources import PREPARE, put
from tests.servers.postgresql import running

import manifestcommit as mc
from manifestcommit.cli.main import main
from manifestcommit.errors import ConstraintError, UsageError


@pytest.fixture
def files(tmp_path: Path) -> Any:
    def send(*ids: int) -> None:
        put(tmp_path / "landing", f"{min(ids)}.csv", "\n".join(["id", *map(str, ids)]))

    return mc.sources.files, (tmp_path / "landing",), send


@pytest.fixture
def table(tmp_path: Path) -> Any:
    return mc.sources.table, (tmp_path / "followed",), lambda *ids: mc.write(pa.table({"id": ids}), tmp_path / "followed")


@pytest.fixture
def kafka() -> Iterator[Any]:
    brokers = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "these", "log_level": 0})
    servers = ",".join(f"{each.host}:{each.port}" for each in brokers.list_topics(timeout=10).brokers.values())
    producer = Producer({"bootstrap.servers": servers, "log_level": 0})

    def send(*ids: int) -> None:
        for each in ids:
            producer.produce("orders", json.dumps({"id": each}).encode())
        assert producer.flush(30) == 0

    yield mc.sources.kafka, (servers, "orders"), send
    assert brokers  # which live as long as it


@pytest.fixture
def postgres() -> Iterator[Any]:
    with running() as server:
        server.run(PREPARE.format("orders"))
        yield (
            mc.sources.postgres,
            (server.dsn, "orders"),
            lambda *ids: server.run(f"INSERT INTO orders (id) VALUES {', '.join(f'({each})' for each in ids)}"),
        )


@pytest.fixture
def history() -> Iterator[Any]:
    with running() as server:
        server.run("CREATE TABLE orders (id bigint PRIMARY KEY); CREATE PUBLICATION lake FOR TABLE orders")

        def make(*given: Any) -> Any:
            return mc.sources.postgres(*given, slot="lake", history=True)

        yield make, (server.dsn, "orders"), lambda *ids: server.run(f"INSERT INTO orders VALUES {', '.join(f'({each})' for each in ids)}")


def ids(table: Path) -> list[int]:
    return sorted(mc.Table(table).to_arrow(["id"]).column("id").to_pylist())


@pytest.mark.parametrize("kind", ["files", "table", "kafka", "postgres", "history"])
def test_rows_that_violate_a_constraint_go_beside_in_the_same_commit(tmp_path: Path, kind: str, request: pytest.FixtureRequest) -> None:
    """Of each source that adds rows; a rerun finds nothing. [LD13] [CK7]"""
    make, given, send = request.getfixturevalue(kind)
    target = tmp_path / "t"
    send(1, 2)
    assert mc.load(make(*given), target, on_violation="quarantine").rows == 2
    mc.Table(target).add_constraint("small", "id < 10")
    send(3, 40, 5)
    with pytest.raises(ConstraintError, match="small"):
        mc.load(make(*given), target)
    mc.load(make(*given), target, on_violation="quarantine")
    send(6, 70)
    mc.load(make(*given), target, on_violation="quarantine")
    assert mc.load(make(*given), target, on_violation="quarantine").chunks == 0
    assert ids(target) == [1, 2, 3, 5, 6] and ids(tmp_path / "t.refused") == [40, 70]
    refused = mc.Table(tmp_path / "t.refused").to_arrow()
    assert refused.column("refused_by").to_pylist() == [["small"]] * 2
    assert mc.Table(target).verify().damages == mc.Table(tmp_path / "t.refused").verify().damages == 0


def test_what_cannot_keep_rows_beside_says_so_before_anything_is_read(tmp_path: Path) -> None:
    """[LD13]"""
    (tmp_path / "landing").mkdir()
    replacing = mc.sources.files(tmp_path / "landing", file_column="f", on_changed="replace")
    mirror = mc.sources.postgres("host=/nowhere", "orders", slot="lake")
    several = mc.sources.postgres("host=/nowhere", {"a": "a", "b": "b"}, slot="lake", history=True)
    refusing = mc.sources.kafka("nowhere:1", "orders", on_broken="refuse")
    for source, told in ((replacing, "a source adds"), (mirror, "a source adds"), (several, "one table"), (refusing, "on_broken")):
        with pytest.raises(UsageError, match=rf"{told}.*nothing was loaded") as caught:
            mc.load(source, tmp_path / "t", on_violation="quarantine")
        assert caught.value.argument == "on_violation" and not (tmp_path / "t").exists()
    with pytest.raises(UsageError, match="on_violation"):
        mc.load(replacing, tmp_path / "t", on_violation="beside")  # type: ignore[arg-type]


def test_the_command_keeps_rows_beside(tmp_path: Path, files: Any, capsys: pytest.CaptureFixture[str]) -> None:
    _, _, send = files
    command = ["load", str(tmp_path / "t"), str(tmp_path / "landing"), "--settle", "0s", "--on-violation", "quarantine"]
    send(1)
    assert main(command) == 0
    mc.Table(tmp_path / "t").add_constraint("small", "id < 10")
    send(20)
    assert main(command) == 0 and ids(tmp_path / "t.refused") == [20]
