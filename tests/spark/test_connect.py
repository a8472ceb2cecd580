"""A Spark Connect client: no JVM within reach, the same guarantees. Needs grpcio, grpcio-status and googleapis-common-protos."""

import os
from collections.abc import Iterator

import pytest
from tests.spark.clusters import Driver

import manifestcommit as mc


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    driver = Driver(tmp_path_factory.mktemp("connect"), "connect:2")
    try:
        yield driver
    finally:
        driver.close()


def rows(count: int, key: str) -> list[list[object]]:
    return [[n, f"2013-01-0{n % 2 + 1}", key] for n in range(count)]


@pytest.mark.thorough
@pytest.mark.needs("format")
def test_a_connect_client_names_tables_and_runs_statements(client: Driver, root: str) -> None:
    """[SP50] [SP47] [SP48] DataFrames stay at their versions, although a client's plans are analysed anew whenever they are used."""
    version = client.run("write", path=root, key="a", partition_by=["day"])["version"]
    assert client.run("statements", path=root) == [version + 1, version + 1, True, 1, 3, 1, 1, True, 1000, 1000, 1000, version + 5, 1000]


@pytest.mark.versions
@pytest.mark.needs("format")
def test_a_connect_client_writes_and_reads(client: Driver, root: str) -> None:
    """[SP1] [SP4] [SP5] [SP6] The library call from a Connect client: typed outcomes, exactly once, hostile root."""
    assert "recoverable=True is not available in Spark Connect" in client.run("recoverable", path=root)
    assert not os.path.exists(root)
    assert client.run("write", path=root, key="a", partition_by=["day"])["already"] is False
    assert client.run("write", path=root, key="a", partition_by=["day"])["already"] is True
    assert client.run("read", path=root) == rows(1000, "a")
    assert client.run("read", path=root, columns=["n"], version=mc.Table(root).snapshot().version) == [[n] for n in range(1000)]
    assert client.run("refused", path=root) == "SchemaMismatchError"
    client.run("save", path=root, key="b", start=1000, tasks=1, rows=10)
    assert len(client.run("load", path=root)) == 1010
    assert client.run("read", path=root)[:1000] == rows(1000, "a")
