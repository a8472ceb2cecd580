"""What row changes and writes cost on tables of other shapes than `row_changes` has, in one process without Spark, beside deltalake.

- `partitions`: a write of one row a day into 1,095 partitions;
- `merge over partitions`: 5,000 rows, half of them new, into 500 partitions of 1,000 rows each;
- `upsert`: as many rows as the table has, half of them new, by a whole number, and `upsert by texts` by two texts;
- `wide write`, `wide read`, `wide update` of one row, `wide merge` of ten rows, `wide columns`: an append with one more column. The table
  has 1,000 rows and as many columns as `--columns` says.

`floor` and `floor in threads` do by plain pyarrow what copy-on-write of `partitions` and `merge over partitions` cannot do without: they
open and read each file, find rows by a key, and write a file for each partition with zstd. Nothing is hashed, synced or committed, and no
bounds are kept. Where the floor is above deltalake, no writer that calls pyarrow for each file is level with it: `benchmarks/profiles.md`.

`work_s` is the call alone, `work_cpu_s` its CPU, in all threads, `peak_mb` the most memory that the process had above what it had before
the call. Each round is a process of its own, on a copy of its table; after it the numbers of rows of both sides are compared.

What these figures do not say: our files are compressed with zstd and those of `deltalake` by snappy, its default; `deltalake zstd` writes
as we do. Ours are hashed, and on the disk when the call returns: each new file takes a call of fsync, and so does each new folder, which
deltalake leaves to the kernel. On a disk that is most of `partitions`. `--folder /dev/shm` takes it out; say which of both a figure is of.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import manifestcommit as mc
from benchmarks.measure import Contestant, interleave, parser, report, rounds_of, work_folder
from benchmarks.row_changes import child, memory_now, peak_mb, properties

MODULE = "benchmarks.row_shapes"  # what a child runs
FIGURES = ["work_s", "work_cpu_s", "peak_mb"]
SIDES = ("manifestcommit", "deltalake", "deltalake zstd")
FLOORS = {"floor": 1, "floor in threads": 2}  # how many threads read and write
NARROW = ("partitions", "merge over partitions", "upsert", "upsert by texts")
WIDE = ("wide write", "wide read", "wide update", "wide merge", "wide columns")
DAYS, PARTITIONS = 1_095, 500


def main() -> int:
    """Every shape, all sides in turns."""
    options = parser(__doc__)
    options.add_argument("--rows", type=int, help="rows of the upserted table (default: 1,000,000; quick: 20,000)")
    options.add_argument("--columns", type=int, action="append", help="columns of wide tables (default: 1,600 and 10,000; quick: 400)")
    options.add_argument("--shape", action="append", choices=(*NARROW, *WIDE), help="only these (default: all)")
    options.add_argument("--child", nargs=3, metavar=("SIDE", "SHAPE", "ROOT"), help="one round, which the benchmark calls itself")
    chosen = options.parse_args()
    if chosen.child:
        side, shape, root = chosen.child
        print(json.dumps(one_round(side, shape, Path(root), chosen.rows)))
        return 0
    rows = chosen.rows or (20_000 if chosen.quick else 1_000_000)
    widths = chosen.columns or ([400] if chosen.quick else [1_600, 10_000])
    sizes = {"partitions": [DAYS], "merge over partitions": [PARTITIONS], **dict.fromkeys(WIDE, widths)}
    for shape in chosen.shape or (*NARROW, *WIDE):
        for size in sizes.get(shape, [rows]):
            with work_folder(chosen) as folder:
                base, partition_by = table_of(shape, size)
                at_work = (*SIDES, *FLOORS) if partition_by else SIDES
                for side in at_work:
                    fill(folder / side, side, base, partition_by)
                left: dict[int, set[int]] = {}
                sides = [Contestant(name=side, run=child(folder, side, shape, size, left, MODULE)) for side in at_work]
                interleave(sides, rounds=rounds_of(chosen))
                assert all(len(each) == 1 for each in left.values()), f"{shape}: the sides differ: {left}"
                report("row_shapes", {"shape": shape, "size": size}, sides, figures=FIGURES)
    return 0


def table_of(shape: str, size: int) -> tuple[pa.Table, str | None]:
    """The table before the call, and its partition column."""
    if shape == "partitions":
        return days(DAYS).slice(0, 1), "day"
    if shape == "merge over partitions":
        numbers = np.arange(PARTITIONS * 1_000)
        return pa.table({"part": (numbers // 1_000).astype(np.int32), "id": numbers, "v": numbers / 7}), "part"
    return (keyed(0, size), None) if shape in NARROW else (wide(size), None)


def days(count: int) -> pa.Table:
    """A row for each day."""
    return pa.table({"day": pa.array([f"d{number:05d}" for number in range(count)]), "v": np.arange(count)})


def keyed(first: int, count: int) -> pa.Table:
    """Rows with a number and two texts as keys."""
    numbers = np.arange(first, first + count)
    texts = pa.array(np.char.add("k", numbers.astype(str)))
    return pa.table({"id": numbers, "a": texts, "b": pa.array(np.char.add("part ", (numbers % 7).astype(str))), "v": numbers / 3})


def wide(columns: int) -> pa.Table:
    """As many columns of whole numbers."""
    return pa.table({f"c{number}": np.arange(number, number + 1_000) for number in range(columns)})


def source_of(shape: str, size: int) -> pa.Table:
    """What is written or merged."""
    if shape == "partitions":
        return days(DAYS)
    if shape == "merge over partitions":
        base, numbers = table_of(shape, size)[0], np.arange(2_500)
        new = pa.table({"part": (numbers % PARTITIONS).astype(np.int32), "id": numbers + 10_000_000, "v": numbers / 3})
        return pa.concat_tables([base.take(pa.array(numbers * 200)), new])
    if shape in NARROW:
        return keyed(size // 2, size)
    made = wide(size)
    return made.append_column("new", made["c0"]) if shape == "wide columns" else made.slice(0, 10) if shape == "wide merge" else made


def keys_of(shape: str) -> list[str]:
    """The key of a merge."""
    return {"merge over partitions": ["part", "id"], "upsert by texts": ["a", "b"], "wide merge": ["c0"]}.get(shape, ["id"])


def fill(root: Path, side: str, base: pa.Table, partition_by: str | None) -> None:
    """The table of one side."""
    from deltalake import write_deltalake

    if side == "manifestcommit" or side in FLOORS:
        mc.write(base, root, partition_by=partition_by)
    else:
        write_deltalake(str(root), base, partition_by=partition_by, writer_properties=properties(side))


def one_round(side: str, shape: str, root: Path, size: int) -> dict[str, float]:
    """One call on a copy of the table."""
    kept = root.with_name(f"{root.name} kept")
    shutil.copytree(root, kept)
    try:
        opened = floor if side in FLOORS else ours if side == "manifestcommit" else theirs
        call, count = opened(root, side, shape, size)
        before = memory_now()
        start, own = time.perf_counter(), time.process_time()
        call()
        seconds, own = time.perf_counter() - start, time.process_time() - own
        return {"work_s": seconds, "work_cpu_s": own, "peak_mb": peak_mb() - before, "rows": count()}
    finally:
        shutil.rmtree(root)
        kept.rename(root)


def ours(root: Path, side: str, shape: str, size: int) -> tuple[Callable[[], Any], Callable[[], int]]:
    """By this library."""
    table, source = mc.Table(root), source_of(shape, size)
    assert table.version
    calls: dict[str, Callable[[], Any]] = {
        "wide read": table.to_arrow,
        "wide update": lambda: table.update({"c1": "c1 + 1"}, where="c0 = 5"),
        "wide columns": lambda: mc.write(source, root, merge_schema=True),
        **dict.fromkeys(("partitions", "wide write"), lambda: mc.write(source, root)),
    }
    return calls.get(shape, lambda: table.merge(source, on=keys_of(shape))), lambda: table.snapshot().totals.rows


def theirs(root: Path, side: str, shape: str, size: int) -> tuple[Callable[[], Any], Callable[[], int]]:
    """The same with deltalake."""
    from deltalake import DeltaTable, write_deltalake

    table, source, written = DeltaTable(str(root)), source_of(shape, size), properties(side)
    append: Any = lambda **given: write_deltalake(table, source, mode="append", writer_properties=written, **given)  # noqa: E731
    calls: dict[str, Callable[[], Any]] = {
        "wide read": table.to_pyarrow_table,
        "wide update": lambda: table.update(updates={"c1": "c1 + 1"}, predicate="c0 = 5", writer_properties=written),
        "wide columns": lambda: append(schema_mode="merge"),
        **dict.fromkeys(("partitions", "wide write"), append),
    }

    def merge() -> Any:
        same = " AND ".join(f"t.{name} = s.{name}" for name in keys_of(shape))
        merger = table.merge(source, same, source_alias="s", target_alias="t", writer_properties=written)
        return merger.when_matched_update_all().when_not_matched_insert_all().execute()

    return calls.get(shape, merge), lambda: DeltaTable(str(root)).count()


def floor(root: Path, side: str, shape: str, size: int) -> tuple[Callable[[], Any], Callable[[], int]]:
    """The same with pyarrow: no version, no digest, nothing synced. A write only adds files."""
    source, by = source_of(shape, size), table_of(shape, size)[1]
    there = sorted(root.glob(f"{by}=*/*.parquet"))
    replaced, kept = ([], there) if shape == "partitions" else (there, [])
    pool, new = ThreadPoolExecutor(FLOORS[side]), root / "new"

    def read(path: Path) -> pa.Table:
        return pq.ParquetFile(pa.BufferReader(path.read_bytes())).read(use_threads=False)

    def write(rows: pa.Table) -> None:
        folder = new / f"{by}={rows[by][0]}"
        folder.mkdir(parents=True)
        pq.write_table(rows, folder / "1.parquet", compression="zstd", compression_level=3, use_dictionary=False)

    def replace() -> None:
        rows = source
        if replaced:
            old = pa.concat_tables(pool.map(read, replaced))
            stays = old.filter(pc.is_null(pc.index_in(old["id"], source["id"])))
            rows = pa.concat_tables([stays, source.cast(old.schema)])
        rows = rows.sort_by(by).combine_chunks()
        ends = pc.run_end_encode(rows[by].combine_chunks()).run_ends.to_pylist()
        starts = [0, *ends[:-1]]
        list(pool.map(write, map(rows.slice, starts, map(int.__sub__, ends, starts))))

    return replace, lambda: sum(pq.read_metadata(path).num_rows for path in (*kept, *new.rglob("*.parquet")))


if __name__ == "__main__":
    sys.exit(main())
