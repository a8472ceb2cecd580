"""What exports to Iceberg and Delta cost: the first of a table of many files, and that of a commit of one file, in a table young and old.

The files are made up: an export reads metadata, never data. Every round of a first export runs in a process of its own, so that its peak
memory is its own; `cpu_s` begins when that process has imported what it needs, and `peak_mb` is what its memory grew by from there.

- `first export`: by `Table.export`; `mb` is what it puts.
- `commit`, and `commit in an old table`, after so many commits since the table was made: 128 commits of one file, each exported by a
  process that knows the version before. `export_ms`: the CPU of one export, the median; `kb`: what one puts, the mean; `most_kb`: the most
  that one puts; `requests`: to the store, without those of the commit. Every export puts the entries again that the table's newest version
  inlines, which are written to a manifest once they are some 120: so `kb` rises and falls with that period, and 128 commits cover it.
- `no export`: the requests of a commit to a table without exports, the head given.
- `plan`: which files pyiceberg and deltalake plan to read through the export for a filter that keeps 1 %: `kept`, and `differing`, those
  that only one of this library and the peer keeps. `partition` and `bound` are as in the benchmark `plan`.

There is no peer for the exports: other writers of these formats have no other metadata to begin with.

What these figures do not say: the store is a local disk, so requests cost nothing. The files' entries have bounds of five columns.
"""

from __future__ import annotations

import multiprocessing as mp
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa

import manifestcommit as mc
from benchmarks.commit import commit_entry
from benchmarks.made_up import make_table
from benchmarks.measure import Contestant, Figures, interleave, memory_mb, parser, report, rounds_of, work_folder
from benchmarks.plan import FILTERS, Range, condition
from benchmarks.s3 import versions
from manifestcommit.export import exporter
from manifestcommit.log.table_context import TableContext, is_export
from manifestcommit.store import open_store
from manifestcommit.testing import CountingStore

FORMATS = ("iceberg", "delta")
FIRST, OF_ONE = ["cpu_s", "wall_s", "peak_mb", "mb"], ["export_ms", "kb", "most_kb", "requests"]
PLANNED = ["plan_s", "kept", "differing"]
EXPORTS = 128  # of one round


def main() -> int:
    """One table, exported for the first time by either side in turns, then commit by commit; then other engines' plans."""
    options = parser(__doc__)
    options.add_argument("--files", type=int, help="files of the table (default: 1000000, quick: 50000)")
    options.add_argument("--plans", action="store_true", help="nothing but the plans")
    options.add_argument("--commits", type=int, help="after which a table is old (default: 10000, quick: 100)")
    chosen = options.parse_args()
    files = chosen.files or (50_000 if chosen.quick else 1_000_000)
    commits = chosen.commits or (100 if chosen.quick else 10_000)
    used = versions("deltalake", "pyiceberg").partition(", ")[2]  # a missing peer is an error before the table is made
    with work_folder(chosen) as folder:
        root = str(folder / "table")
        make_table(open_store(root), files)
        if chosen.plans:
            export_all(root)
        else:
            exports(root, files, commits, rounds_of(chosen))
        for keeps in ("partition", "bound"):
            sides = planners(root, FILTERS[keeps](files))
            interleave(sides, rounds=1, warm_up=0)  # pyiceberg takes a minute
            report("exports", {"what": "plan", "files": files, "keeps": keeps, "versions": used}, sides, figures=PLANNED)
    return 0


def exports(root: str, files: int, commits: int, rounds: int) -> None:
    """A commit without exports, first exports, and exports of commits in a young and an old table."""
    sides = [Contestant(name="manifestcommit", run=partial(of_none, root))]
    interleave(sides, rounds=rounds)
    report("exports", {"what": "no export", "files": files}, sides, figures=["requests"])
    sides = [Contestant(name=format, run=partial(first, root, format), before=lambda _: forget(root)) for format in FORMATS]
    interleave(sides, rounds=rounds, warm_up=0)
    report("exports", {"what": "first export", "files": files}, sides, figures=FIRST)
    for what, older in (("commit", 0), ("commit in an old table", commits)):
        for number in range(older):
            mc.write(row(), root, key=f"load {number}")
        export_all(root)
        sides = [Contestant(name=format, run=partial(of_one, root, format)) for format in FORMATS]
        interleave(sides, rounds=rounds)
        report("exports", {"what": what, "files": files, "commits": older}, sides, figures=OF_ONE)


def export_all(root: str) -> None:
    """Export the newest version to every format."""
    for format in FORMATS:
        mc.Table(root).export(format)


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


def of_none(root: str, number: int) -> Figures:
    """A commit of one file that is not exported."""
    store = CountingStore(open_store(root))
    session = TableContext(store)
    head = session.open()
    store.calls.clear()
    commit_entry(session, head, number)
    return {"requests": len(store.calls)}


def of_one(root: str, format: str, _: int) -> Figures:
    """Commits of one file, each exported to all formats; the figures of one of them."""
    milliseconds, sent, asked = list[float](), list[int](), list[int]()
    for _ in range(EXPORTS):
        mc.write(row(), root)
        for each in FORMATS:
            took, store = exported(root, each)
            if each == format:
                milliseconds.append(took * 1e3)
                sent.append(sum(call.sent for call in store.calls))
                asked.append(len(store.calls))
    return {
        "export_ms": statistics.median(milliseconds),
        "kb": statistics.mean(sent) / 1e3,
        "most_kb": max(sent) / 1e3,
        "requests": statistics.median(asked),
    }


def exported(root: str, format: str) -> tuple[float, CountingStore]:
    """The CPU seconds of one export of the newest version, and its requests."""
    store = CountingStore(open_store(root))
    session = TableContext(store)
    head = session.open()
    store.calls.clear()
    cpu = time.process_time()
    assert exporter.export_format(session, head, format).version == head.version
    return time.process_time() - cpu, store


def planners(root: str, wanted: Range | None) -> list[Contestant]:
    """This library and its peers, each beside what this library keeps."""
    assert wanted is not None
    known = set(of_this_library(root, wanted))
    peers = {"manifestcommit": of_this_library, "pyiceberg": of_pyiceberg, "deltalake": of_deltalake}
    return [Contestant(name=name, run=partial(planned, partial(plan, root, wanted), known)) for name, plan in peers.items()]


def planned(plan: Callable[[], list[str]], known: set[str], _: int) -> Figures:
    """The files of a plan, beside those that are known."""
    start = time.perf_counter()
    found = plan()
    return {"plan_s": time.perf_counter() - start, "kept": len(found), "differing": len(known.symmetric_difference(found))}


def of_this_library(root: str, wanted: Range) -> list[str]:
    return [f"{root}/{path}" for path in mc.Table(root).files(filter=condition(wanted)).column("path").to_pylist()]


def of_pyiceberg(root: str, wanted: Range) -> list[str]:
    from pyiceberg.expressions import And, GreaterThanOrEqual, LessThan
    from pyiceberg.table import StaticTable

    name, low, high = wanted
    assert low is not None
    table = StaticTable.from_metadata(f"{root}/_iceberg")
    tasks = table.scan(row_filter=And(GreaterThanOrEqual(name, low), LessThan(name, high))).plan_files()
    return [task.file.file_path.removeprefix("file://") for task in tasks]


def of_deltalake(root: str, wanted: Range) -> list[str]:
    from deltalake import DeltaTable

    name, low, high = wanted
    found = DeltaTable(root).file_uris(file_pruning_predicate=f"{name} < {high} AND {name} >= {low}")
    return [unquote(uri.removeprefix("file://")) for uri in found]


if __name__ == "__main__":
    sys.exit(main())
