"""What exports to Iceberg and Delta cost: the first of a table of many files, and that of a commit of one file, in a table young and old.

The files are made up: an export reads metadata, never data. Every round of a first export runs in a process of its own, so that its peak
memory is its own; `cpu_s` begins when that process has imported what it needs, and `peak_mb` is what its memory grew by from there.

- `iceberg`, `delta`: `Table.export`. `export_ms`: the CPU of one export of a commit of one file, the median of twenty; `kb`: what it
  puts; `requests`: to the store, without those of the commit.

Three cases: `first export`, `commit`, and `commit in an old table`, after so many commits since the table was made, with an export of
each of the last twenty. There is no peer: other writers of these formats have no other metadata to begin with.

What these figures do not say: the store is a local disk, so requests cost nothing. The files' entries have bounds of five columns.
"""

from __future__ import annotations

import multiprocessing as mp
import statistics
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import pyarrow as pa

import manifestcommit as mc
from benchmarks.made_up import make_table
from benchmarks.measure import Contestant, Figures, interleave, memory_mb, parser, report, rounds_of, work_folder
from manifestcommit.engine.metadata.exports import is_export
from manifestcommit.engine.metadata.table_context import TableContext
from manifestcommit.interop import exporter
from manifestcommit.store import open_store
from manifestcommit.testing import CountingStore

FORMATS = ("iceberg", "delta")
FIRST, OF_ONE = ["cpu_s", "wall_s", "peak_mb", "mb"], ["export_ms", "kb", "requests"]
EXPORTS = 20  # of one round


def main() -> int:
    """One table, exported for the first time by either side in turns, then commit by commit."""
    options = parser(__doc__)
    options.add_argument("--files", type=int, help="files of the table (default: 1000000, quick: 50000)")
    options.add_argument("--commits", type=int, help="after which a table is old (default: 10000, quick: 100)")
    chosen = options.parse_args()
    files = chosen.files or (50_000 if chosen.quick else 1_000_000)
    commits = chosen.commits or (100 if chosen.quick else 10_000)
    rounds = rounds_of(chosen)
    with work_folder(chosen) as folder:
        root = str(folder / "table")
        make_table(open_store(root), files)
        sides = [Contestant(name=format, run=partial(first, root, format), before=lambda _: forget(root)) for format in FORMATS]
        interleave(sides, rounds=rounds, warm_up=0)
        report("exports", {"what": "first export", "files": files}, sides, figures=FIRST)
        for what, older in (("commit", 0), ("commit in an old table", commits)):
            for number in range(older):
                mc.write(row(), root, key=f"load {number}")
            for format in FORMATS:
                mc.Table(root).export(format)
            sides = [Contestant(name=format, run=partial(of_one, root, format)) for format in FORMATS]
            interleave(sides, rounds=rounds)
            report("exports", {"what": what, "files": files, "commits": older}, sides, figures=OF_ONE)
    return 0


def row() -> pa.Table:
    """One row of the made-up table's columns."""
    moment = pa.array([0], pa.timestamp("us", "UTC"))
    number = pa.array([1], pa.int32())
    return pa.table({"day": number, "id": [1], "price": [1.0], "at": moment, "name": ["a"], "code": number})


def forget(root: str) -> None:
    """Remove what was exported."""
    store = open_store(root)
    store.delete([info.name for info in store.list("") if is_export(info.name)])


def first(root: str, format: str, _: int) -> Figures:
    """The first export, in a process that did nothing before."""
    with ProcessPoolExecutor(1, mp.get_context("spawn")) as process:
        return process.submit(measured, root, format).result()


def measured(root: str, format: str) -> Figures:
    """Runs in that process."""
    table = mc.Table(root)
    pa.array([0])  # pyarrow loads pandas, where there is one, at its first array: that is no one's memory
    before_mb, cpu, start = memory_mb("VmRSS"), time.process_time(), time.perf_counter()
    assert table.export(format).version == table.version
    cpu, wall = time.process_time() - cpu, time.perf_counter() - start
    size = sum(each.stat().st_size for each in Path(root, "_iceberg" if format == "iceberg" else "_delta_log").rglob("*.*"))
    return {"cpu_s": cpu, "wall_s": wall, "peak_mb": memory_mb("VmHWM") - before_mb, "mb": size / 1e6}


def of_one(root: str, format: str, _: int) -> Figures:
    """Commits of one file, each exported by a process that knows the version before."""
    mc.Table(root).export(format)  # of the other side's commits
    milliseconds, sent, asked = list[float](), list[int](), list[int]()
    for _ in range(EXPORTS):
        mc.write(row(), root)
        store = CountingStore(open_store(root))
        session = TableContext(store)
        head = session.open()
        store.calls.clear()
        cpu = time.process_time()
        assert exporter.export_format(session, head, format).version == head.version
        milliseconds.append((time.process_time() - cpu) * 1e3)
        sent.append(sum(call.sent for call in store.calls))
        asked.append(len(store.calls))
    return {"export_ms": statistics.median(milliseconds), "kb": statistics.median(sent) / 1e3, "requests": statistics.median(asked)}


if __name__ == "__main__":
    sys.exit(main())
