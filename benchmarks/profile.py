"""Where the CPU goes in a commit, an open, a plan, a write, a gc, a verify and a compaction's plan, by parts of the library and of what
it calls.

Each operation runs under Python's profiler; time within a function counts for the module that the function is in, and that of a C
function for the module that calls it, unless it belongs to a group of its own (system calls, JSON, zstd, digests, pyarrow, numpy). Rows
are parts, the largest first; `share` is of all that was measured.

What these figures do not say: the profiler makes Python's calls dearer than those of C, two or three times; they are good for finding what
to look at, not for how long it takes. What is waited for is not counted (a disk's sync, a store's answer). A plan reads its manifests one
by one here; what other threads do falls to whoever waits for them. The write is pyarrow's, in this process; Spark's is in
`write_throughput`.
"""

from __future__ import annotations

import cProfile
import pstats
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa

import manifestcommit as mc
from benchmarks.gc import make_table as make_listed
from benchmarks.long_life import Life
from benchmarks.made_up import make_table
from benchmarks.measure import Contestant, parser, report, rounds_of, work_folder
from manifestcommit.log.table_context import TableContext
from manifestcommit.scan.planning import entries_table
from manifestcommit.store import Store, open_store

PARTS = 10  # rows of a table; the rest is one more
PACKAGE = f"{Path(mc.__file__).parent}/"
# What a C function's name begins with or holds, and the group that it is.
NATIVE = (
    ("posix.", "system calls"), ("io.", "system calls"), ("msgspec", "JSON (msgspec)"), ("Decoder", "JSON (msgspec)"), ("Zstd", "zstd"),
    ("zstd", "zstd"), ("sha256", "digests"), ("HASH", "digests"), ("pyarrow", "pyarrow"), ("numpy", "numpy"),
)  # fmt: skip

Function = tuple[str, int, str]
Times = Mapping[Function, tuple[int, int, float, float, Mapping[Function, tuple[int, int, float, float]]]]


def main() -> int:
    """A table of parts for each operation."""
    options = parser(__doc__)
    options.add_argument("--operation", help="only this one")
    options.add_argument("--files", type=int, help="that a plan lists and gc looks at (default: 100000, quick: 5000)")
    chosen = options.parse_args()
    files = chosen.files or (5_000 if chosen.quick else 100_000)
    with work_folder(chosen) as folder:
        for operation, times, run in operations(folder, files, commits=50 if chosen.quick else 500):
            if chosen.operation not in (None, operation):
                continue
            found = [parts(run) for _ in range(rounds_of(chosen))]
            case = {"operation": operation, "times": times, "files": files}
            report("profile", case, contestants(found), figures=["seconds", "share"])
    return 0


def operations(folder: Path, files: int, *, commits: int) -> Iterator[tuple[str, int, Callable[[], object]]]:
    """What is profiled, how often in one round, and a function that does it."""
    life = Life(str(folder / "life"), None, maintained=False)
    yield "commit", commits, lambda: committed(life, commits)
    yield "open", commits, lambda: [TableContext(open_store(str(folder / "life"))).open() for _ in range(commits)]
    make_table(open_store(str(folder / "large")), files)
    yield "plan", 1, lambda: planned(folder / "large")
    rows = 2_000_000
    numbers = np.random.default_rng(7)
    table = pa.table({"day": np.arange(rows) * 20 // rows, **{f"c{at}": numbers.random(rows) for at in range(6)}})
    yield "write", 1, lambda: mc.write(table, folder / "written", partition_by=["day"])
    make_listed(str(folder / "listed"), None, files)
    yield "gc --dry-run", 1, lambda: mc.Table(folder / "listed").plan_gc(grace="0s", keep_for="0s")
    yield "verify", 1, lambda: mc.Table(folder / "listed").verify()
    yield "compact --dry-run", 1, lambda: mc.Table(folder / "listed").plan_compaction()


def committed(life: Life, commits: int) -> None:
    for _ in range(commits):
        life.commit()


def planned(root: Path) -> int:
    session = TableContext(open_store(str(root)))
    with mock.patch("manifestcommit.scan.planning.map_concurrently", one_by_one):  # in the thread that is looked at
        return int(entries_table(session, session.open().snapshot).num_rows)


def one_by_one(store: Store, work: Callable[[Any], Any], items: Sequence[Any], *, is_much: bool = False) -> list[Any]:
    return [work(item) for item in items]


def parts(run: Callable[[], object]) -> dict[str, float]:
    """CPU seconds of each group, the largest first."""
    profile = cProfile.Profile(time.process_time)
    profile.enable()
    run()
    profile.disable()
    times: Times = pstats.Stats(profile).stats  # type: ignore[attr-defined]  # it is there, and no stub has it
    found: dict[str, float] = defaultdict(float)
    for function, (_, _, own, _, callers) in times.items():
        group = group_of(function)
        if group is not None:
            found[group] += own
            continue
        for caller, (_, _, part, _) in callers.items():
            found[group_of(caller) or "Python"] += part
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def group_of(function: Function) -> str | None:
    """The part that a function's own time is counted for; None: that of its caller."""
    path, _, name = function
    if path.startswith(PACKAGE):
        return path.removeprefix(PACKAGE).removesuffix(".py").replace("/", ".")
    if "/pyarrow/" in path or "/numpy/" in path:
        return "pyarrow" if "/pyarrow/" in path else "numpy"
    if path != "~":
        return "Python"
    return next((group for part, group in NATIVE if part in name), None)


def contestants(found: list[dict[str, float]]) -> list[Contestant]:
    """A row for each of the largest parts, and one for all others."""
    wholes = [sum(each.values()) for each in found]
    middle = {name: statistics.median(each.get(name, 0.0) for each in found) for each in found for name in each}
    largest = sorted(middle, key=lambda name: -middle[name])[:PARTS]
    rows = {name: [each.get(name, 0.0) for each in found] for name in largest}
    rows["all others"] = [sum(seconds for name, seconds in each.items() if name not in largest) for each in found]
    return [
        Contestant(
            name=name,
            run=lambda _: None,
            rounds=[{"seconds": seconds, "share": seconds / whole} for seconds, whole in zip(each, wholes, strict=True)],
        )
        for name, each in rows.items()
    ]


if __name__ == "__main__":
    sys.exit(main())
