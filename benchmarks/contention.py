"""N writers append to ONE table at the same time, on S3, on a local disk, or in a world where only requests take time.

Beside deltalake, whose commits are conditional creates as ours are, and pyiceberg, whose commits are transactions of SQLite.

Each writer repeats the public call for a given time: a Parquet file of one row, one commit. 50 writers are 5 processes of 10 threads,
which stay for all rounds, so imports and first connections are not measured. `commits_per_s` counts what was acknowledged in
the time; what was under way at its end is finished, and checked.

- `attempts_mean`, `attempts_max`: creates sent per commit. Ours from `Outcome.attempts`, 0 where another carried it; deltalake writes
  `num_retries` into its log; pyiceberg tells nothing.
- `lost_share`: the part of all creates that found their name taken. `failed`: calls that raised.
- `slowest_share`: what the slowest writer committed, as a part of an equal share. 0: it committed nothing in the time.
- `client_cpu_ms`: CPU of the writers per commit; the server's is not in it.

The floor is a PUT with `If-None-Match: *` of a kilobyte under a name of its own, unsigned, by the same number of writers (locally a
kilobyte that is fsynced and linked): what the store can do if nobody is ever in the way. Commits of one table form a chain, each of which
names the one before, so no protocol of this kind can reach the floor of many writers; the floor of one writer is the better measure for
all of them.

Every round ends with a check that the table holds the row of every acknowledged commit exactly once, and nothing but rows of those and
of calls that raised.

`--store simulated` (tests/faults/crowd.py) makes up files, opens and commits, over requests of 20 ms, a third more or less, on machines
that have nothing else to do; `without helping` is our loop by itself, which is what others do.

What the other figures do not say: server and writers share the machine's cores and its loopback. Where a round trip takes milliseconds
and the CPU is idle meanwhile, a commit takes as long as its requests one after another, and more writers get in each other's way sooner.
"""

from __future__ import annotations

import http.client
import json
import multiprocessing as mp
import os
import secrets
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from threading import BrokenBarrierError
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pyarrow as pa
from tests.faults.crowd import crowd

import manifestcommit as mc
from benchmarks.measure import Contestant, Figures, interleave, parser, report, work_folder
from benchmarks.s3 import S3Server, anyone_may_write, delta_options, far_away, iceberg_options, s3_server, versions
from manifestcommit.commits.commit_loop import Committers
from manifestcommit.store import open_store
from manifestcommit.store.local import LocalStore

if TYPE_CHECKING:
    from multiprocessing.synchronize import Barrier

# Commits one row with this id, in this process; the creates that it sent, where the call tells.
Commit = Callable[["Place", str, int], int | None]
# The creates that each acknowledged commit sent, where that can be known, and the versions that all of them took.
Check = Callable[["Place", str, list["Work"]], tuple[list[int], int]]

MOST_PROCESSES = 5
IDS_PER_WRITER = 1_000_000
FIGURES = ["commits_per_s", "attempts_mean", "attempts_max", "lost_share", "failed", "slowest_share", "client_cpu_ms"]


@dataclass(slots=True, kw_only=True)
class Work:
    """What one writer did. acknowledged: the ids of its commits, `in_time` of them before the time was over."""

    acknowledged: list[int] = field(default_factory=list)
    in_time: int = 0
    attempts: list[int] = field(default_factory=list)
    errors: dict[int, str] = field(default_factory=dict)


