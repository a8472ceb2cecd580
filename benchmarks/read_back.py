"""What a native scan of the files that `mc.write` made of TPC-H lineitem costs, beside the same scan of those of Spark's own writer.

Spark reads both with its vectorised reader, into its `noop` sink; what is compared is the files, not the way to them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import manifestcommit as mc
from benchmarks.measure import Contestant, Figures, interleave, report
from benchmarks.write_throughput import CODEC, lineitem, size_bytes


def main() -> int:
    """Write the table twice, scan each in turns, report."""
    with lineitem(__doc__) as given:
        write_all(given.spark.read.parquet(str(given.source)), given.folder)
        contestants = [
            Contestant(name=name, run=scan(given.spark, given.folder / kind, given.rows))
            for kind, name in (("arrow", "manifestcommit"), ("spark", "spark parquet"))
        ]
        interleave(contestants, rounds=given.rounds)
        case = {"sf": given.scale, "rows": given.rows, "codec": CODEC}
    report("read_back", case, contestants, figures=["wall_s", "cpu_s", "bytes", "row_groups"])
    return 0


def write_all(data: DataFrame, folder: Path) -> None:
    """The same rows by each writer."""
    mc.write(data, str(folder / "arrow"))
    data.write.option("compression", CODEC).parquet(str(folder / "spark"))


def scan(spark: SparkSession, folder: Path, rows: int) -> Callable[[int], Figures]:
    """A full scan of the files of a folder; all rows must be there."""
    footers = [pq.read_metadata(path) for path in folder.glob("*.parquet")]
    if (held := sum(footer.num_rows for footer in footers)) != rows:
        raise SystemExit(f"{folder.name} holds {held:,} rows instead of {rows:,}: nothing to compare")
    figures = {"bytes": size_bytes(folder), "row_groups": float(sum(footer.num_row_groups for footer in footers))}
    paths = sorted(str(path) for path in folder.glob("*.parquet"))

    def run(_: int) -> Figures:
        spark.read.parquet(*paths).write.format("noop").mode("overwrite").save()
        return figures

    return run


if __name__ == "__main__":
    sys.exit(main())
