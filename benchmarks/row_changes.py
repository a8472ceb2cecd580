"""What a delete, an update, a merge, an overwrite by a condition and a compaction cost in one process without Spark, beside deltalake,
pyiceberg and the same calls with Spark.

All sides have the same rows in ten files. Each round changes a copy of its table in a process of its own:

- `delete one` by its id, and `delete`: one row in a thousand, in every file;
- `update`: one column of a fifth of the rows, in every file;
- `merge five` rows that are there, and `merge`: one in a hundred rows, half of them new;
- `overwrite` by a condition: one in a hundred rows, with as many;
- `compact`: its ten files into one.

`work_s` is the call alone and `work_cpu_s` its CPU, in all processes; `peak_mb` is the most memory that the process, with Spark its JVM,
had above what it had before the call; `cpu_s` is that of the whole process, with imports and the start of a session. A session has run a
job before the call. After each round the numbers of rows of all sides are compared. pyiceberg has neither an update nor a compaction,
and its upsert compares row by row: it deletes and overwrites here. An update is never done by Spark.

What these figures do not say: the files are in the kernel's cache, and nobody else writes. Libraries are loaded before the call, sqlglot
among them, which ours loads at the first condition of a process; `cpu_s` has that, too. The files of the sides differ: ours are compressed
with zstd and a quarter smaller than those of deltalake's defaults (snappy, but zstd for a compaction); `deltalake zstd` is deltalake with
files compressed as ours are, before the call and by it. Ours are also hashed, when they are written and when they are read to be rewritten.
They and their commit are on the disk when the call returns (a delete takes four calls of fsync), which the others leave to the kernel; of a
table of 100,000 rows that is much of the time, and little of its CPU.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import manifestcommit as mc
from benchmarks.measure import (
    Contestant,
    CpuMeter,
    Figures,
    interleave,
    memory_mb,
    parser,
    report,
    rounds_of,
    spark_session,
    work_folder,
)

MODULE = "benchmarks.row_changes"  # what a child runs
FIGURES = ["work_s", "work_cpu_s", "peak_mb", "cpu_s"]
WORK = ("delete one", "delete", "update", "merge five", "merge", "overwrite", "compact")
SIDES = {  # side -> the work that it can do
    "manifestcommit": WORK,
    "deltalake": WORK,
    "deltalake zstd": WORK,
    "pyiceberg": ("delete one", "delete", "overwrite"),
    "with spark": tuple(work for work in WORK if work != "update"),
}
FILES = 10
CARRIERS = np.array(["UA", "AA", "DL", "B6", "WN"])


BESIDE = {"others": ("deltalake", "deltalake zstd", "pyiceberg"), "spark": ("with spark",)}


def main() -> int:
    """Every work at every size, all sides in turns."""
    options = parser(__doc__)
    options.add_argument("--rows", type=int, action="append", help="rows of the table (default: 100,000 and 10,000,000; quick: 100,000)")
    options.add_argument("--beside", choices=BESIDE, help="only beside these (default: all)")
    options.add_argument(
        "--child", nargs=3, metavar=("SIDE", "WORK", "ROOT"), help="one round of one side, which the benchmark calls itself"
    )
    chosen = options.parse_args()
    if chosen.child:
        side, work, root = chosen.child
        print(json.dumps(one_round(side, work, Path(root), chosen.rows[0])))
        return 0
    for rows in chosen.rows or ([100_000] if chosen.quick else [100_000, 10_000_000]):
        with work_folder(chosen) as folder:
            fill(folder, rows)
            for beside, peers in BESIDE.items():
                if beside != (chosen.beside or beside):
                    continue
                for work in WORK:
                    left: dict[int, set[int]] = {}
                    able = [side for side in ("manifestcommit", *peers) if work in SIDES[side]]
                    if len(able) > 1:
                        sides = [Contestant(name=side, run=child(folder, side, work, rows, left)) for side in able]
                        interleave(sides, rounds=rounds_of(chosen))
                        assert all(len(each) == 1 for each in left.values()), f"{work}: the sides differ: {left}"
                        report("row_changes", {"beside": beside, "work": work, "rows": rows}, sides, figures=FIGURES)
    return 0


def fill(folder: Path, rows: int) -> None:
    """The same table for every side."""
    from deltalake import write_deltalake

    catalog = iceberg(folder / "pyiceberg")
    catalog.create_namespace("a")
    table = catalog.create_table("a.t", flights(0, 1).schema)
    for number in range(FILES):
        made = flights(number * rows // FILES, rows // FILES)
        mc.write(made, folder / "manifestcommit")
        for side in ("deltalake", "deltalake zstd"):
            write_deltalake(str(folder / side), made, mode="append", writer_properties=properties(side))
        table.append(made)
    shutil.copytree(folder / "manifestcommit", folder / "with spark")


def iceberg(folder: Path) -> Any:
    """The catalog of a folder."""
    from pyiceberg.catalog.sql import SqlCatalog

    folder.mkdir(exist_ok=True)
    return SqlCatalog("made_up", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")


def flights(first: int, count: int, seed: int = 0) -> pa.Table:
    """Rows with ids from `first` on."""
    numbers = np.random.default_rng(seed + first)
    return pa.table(
        {
            "id": np.arange(first, first + count),
            "day": numbers.integers(0, 365, count).astype(np.int32),
            "carrier": pa.array(CARRIERS[numbers.integers(0, len(CARRIERS), count)]),
            "delay": numbers.normal(10, 30, count),
            "tail": pa.array(np.char.add("N", numbers.integers(0, 20_000, count).astype(str))),
        }
    )


def child(folder: Path, side: str, work: str, rows: int, left: dict[int, set[int]], module: str = MODULE) -> Callable[[int], Figures]:
    """A round in a process of its own, whose peak of memory is its own, too."""

    def run(number: int) -> Figures:
        command = [sys.executable, "-m", module, "--rows", str(rows), "--child", side, work, str(folder / side)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        told: dict[str, float] = json.loads(done.stdout)
        left.setdefault(number, set()).add(int(told.pop("rows")))
        return told

    return run


def one_round(side: str, work: str, root: Path, rows: int) -> dict[str, float]:
    """One call on a copy of the table, which has the same place in each round."""
    kept = root.with_name(f"{root.name} kept")
    shutil.copytree(root, kept)
    try:
        with opened(side, root, work, rows) as (call, count):
            before = memory_now()
            with CpuMeter() as cpu:
                start, own = time.perf_counter(), time.process_time()
                call()
                seconds, own = time.perf_counter() - start, time.process_time() - own
            peak = peak_mb() - before
            # the meter counts in hundredths of a second
            used = cpu.seconds if side == "with spark" else own
            return {"work_s": seconds, "work_cpu_s": used, "peak_mb": peak, "rows": count()}
    finally:
        shutil.rmtree(root)
        kept.rename(root)


def memory_now() -> float:
    """What this process and its JVM have; from here on its own peak is one since now, not that of what was made before."""
    pa.default_memory_pool().release_unused()
    Path("/proc/self/clear_refs").write_text("5", "utf-8")
    return peak_mb()


def peak_mb() -> float:
    """The most memory that this process had, and with Spark its JVM besides."""
    peak = memory_mb("VmHWM")
    for line in (line for path in Path("/proc/self/task").glob("*/children") for line in path.read_text("utf-8").split()):
        status = Path("/proc", line, "status").read_text("utf-8")
        peak += sum(int(each.split()[1]) / 1024 for each in status.splitlines() if each.startswith("VmHWM:"))
    return peak


@contextmanager
def opened(side: str, root: Path, work: str, rows: int) -> Iterator[tuple[Callable[[], Any], Callable[[], int]]]:
    """The call on the opened table, and what counts its rows afterwards."""
    if side == "with spark":
        with spark_session(root.with_name("spark.log")) as spark:
            spark.range(1000).selectExpr("sum(id)").collect()
            yield ours(root, work, rows, spark)
    elif side in ("deltalake", "deltalake zstd"):
        yield theirs(root, work, rows, written=properties(side))
    else:
        yield {"manifestcommit": ours, "pyiceberg": icebergs}[side](root, work, rows)


def source_of(work: str, rows: int) -> pa.Table:
    """What is merged or written: five rows of the middle, rows of which the latter half is new, or other values of rows of the middle."""
    if work == "merge":
        return flights(rows - rows // 200, rows // 100, seed=9)
    return flights(rows // 2, 5 if work == "merge five" else rows // 100, seed=9)


def middle(rows: int) -> str:
    """The rows that are overwritten."""
    return f"id >= {rows // 2} AND id < {rows // 2 + rows // 100}"


def ours(root: Path, work: str, rows: int, spark: Any = None) -> tuple[Callable[[], Any], Callable[[], int]]:
    """In this process, or with Spark."""
    import sqlglot.dialects.spark  # noqa: F401

    table = mc.Table(root)
    source: Any = source_of(work, rows)
    assert table.version
    calls: dict[str, Callable[[], Any]] = {
        "delete one": lambda: table.delete(f"id = {rows // 3}", spark=spark),
        "delete": lambda: table.delete("delay > 102", spark=spark),
        "update": lambda: table.update({"delay": "delay + 1"}, where="carrier = 'UA'"),
        "overwrite": lambda: table.overwrite_where(source, middle(rows), spark=spark),
        "compact": lambda: table.compact(spark=spark),
    }
    merge = lambda: table.merge(source, on="id", spark=spark)  # noqa: E731
    return calls.get(work, merge), lambda: table.snapshot().totals.rows


def properties(side: str) -> Any:
    """How deltalake writes files: as it chooses, or compressed as ours are."""
    from deltalake import WriterProperties

    return WriterProperties(compression="ZSTD", compression_level=3) if side == "deltalake zstd" else None


def theirs(root: Path, work: str, rows: int, *, written: Any) -> tuple[Callable[[], Any], Callable[[], int]]:
    """The same with deltalake."""
    from deltalake import DeltaTable, write_deltalake

    table = DeltaTable(str(root))
    source = source_of(work, rows)
    calls: dict[str, Callable[[], Any]] = {
        "delete one": lambda: table.delete(f"id = {rows // 3}", writer_properties=written),
        "delete": lambda: table.delete("delay > 102", writer_properties=written),
        "update": lambda: table.update(updates={"delay": "delay + 1"}, predicate="carrier = 'UA'", writer_properties=written),
        "overwrite": lambda: write_deltalake(table, source, mode="overwrite", predicate=middle(rows), writer_properties=written),
        "compact": lambda: table.optimize.compact(writer_properties=written),
    }

    def merge() -> Any:
        merger = table.merge(source, "t.id = s.id", source_alias="s", target_alias="t", writer_properties=written)
        return merger.when_matched_update_all().when_not_matched_insert_all().execute()

    return calls.get(work, merge), lambda: DeltaTable(str(root)).count()


def icebergs(root: Path, work: str, rows: int) -> tuple[Callable[[], Any], Callable[[], int]]:
    """The same with pyiceberg."""
    table = iceberg(root).load_table("a.t")
    source = source_of(work, rows)
    calls: dict[str, Callable[[], Any]] = {
        "delete one": lambda: table.delete(f"id = {rows // 3}"),
        "delete": lambda: table.delete("delay > 102"),
        "overwrite": lambda: table.overwrite(source, overwrite_filter=middle(rows)),
    }
    return calls[work], lambda: table.scan().count()


if __name__ == "__main__":
    sys.exit(main())
