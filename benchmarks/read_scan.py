"""Building a DataFrame over N committed files, and scanning it, beside `spark.read.parquet` of the very same files.

Spark's own reader is given the folder (it lists it) and, as a second peer, the list of paths and the schema (it still asks for
the status of each). The floor of building is walking the folder once. Above 10,000 files only building is measured: those are names
that share 1,000 files by hard links, of which Spark's own reader would make a minute or more.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import manifestcommit as mc
from benchmarks.measure import Contestant, Figures, interleave, parser, report, rounds_of, spark_session, work_folder
from manifestcommit.commits.commit_loop import commit
from manifestcommit.format.change import Write
from manifestcommit.format.entries import Entry
from manifestcommit.format.fields import Partitioned
from manifestcommit.log.manifests import put_manifest
from manifestcommit.log.table_context import TableContext
from manifestcommit.protocol.apply import Budgets
from manifestcommit.runtime.outcome import committed_or_raise
from manifestcommit.store import open_store


def main() -> int:
    """One table per number of files, and rounds over it."""
    options = parser(__doc__)
    options.add_argument("--files", type=int, nargs="+", help="numbers of files (default: 100 1000 10000 100000, quick: 100 1000)")
    options.add_argument("--rows", type=int, default=1_000, help="rows per file (default: 1000)")
    chosen = options.parse_args()
    with work_folder(chosen) as folder, spark_session(folder / "spark.log") as spark:
        for files in chosen.files or ([100, 1_000] if chosen.quick else [100, 1_000, 10_000, 100_000]):
            if files > SCANNED:
                root = make_linked_table(folder / f"table-{files}", files)
                contestants = [builds(spark, root, files), Contestant(name="walk and stat (floor)", run=partial(walk, root))]
                interleave(contestants, rounds=rounds_of(chosen))
                report("read_scan", {"files": files, "rows": files * LINKED_ROWS}, contestants, figures=["build_s", "cpu_s"])
                continue
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


SCANNED = 10_000  # up to so many files, they are scanned, too
LINKED, LINKED_ROWS = 1_000, 10  # how many files stand behind all the names, and rows of each


def make_linked_table(root: Path, files: int) -> Path:
    """A table of many names of few files, a thousand in each folder; listed as they are, as if a job had written them."""
    mc.create_table(str(root), make_rows(0, 1).schema)
    session = TableContext(open_store(str(root)))
    head = session.open()
    job, schema = session.new_job(head), head.snapshot.schema
    (root / "real").mkdir()
    for number in range(min(LINKED, files)):
        pq.write_table(make_rows(number * LINKED_ROWS, LINKED_ROWS), root / "real" / f"{number}.parquet", compression="zstd")
    entries = []
    for number in range(files):
        path = f"part/{number // 1_000:04d}/{number:07d}.parquet"
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        os.link(root / "real" / f"{number % LINKED}.parquet", root / path)
        digest = f"sha256:{number:064x}"  # nobody looks
        entries.append(Entry(path=path, rows=LINKED_ROWS, bytes=(root / path).stat().st_size, digest=digest, job=job))
    size = Budgets().manifest_entries
    parts = [entries[at : at + size] for at in range(0, files, size)]
    refs = tuple(put_manifest(session.store, part, Partitioned(schema, ()), job=job, env=session.env) for part in parts)
    change = Write(job=job, birth=head.version, operation="append", schema=schema, partition_by=(), add_manifests=refs)
    committed_or_raise(commit(session, head, change), session.store.url)
    return root


def builds(spark: SparkSession, root: Path, files: int) -> Contestant:
    """Ours, from nothing to a DataFrame that has its files."""

    def run(_: int) -> Figures:
        start = time.perf_counter()
        data = mc.read_committed(str(root), spark=spark)
        taken = time.perf_counter() - start
        if (found := len(data._jdf.inputFiles())) != files:
            raise SystemExit(f"the DataFrame has {found:,} files, not {files:,}: nothing to compare")
        return {"build_s": taken}

    return Contestant(name="manifestcommit", run=run)


def walk(root: Path, _: int) -> Figures:
    """The status of every file, and nothing else."""
    start = time.perf_counter()
    for folder, _folders, names in os.walk(root / "part"):
        for name in names:
            os.stat(os.path.join(folder, name))
    return {"build_s": time.perf_counter() - start}


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

    return [
        Contestant(name="manifestcommit", run=timed(lambda: mc.read_committed(str(root), spark=spark))),
        Contestant(name="spark parquet(folder)", run=timed(lambda: spark.read.parquet(str(root / "part")))),
        Contestant(name="spark parquet(*paths)", run=timed(lambda: spark.read.schema(schema).parquet(*paths))),
        Contestant(name="walk and stat (floor)", run=partial(walk, root)),
    ]


if __name__ == "__main__":
    sys.exit(main())
