"""One local session for all tests here, and one standalone cluster with a driver of its own for those that kill executors."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.spark.clusters import HOSTILE, Driver, clear_traps, environment, python_path, standalone_cluster

import manifestcommit as mc
from manifestcommit.spark.features import FEATURES, has

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
def driver_on_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Driver]]:
    """Gives the driver on a standalone cluster of two executors on two hosts, with speculation, and another one where a test has killed
    that; traps work in all their processes."""
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
    drivers: list[Driver] = []

    def running() -> Driver:
        if not drivers or drivers[-1].process.poll() is not None:
            drivers.append(Driver(scratch, url, conf))
            drivers[-1].run("ready")
        return drivers[-1]

    with standalone_cluster(scratch) as url:
        try:
            yield running
        finally:
            for each in drivers[-1:]:
                if each.process.poll() is None:
                    each.close()


@pytest.fixture
def driver(driver_on_cluster: Callable[[], Driver]) -> Iterator[Driver]:
    """The cluster's driver with no trap left from another test."""
    found = driver_on_cluster()
    clear_traps(found.scratch)
    yield found
    clear_traps(found.scratch)


@pytest.fixture
def new_driver(tmp_path: Path) -> Iterator[Callable[[], Driver]]:
    """Drivers of this test's own, to be killed with their JVM and all their workers; one that still lives at the end is ended."""
    drivers: list[Driver] = []

    def make() -> Driver:
        scratch = tmp_path / f"driver-{len(drivers)}"
        scratch.mkdir()
        drivers.append(Driver(scratch, "local[2]"))
        return drivers[-1]

    yield make
    for driver in drivers:
        driver.close()


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A table's root whose name has what breaks paths that are glued, quoted or globbed."""
    return str(tmp_path / HOSTILE)


@pytest.fixture(scope="module")
def registered(spark) -> None:
    """The session knows the format by its name."""
    mc.register(spark)
