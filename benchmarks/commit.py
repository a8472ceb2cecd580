"""What a commit costs by the size and the age of the table, beside deltalake, pyiceberg, Lance and the least that it could cost.

No data file is written or read: all tables list files that do not exist, with bounds of five columns (Lance keeps none), on a local disk.

- `one file`: open the table from nothing and commit one file, into tables of 0 to 10,000,000 files. `ms`: of one such open and commit, the
  mean of a round; `cpu_ms` likewise; `commit_ms`, `commit_cpu_ms`: of the commit alone, given the head that was just opened, ours; `kb`:
  what it wrote; `peak_mb`: what the memory of a process of its own grew by that did nothing else; `requests`: ours.
- `earlier`: the same after many one-file commits without any maintenance. Figures of others are after fewer, as `earlier` of the side says.
- `one job`: one commit of many files. Ours: the tasks' part (their manifests are written by another process) is not in it for us, who are
  handed references; for the others, who have no such tasks, it is their whole call.
- `driver`: the memory of the process that commits a job of a million files: `few large tasks` send a reference each, `many small tasks`
  send their entries. Over an interpreter that has loaded pyarrow; nothing to compare with.
- `head`: bytes of the head of 10,000,000 files and 10,000 sources, as it is stored.

The floor is what no protocol of this kind can leave out: one look at the names of the versions, encoding the same head, and creating it
durably, by a temporary file, fsync, link, and fsync of the folder. It leaves out what an open does, to get that head and to decode
it: so the commit alone is held against it as well.

What these figures do not say: a disk that syncs slowly makes all of them alike. The floor's head stays what it was before the first of
these commits, and ours carries one file more after each of them, 36 after five rounds. pyiceberg's commits are transactions of SQLite.
"""

from __future__ import annotations

import multiprocessing as mp
import os
import pickle
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from benchmarks.made_up import COLUMNS, append, made_up_session, make_table, put_manifests
from benchmarks.made_up_peers import Delta, Iceberg, Lance, Peer
from benchmarks.measure import Contestant, Figures, bytes_below, interleave, memory_mb, parser, report, rounds_of, work_folder
from benchmarks.s3 import versions
from manifestcommit.commits.commit_loop import commit
from manifestcommit.format import codec, object_names
from manifestcommit.format.entries import ColumnStats, Entry
from manifestcommit.format.fields import leaves
from manifestcommit.format.partitioning import PartitionPattern
from manifestcommit.job import Job
from manifestcommit.log.table_context import TableContext
from manifestcommit.log.version_chain import Head
from manifestcommit.runtime.outcome import committed_or_raise
from manifestcommit.store import open_store
from manifestcommit.testing.faults import CountingStore

COMMITS = 5  # of one round
PARTITIONS = 1_000
FIGURES = ["ms", "cpu_ms", "commit_ms", "commit_cpu_ms", "kb", "peak_mb", "requests"]
PEERS: dict[str, Callable[[str], Peer]] = {"deltalake": Delta, "pyiceberg": Iceberg, "lance": Lance}


def main() -> int:
    """Every case that was asked for."""
    options = parser(__doc__)
    options.add_argument("--full", action="store_true", help="10,000,000 files of ours, 1,000,000 of the others")
    options.add_argument("--alone", action="store_true", help="`earlier` without the others, whose earlier commits take minutes to make")
    options.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), help="default: all")
    chosen = options.parse_args()
    used = versions("deltalake", "pyiceberg", "pylance").partition(", ")[2]
    for name in chosen.cases:
        with work_folder(chosen) as folder:
            CASES[name](chosen, folder, used)
    return 0


# --- one file ---------------------------------------------------------------------------------------------------------------


def one_file(chosen: Any, folder: Path, used: str) -> None:
    """By the number of files that are there."""
    sizes = [0, 1_000] if chosen.quick else [0, 10_000, 100_000, 1_000_000, *([10_000_000] if chosen.full else [])]
    for files in sizes:
        place = folder / str(files)
        peers = PEERS if files <= (1_000_000 if chosen.full else 100_000) else {}
        compare({"case": "one file", "files": files, "versions": used}, place, files, 0, peers, 0, rounds_of(chosen))
        shutil.rmtree(place)


