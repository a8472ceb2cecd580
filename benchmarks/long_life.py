"""What becomes of a table over many thousand small commits: with maintenance now and then, and without any.

Each commit appends one file (entries are made up, there are no data files) under a key of its own and advances a watermark, as a stream
does. A round is 500 commits, of the one table and then of the other, and what the table costs after them:

- `open_ms`, `plan_ms`: a new session's look at the head, and at every live entry, the best of five; `commit_ms`: the median of the round's
  commits, `commit_cpu_ms`: their CPU by their number.
- `head_bytes`, `objects`, `metadata_mb`: the head, and everything below `_manifest/`. `requests`: of one commit, the median.
- `maintain_s`: what maintenance took, which the one table gets after each round: a compaction (files and manifests) and a gc that keeps
  100 versions and 2,000 keys.

The table without maintenance keeps every version it ever had, and is held against what `expected` computes from the constants of
protocol/apply.py: so many objects, so many bytes.

What these figures do not say: files are in a cached folder of one machine; a year passes in minutes, so ages are set to nothing and what
stays is chosen by number.
"""

from __future__ import annotations

import argparse
import bisect
import hashlib
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext

import msgspec
import pyarrow as pa

import manifestcommit as mc
from benchmarks.made_up import SCHEMA
from benchmarks.measure import Contestant, Figures, interleave, parser, report, work_folder
from benchmarks.s3 import S3Server, s3_server
from manifestcommit.commits.commit_loop import commit
from manifestcommit.format import codec, manifest_table, object_names
from manifestcommit.format.change import Advance, Write
from manifestcommit.format.entries import ColumnStats, Entry, ManifestRef
from manifestcommit.format.fields import Partitioned, Schema
from manifestcommit.format.partitioning import dedupe, of_partition
from manifestcommit.format.snapshot import KeyRecord, RunRef, Snapshot
from manifestcommit.log.manifests import to_parquet
from manifestcommit.log.table_context import TableContext
from manifestcommit.operations import compaction
from manifestcommit.operations.compaction import CompactionOptions, Rewriting
from manifestcommit.operations.gc import run as run_gc
from manifestcommit.protocol.apply import inlined_overflow
from manifestcommit.protocol.retention import Policy
from manifestcommit.rows.row_change import NewFiles
from manifestcommit.runtime.environment import tuning
from manifestcommit.runtime.outcome import committed_or_raise
from manifestcommit.scan.planning import entries_table
from manifestcommit.store import open_store
from manifestcommit.testing.faults import CountingStore

FILE_BYTES = 1 << 20
FILES_A_DAY = 1_000
KEEP = Policy(grace_s=0, keep_for_s=0, keep_versions=100, keep_keys=2_000, prepared_grace_s=0)
FIGURES = ["open_ms", "commit_ms", "commit_cpu_ms", "plan_ms", "head_bytes", "objects", "metadata_mb", "requests", "maintain_s"]
FLAT = ["open_ms", "commit_ms", "commit_cpu_ms", "plan_ms", "head_bytes", "objects", "metadata_mb", "requests"]
_LOOKS = 5  # at the table after each round
_HEADS = 60  # that a computed mean is taken of
_MOST_INLINED = 2_000  # entries of five bounds are 600 bytes


