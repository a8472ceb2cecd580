"""What gc, verify and the plan of a compaction cost on a table of many files, in time and in memory, beside deltalake's vacuum and a plain
listing of the same folder.

Nine of ten objects are listed by the table, the tenth is what a dead job left. The files are empty and the entries made up: all look at
names, lengths and times, never into files. Every round of every side runs in a process of its own, so that its peak memory is its
own; `wall_s` and `cpu_s` begin when that process has imported what it needs, and `peak_mb` is what its memory grew by from there.

- `gc --dry-run`: the plan, each name with its reason; `gc`: the decision is committed, and the dead files are deleted.
- `verify`: every version, every manifest, and every file there with the length that it is listed with; no file is read.
- `compact --dry-run`: which files would become one, of a table whose files are all small.
- `vacuum --dry-run`: deltalake with full=True, on a table of its own with as many entries, from a checkpoint, and as many files.
- `list`: every object of the table by our store, and nothing else is done: what any collector has to pay.

What these figures do not say: local folders are listed from the kernel's cache. deltalake's vacuum keeps its list of files, too; it has
no fence, and relies on a retention time that is longer than the longest job. deltalake lists in native threads, ours is Python.
"""

from __future__ import annotations

import json
import multiprocessing as mp
import os
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import manifestcommit as mc
from benchmarks.made_up import listed
from benchmarks.measure import Contestant, Figures, interleave, memory_mb, parser, report, rounds_of, work_folder
from benchmarks.s3 import S3Server, delta_options, s3_server, versions
from manifestcommit.commits.commit_loop import commit
from manifestcommit.format import object_names
from manifestcommit.format.change import Write
from manifestcommit.format.fields import Partitioned
from manifestcommit.log.manifests import put_manifest
from manifestcommit.log.table_context import TableContext
from manifestcommit.runtime.environment import Env
from manifestcommit.runtime.outcome import committed_or_raise
from manifestcommit.store import Store, open_store
from manifestcommit.store.local import LocalStore

FOLDERS = 1_000
CHUNK = 50_000  # entries of one manifest
DEAD = 10  # one object of so many
FIGURES = ["wall_s", "cpu_s", "peak_mb", "objects"]
SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.int32())])


def main() -> int:
    """One table of each kind, and every side in turns."""
    options = parser(__doc__)
    options.add_argument("--objects", type=int, help="files below the root (default: 1000000, quick or S3: 20000)")
    options.add_argument("--store", choices=["local", "s3"], default="local", help="where the tables lie (default: local)")
    chosen = options.parse_args()
    objects = chosen.objects or (20_000 if chosen.quick or chosen.store == "s3" else 1_000_000)
    used = versions("deltalake", "s3fs") if chosen.store == "s3" else versions("deltalake").rpartition(", ")[2]
    with work_folder(chosen) as folder, s3_server() if chosen.store == "s3" else nullcontext() as server:
        place = f"s3://{server.bucket()}" if server else str(folder)
        ours, theirs = f"{place}/ours", f"{place}/theirs"
        dead = make_table(ours, server, objects)
        make_delta(theirs, server, objects)
        case = {"store": chosen.store, "objects": objects, "dead": len(dead), "versions": used}
        sides = contestants(ours, theirs, server, objects - len(dead), dead)
        interleave(sides, rounds=rounds_of(chosen), warm_up=0 if objects > 100_000 else 1)
        report("gc", case, sides, figures=FIGURES)
    return 0


def contestants(ours: str, theirs: str, server: S3Server | None, live: int, dead: Sequence[str]) -> list[Contestant]:
    """The sides, each of which checks what it has found."""

    def run(what: str, url: str, expected: int, _: int) -> Figures:
        found = in_new_process(what, url, server)
        assert not expected or found["objects"] == expected, f"{what} found {found['objects']} objects, not {expected}"
        return found

    return [
        Contestant(name="gc --dry-run", run=partial(run, "plan", ours, len(dead))),
        Contestant(name="vacuum --dry-run", run=partial(run, "vacuum", theirs, len(dead))),
        Contestant(name="list", run=partial(run, "list", ours, 0)),
        Contestant(name="verify", run=partial(run, "verify", ours, live)),
        Contestant(name="compact --dry-run", run=partial(run, "compact", ours, live)),
        Contestant(name="gc", run=partial(run, "gc", ours, len(dead)), after=lambda _: fill(open_at(ours, server), dead)),
    ]


# --- the tables -----------------------------------------------------------------------------------------------------------


def names(objects: int, job: str, *, live: bool) -> Iterator[str]:
    """The names of those files that the table lists, or of the others, in hive folders."""
    for number in range(objects):
        if (number % DEAD != 0) == live:
            yield f"day={number % FOLDERS}/{number:05d}-{number:016x}-0-{job}.parquet"


def fill(store: Store, paths: Sequence[str]) -> None:
    """Empty files of these names."""
    if isinstance(store, LocalStore):
        root = store.url.removeprefix("file://")
        for folder in {path.rpartition("/")[0] for path in paths}:
            os.makedirs(f"{root}/{folder}", exist_ok=True)
        for path in paths:
            os.close(os.open(f"{root}/{path}", os.O_CREAT | os.O_WRONLY))
        return
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda path: store.put(path, b""), paths))


