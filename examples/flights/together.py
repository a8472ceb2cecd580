"""One month of the demo into three tables by one commit, and processes that die inside of it.

The story around it is in `examples.flights`. As a program (`python -m
examples.flights.together`) it commits what the story has prepared.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

import manifestcommit as mc
from manifestcommit.store import Store, open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The sources: each airport delivers its own flights, and has a watermark of its own.
AIRPORTS = ("EWR", "JFK", "LGA")
_SUMS = pa.schema({"day": pa.int64(), "flights": pa.int64(), "miles": pa.int64()})


def paths_of(table: str) -> dict[str, str]:
    """Flights that left, flights that were cancelled, and the sums of each day: their paths."""
    return {name: f"{table}-{name}" for name in ("departed", "cancelled", "daily")}


def create_tables(paths: dict[str, str], flights: pa.Schema) -> None:
    """The three tables, empty."""
    for name, path in paths.items():
        mc.create_table(path, _SUMS if name == "daily" else flights)


def run(spark: SparkSession, source: Path, paths: dict[str, str], month: int) -> mc.Transaction:
    """The job as anyone would write it, committed where the block of what it returns is left."""
    from pyspark.sql import functions as F

    data = spark.read.parquet(str(source / f"2013-{month:02d}.parquet"))
    tx = mc.transaction(paths, key=f"2013-{month:02d}")
    tx["departed"].write(data.where("dep_time IS NOT NULL"))
    tx["cancelled"].write(data.where("dep_time IS NULL"))
    sums = data.groupBy("day").agg(F.count("*").alias("flights"), F.sum("distance").alias("miles"))
    tx["daily"].write(sums.coalesce(1))
    for airport, rows in _rows(data).items():
        tx["daily"].advance(f"{airport}:2013-{month:02d}", 0, rows)
    return tx


def _rows(data: DataFrame) -> dict[str, int]:
    found = {row["origin"]: row["count"] for row in data.groupBy("origin").count().collect()}
    return {airport: found.get(airport, 0) for airport in AIRPORTS}


def sums(paths: dict[str, str]) -> dict[str, tuple[int, int]]:
    """Flights and miles in each table, as one reader sees them who reads all three together."""
    found = {}
    for name, table in zip(paths, mc.read_together(paths.values()), strict=True):
        held = table.to_arrow(columns=["flights", "miles"] if name == "daily" else ["distance"])
        total = [pc.sum(column).as_py() or 0 for column in held.columns]
        found[name] = (total[0], total[1]) if name == "daily" else (held.num_rows, total[0])
    return found


def die_at(table: str, when: str) -> None:
    """Kill this process when it has created a version, in whatever table of this store: "after 1"
    is right after the first, "before 3" before it tries the third. Others have what was created."""
    side, _, number = when.partition(" ")
    most = int(number) - (side == "before")
    kind = type(open_store(table))
    create, done = kind.put_if_absent, 0

    def dying(store: Store, name: str, data: bytes) -> bool:
        nonlocal done
        is_version = name.startswith("_manifest/versions/0")
        if is_version and done == most and side == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        created: bool = create(store, name, data)
        done += is_version and created
        if is_version and done == most and side == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return created

    kind.put_if_absent = dying  # type: ignore[assignment, method-assign]  # to die


def main(arguments: list[str] | None = None) -> int:
    """Commit in this process what another one has prepared, and die meanwhile."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.flights.together", description="A committer that dies."
    )
    parser.add_argument("--table", required=True)
    parser.add_argument("--jobs", required=True, type=json.loads, help="path -> job id")
    parser.add_argument("--die", required=True, metavar="WHEN")
    options = parser.parse_args(arguments)
    path, job = next(iter(options.jobs.items()))  # each knows the others
    die_at(options.table, options.die)
    mc.commit(path, job)
    return 0


if __name__ == "__main__":
    sys.exit(main())