def earlier(chosen: Any, folder: Path, used: str) -> None:
    """By the number of commits that were made before."""
    ours, theirs = (100, 20) if chosen.quick else (10_000, 1_000)
    files = 1_000 if chosen.quick else 1_000_000
    case = {"case": "earlier", "files": files, "earlier": ours, "earlier_of_others": theirs, "files_of_others": 0, "versions": used}
    compare(case, folder / "aged", files, ours, {} if chosen.alone else PEERS, theirs, rounds_of(chosen))


def compare(
    case: dict[str, Any], place: Path, files: int, earlier: int, peers: Mapping[str, Any], earlier_of_peers: int, rounds: int
) -> None:
    """Ours, the floor and the others, in turns. The others begin with as many files, or where there are earlier commits with none."""
    with ExitStack() as stack:
        sides = []
        for name in ("manifestcommit", "floor", *peers):
            home = place / name.partition(" ")[0]
            home.mkdir(parents=True)
            print(f"    {name}: making the table", file=sys.stderr, flush=True)
            begin = (
                ("manifestcommit", files, earlier)
                if name in ("manifestcommit", "floor")
                else (name, 0 if earlier else files, earlier_of_peers)
            )
            with new_process(str(home)) as make:
                make("make", *begin)
            step = stack.enter_context(new_process(str(home)))
            step("warm", name)
            sides.append(Contestant(name=name, run=partial(one_round, step, name)))
        interleave(sides, rounds=rounds)
        report("commit", case, sides, figures=FIGURES)


def one_round(step: Callable[..., Any], name: str, number: int) -> Figures:
    figures: Figures = step("commits", name, number)
    return figures


# --- in processes of their own ----------------------------------------------------------------------------------------------

Spent = tuple[float, float]  # seconds, and those of the CPU
_home: str
_before_mb: float
_floor: Head
_commit: Callable[[range], Spent | None]  # what of it the commit alone took, where that is told


@contextmanager
def new_process(home: str) -> Iterator[Callable[..., Any]]:
    """Calls of this module's functions in a process that has done nothing else."""
    with ProcessPoolExecutor(1, mp.get_context("spawn"), _begin, (home,)) as process:
        yield lambda what, *arguments: process.submit(_call, what, arguments).result()


def _begin(home: str) -> None:
    global _home, _before_mb
    _home = home
    pa.array([0])  # pyarrow loads pandas, where there is one, at its first array: that is no one's memory
    _before_mb = memory_mb("VmRSS")


def _call(what: str, arguments: Sequence[Any]) -> Any:
    return STEPS[what](*arguments)


def _make(name: str, files: int, earlier: int) -> None:
    if name == "manifestcommit":
        make_table(open_store(url()), files)
        session = TableContext(open_store(url()))
        head = session.open()
        for number in range(earlier):
            commit_entry(session, head, number)
            assert session.known is not None
            head = session.known
        return
    peer = PEERS[name](_home)
    peer.make(files, PARTITIONS)
    for number in range(earlier):
        peer.commit(range(number, number + 1))


def _warm(name: str) -> None:
    """Import what it needs, and commit once."""
    global _commit, _floor, _before_mb
    if name == "floor":
        _floor = TableContext(open_store(url())).open()
        _commit = put_head
    elif name == "manifestcommit":
        _commit = commit_ours
    else:
        __import__({"pyiceberg": "pyiceberg.catalog.sql"}.get(name, name))
        _commit = PEERS[name](_home).commit
    _before_mb = memory_mb("VmRSS")


def _commits(name: str, number: int) -> dict[str, float]:
    before, start = bytes_below(_home), now()
    alone = [_commit(range(number * COMMITS + each, number * COMMITS + each + 1)) for each in range(COMMITS)]
    ms, cpu_ms = (seconds * 1000 / COMMITS for seconds in since(start))
    found = {"ms": ms, "cpu_ms": cpu_ms, "kb": (bytes_below(_home) - before) / 1000 / COMMITS, "peak_mb": memory_mb("VmHWM") - _before_mb}
    if told := [spent for spent in alone if spent is not None]:
        found["commit_ms"], found["commit_cpu_ms"] = (sum(each) * 1000 / COMMITS for each in zip(*told, strict=True))
    if name == "manifestcommit":
        counting = CountingStore(open_store(url()))
        session = TableContext(counting)
        commit_entry(session, session.open(), 99)
        found["requests"] = sum(counting.requests().values())
    return found


def now() -> Spent:
    return time.perf_counter(), time.process_time()


def since(start: Spent) -> Spent:
    wall, cpu = now()
    return wall - start[0], cpu - start[1]