def main() -> int:
    """Rounds for each number of writers."""
    options = parser(__doc__)
    options.add_argument("--writers", type=int, nargs="+", help="numbers of writers (default: 1 4 16 50, quick: 1 4)")
    options.add_argument("--store", choices=["s3", "local", "simulated"], default="s3", help="where the table lies (default: s3)")
    options.add_argument(
        "--alone", action="store_true", help="without the others, of whose writers each waits for minutes once 50 are at it"
    )
    options.add_argument("--delay", type=int, default=0, metavar="MS", help="how much later each request reaches S3 (default: 0)")
    options.add_argument("--seconds", type=float, help="how long the writers of one round go on (default: 10, quick: 2)")
    chosen = options.parse_args()
    counts = chosen.writers or ([1, 4] if chosen.quick else [1, 4, 16, 50])
    seconds = chosen.seconds or (2.0 if chosen.quick else 10.0)
    if chosen.store == "simulated":
        for writers in counts:
            simulate(writers, seconds)
        return 0
    used = versions("deltalake", "pyiceberg", *(["s3fs"] if chosen.store == "s3" else []))
    near = s3_server() if chosen.store == "s3" else nullcontext()
    with work_folder(chosen) as folder, near as there, far_away(there, chosen.delay) if there else nullcontext() as server:
        place = Place(server=server, root=f"s3://{server.bucket()}" if server else str(folder), folder=str(folder))
        for writers in counts:
            case = {"store": chosen.store, "writers": writers, "seconds": seconds, "versions": used}
            case |= {"delay_ms": chosen.delay} if chosen.store == "s3" else {}
            compare(place, case, rounds=int(chosen.rounds or (1 if chosen.quick else 3)), peers=not chosen.alone)
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where tables are made. server: None on a local disk; folder: for the peer's catalog."""

    server: S3Server | None
    root: str
    folder: str


def compare(place: Place, case: dict[str, Any], *, rounds: int, peers: bool) -> None:
    """Rounds for one number of writers. peers: whether deltalake and pyiceberg take part."""
    contest = Contest(place, writers=case["writers"], seconds=case["seconds"])
    with contest.pool:
        others = [
            contest.contestant("deltalake", commit_delta, check_delta),
            contest.contestant("pyiceberg", commit_iceberg, check_iceberg),
        ]
        contestants = [
            contest.contestant("manifestcommit", commit_ours, check_ours),
            *(others if peers else []),
            contest.contestant("distinct names (floor)", create_distinct if place.server else link_distinct, None),
        ]
        interleave(contestants, rounds=rounds)
    report("contention", {**case, "processes": contest.processes}, contestants, figures=FIGURES)


def simulate(writers: int, seconds: float) -> None:
    """Without a machine: the protocol alone."""

    def run(helping: bool, number: int) -> Figures:
        committers = Committers.GROUP if helping else Committers.THIS_PROCESS
        found = crowd(writers=writers, seconds=seconds, seed=number, options={"committers": committers})
        return {
            "commits_per_s": found.commits_per_s,
            "attempts_mean": sum(found.attempts) / len(found.attempts),
            "attempts_max": max(found.attempts),
            "lost_share": 1 - found.versions / sum(found.attempts),
            "slowest_share": found.slowest_share,
            "requests": found.requests_per_commit,
            "slowest_s": max(found.waits_s),
        }

    sides = [Contestant(name=name, run=partial(run, name == "manifestcommit")) for name in ("manifestcommit", "without helping")]
    interleave(sides, rounds=3, warm_up=0)
    figures = [*FIGURES[:4], "slowest_share", "requests", "slowest_s"]
    report("contention", {"store": "simulated", "writers": writers, "seconds": seconds}, sides, figures=figures)