def make_table(url: str, server: S3Server | None, objects: int) -> list[str]:
    """Our table, with its files and the dead ones, whose names are returned: one commit of made-up entries."""
    mc.create_table(url, SCHEMA, partition_by=["day"], storage_options=server.storage_options if server else None)
    session = TableContext(open_at(url, server))
    head = session.open()
    schema, partition_by = head.snapshot.schema, head.snapshot.partition_by
    job, lost = (object_names.job_id(head.version, head.snapshot.table_id, os.urandom(16)) for _ in range(2))
    live = list(names(objects, job, live=True))
    ordered = sorted(live, key=lambda path: (day_of(path), path))
    refs = []
    for start in range(0, len(ordered), CHUNK):
        some = ordered[start : start + CHUNK]
        days, ones = np.array([day_of(path) for path in some], "int32"), np.ones(len(some), "int64")
        table = listed(pa.array(some), days, ones, ones - 1, job=job, schema=schema)
        refs.append(put_manifest(session.store, table, Partitioned(schema, partition_by), job=job, env=Env()))
    change = Write(job=job, birth=head.version, operation="append", schema=schema, partition_by=partition_by, add_manifests=tuple(refs))
    committed_or_raise(commit(session, head, change), session.store.url)
    dead = list(names(objects, lost, live=False))
    fill(session.store, live)
    fill(session.store, dead)
    return dead


def day_of(path: str) -> int:
    """The value in the folder's name."""
    return int(path[4 : path.index("/")])


def make_delta(url: str, server: S3Server | None, objects: int) -> None:
    """The same for deltalake: one commit of made-up entries and a checkpoint of it."""
    from deltalake import DeltaTable

    options = delta_options(server) if server else None
    DeltaTable.create(url, SCHEMA, partition_by=["day"], storage_options=options)
    live = list(names(objects, "live", live=True))
    actions = (
        {
            "add": {
                "path": path, "partitionValues": {"day": str(day_of(path))}, "size": 0, "modificationTime": 0, "dataChange": True,
                "stats": '{"numRecords":1}',
            }
        }
        for path in live
    )  # fmt: skip
    open_at(url, server).put(f"_delta_log/{1:020d}.json", "\n".join(map(json.dumps, actions)).encode())
    DeltaTable(url, storage_options=options).create_checkpoint()
    fill(open_at(url, server), live + list(names(objects, "dead", live=False)))


def open_at(url: str, server: S3Server | None) -> Store:
    return open_store(url, server.storage_options if server else None)


# --- in processes of their own --------------------------------------------------------------------------------------------


def in_new_process(what: str, url: str, server: S3Server | None) -> dict[str, float]:
    """What one side measured of itself in a process that did nothing before."""
    with ProcessPoolExecutor(1, mp.get_context("spawn")) as process:
        return process.submit(measured, what, url, server).result()


def measured(what: str, url: str, server: S3Server | None) -> dict[str, float]:
    """Runs in that process: seconds, how far its memory grew, and how many objects it found."""
    from deltalake import DeltaTable

    options = server.storage_options if server else None
    pa.array([0])  # pyarrow loads pandas, where there is one, at its first array: that is no one's memory
    before_mb, cpu, start = memory_mb("VmRSS"), cpu_s(), time.perf_counter()
    if what == "vacuum":
        table = DeltaTable(url, storage_options=delta_options(server) if server else None)
        found = len(table.vacuum(retention_hours=0, dry_run=True, enforce_retention_duration=False, full=True))
    elif what == "list":
        found = sum(1 for _ in open_store(url, options).list(""))
    elif what == "verify":
        checked = mc.Table(url, storage_options=options).verify()
        assert checked.is_sound
        found = checked.files
    elif what == "compact":
        planned = mc.Table(url, storage_options=options).plan_compaction()
        counts = planned.select(["action", "files"])  # a filter copies whatever it is given, a million paths as well
        found = sum(counts.filter(pc.equal(counts.column("action"), "rewrite")).column("files").to_pylist())
    else:
        table = mc.Table(url, storage_options=options)
        call: Any = table.plan_gc if what == "plan" else table.gc
        made = call(grace="0s", keep_for="0s")
        found = made.deleted["data file"].count if what == "gc" else planned_deletes(made)
    wall = time.perf_counter() - start
    return {"wall_s": wall, "cpu_s": cpu_s() - cpu, "peak_mb": memory_mb("VmHWM") - before_mb, "base_mb": before_mb, "objects": found}


def planned_deletes(plan: pa.Table) -> int:
    """How many data files a plan of gc would delete."""
    is_deleted = pc.and_(pc.equal(plan["action"], "delete"), pc.starts_with(plan["name"], "day="))
    return pc.sum(is_deleted).as_py() or 0


def cpu_s() -> float:
    """Of this process with all its threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main())
