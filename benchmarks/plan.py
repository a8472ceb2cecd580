"""Which files a reader must open, of a table of a million: all of them, or those that a filter keeps; beside one Parquet file, and peers.

The entries are made up, and no data file is looked at. Every plan begins with nothing known: `open_s` is until the snapshot is there,
`plan_s` from then on to a table in memory with path, size, rows, digest, partition and bounds of five columns; `wall_s` is both.

- `keeps`: `all`; `partition`, 1 % by the partition column; `bound`, 1 % by a column that grows with the files; `scattered`, 1 % by a
  column that does not, so that every manifest and every row group has some.
- `floor`: pyarrow reads the same entries, in the same order, from one Parquet file of default settings; for a filter,
  `read_table(filters=...)` of one with row groups as small as ours, so that it can skip as many.
- `deltalake`, `pyiceberg`: the same entries from a checkpoint, or from a manifest, in a table of 100,000; with --full as many as ours.

What these figures do not say: files come from the kernel's cache. deltalake's add actions and pyiceberg's tasks hold no digests.
`shuffled` is our table with each partition's files all over its manifests, which are listed one behind the other [RD41].
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import manifestcommit as mc
from benchmarks.made_up import ROWS, make_table
from benchmarks.measure import Contestant, Figures, interleave, parser, report, rounds_of, work_folder
from benchmarks.s3 import versions
from manifestcommit.log.manifests import ROW_GROUP_ENTRIES
from manifestcommit.log.table_context import TableContext
from manifestcommit.scan.planning import entries_table
from manifestcommit.store import open_store

PARTITIONS = 1_000
FIGURES = ["wall_s", "cpu_s", "open_s", "plan_s", "kept"]


def main() -> int:
    """One table of each kind, and every side in turns for each filter."""
    options = parser(__doc__)
    options.add_argument("--files", type=int, help="files of the large table (default: 1000000, quick: 100000)")
    options.add_argument("--full", action="store_true", help="peers with as many files, too (pyiceberg takes minutes)")
    chosen = options.parse_args()
    files = chosen.files or (100_000 if chosen.quick else 1_000_000)
    peers = files if chosen.full else min(files, 100_000)
    used = versions("deltalake", "pyiceberg").partition(", ")[2]  # a missing peer is told before the tables are made
    with work_folder(chosen) as folder:
        for count in sorted({files, peers}):
            sides = Sides(folder / f"files-{count}", count, with_peers=count == peers)
            for keeps in FILTERS:
                case = {"files": count, "keeps": keeps, "versions": used}
                contestants = sides.contestants(keeps)
                interleave(contestants, rounds=rounds_of(chosen))
                kept = {one.median("kept") for one in contestants}
                assert len(kept) == 1, f"the sides keep {kept} files: nothing to compare"
                report("plan", case, contestants, figures=FIGURES)
        shuffled = Sides(folder / "shuffled", files, with_peers=False, shuffled=True)
        contestants = shuffled.contestants("all")
        interleave(contestants, rounds=rounds_of(chosen))
        report("plan", {"files": files, "keeps": "all", "shuffled": True}, contestants, figures=FIGURES)
    return 0


# Each filter as (column, from, below): what a condition on the rows becomes for partitions and bounds. `None`: from the smallest on.
Range = tuple[str, int | None, int]
FILTERS: dict[str, Callable[[int], Range | None]] = {
    "all": lambda files: None,
    "partition": lambda files: ("day", PARTITIONS // 2, PARTITIONS // 2 + PARTITIONS // 100),
    "bound": lambda files: ("id", files // 2 * ROWS, (files // 2 + files // 100) * ROWS),
    "scattered": lambda files: ("code", None, 10),
}


class Sides:
    """The same made-up files as a table of ours, as one Parquet file and as tables of peers; every side lists and filters them."""

    def __init__(self, folder: Path, files: int, *, with_peers: bool, shuffled: bool = False) -> None:
        folder.mkdir()
        self._files, self._url = files, str(folder / "ours")
        store = open_store(self._url)
        head = make_table(store, files, partitions=PARTITIONS, shuffled=shuffled)
        entries = entries_table(TableContext(store), head.snapshot, in_order=False)
        self._ids = {field.name: field.id for field in head.snapshot.schema.fields} if head.snapshot.schema else {}
        self._floor = {name: str(folder / f"{name}.parquet") for name in ("plain", "groups")}
        pq.write_table(entries, self._floor["plain"], compression="zstd")
        pq.write_table(entries, self._floor["groups"], compression="zstd", row_group_size=ROW_GROUP_ENTRIES)
        self._delta = self._iceberg = None
        if with_peers:
            self._delta = make_delta(folder / "delta", entries, self._ids)
            self._iceberg = make_iceberg(folder, entries, self._ids)

    def contestants(self, keeps: str) -> list[Contestant]:
        wanted = FILTERS[keeps](self._files)
        sides = [
            Contestant(name="manifestcommit", run=partial(self.ours, wanted)),
            Contestant(name="floor", run=partial(self.floor, wanted)),
        ]
        if self._delta is not None:
            sides.append(Contestant(name="deltalake", run=partial(self.deltalake, wanted)))
        if self._iceberg is not None:
            sides.append(Contestant(name="pyiceberg", run=partial(self.pyiceberg, wanted)))
        return sides

    def ours(self, wanted: Range | None, _: int) -> Figures:
        table = mc.Table(self._url)
        return timed(lambda: table.snapshot().version, lambda version: table.files(filter=condition(wanted), version=version))

    def floor(self, wanted: Range | None, _: int) -> Figures:
        if wanted is None:
            return timed(lambda: self._floor["plain"], pq.read_table)
        return timed(lambda: self._floor["groups"], lambda path: pq.read_table(path, filters=self._over_bounds(wanted)))

    def deltalake(self, wanted: Range | None, _: int) -> Figures:
        from deltalake import DeltaTable

        def plan(table: Any) -> Any:
            if wanted is None:
                return pa.table(table.get_add_actions(flatten=True))
            name, low, high = wanted
            return table.file_uris(file_pruning_predicate=f"{name} < {high}" if low is None else f"{name} < {high} AND {name} >= {low}")

        return timed(lambda: DeltaTable(self._delta), plan)

    def pyiceberg(self, wanted: Range | None, _: int) -> Figures:
        from pyiceberg.expressions import AlwaysTrue, And, GreaterThanOrEqual, LessThan

        def plan(table: Any) -> Any:
            if wanted is None:
                return list(table.scan(row_filter=AlwaysTrue()).plan_files())
            name, low, high = wanted
            below = LessThan(name, high)
            return list(table.scan(row_filter=below if low is None else And(GreaterThanOrEqual(name, low), below)).plan_files())

        assert self._iceberg is not None
        return timed(self._iceberg, plan)

    def _over_bounds(self, wanted: Range) -> pc.Expression:
        name, low, high = wanted
        ends = ("partition", "partition") if name == "day" else ("min", "max")
        lower, upper = (pc.field(f"{end}.{self._ids[name]}") for end in ends)
        return lower < high if low is None else (lower < high) & (upper >= low)


def condition(wanted: Range | None) -> pc.Expression | None:
    """The filter as users write it."""
    if wanted is None:
        return None
    name, low, high = wanted
    return pc.field(name) < high if low is None else (pc.field(name) < high) & (pc.field(name) >= low)


def timed(opened: Callable[[], Any], plan: Callable[[Any], Any]) -> Figures:
    """Seconds until it is open, and of the plan; how many files that kept."""
    marks = [time.perf_counter()]
    snapshot = opened()
    marks.append(time.perf_counter())
    found = plan(snapshot)
    marks.append(time.perf_counter())
    open_s, plan_s = (later - sooner for sooner, later in pairwise(marks))
    return {"open_s": open_s, "plan_s": plan_s, "kept": len(found)}


# --- peers ----------------------------------------------------------------------------------------------------------------


def make_delta(folder: Path, entries: pa.Table, ids: dict[str, int]) -> str:
    """One commit of these files with their statistics, and a checkpoint of it."""
    from deltalake import DeltaTable

    from benchmarks.made_up import COLUMNS, SCHEMA

    DeltaTable.create(str(folder), SCHEMA, partition_by=["day"])
    shown = {name: [entries.column(f"{end}.{ids[name]}").to_pylist() for end in ("min", "max")] for name in COLUMNS}
    days, paths, sizes, rows = (entries.column(name).to_pylist() for name in (f"partition.{ids['day']}", "path", "bytes", "rows"))

    def actions() -> Any:
        for at, (path, day, size, count) in enumerate(zip(paths, days, sizes, rows, strict=True)):
            low, high = ({name: ends[end][at] for name, ends in shown.items()} for end in (0, 1))
            stats = {"numRecords": count, "minValues": low, "maxValues": high, "nullCount": dict.fromkeys(COLUMNS, 0)}
            text = json.dumps(stats, default=lambda moment: moment.isoformat())
            yield {"add": {"path": path, "partitionValues": {"day": str(day)}, "size": size, "modificationTime": 0, "dataChange": True,
                           "stats": text}}  # fmt: skip

    (folder / "_delta_log" / f"{1:020d}.json").write_text("\n".join(map(json.dumps, actions())), "utf-8")
    DeltaTable(str(folder)).create_checkpoint()
    return str(folder)


def make_iceberg(folder: Path, entries: pa.Table, ids: dict[str, int]) -> Callable[[], Any]:
    """One fast append of these files with their bounds; what opens the table."""
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.conversions import to_bytes
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.transforms import IdentityTransform
    from pyiceberg.typedef import Record

    from benchmarks.made_up import COLUMNS, SCHEMA

    def catalog() -> Any:
        return SqlCatalog("bench", uri=f"sqlite:///{folder}/iceberg.db", warehouse=f"file://{folder}/iceberg")

    made = catalog()
    made.create_namespace("bench")
    table = made.create_table(("bench", "plan"), SCHEMA)
    with table.update_spec() as update:
        update.add_field("day", IdentityTransform(), "day")
    schema = table.schema()
    fields = {name: schema.find_field(name) for name in COLUMNS}
    columns = {(name, end): entries.column(f"{end}.{ids[name]}").to_pylist() for name in COLUMNS for end in ("min", "max")}
    days, paths, sizes, rows = (entries.column(name).to_pylist() for name in (f"partition.{ids['day']}", "path", "bytes", "rows"))

    def bound(name: str, end: str, at: int) -> bytes:
        value = columns[name, end][at]
        micros = int(value.timestamp() * 1_000_000) if hasattr(value, "timestamp") else value
        return bytes(to_bytes(fields[name].field_type, micros))

    with table.transaction() as change, change.update_snapshot().fast_append() as append:
        for at, (path, day, size, count) in enumerate(zip(paths, days, sizes, rows, strict=True)):
            low, high = ({fields[name].field_id: bound(name, end, at) for name in COLUMNS} for end in ("min", "max"))
            append.append_data_file(
                DataFile.from_args(
                    content=DataFileContent.DATA, file_path=f"{folder}/iceberg/{path}", file_format=FileFormat.PARQUET,
                    partition=Record(day), record_count=count, file_size_in_bytes=size, lower_bounds=low, upper_bounds=high,
                    null_value_counts={field.field_id: 0 for field in fields.values()}, spec_id=table.spec().spec_id,
                )
            )  # fmt: skip
    return lambda: catalog().load_table(("bench", "plan"))


if __name__ == "__main__":
    sys.exit(main())