def url() -> str:
    return f"file://{_home}/ours"


def commit_ours(numbers: range) -> Spent:
    session = TableContext(open_store(url()))
    return commit_entry(session, session.open(), numbers[0])


def commit_entry(session: TableContext, head: Head, number: int) -> Spent:
    """One file of a new job; what its commit alone took."""
    job = session.new_job(head)
    day = head.snapshot.partition_by[0]
    change = msgspec.structs.replace(append(head, job), add=(entry(head, job, number),), touched=({day: number % PARTITIONS},))
    start = now()
    committed_or_raise(commit(session, head, change), session.store.url)
    return since(start)


def entry(head: Head, job: str, number: int) -> Entry:
    """As a task tells of a file."""
    columns = {}
    for leaf in leaves(head.snapshot.schema):
        if leaf.path[0] in COLUMNS:
            low, high = (f"{end}{secrets.token_hex(6)}" if leaf.type == "string" else number + ord(end) for end in "az")
            columns[leaf.id] = ColumnStats(nulls=0, min=low, max=high)
    path = f"day={number % PARTITIONS}/{number:05d}-{secrets.token_hex(8)}-0-{job}.parquet"
    digest = codec.digest(path.encode())
    return Entry(path=path, partition=(number % PARTITIONS,), rows=10**6, bytes=10**8, digest=digest, job=job, columns=columns)


