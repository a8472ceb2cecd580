"""Building a DataFrame over N committed files, and scanning it, beside `spark.read.parquet` of the very same files.

Spark's own reader is given the folder (it lists it) and, as a second peer, the list of paths and the schema (it still asks for
the status of each). The floor of building is walking the folder once.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import manifestcommit as mc
from benchmarks.measure import Contestant, Figures, interleave, parser, report, rounds_of, spark_session, work_folder


def main() -> int:
    """One table per number of files, and rounds over it."""
    options = parser(__doc__)
    options.add_argument("--files", type=int, nargs="+", help="numbers of files (default: 100 1000 10000, quick: 100 1000)")
    options.add_argument("--rows", type=int, default=1_000, help="rows per file (default: 1000)")
    chosen = options.parse_args()
    with work_folder(chosen) as folder, spark_session(folder / "spark.log") as spark:
        for files in chosen.files or ([100, 1_000] if chosen.quick else [100, 1_000, 10_000]):
            root = make_table(folder / f"table-{files}", files, chosen.rows)
            contestants = contestants_for(spark, root, rows=files * chosen.rows)
            interleave(contestants, rounds=rounds_of(chosen))
            case = {"files": files, "rows": files * chosen.rows}
            report("read_scan", case, contestants, figures=["build_s", "one_column_s", "all_columns_s", "cpu_s"])
    return 0


def make_table(root: Path, files: int, rows: int) -> Path:
    """A table of equal files: written here, then added, so that only reading is left to compare."""
    sample = make_rows(0, rows)
    mc.write(sample.slice(0, 0), str(root))
    names = [f"part/{number:06d}.parquet" for number in range(files)]
    (root / "part").mkdir()
    for number, name in enumerate(names):
        pq.write_table(make_rows(number * rows, rows), root / name, compression="zstd")
    with mc.begin(str(root)) as job:
        job.add_files(names)
    return root


def make_rows(start: int, rows: int) -> pa.Table:
    """Rows that neither compress to nothing nor are all different."""
    draw = np.random.default_rng(start)
    return pa.table(
        {
            "id": np.arange(start, start + rows, dtype=np.int64),
            "price": np.round(draw.gamma(2.0, 40.0, rows), 2),
            "quantity": draw.integers(1, 50, rows, dtype=np.int32),
            "city": pa.array(draw.choice(["Berlin", "Lyon", "Porto", "Gdańsk", "Oulu"], rows)),
        }
    )


def contestants_for(spark: SparkSession, root: Path, *, rows: int) -> list[Contestant]:
    """Us, Spark over the folder, Spark over the list of paths, and the floor of building."""
    table = mc.Table(str(root))
    paths = [str(root / name) for name in table.files().column("path").to_pylist()]
    schema = mc.read_committed(str(root), spark=spark).schema

    def timed(build: Callable[[], DataFrame]) -> Callable[[int], Figures]:
        def run(_: int) -> Figures:
            marks = [time.perf_counter()]
            data = build()
            marks.append(time.perf_counter())
            total = data.selectExpr("sum(id)").collect()[0][0]
            marks.append(time.perf_counter())
            data.write.format("noop").mode("overwrite").save()
            marks.append(time.perf_counter())
            if total != rows * (rows - 1) // 2:
                raise SystemExit(f"the ids sum to {total:,}, not to what {rows:,} rows must: nothing to compare")
            names = ("build_s", "one_column_s", "all_columns_s")
            return dict(zip(names, (later - sooner for sooner, later in pairwise(marks)), strict=True))

        return run

    def walk(number: int) -> Figures:
        start = time.perf_counter()
        for folder, _, names in os.walk(root / "part"):
            for name in names:
                os.stat(os.path.join(folder, name))
        return {"build_s": time.perf_counter() - start}

    return [
        Contestant(name="manifestcommit", run=timed(lambda: mc.read_committed(str(root), spark=spark))),
        Contestant(name="spark parquet(folder)", run=timed(lambda: spark.read.parquet(str(root / "part")))),
        Contestant(name="spark parquet(*paths)", run=timed(lambda: spark.read.schema(schema).parquet(*paths))),
        Contestant(name="walk and stat (floor)", run=walk),
    ]


if __name__ == "__main__":
    sys.exit(main())
