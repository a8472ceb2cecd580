"""Many writers of one table in a world where a request takes a time and nothing else does: the same counts on every machine.

    found = crowd(writers=50, seconds=10)
    print(found.commits_per_s, found.requests_per_commit)

Each writer opens the table, appends a made-up file, and begins anew, until the time is over. Threads hand a baton on, to whoever is to
wake first by a clock of their own; so the figures are of the protocol alone, as on a store far away with machines that have nothing
else to do.
"""

import hashlib
import heapq
import random
import secrets
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec

from manifestcommit.commits.commit_loop import commit, create_table
from manifestcommit.format import codec
from manifestcommit.format.change import Write
from manifestcommit.format.entries import Entry
from manifestcommit.format.fields import Field, Schema
from manifestcommit.format.snapshot import Author
from manifestcommit.log.table_context import TableContext
from manifestcommit.store import Store
from manifestcommit.store.local import MemoryStore

_Result = TypeVar("_Result")
_AT_ONCE = 16  # requests that a writer's own threads send side by side


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it. per_writer: commits of each in the time; versions: that it took; attempts: creates of each commit."""

    seconds: float
    per_writer: list[int]
    versions: int
    requests: int
    attempts: list[int]
    waits_s: list[float]

    @property
    def commits_per_s(self) -> float:
        return sum(self.per_writer) / self.seconds

    @property
    def requests_per_commit(self) -> float:
        return self.requests / len(self.attempts)

    @property
    def slowest_share(self) -> float:
        """What the slowest writer committed, as a part of an equal share."""
        return min(self.per_writer) * len(self.per_writer) / max(1, sum(self.per_writer))


class Clock:
    """Who runs next: whoever wakes first. Exactly one thread runs at a time."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._waiting: list[tuple[float, int, threading.Semaphore]] = []
        self._count = 0

    def sleep(self, seconds: float) -> None:
        """The caller goes on that much later; the others meanwhile."""
        turn = threading.Semaphore(0)
        self.join(seconds, turn)
        self.leave()
        turn.acquire()

    def join(self, seconds: float, turn: threading.Semaphore) -> None:
        self._count += 1
        heapq.heappush(self._waiting, (self.now_s + seconds, self._count, turn))

    def leave(self) -> None:
        """The next one's turn."""
        if self._waiting:
            at_s, _, turn = heapq.heappop(self._waiting)
            self.now_s = max(self.now_s, at_s)
            turn.release()


class Outside:
    """One writer's clock and dice."""

    def __init__(self, clock: Clock, seed: int) -> None:
        self._clock, self.random = clock, random.Random(seed)

    def now_us(self) -> int:
        return 1_700_000_000_000_000 + round(self._clock.now_s * 1e6)

    def randomness(self, count: int) -> bytes:
        return self.random.randbytes(count)

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(seconds)

    def jitter(self) -> float:
        return self.random.random()

    def author(self) -> Author:
        return Author()


class FarStore(Store):
    """Each request takes `request_s`, a third more or less, and has its effect in the middle."""

    is_remote = True
    identity = url = ""

    def __init__(self, inner: MemoryStore, clock: Clock, env: Outside, request_s: float) -> None:
        self._inner, self._clock, self._request_s = inner, clock, request_s
        self.env, self.url = env, inner.url
        self.requests = 0
        self._thread = threading.get_ident()
        self._beside = 0

    def get(self, name: str, start: int | None = None, end: int | None = None) -> bytes:
        return self._call(lambda: self._inner.get(name, start, end))

    def put(self, name: str, data: bytes) -> None:
        self._call(lambda: self._inner.put(name, data))

    def put_if_absent(self, name: str, data: bytes) -> bool:
        return self._call(lambda: self._inner.put_if_absent(name, data))

    def list(self, prefix: str, *, start_from: str = "") -> Iterator[Any]:
        return iter(self._call(lambda: list(self._inner.list(prefix, start_from=start_from))))

    def delete(self, names: Any) -> None:
        self._call(lambda: self._inner.delete(list(names)))

    def filesystem(self) -> tuple[Any, str]:
        return self._inner.filesystem()

    def _call(self, effect: Callable[[], _Result]) -> _Result:
        self.requests += 1
        if threading.get_ident() != self._thread:  # of a pool that its writer waits for
            self._beside += 1
            return effect()
        rounds, self._beside = -(-self._beside // _AT_ONCE), 0
        takes_s = self._request_s * (2 + self.env.random.random()) / 2.5
        self._clock.sleep(takes_s / 2 + rounds * self._request_s)
        try:
            return effect()
        finally:
            self._clock.sleep(takes_s / 2)


def crowd(*, writers: int, seconds: float = 10.0, request_s: float = 0.02, seed: int = 1, options: dict[str, Any] | None = None) -> Found:
    """What so many writers commit in so many seconds. options: for `commits.commit_loop.commit`."""
    inner = MemoryStore(f"crowd-{secrets.token_hex(8)}")
    clock = Clock()
    setup = TableContext(inner, Outside(clock, seed))
    create_table(setup, schema=Schema(fields=(Field(id=1, name="id", type="long"),)), partition_by=(), properties={})
    found: dict[str, list[Any]] = {"attempts": [], "waits": [], "requests": []}
    per_writer = [0] * writers

    def write(number: int, turn: threading.Semaphore) -> None:
        turn.acquire()
        try:
            store = FarStore(inner, clock, Outside(clock, 1000 * seed + number), request_s)
            while clock.now_s < seconds:
                began_s = clock.now_s
                session = TableContext(store)
                head = session.open()
                outcome = commit(session, head, _append(head.snapshot.schema, session.new_job(head), head.version), **(options or {}))
                assert outcome.committed, outcome
                per_writer[number] += clock.now_s <= seconds
                found["attempts"].append(outcome.attempts)
                found["waits"].append(clock.now_s - began_s)
            found["requests"].append(store.requests)
        finally:
            clock.leave()

    with ThreadPoolExecutor(writers) as pool:
        turns = [threading.Semaphore(0) for _ in range(writers)]
        for number, turn in enumerate(turns):
            clock.join(request_s * number / writers, turn)
        running = [pool.submit(write, number, turn) for number, turn in enumerate(turns)]
        clock.leave()
        for each in running:
            each.result()
    head = setup.open().snapshot
    assert head.totals.files == len(found["attempts"]), "each commit once"
    return Found(
        seconds=seconds, per_writer=per_writer, versions=head.version - 1, requests=sum(found["requests"]), attempts=found["attempts"],
        waits_s=found["waits"],
    )  # fmt: skip


def _append(schema: Schema | None, job: str, birth: int) -> Write:
    path = f"00000-{hashlib.sha256(job.encode()).hexdigest()[:16]}-0-{job}.parquet"
    entry = Entry(path=path, rows=1, bytes=1, digest=codec.digest(path.encode()), job=job)
    return Write(job=job, birth=birth, operation="append", schema=schema, partition_by=(), add=(entry,), touched=({},))
