"""What a delete, an update, a merge and a compaction cost in one process without Spark, beside deltalake.

Both sides have the same rows in ten files. Each round changes a copy of its table in a process of its own:

- `delete one` by its id, and `delete`: one row in a thousand, in every file;
- `update`: one column of a fifth of the rows, in every file;
- `merge five` rows that are there, and `merge`: one in a hundred rows, half of them new;
- `compact`: its ten files into one.

`work_s` is the call alone, `peak_mb` the most memory that the process had above what it had before the call. After each round the numbers
of rows of both sides are compared.

What these figures do not say: the files are in the kernel's cache, and nobody else writes. With Spark the same calls take what its tasks
take to start. The files of the two sides differ: ours are compressed with zstd and a quarter smaller, and are on the disk (fsync) before
they are committed, which deltalake leaves to the kernel; of a table of 100,000 rows that is most of the time.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import manifestcommit as mc
from benchmarks.measure import Contestant, Figures, interleave, memory_mb, parser, report, rounds_of, work_folder

FIGURES = ["work_s", "peak_mb", "cpu_s"]
WORK = ("delete one", "delete", "update", "merge five", "merge", "compact")
FILES = 10
CARRIERS = np.array(["UA", "AA", "DL", "B6", "WN"])


def main() -> int:
    """Every work at every size, both sides in turns."""
    options = parser(__doc__)
    options.add_argument("--rows", type=int, action="append", help="rows of the table (default: 100,000 and 10,000,000; quick: 100,000)")
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
            for work in WORK:
                left: dict[int, set[int]] = {}
                sides = [Contestant(name=side, run=child(folder, side, work, rows, left)) for side in ("manifestcommit", "deltalake")]
                interleave(sides, rounds=rounds_of(chosen))
                assert all(len(each) == 1 for each in left.values()), f"{work}: the sides differ: {left}"
                report("row_changes", {"work": work, "rows": rows}, sides, figures=FIGURES)
    return 0


def fill(folder: Path, rows: int) -> None:
    """The same table twice."""
    from deltalake import write_deltalake

    for number in range(FILES):
        made = flights(number * rows // FILES, rows // FILES)
        mc.write(made, folder / "manifestcommit")
        write_deltalake(str(folder / "deltalake"), made, mode="append")


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


def child(folder: Path, side: str, work: str, rows: int, left: dict[int, set[int]]) -> Callable[[int], Figures]:
    """A round in a process of its own, whose peak of memory is its own, too."""

    def run(number: int) -> Figures:
        command = [sys.executable, "-m", "benchmarks.row_changes", "--rows", str(rows), "--child", side, work, str(folder / side)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        told: dict[str, float] = json.loads(done.stdout)
        left.setdefault(number, set()).add(int(told.pop("rows")))
        return told

    return run


def one_round(side: str, work: str, root: Path, rows: int) -> dict[str, float]:
    """One call on a copy of the table."""
    copied = root.with_name(f"{root.name} copy")
    shutil.copytree(root, copied)
    try:
        table, call = (ours if side == "manifestcommit" else theirs)(copied, work, rows)
        before, start = memory_mb("VmHWM"), time.perf_counter()
        call()
        seconds, peak = time.perf_counter() - start, memory_mb("VmHWM") - before
        count = table.snapshot().totals.rows if side == "manifestcommit" else table.count()
        return {"work_s": seconds, "peak_mb": peak, "rows": count}
    finally:
        shutil.rmtree(copied)


def source_of(work: str, rows: int) -> pa.Table:
    """What is merged: five rows of the middle, or rows of which the latter half is new."""
    return flights(rows // 2, 5, seed=9) if work == "merge five" else flights(rows - rows // 200, rows // 100, seed=9)


def ours(root: Path, work: str, rows: int) -> tuple[Any, Callable[[], Any]]:
    """The opened table, and the call."""
    table = mc.Table(root)
    source = source_of(work, rows)
    assert table.version
    calls: dict[str, Callable[[], Any]] = {
        "delete one": lambda: table.delete(f"id = {rows // 3}"),
        "delete": lambda: table.delete("delay > 102"),
        "update": lambda: table.update({"delay": "delay + 1"}, where="carrier = 'UA'"),
        "compact": table.compact,
    }
    return table, calls.get(work, lambda: table.merge(source, on="id"))


def theirs(root: Path, work: str, rows: int) -> tuple[Any, Callable[[], Any]]:
    """The same with deltalake."""
    from deltalake import DeltaTable

    table = DeltaTable(str(root))
    source = source_of(work, rows)
    calls: dict[str, Callable[[], Any]] = {
        "delete one": lambda: table.delete(f"id = {rows // 3}"),
        "delete": lambda: table.delete("delay > 102"),
        "update": lambda: table.update(updates={"delay": "delay + 1"}, predicate="carrier = 'UA'"),
        "compact": table.optimize.compact,
    }

    def merge() -> Any:
        merger = table.merge(source, "t.id = s.id", source_alias="s", target_alias="t")
        return merger.when_matched_update_all().when_not_matched_insert_all().execute()

    return table, calls.get(work, merge)


if __name__ == "__main__":
    sys.exit(main())
