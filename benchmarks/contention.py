"""N writers append to ONE table on S3 at the same time, beside deltalake, whose commits are conditional creates as ours are.

Each writer repeats the public call for a given time: a Parquet file of one row, one commit. 50 writers are 5 processes of 10 threads,
which stay for all rounds, so imports and first connections are not measured. `commits_per_s` counts what was acknowledged in
the time; what was under way at its end is finished, and checked.

- `attempts_mean`, `attempts_max`: creates sent per commit. Ours from `Outcome.attempts`; deltalake writes `num_retries` into its log.
- `lost_share`: the part of all creates that found their name taken. `failed`: calls that raised.
- `slowest_share`: what the slowest writer committed, as a part of an equal share. 0: it committed nothing in the time.
- `client_cpu_ms`: CPU of the writers per commit; the server's is not in it.

The floor is a PUT with `If-None-Match: *` of a kilobyte under a name of its own, unsigned, by the same number of writers: what the
server can do if nobody is ever in the way. Commits of one table form a chain, each of which names the one before, so no
protocol of this kind can reach the floor of many writers; the floor of one writer is the better measure for all of them.

Every round ends with a check that the table holds the row of every acknowledged commit exactly once, and nothing but rows of those and
of calls that raised.

What these figures do not say: server and writers share the machine's cores and its loopback. Where a round trip takes milliseconds
and the CPU is idle meanwhile, a commit takes as long as its requests one after another, and more writers get in each other's way sooner.
"""

from __future__ import annotations

import http.client
import json
import multiprocessing as mp
import secrets
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import BrokenBarrierError
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pyarrow as pa

import manifestcommit as mc
from benchmarks.measure import Contestant, Figures, interleave, parser, report
from benchmarks.s3 import S3Server, delta_options, s3_server, versions

if TYPE_CHECKING:
    from multiprocessing.synchronize import Barrier

# Commits one row with this id, in this process; the creates that it sent, where the call tells.
Commit = Callable[[S3Server, str, int], int | None]

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
    options.add_argument("--seconds", type=float, help="how long the writers of one round go on (default: 10, quick: 2)")
    chosen = options.parse_args()
    used = versions("deltalake", "s3fs")
    with s3_server() as server:
        bucket = server.bucket()
        for writers in chosen.writers or ([1, 4] if chosen.quick else [1, 4, 16, 50]):
            seconds = chosen.seconds or (2.0 if chosen.quick else 10.0)
            compare(server, bucket, writers=writers, seconds=seconds, rounds=int(chosen.rounds or (1 if chosen.quick else 3)), used=used)
    return 0


def compare(server: S3Server, bucket: str, *, writers: int, seconds: float, rounds: int, used: str) -> None:
    """Rounds for one number of writers."""
    contest = Contest(server, bucket, writers=writers, seconds=seconds)
    with contest.pool:
        contestants = [
            contest.contestant("manifestcommit", commit_ours, check_ours),
            contest.contestant("deltalake", commit_delta, check_delta),
            contest.contestant("distinct names (floor)", create_distinct, None),
        ]
        interleave(contestants, rounds=rounds)
    case = {"writers": writers, "processes": contest.processes, "seconds": seconds, "versions": used}
    report("contention", case, contestants, figures=FIGURES)


class Contest:
    """A fixed number of writers in processes that stay, and what they did in the round that is on."""

    def __init__(self, server: S3Server, bucket: str, *, writers: int, seconds: float) -> None:
        self._server, self._bucket, self._writers, self._seconds = server, bucket, writers, seconds
        self.processes = max(n for n in range(1, MOST_PROCESSES + 1) if writers % n == 0 and n * n <= writers)
        context = mp.get_context("spawn")
        self.pool = ProcessPoolExecutor(self.processes, context, _meet_at, (context.Barrier(self.processes),))
        self._url = ""
        self._work: list[Work] = []

    def contestant(self, name: str, commit: Commit, check: Callable[[S3Server, str, list[Work]], list[int]] | None) -> Contestant:
        """One side. check: the creates that every commit sent, if the call did not tell; raises where the table is not what was told."""

        def prepare(number: int) -> None:
            if check is None:
                self._url = anyone_may_write(self._server)
            else:
                self._url = f"s3://{self._bucket}/{name}-{self._writers}-{number}-{secrets.token_hex(4)}"
                commit(self._server, self._url, -1)  # who creates the table is another race

        def run(number: int) -> Figures:
            found = list(self.pool.map(_write, *zip(*self._orders(commit), strict=True)))
            self._work = [work for works, _ in found for work in works]
            if check is not None:
                attempts = check(self._server, self._url, self._work)
            else:
                attempts = [1] * sum(len(work.acknowledged) for work in self._work)
            return self._figures(attempts, cpu_s=sum(cpu for _, cpu in found))

        return Contestant(name=name, run=run, before=prepare)

    def _orders(self, commit: Commit) -> Iterable[tuple[Commit, S3Server, str, range, float]]:
        threads = self._writers // self.processes
        for process in range(self.processes):
            yield commit, self._server, self._url, range(process * threads, (process + 1) * threads), self._seconds

    def _figures(self, attempts: list[int], *, cpu_s: float) -> Figures:
        in_time = sum(work.in_time for work in self._work)
        errors = [error for work in self._work for error in work.errors.values()]
        for error, count in Counter(errors).most_common(3):
            print(f"    {count} x {error}", file=sys.stderr, flush=True)
        commits, creates = len(attempts), sum(attempts)  # those that were under way at the end among them
        if not commits:
            raise SystemExit("nothing was committed: nothing to compare")
        return {
            "commits_per_s": in_time / self._seconds,
            "attempts_mean": creates / commits,
            "attempts_max": max(attempts),
            "lost_share": 1 - commits / creates,
            "failed": len(errors),
            "slowest_share": min(work.in_time for work in self._work) * self._writers / max(1, in_time),
            "client_cpu_ms": cpu_s * 1000 / commits,
        }


