"""Runs independent work on several objects concurrently, if the store takes time to answer or the
objects are large."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

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


def parallel_writers(size: int) -> int:
    """How many writers keep this machine busy, if each writes rows of so many bytes of files: where
    they are many, each has a second thread, which encodes."""
    cores = os.cpu_count() or 1
    return max(1, cores // 2 if size > MUCH_BYTES else cores)
