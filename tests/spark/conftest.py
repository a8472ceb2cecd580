"""One local session for all tests here, and one standalone cluster with a driver of its own for those that kill executors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.spark.clusters import HOSTILE, Driver, clear_traps, environment, python_path, standalone_cluster

import manifestcommit as mc
from manifestcommit.spark.versions import FEATURES, has

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# pyspark's own, about a pandas newer than itself and a socket that its garbage collector closes.
TOLERATED = (
    "ignore:PySpark does not yet fully support pandas:FutureWarning",
    "ignore:unclosed:ResourceWarning",
    "ignore:distutils Version classes are deprecated:DeprecationWarning",  # Spark 3.5
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = f"{Path(__file__).parent}/"
    for item in items:
        if str(item.path).startswith(here):
            for warning in TOLERATED:
                item.add_marker(pytest.mark.filterwarnings(warning))
            for name in (name for mark in item.iter_markers("needs") for name in mark.args):
                if not has(name):
                    feature = FEATURES[name]
                    item.add_marker(pytest.mark.skip(f"{feature.what} is of Spark {'.'.join(map(str, feature.since))}"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """local[2] where a task may fail once. The session's time zone is nobody's favourite: nothing may depend on it."""
    from examples.flights.java import ensure_java

    ensure_java()
    scratch = tmp_path_factory.mktemp("spark")
    # The JVM and its Python workers take this environment; it is put back when the session runs.
    before = dict(os.environ)
    os.environ.update(environment(scratch, hooks=False), PYTHONPATH=python_path(hooks=False))
    try:
        from pyspark.sql import SparkSession

        session = (
            SparkSession.builder.master("local[2,2]")
            .appName("manifestcommit tests")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.memory", "1g")
            .config("spark.sql.shuffle.partitions", "4")
            .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
            .config("spark.sql.session.timeZone", "Asia/Kathmandu")
            .config("spark.ui.showConsoleProgress", "false")
            .getOrCreate()
        )
    finally:
        os.environ.clear()
        os.environ.update(before)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def cluster_driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """A driver on a standalone cluster of two executors on two hosts, with speculation; traps work in all its processes."""
    scratch = tmp_path_factory.mktemp("cluster")
    conf = {
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
        "spark.cores.max": "2",
        "spark.task.maxFailures": "4",
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.multiplier": "1.5",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.minTaskRuntime": "1s",
        # One that a test has stopped is given up after half a minute instead of two.
        "spark.network.timeout": "40s",
        "spark.network.timeoutInterval": "5s",
        "spark.executor.heartbeatInterval": "5s",
        # An executor that a test killed says nothing of its host.
        "spark.excludeOnFailure.enabled": "false",
    }
    with standalone_cluster(scratch) as url:
        driver = Driver(scratch, url, conf)
        try:
            driver.run("ready")
            yield driver
        finally:
            driver.close()


@pytest.fixture
def driver(cluster_driver: Driver) -> Iterator[Driver]:
    """The cluster's driver with no trap left from another test."""
    clear_traps(cluster_driver.scratch)
    yield cluster_driver
    clear_traps(cluster_driver.scratch)


@pytest.fixture
def doomed(tmp_path: Path) -> Iterator[Driver]:
    """A driver of this test's own, to be killed with its JVM and all its workers."""
    scratch = tmp_path / "doomed"
    scratch.mkdir()
    driver = Driver(scratch, "local[2]")
    try:
        driver.run("ready")
        yield driver
    finally:
        driver.close()


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A table's root whose name has what breaks paths that are glued, quoted or globbed."""
    return str(tmp_path / HOSTILE)


@pytest.fixture(scope="module")
def registered(spark) -> None:
    """The session knows the format by its name."""
    mc.register(spark)