def main() -> int:
    """The life of two tables, and three lines of results: every round, how the last rounds stand to the first, and the end."""
    options = parser(__doc__)
    options.add_argument("--store", choices=["local", "s3"], default="local", help="where the tables lie (default: local)")
    options.add_argument("--commits", type=int, help="how many each table gets (default: 20000, S3: 1000, quick: 400)")
    options.add_argument("--every", type=int, help="commits of one round (default: 500, S3: 50, quick: 40)")
    chosen = options.parse_args()
    on_s3 = chosen.store == "s3"
    commits = chosen.commits or (400 if chosen.quick else 1_000 if on_s3 else 20_000)
    every = chosen.every or (40 if chosen.quick else 50 if on_s3 else 500)
    with work_folder(chosen) as folder, s3_server() if on_s3 else nullcontext() as server:
        place = f"s3://{server.bucket()}" if server else str(folder)
        lives = [Life(f"{place}/kept", server, maintained=True), Life(f"{place}/left", server, maintained=False)]
        sides = [
            Contestant(name=f"{word} maintenance", run=life.spend(every)) for word, life in zip(("with", "without"), lives, strict=True)
        ]
        interleave(sides, rounds=commits // every, warm_up=0)
        tell(chosen, sides, lives[1], commits=commits, every=every)
    return 0


def tell(chosen: argparse.Namespace, sides: Sequence[Contestant], left: Life, *, commits: int, every: int) -> None:
    """Everything that was measured, and two lines that are made of it."""
    case = {"store": chosen.store, "commits": commits, "every": every}
    report("long_life", case, sides, figures=FIGURES)
    grown = [Contestant(name=side.name, run=lambda _: None, rounds=[growth(side.rounds)]) for side in sides]
    report("long_life", case | {"of": "growth"}, grown, figures=FLAT)
    end = Contestant(name=sides[1].name, run=lambda _: None, rounds=[dict(sides[1].rounds[-1])])
    computed = Contestant(name="computed", run=lambda _: None, rounds=[dict(left.expected())])
    report("long_life", case | {"of": "the end without maintenance"}, [end, computed], figures=["objects", "metadata_mb"])


def growth(rounds: Sequence[dict[str, float]]) -> dict[str, float]:
    """The median of each figure over the last fifth of all rounds, as a part of that over the second fifth: at first a table is small."""
    fifth = max(1, len(rounds) // 5)
    first, last = rounds[fifth : 2 * fifth], rounds[-fifth:]
    middle = {name: [statistics.median(one[name] for one in part) for part in (first, last)] for name in FLAT}
    return {name: late / early for name, (early, late) in middle.items()}


class Life:
    """One table and its commits. A session that goes on, as that of a streaming query."""

    def __init__(self, url: str, server: S3Server | None, *, maintained: bool) -> None:
        self._url, self._maintained = url, maintained
        self._options = server.storage_options if server else None
        mc.create_table(url, SCHEMA, partition_by=["day"], storage_options=self._options)
        self.store = CountingStore(open_store(url, self._options))
        self.session = TableContext(self.store)
        self.session.open()
        self.done = 0

    def spend(self, count: int) -> Callable[[int], Figures]:
        """A round: so many commits, and what the table costs after them."""

        def one(_: int) -> Figures:
            took, asked = [], []
            cpu = time.process_time()
            for _ in range(count):
                start = time.perf_counter()
                self.commit()
                took.append(time.perf_counter() - start)
                asked.append(len(self.store.calls))
            cpu_ms = 1000 * (time.process_time() - cpu) / count
            start = time.perf_counter()
            if self._maintained:
                self.maintain()
            maintained_s = time.perf_counter() - start
            return {
                "commits": self.done,
                "commit_ms": 1000 * statistics.median(took),
                "commit_cpu_ms": cpu_ms,
                "requests": statistics.median(asked),
                "maintain_s": maintained_s,
                **self.look(),
            }

        return one

    def commit(self) -> None:
        """One file, one key, one step of a watermark."""
        self.store.reset()
        head = self.session.known
        assert head is not None
        job = self.session.new_job(head)
        entry = made_up_entry(self.done, job, head.snapshot.schema)
        change = Write(
            job=job,
            birth=head.version,
            operation="append",
            key=key(self.done),
            declared=codec.digest(b"append"),
            schema=head.snapshot.schema,
            partition_by=head.snapshot.partition_by,
            add=(entry,),
            touched=dedupe([of_partition(head.snapshot.partition_by, entry.partition)]),
            advances=(Advance(source="orders", start=self.done or None, end=self.done + 1),),
        )
        committed_or_raise(commit(self.session, head, change), self._url)
        self.done += 1

    def maintain(self) -> None:
        """What a nightly job does."""
        compaction.compact(TableContext(self.store), CompactionOptions(), made_up_rewrite)
        run_gc(TableContext(self.store), KEEP)
        self.session.open()

    def look(self) -> Figures:
        """What it costs now to open the table and to plan a scan of all of it, and what there is below `_manifest/`."""
        opened, planned = [], []
        for _ in range(_LOOKS):
            session = TableContext(open_store(self._url, self._options))
            start = time.perf_counter()
            head = session.open()
            opened.append(time.perf_counter() - start)
            files = entries_table(session, head.snapshot).num_rows
            planned.append(time.perf_counter() - start - opened[-1])
        objects = {info.name: info.size_bytes for info in self.store.list(f"{object_names.ROOM}/")}
        return {
            "open_ms": 1000 * min(opened),
            "plan_ms": 1000 * min(planned),
            "head_bytes": objects[object_names.version_name(head.version)],
            "objects": len(objects),
            "metadata_mb": sum(objects.values()) / 1e6,
            "files": files,
            "manifests": len(head.snapshot.manifests),
            "runs": len(head.snapshot.key_runs) + len(head.snapshot.job_runs),
        }

    def expected(self) -> Figures:
        """What `expected` says of a table with so many commits and no maintenance."""
        head = TableContext(open_store(self._url, self._options)).open()
        objects, metadata_bytes = expected(self.done, head.snapshot)
        return {"objects": objects, "metadata_mb": metadata_bytes / 1e6}


# --- what is made up ------------------------------------------------------------------------------------------------------


def key(number: int) -> str:
    return f"batch {number:012d}"


def made_up_entry(number: int, job: str, schema: Schema, *, files: int = 1, at: int = 0) -> Entry:
    """A file with bounds of five columns; files: how many small ones it takes the place of, at: the first of them in its group."""
    day = number // FILES_A_DAY
    ids = {field.name: field.id for field in schema.fields}
    low, high = number * 1_000_000, (number + files) * 1_000_000 - 1
    moment = 1_767_225_600_000_000 + number * 86_400_000_000 // FILES_A_DAY
    noise = hashlib.sha256(job.encode()).hexdigest()
    columns = {
        ids["id"]: ColumnStats(nulls=0, min=low, max=high),
        ids["price"]: ColumnStats(nulls=0, nans=0, min=number / 7, max=number / 3 + 1),
        ids["at"]: ColumnStats(nulls=0, min=moment, max=moment + 86_399_999),
        ids["name"]: ColumnStats(nulls=0, min=f"a{noise[:8]}", max=f"z{noise[8:16]}"),
        ids["code"]: ColumnStats(nulls=0, min=0, max=number % 1000),
    }
    return Entry(
        path=f"day={day}/{at:05d}-{noise[:16]}-0-{job}.parquet",
        partition=(day,),
        rows=1_000_000 * files,
        bytes=FILE_BYTES * files,
        digest=f"sha256:{noise}",
        job=job,
        columns=columns,
    )


def made_up_rewrite(snapshot: Snapshot, tasks: Sequence[Rewriting]) -> Iterator[NewFiles]:
    """One entry in the place of each group's; no row is read."""
    for at, task in enumerate(tasks):
        day = task.entries.column(f"partition.{snapshot.partition_by[0]}")[0].as_py()
        files = sum(task.entries.column("rows").to_pylist()) // 1_000_000
        entry = made_up_entry(day * FILES_A_DAY, task.plan.job, snapshot.schema, files=files, at=at)
        yield NewFiles(entries=(entry,))


# --- what is computed -----------------------------------------------------------------------------------------------------


def expected(commits: int, like: Snapshot) -> tuple[int, int]:
    """(objects, bytes) below `_manifest/` after so many commits of one file and one key each, if nothing is ever deleted.

    A version each, the first included, the marker and the hint; a manifest whenever the inlined entries outgrow their budget, a run
    whenever keys or jobs do; and one more of each kind whenever eight of a size are merged, up to the size that a commit may rewrite.
    like: a snapshot of the table, for its schema.
    """
    budgets, entries = tuning().budgets, inlined_entries(like)
    key_bytes = row_bytes({"key": [key(n) for n in range(512)], "digest": [DIGEST] * 512})
    written = [
        (entries, budgets.max_merged_files, entry_bytes(entries, like)),
        (budgets.inline_keys + 1, budgets.max_merged_rows, key_bytes),
        (budgets.inline_jobs, budgets.max_merged_rows, row_bytes({"job": [random_job(n) for n in range(512)]})),
    ]
    objects, spilled = commits + 3, 0.0
    for size, most, each_bytes in written:
        for rows, count in merges(commits // size, size, most):
            objects += count
            spilled += count * rows * each_bytes
    positions = [commits * number // _HEADS for number in range(_HEADS)]
    heads = statistics.mean(len(codec.encode_snapshot(made_up_head(position, entries, like))) for position in positions)
    return objects, round(commits * heads + spilled)


def merges(count: int, size: int, most: int) -> Iterator[tuple[int, int]]:
    """(rows, how many objects of them were ever written), from what was spilled up to what is not merged any more."""
    fan_in = tuning().budgets.fan_in
    while count:
        yield size, count
        if size * fan_in > most:
            return
        count, size = count // fan_in, size * fan_in


def standing(count: int, size: int, most: int) -> int:
    """How many objects the head lists of those that were spilled and merged."""
    left, fan_in = 0, tuning().budgets.fan_in
    while size * fan_in <= most:
        left, count, size = left + count % fan_in, count // fan_in, size * fan_in
    return left + count


def made_up_ref(number: int) -> ManifestRef:
    name, noise = object_names.manifest_name(random_job(number), b"m" * 16), hashlib.sha256(f"m{number}".encode()).digest()
    return ManifestRef(path=name, files=number + 100, rows=10**6 * number, data_bytes=FILE_BYTES * number, bytes=20_000 + number,
                       digest=codec.digest(noise), added=number, lower=(number,), upper=(number,), nulls=(False,),
                       first_path=noise.hex(), last_path=noise.hex())  # fmt: skip


def made_up_runs(position: int, size: int, name_of: Callable[[int], str]) -> tuple[RunRef, ...]:
    paths = (made_up_ref(n) for n in range(standing(position // size, size, tuning().budgets.max_merged_rows)))
    return tuple(
        RunRef(path=ref.path, rows=size, bytes=ref.bytes, digest=ref.digest, first=name_of(ref.added), last=name_of(position))
        for ref in paths
    )


def inlined_entries(like: Snapshot) -> int:
    """How many entries are spilled together: the first number of them, one of each commit, that is over the budget."""
    made_up = tuple(stamped(number, like) for number in range(_MOST_INLINED))

    def overflows(count: int) -> bool:
        snapshot = msgspec.structs.replace(like, version=made_up[count - 1].added, added=made_up[:count])
        return inlined_overflow(snapshot, tuning().budgets)

    return bisect.bisect_left(range(1, _MOST_INLINED), True, key=overflows) + 1


DIGEST = codec.digest(b"append")


def random_job(number: int) -> str:
    return object_names.job_id(10_000 + number, "0123456789abcdef", hashlib.sha256(f"{number}".encode()).digest()[:16])


def stamped(number: int, like: Snapshot) -> Entry:
    job = random_job(number)
    entry = made_up_entry(number, job, like.schema)
    return msgspec.structs.replace(entry, added=10_000 + number)


def entry_bytes(count: int, like: Snapshot) -> float:
    """What an entry takes in a manifest of so many."""
    table = manifest_table.to_table([stamped(n, like) for n in range(count)], Partitioned(like.schema, like.partition_by))
    return len(to_parquet(table)) / count


def row_bytes(columns: dict[str, list[str]]) -> float:
    """What a row takes in a run."""
    count = len(next(iter(columns.values())))
    table = pa.table({**columns, "version": pa.array(range(10_000, 10_000 + count), pa.int64())})
    return len(to_parquet(table)) / count


def made_up_head(position: int, entries: int, like: Snapshot) -> Snapshot:
    """A head after so many commits: what is inlined grows until it is spilled, and begins anew; and references to what was."""
    first, budgets = position - position % entries, tuning().budgets
    keys = range(position - position % (budgets.inline_keys + 1), position)
    jobs = range(position - position % budgets.inline_jobs, position)
    changed = {
        "added": tuple(stamped(n, like) for n in range(first, position)),
        "keys": {key(n): KeyRecord(version=n, digest=DIGEST) for n in keys},
        "recent_jobs": {random_job(n): n for n in jobs},
        "manifests": tuple(made_up_ref(n) for n in range(standing(position // entries, entries, budgets.max_merged_files))),
        "key_runs": made_up_runs(position, budgets.inline_keys + 1, key),
        "job_runs": made_up_runs(position, budgets.inline_jobs, random_job),
    }
    return msgspec.structs.replace(like, **changed)


if __name__ == "__main__":
    sys.exit(main())