def put_head(numbers: range) -> Spent:
    """The floor, all of which is a commit's."""
    start = now()
    versions_folder = f"{_home}/ours/{object_names.VERSIONS}"
    os.listdir(versions_folder)
    name, folder = f"{_home}/floor/{secrets.token_hex(8)}", f"{_home}/floor"
    os.makedirs(folder, exist_ok=True)
    with open(f"{name}.temporary", "xb", buffering=0) as file:
        file.write(codec.encode_snapshot(_floor.snapshot))
        os.fsync(file.fileno())
    os.link(f"{name}.temporary", name)
    os.unlink(f"{name}.temporary")
    descriptor = os.open(folder, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
    return since(start)


# --- one job of many files --------------------------------------------------------------------------------------------------


def one_job(chosen: Any, folder: Path, used: str) -> None:
    """All in one commit to an empty table."""
    files = 1_000 if chosen.quick else 100_000

    def ours(number: int) -> Figures:
        home = folder / f"ours-{number}"
        with new_process(str(home)) as make:
            make("send", files, 20)
        with new_process(str(home)) as driver:
            found: Figures = driver("drive")
        return found

    def theirs(name: str, number: int) -> Figures:
        home = folder / f"{name}-{number}"
        home.mkdir()
        with new_process(str(home)) as make:
            make("make", name, 0, 0)
        with new_process(str(home)) as step:
            step("warm", name)
            found: Figures = step("commit_many", files)
        return found

    sides = [Contestant(name="manifestcommit", run=ours), *(Contestant(name=name, run=partial(theirs, name)) for name in PEERS)]
    interleave(sides, rounds=min(3, rounds_of(chosen)), warm_up=0)
    report("commit", {"case": "one job", "files": files, "versions": used}, sides, figures=["ms", "kb", "peak_mb"])


def _commit_many(files: int) -> dict[str, float]:
    before, start = bytes_below(_home), time.perf_counter()
    _commit(range(files))
    ms = (time.perf_counter() - start) * 1000
    return {"ms": ms, "kb": (bytes_below(_home) - before) / 1000, "peak_mb": memory_mb("VmHWM") - _before_mb}


def driver(chosen: Any, folder: Path, used: str) -> None:
    """The memory of the process that commits, by how the files are spread over tasks."""
    files = 10_000 if chosen.quick else 1_000_000

    def side(name: str, tasks: int) -> Contestant:
        def run(number: int) -> Figures:
            home = folder / f"{tasks}-{number}"
            with new_process(str(home)) as make:
                make("send", files, tasks)
            with new_process(str(home)) as process:
                found: Figures = process("drive")
            shutil.rmtree(home)
            return found

        return Contestant(name=f"{name} ({tasks:,})", run=run)

    sides = [side("few large tasks", files // 5_000), side("many small tasks", files // 500)]
    interleave(sides, rounds=min(2, rounds_of(chosen)), warm_up=0)
    report("commit", {"case": "driver", "files": files, "versions": used}, sides, figures=["ms", "kb", "peak_mb", "sent_mb", "manifests"])


def _send(files: int, tasks: int) -> None:
    """What the tasks of a job put, and the messages that they send."""
    from manifestcommit.spark.writing import MESSAGE_LIMIT_BYTES, TaskWritten, packed

    session = made_up_session(open_store(url()))
    job = Job(session)
    plan = job.plan_write(head_schema(session))
    head, each = session.open(), files // tasks
    few = each * len(msgspec.json.encode(entry(head, job.id, 123_456))) <= MESSAGE_LIMIT_BYTES
    messages = []
    for task in range(tasks):
        touched: tuple[PartitionPattern, ...] = tuple(
            {plan.partition_by[0]: day} for day in range(task * PARTITIONS // tasks, task * PARTITIONS // tasks + 1)
        )
        if few:
            listed = tuple(entry(head, job.id, task * each + number) for number in range(each))
            written = TaskWritten(task=task, entries=listed)
        else:
            written = TaskWritten(task=task, manifests=tuple(put_manifests(session, head, job.id, each, 1)), touched=touched)
        messages.append(packed(written))
    with open(f"{_home}/messages", "wb") as out:
        pickle.dump((job.id, plan, messages), out)


def head_schema(session: TableContext) -> Any:
    return session.open().snapshot.schema


def _drive() -> dict[str, float]:
    """The driver's part: take the messages, commit, and say what that took."""
    from manifestcommit.spark.writing import collect
    from manifestcommit.store import StorageOptions

    global _before_mb
    _before_mb = memory_mb("VmRSS")
    size, start = bytes_below(_home), time.perf_counter()
    with open(f"{_home}/messages", "rb") as source:
        job_id, plan, messages = pickle.load(source)
    sent = sum(len(message.data) for message in messages)
    job = Job(TableContext(open_store(url())))
    job.job_id = job_id  # the job that the tasks wrote for, which in Spark is this very object
    job.plan_write(plan.schema)
    written = collect(plan, messages, StorageOptions())
    job.add_written(written.entries, written.manifests, touched=written.touched, tasks=written.tasks)
    outcome = job.commit()
    ms = (time.perf_counter() - start) * 1000
    assert outcome.committed, outcome
    figures = {"ms": ms, "kb": (bytes_below(_home) - size) / 1000, "peak_mb": memory_mb("VmHWM") - _before_mb}
    return {**figures, "sent_mb": sent / 1e6, "manifests": len(job.manifests)}


# --- the head ---------------------------------------------------------------------------------------------------------------


def head(chosen: Any, folder: Path, used: str) -> None:
    """Bytes, and what it takes to encode and to decode them."""
    from benchmarks.made_up import made_up_refs

    files = 100_000 if chosen.quick else 10_000_000
    session = made_up_session(open_store(f"file://{folder}/t"))
    first = session.open()
    committed_or_raise(commit(session, first, append(first, session.new_job(first), sources=10_000)), session.store.url)
    base = session.open()

    def side(name: str, manifest_files: int) -> Contestant:
        snapshot = msgspec.structs.replace(base.snapshot, manifests=made_up_refs(base, files, manifest_files))

        def run(number: int) -> Figures:
            start = time.perf_counter()
            data = codec.encode_snapshot(snapshot)
            encoded = time.perf_counter()
            codec.decode_snapshot(data, name=object_names.version_name(snapshot.version))
            decoded = time.perf_counter()
            sizes = {"kb": len(data) / 1000, "manifests": len(snapshot.manifests)}
            return {**sizes, "encode_ms": (encoded - start) * 1000, "decode_ms": (decoded - encoded) * 1000}

        return Contestant(name=name, run=run)

    sides = [side("as compaction leaves it", 65_536), side("as commits leave it", 8_193), side("as tasks put it", 1_800)]
    interleave(sides, rounds=rounds_of(chosen))
    report("commit", {"case": "head", "files": files, "sources": 10_000}, sides, figures=["kb", "manifests", "encode_ms", "decode_ms"])


Case = Callable[[Any, Path, str], None]
CASES: dict[str, Case] = {"one-file": one_file, "earlier": earlier, "one-job": one_job, "driver": driver, "head": head}
STEPS: dict[str, Callable[..., Any]] = {
    "make": _make, "warm": _warm, "commits": _commits, "commit_many": _commit_many, "send": _send, "drive": _drive,
}  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