class Contest:
    """A fixed number of writers in processes that stay, and what they did in the round that is on."""

    def __init__(self, place: Place, *, writers: int, seconds: float) -> None:
        self._place, self._writers, self._seconds = place, writers, seconds
        self.processes = max(n for n in range(1, MOST_PROCESSES + 1) if writers % n == 0 and n * n <= writers)
        context = mp.get_context("spawn")
        self.pool = ProcessPoolExecutor(self.processes, context, _meet_at, (context.Barrier(self.processes),))
        self._url = ""
        self._work: list[Work] = []

    def contestant(self, name: str, commit: Commit, check: Check | None) -> Contestant:
        """One side. check: raises where the table is not what was told."""

        def prepare(number: int) -> None:
            self._url = f"{self._place.root}/{name.split()[0]}-{self._writers}-{number}-{secrets.token_hex(4)}"
            if check is None:
                self._url = anyone_may_write(self._place.server) if self._place.server else self._url
            else:
                commit(self._place, self._url, -1)  # who creates the table is another race

        def run(number: int) -> Figures:
            found = list(self.pool.map(_write, *zip(*self._orders(commit), strict=True)))
            self._work = [work for works, _ in found for work in works]
            commits = sum(len(work.acknowledged) for work in self._work)
            attempts, versions = check(self._place, self._url, self._work) if check else ([1] * commits, commits)
            return self._figures(attempts, versions, cpu_s=sum(cpu for _, cpu in found))

        return Contestant(name=name, run=run, before=prepare)

    def _orders(self, commit: Commit) -> Iterable[tuple[Commit, Place, str, range, float]]:
        threads = self._writers // self.processes
        for process in range(self.processes):
            yield commit, self._place, self._url, range(process * threads, (process + 1) * threads), self._seconds

    def _figures(self, attempts: list[int], versions: int, *, cpu_s: float) -> Figures:
        in_time = sum(work.in_time for work in self._work)
        errors = [error for work in self._work for error in work.errors.values()]
        for error, count in Counter(errors).most_common(3):
            print(f"    {count} x {error}", file=sys.stderr, flush=True)
        commits = sum(len(work.acknowledged) for work in self._work)  # those that were under way at the end among them
        if not commits:
            raise SystemExit("nothing was committed: nothing to compare")
        tried = {"attempts_mean": sum(attempts) / len(attempts), "attempts_max": max(attempts)} if attempts else {}
        if attempts:
            tried["lost_share"] = 1 - versions / sum(attempts)
        return {
            "commits_per_s": in_time / self._seconds,
            **tried,
            "failed": len(errors),
            "slowest_share": min(work.in_time for work in self._work) * self._writers / max(1, in_time),
            "client_cpu_ms": cpu_s * 1000 / commits,
        }


# --- in the processes of the writers --------------------------------------------------------------------------------------

_barrier: Barrier


def _meet_at(barrier: Barrier) -> None:
    global _barrier
    _barrier = barrier


def _write(commit: Commit, place: Place, url: str, writers: range, seconds: float) -> tuple[list[Work], float]:
    """What the writers of this process did, and the CPU that it took."""
    with ThreadPoolExecutor(len(writers)) as threads:
        try:
            _barrier.wait(timeout=300)  # one order per process: who has come waits for the others
        except BrokenBarrierError:
            raise RuntimeError("the writers' processes did not start together") from None
        cpu, end = time.process_time(), time.monotonic() + seconds
        return list(threads.map(lambda writer: _repeat(commit, place, url, writer, end), writers)), time.process_time() - cpu


def _repeat(commit: Commit, place: Place, url: str, writer: int, end: float) -> Work:
    work = Work()
    for row in range(writer * IDS_PER_WRITER, (writer + 1) * IDS_PER_WRITER):
        if time.monotonic() >= end:
            break
        try:
            attempts = commit(place, url, row)
        except Exception as error:
            work.errors[row] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:200]
            continue
        work.acknowledged.append(row)
        work.in_time += time.monotonic() <= end
        if attempts is not None:
            work.attempts.append(attempts)
    return work


def one_row(row: int) -> pa.Table:
    """What one commit adds."""
    return pa.table({"id": pa.array([row], pa.int64()), "name": [f"row {row}"]})


def commit_ours(place: Place, url: str, row: int) -> int:
    """One append by manifestcommit; the creates that it sent."""
    return mc.write(one_row(row), url, storage_options=place.server.storage_options if place.server else None).attempts


def commit_delta(place: Place, url: str, row: int) -> None:
    """One append by deltalake, which is allowed as many attempts as we are."""
    from deltalake import CommitProperties, write_deltalake

    retries = CommitProperties(max_commit_retries=1000)
    options = delta_options(place.server) if place.server else None
    write_deltalake(url, one_row(row), mode="append", storage_options=options, commit_properties=retries)


def commit_iceberg(place: Place, url: str, row: int) -> None:
    """One append by pyiceberg, likewise; its first one makes the table."""
    catalog = iceberg(place, url)
    if row < 0:
        catalog.create_namespace("bench")
        catalog.create_table(("bench", "t"), one_row(row).schema, properties={"commit.retry.num-retries": "1000"})
    catalog.load_table(("bench", "t")).append(one_row(row))