# --- in the processes of the writers --------------------------------------------------------------------------------------

_barrier: Barrier


def _meet_at(barrier: Barrier) -> None:
    global _barrier
    _barrier = barrier


def _write(commit: Commit, server: S3Server, url: str, writers: range, seconds: float) -> tuple[list[Work], float]:
    """What the writers of this process did, and the CPU that it took."""
    with ThreadPoolExecutor(len(writers)) as threads:
        try:
            _barrier.wait(timeout=300)  # one order per process: who has come waits for the others
        except BrokenBarrierError:
            raise RuntimeError("the writers' processes did not start together") from None
        cpu, end = time.process_time(), time.monotonic() + seconds
        return list(threads.map(lambda writer: _repeat(commit, server, url, writer, end), writers)), time.process_time() - cpu


def _repeat(commit: Commit, server: S3Server, url: str, writer: int, end: float) -> Work:
    work = Work()
    for row in range(writer * IDS_PER_WRITER, (writer + 1) * IDS_PER_WRITER):
        if time.monotonic() >= end:
            break
        try:
            attempts = commit(server, url, row)
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


def commit_ours(server: S3Server, url: str, row: int) -> int:
    """One append by manifestcommit; the creates that it sent."""
    return mc.write(one_row(row), url, storage_options=server.storage_options).attempts


def commit_delta(server: S3Server, url: str, row: int) -> None:
    """One append by deltalake, which is allowed as many attempts as we are."""
    from deltalake import CommitProperties, write_deltalake

    retries = CommitProperties(max_commit_retries=1000)
    write_deltalake(url, one_row(row), mode="append", storage_options=delta_options(server), commit_properties=retries)


def create_distinct(server: S3Server, url: str, row: int) -> int:
    """One conditional create that nobody contends for, with as little client as possible."""
    connection = _connections.get(row // IDS_PER_WRITER)
    if connection is None:
        parts = urlsplit(server.endpoint)
        connection = _connections[row // IDS_PER_WRITER] = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=30)
    connection.request("PUT", f"/{url}/{row}", body=b"x" * 1024, headers={"If-None-Match": "*"})
    with connection.getresponse() as answer:
        answer.read()
        if answer.status != 200:
            raise OSError(f"HTTP {answer.status}")
    return 1


_connections: dict[int, http.client.HTTPConnection] = {}  # by writer


# --- before and after a round ---------------------------------------------------------------------------------------------


def anyone_may_write(server: S3Server) -> str:
    """A new bucket into which requests without a signature may write: the floor is not the speed of a client's signing."""
    bucket = server.bucket()
    allowed = {"Effect": "Allow", "Principal": "*", "Action": ["s3:PutObject"], "Resource": f"arn:aws:s3:::{bucket}/*"}
    server.call("put_bucket_policy", Bucket=bucket, Policy=json.dumps({"Version": "2012-10-17", "Statement": [allowed]}))
    return bucket


def check_ours(server: S3Server, url: str, done: list[Work]) -> list[int]:
    """The creates of every acknowledged commit, once the table is what was told."""
    found = mc.Table(url, server.storage_options).dataset().to_table(columns=["id"])
    check_rows("manifestcommit", found.column("id").to_pylist(), done)
    return [attempts for work in done for attempts in work.attempts]


def check_delta(server: S3Server, url: str, done: list[Work]) -> list[int]:
    """The creates of every commit by the table's own log, once the table is what was told."""
    from deltalake import DeltaTable

    found = DeltaTable(url, storage_options=delta_options(server)).to_pyarrow_table(columns=["id"])
    check_rows("deltalake", found.column("id").to_pylist(), done)
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    attempts = []
    for version in range(1, sum(len(work.acknowledged) for work in done) + 1):
        body = server.call("get_object", Bucket=bucket, Key=f"{prefix}/_delta_log/{version:020}.json")["Body"]
        actions = [json.loads(line) for line in body.splitlines()]
        attempts += [1 + action["commitInfo"]["operationMetrics"]["num_retries"] for action in actions if "commitInfo" in action]
    return attempts


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
