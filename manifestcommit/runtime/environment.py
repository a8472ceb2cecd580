"""The environment of the engine, besides a store: time, randomness, waiting, and who runs it, one
value, so that a simulator can replace it; and its threads: independent work on several objects runs
concurrently, if the store takes time to answer or the objects are large, other work in its order in
the background.
"""

from __future__ import annotations

import contextlib
import functools
import getpass
import os
import random
import secrets
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import msgspec

from ..errors import StoreUnclearError, UsageError
from ..format.snapshot import PARTS, Author, limited, parts_of
from ..protocol.apply import Budgets
from ..store import Store
from ..version import WRITER

# How often a call starts over because others changed meanwhile what it had read.
STARTS = 20
AUTHOR_VARIABLE = "MANIFESTCOMMIT_AUTHOR"
_T = TypeVar("_T")
_U = TypeVar("_U")
_AT_ONCE = 8
_AT_ONCE_HERE = 4  # if the work itself takes time
MUCH_BYTES = 16 << 20  # of files: to read and write them is worth another thread

# How long a commit tries, how much a snapshot carries inline, and which files a row change holds
# in memory: values that are passed in, so that tests and simulators use small ones.


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How long a commit tries. attempts: versions contended for; lost_alone: of them lost before it
    asks for help where nobody else does; unclear_tries: puts of the same bytes. The pauses double
    up to the longest: between versions they let others pass, after unclear answers the store
    recover. [CM8] [CM19]"""

    attempts: int = 1000
    lost_alone: int = 2
    first_pause_s: float = 0.005
    longest_pause_s: float = 0.5
    unclear_tries: int = 10
    first_unclear_pause_s: float = 0.1
    longest_unclear_pause_s: float = 8.0


def pause(env: Env, tried: int, first_s: float, longest_s: float) -> None:
    """Wait before the next try, twice as long each time. tried: how often it was, from 0 on."""
    env.sleep(min(longest_s, first_s * 2.0 ** min(tried, 20)) * env.jitter())


def create(store: Store, name: str, data: bytes, env: Env) -> bool:
    """Put-if-absent of an object that is no version: whether this call created it. After an unclear
    answer the same bytes are put again, so that False may mean one's own. [LY8]"""
    limits = Limits()
    for tried in range(limits.unclear_tries):
        try:
            return store.put_if_absent(name, data)
        except StoreUnclearError:
            if tried + 1 == limits.unclear_tries:
                raise
            pause(env, tried, limits.first_unclear_pause_s, limits.longest_unclear_pause_s)
    raise AssertionError("unreachable")


class Tuning(msgspec.Struct, frozen=True, kw_only=True):
    """What one process is tuned by. read_once_bytes: of the files of a row change, which are read
    once and held in memory if they are no larger together, and else once to count and once to
    rewrite. [RC8]"""

    limits: Limits = Limits()
    budgets: Budgets = Budgets()
    read_once_bytes: int = 16 << 20


_process = Tuning()


def tuning() -> Tuning:
    """This process' tuning."""
    return _process


def tune(changed: Tuning) -> Tuning:
    """Set this process' tuning, for all of its threads; return the one before."""
    global _process
    before, _process = _process, changed
    return before


class Env:
    """Clock, randomness and waiting of a real process; simulators have their own."""

    def now_us(self) -> int:
        """Microseconds since the epoch."""
        return time.time_ns() // 1000

    def randomness(self, count: int) -> bytes:
        """Bytes that nobody else draws."""
        return secrets.token_bytes(count)

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    def jitter(self) -> float:
        """A number in [0, 1)."""
        return random.random()

    def author(self) -> Author:
        """Who runs this process, as far as it may be recorded."""
        return _author(os.environ.get(AUTHOR_VARIABLE))


@functools.cache
def _author(recorded: str | None) -> Author:
    """recorded: the parts that this process' environment lets be recorded: a switch that is
    misspelled is an error, not a name in a table for good. [OB15]"""
    try:
        parts = frozenset(PARTS) if recorded is None else parts_of(recorded)
    except ValueError as error:
        raise UsageError(f"the environment's {AUTHOR_VARIABLE}: {error}") from None
    return limited(_runner(), parts)


def _runner() -> Author:
    user = None  # of a container whose user has no name
    with contextlib.suppress(OSError, KeyError, ImportError):
        user = getpass.getuser()
    return Author(user=user, host=socket.gethostname(), program=_program(), software=WRITER)


def _program() -> str:
    """The module, script or command that runs: never its arguments, which may hold secrets."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is not None and spec.name:  # python -m
        return str(spec.name).removesuffix(".__main__")
    name = os.path.basename(sys.argv[0] if sys.argv else "")
    return "python" if name in ("", "-c", "-") else name


def map_concurrently(
    store: Store,
    work: Callable[[_T], _U],
    items: Sequence[_T],
    *,
    is_much: bool = False,
    limit: int = _AT_ONCE,
) -> list[_U]:
    """Apply the work to every item, in up to `limit` threads if that pays; results in order."""
    if len(items) < 2 or not (store.is_remote or is_much):
        return [work(item) for item in items]
    threads = min(limit if store.is_remote else _AT_ONCE_HERE, len(items))
    with ThreadPoolExecutor(threads, thread_name_prefix="manifestcommit-get") as pool:
        return list(pool.map(work, items))


def map_in_batches(
    store: Store, work: Callable[[_T], _U], items: Sequence[_T], *, few: int = _AT_ONCE
) -> Iterator[_U]:
    """Like `map_concurrently`; memory holds no more results than that at once."""
    for start in range(0, len(items), few):
        yield from map_concurrently(store, work, items[start : start + few])


def prefetch(
    work: Callable[[_T], _U], items: Iterable[_T], *, threads: int, limit: int
) -> Iterator[tuple[_T, Future[_U]]]:
    """Yield every item in order with its result, while threads work on the next ones."""
    pool = ThreadPoolExecutor(threads, thread_name_prefix="manifestcommit-ahead")
    waiting: deque[tuple[_T, Future[_U]]] = deque()
    try:
        for item in items:
            waiting.append((item, pool.submit(work, item)))
            if len(waiting) >= limit:
                yield waiting.popleft()
        while waiting:
            yield waiting.popleft()
    finally:
        pool.shutdown(cancel_futures=True)


def parallel_writers(size: int) -> int:
    """How many writers of so many bytes keep this machine busy: large ones encode in a thread."""
    cores = os.cpu_count() or 1
    return max(1, cores // 2 if size > MUCH_BYTES else cores)
