"""What a micro-batch of Structured Streaming costs as its stream grows old, beside Spark's own file sink and its `_spark_metadata` log.

Each round is a whole stream: one input file a batch, `--files` new data files in each (one for each value of the partition column). Every
tenth batch, Spark's sink writes the names of all its files anew; readers take all of them from there before they plan.

- `batch_ms`, `slowest_ms`: what Spark says of handing a batch to the sink (`addBatch`), as median and most; the first batch, in which
  both sides warm up, is not among them.
- `last_fifth_ms`: the median of the stream's last fifth; `growth`: that against the second fifth.
- `metadata_kb`: bytes of the sink's log, of our room, at the end; the checkpoint is alike for both and not in it.
- `open_s`: from nothing to a DataFrame of the whole table that knows its files; `wall_s`, `cpu_s`: all of it.

What they do not say: locally Hadoop without its native library starts processes to change permissions, several for each file that Spark's
sink writes. That is in `batch_ms`; it is no part of `growth`, of the bytes, or of what opening takes.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import manifestcommit as mc
from benchmarks.measure import Contestant, Figures, bytes_below, interleave, parser, report, rounds_of, spark_session, work_folder
from manifestcommit.format import object_names

FIGURES = ["batch_ms", "last_fifth_ms", "growth", "slowest_ms", "metadata_kb", "open_s", "cpu_s"]


def main() -> int:
    """Both sinks in turns."""
    options = parser(__doc__)
    options.add_argument("--batches", type=int, help="micro-batches of a stream (default: 60, quick: 12)")
    options.add_argument("--files", type=int, help="data files of a batch (default: 50, quick: 5)")
    chosen = options.parse_args()
    batches, files = chosen.batches or (12 if chosen.quick else 60), chosen.files or (5 if chosen.quick else 50)
    with work_folder(chosen) as folder, spark_session(folder / "spark.log") as spark:
        spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", str(batches + 10))
        mc.register(spark)
        source = make_source(folder / "source", batches, files)
        stream = Stream(spark, source, folder, batches=batches, files=files)
        contestants = [stream.contestant("manifestcommit"), stream.contestant("spark file sink")]
        interleave(contestants, rounds=min(3, rounds_of(chosen)))
    report("stream_sink", {"batches": batches, "files": batches * files}, contestants, figures=FIGURES)
    return 0


def make_source(folder: Path, batches: int, files: int) -> Path:
    """One file a batch, with one row for each value of the partition column."""
    folder.mkdir()
    for batch in range(batches):
        rows = pa.table({"id": range(batch * files, (batch + 1) * files), "day": [f"d{at:03d}" for at in range(files)]})
        pq.write_table(rows, folder / f"{batch:05d}.parquet")
    return folder


class Stream:
    """The same input through either sink, and what Spark says of its batches."""

    def __init__(self, spark: SparkSession, source: Path, folder: Path, *, batches: int, files: int) -> None:
        self._spark, self._source, self._folder, self._batches, self._rows = spark, source, folder, batches, batches * files
        self._schema = spark.read.parquet(str(source)).schema

    def contestant(self, name: str) -> Contestant:
        is_ours = name == "manifestcommit"

        def place_of(number: int) -> Path:
            return self._folder / f"{name.split()[0]}-{number}"

        def read(place: Path) -> DataFrame:
            return mc.read_committed(str(place), spark=self._spark) if is_ours else self._spark.read.parquet(str(place))

        def run(number: int) -> Figures:
            place = place_of(number)
            writer = self._input().writeStream.trigger(availableNow=True).option("checkpointLocation", f"{place}-checkpoint")
            if is_ours:
                writer = writer.format("manifestcommit").option("partitionBy", "day").option("key", "stream")
            else:
                writer = writer.format("parquet").partitionBy("day")
            query = writer.start(str(place))
            query.awaitTermination()
            took_ms = [each["durationMs"]["addBatch"] for each in query.recentProgress if each["numInputRows"]]
            if len(took_ms) != self._batches:
                raise SystemExit(f"{name}: Spark tells of {len(took_ms)} batches, not {self._batches}: nothing to compare")
            return self._figures(took_ms, place, read)

        def check_and_remove(number: int) -> None:
            place = place_of(number)
            if (rows := read(place).count()) != self._rows:
                raise SystemExit(f"{name} holds {rows:,} rows, not {self._rows:,}: nothing to compare")
            shutil.rmtree(place)
            shutil.rmtree(f"{place}-checkpoint")

        return Contestant(name=name, run=run, after=check_and_remove)

    def _input(self) -> DataFrame:
        return self._spark.readStream.schema(self._schema).option("maxFilesPerTrigger", 1).parquet(str(self._source))

    def _figures(self, took_ms: list[float], place: Path, read: Callable[[Path], DataFrame]) -> Figures:
        fifth = max(1, len(took_ms) // 5)
        second, last = statistics.median(took_ms[fifth : 2 * fifth]), statistics.median(took_ms[-fifth:])
        start = time.perf_counter()
        read(place)._jdf.inputFiles()
        return {
            "batch_ms": statistics.median(took_ms[1:]),
            "last_fifth_ms": last,
            "growth": last / second,
            "slowest_ms": max(took_ms[1:]),
            "metadata_kb": sum(bytes_below(place / name) for name in ("_spark_metadata", object_names.ROOM)) / 1000,
            "open_s": time.perf_counter() - start,
        }


if __name__ == "__main__":
    sys.exit(main())
