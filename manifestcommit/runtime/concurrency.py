"""Runs independent work on several objects concurrently, if the store takes time to answer or the
objects are large, and work in its order in the background."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from ..store.base import Store, is_remote

_T = TypeVar("_T")
_U = TypeVar("_U")

_AT_ONCE = 8
_AT_ONCE_HERE = 4  # if the work itself takes time
MUCH_BYTES = 16 << 20  # of files: to read and write them is worth another thread


def map_concurrently(
    store: Store,
    work: Callable[[_T], _U],
    items: Sequence[_T],
    *,
    is_much: bool = False,
    limit: int = _AT_ONCE,
) -> list[_U]:
    """Apply the work to every item, results in the items' order: in several threads if the store is
    behind a network or it is much work.

    limit: concurrent requests at most.
    """
    if len(items) < 2 or not (is_remote(store) or is_much):
        return [work(item) for item in items]
    threads = min(limit if is_remote(store) else _AT_ONCE_HERE, len(items))
    with ThreadPoolExecutor(threads, thread_name_prefix="manifestcommit-get") as pool:
        return list(pool.map(work, items))


def map_in_batches(
    store: Store, work: Callable[[_T], _U], items: Sequence[_T], *, few: int = _AT_ONCE
) -> Iterator[_U]:
    """Like `map_concurrently` for any number of items: memory holds no more results than that,
    besides what the caller keeps."""
    for start in range(0, len(items), few):
        yield from map_concurrently(store, work, items[start : start + few])


def prefetch(
    work: Callable[[_T], _U], items: Iterable[_T], *, threads: int, limit: int
) -> Iterator[tuple[_T, Future[_U]]]:
    """Yield every item in order with its result, or raise its error, while threads work on the next
    ones; at most `limit` are in progress or wait for their turn."""
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


class BackgroundWorker:
    """Does work in the order of its calls, in one thread beside the caller. The caller may prepare
    one piece of work while the one before is done."""

    def __init__(self, *, is_on: bool = True) -> None:
        """is_on: otherwise the caller does the work itself, before `do` returns."""
        self._pool = (
            ThreadPoolExecutor(1, thread_name_prefix="manifestcommit-background") if is_on else None
        )
        self._last: Future[Any] | None = None

    def do(self, work: Callable[..., Any], *args: Any) -> None:
        """Begin this work once the work before it is done, whose error it raises."""
        if self._pool is None:
            work(*args)
            return
        self.wait()
        self._last = self._pool.submit(work, *args)

    def wait(self) -> None:
        """Return when all work is done, or raise its error, once."""
        last = self._last
        try:
            if last is not None:
                self._finish()
                last.result()
        finally:
            del last  # its error refers to this frame: both would keep rows and files of the caller

    def end(self) -> None:
        """Return when no work is under way any more. An error that was not raised yet is lost."""
        self._finish()
        if self._pool is not None:
            self._pool.shutdown()

    def _finish(self) -> None:
        """An interrupt here leaves the work to be waited for: of a join that one interrupts, Python
        3.11 takes the thread for stopped."""
        if self._last is not None:
            self._last.exception()
        self._last = None


class SideBySide:
    """Does work in threads, whatever it waits for; the caller takes all results at once."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None
        self._under_way: deque[Future[Any]] = deque()

    def do(self, work: Callable[[], Any]) -> None:
        """Begin this work; where too much is under way, wait first."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, "manifestcommit-side")
        while len(self._under_way) >= self._threads:
            self._under_way.popleft().result()
        self._under_way.append(self._pool.submit(work))

    def wait(self) -> None:
        """Return when all work is done, or raise its first error."""
        while self._under_way:
            self._under_way.popleft().result()

    def end(self) -> None:
        """Return when no work is under way any more. An error that was not raised yet is lost."""
        if self._pool is not None:
            self._pool.shutdown()
        self._under_way.clear()
        self._pool = None


def parallel_writers(size: int) -> int:
    """How many writers keep this machine busy, if each writes rows of so many bytes of files: where
    they are many, each has a second thread, which encodes."""
    cores = os.cpu_count() or 1
    return max(1, cores // 2 if size > MUCH_BYTES else cores)