def iceberg(place: Place, url: str) -> Any:
    """The catalog of one table."""
    from pyiceberg.catalog.sql import SqlCatalog

    os.environ["AWS_REQUEST_CHECKSUM_CALCULATION"] = "when_required"  # Ceph 16 refuses checksums behind the body
    options = iceberg_options(place.server) if place.server else {}
    warehouse = url if place.server else f"file://{url}"
    name = url.rpartition("/")[2]
    return SqlCatalog("bench", uri=f"sqlite:///{place.folder}/{name}.db", warehouse=warehouse, **options)


def link_distinct(place: Place, url: str, row: int) -> int:
    """One durable kilobyte by itself."""
    os.makedirs(url, exist_ok=True)
    LocalStore(url).put_if_absent(str(row), b"x" * 1024)
    return 1


def create_distinct(place: Place, url: str, row: int) -> int:
    """One conditional create that nobody contends for, with as little client as possible."""
    assert place.server is not None
    connection = _connections.get(row // IDS_PER_WRITER)
    if connection is None:
        parts = urlsplit(place.server.endpoint)
        connection = _connections[row // IDS_PER_WRITER] = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=30)
    try:
        connection.request("PUT", f"/{url}/{row}", body=b"x" * 1024, headers={"If-None-Match": "*"})
        with connection.getresponse() as answer:
            answer.read()
    except OSError:  # the server ends one that was idle between the rounds; http.client says so ever after
        _connections.pop(row // IDS_PER_WRITER).close()
        raise
    if answer.status != 200:
        raise OSError(f"HTTP {answer.status}")
    return 1


_connections: dict[int, http.client.HTTPConnection] = {}  # by writer


# --- before and after a round ---------------------------------------------------------------------------------------------


def check_ours(place: Place, url: str, done: list[Work]) -> tuple[list[int], int]:
    """As each call told; 0 where others carried it."""
    table = mc.Table(url, place.server.storage_options if place.server else None)
    check_rows("manifestcommit", table.dataset().to_table(columns=["id"]).column("id").to_pylist(), done)
    return [attempts for work in done for attempts in work.attempts], table.snapshot().version - 2  # the table, and its first row


def check_delta(place: Place, url: str, done: list[Work]) -> tuple[list[int], int]:
    """By the table's own log."""
    from deltalake import DeltaTable

    found = DeltaTable(url, storage_options=delta_options(place.server) if place.server else None).to_pyarrow_table(columns=["id"])
    check_rows("deltalake", found.column("id").to_pylist(), done)
    store = open_store(url, place.server.storage_options if place.server else None)
    attempts = []
    for version in range(1, sum(len(work.acknowledged) for work in done) + 1):
        actions = [json.loads(line) for line in store.get(f"_delta_log/{version:020}.json").splitlines()]
        attempts += [1 + action["commitInfo"]["operationMetrics"]["num_retries"] for action in actions if "commitInfo" in action]
    return attempts, len(attempts)


def check_iceberg(place: Place, url: str, done: list[Work]) -> tuple[list[int], int]:
    """It tells nothing of attempts."""
    found = iceberg(place, url).load_table(("bench", "t")).scan(selected_fields=("id",)).to_arrow()
    check_rows("pyiceberg", found.column("id").to_pylist(), done)
    return [], 0


def check_rows(name: str, found: list[int], done: list[Work]) -> None:
    """Ends the benchmark unless every acknowledged row is there once, and no row is there that nobody wrote."""
    counts = Counter(found)
    acknowledged = {row for work in done for row in work.acknowledged} | {-1}
    raised = {row for work in done for row in work.errors}
    lost = [row for row in acknowledged if not counts[row]]
    doubled = [row for row, count in counts.items() if count > 1]
    strange = counts.keys() - acknowledged - raised
    if lost or doubled or strange:
        raise SystemExit(f"{name}: of {len(acknowledged):,} rows {len(lost)} are lost, {len(doubled)} doubled, {len(strange)} from nowhere")


if __name__ == "__main__":
    sys.exit(main())
