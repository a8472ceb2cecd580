"""Work on several objects that need not wait for one another: where a store's answers take their time, or the objects are large."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from ..store import Store, is_remote

_T = TypeVar("_T")
_U = TypeVar("_U")

_AT_ONCE = 8
_AT_ONCE_HERE = 4  # where it is the work that takes time


def at_once(store: Store, work: Callable[[_T], _U], items: Sequence[_T], *, is_much: bool = False, most: int = _AT_ONCE) -> list[_U]:
    """The work done on each item, results in the items' order: by several threads if the store is behind a network or it is much work.

    most: requests that are under way together.
    """
    if len(items) < 2 or not (is_remote(store) or is_much):
        return [work(item) for item in items]
    threads = min(most if is_remote(store) else _AT_ONCE_HERE, len(items))
    with ThreadPoolExecutor(threads, thread_name_prefix="manifestcommit-get") as pool:
        return list(pool.map(work, items))


def a_few_at_once(store: Store, work: Callable[[_T], _U], items: Sequence[_T], *, few: int = _AT_ONCE) -> Iterator[_U]:
    """The same for however many items: no more results than that are in memory beside what the caller keeps."""
    for start in range(0, len(items), few):
        yield from at_once(store, work, items[start : start + few])


def ahead(work: Callable[[_T], _U], items: Iterable[_T], *, threads: int, most: int) -> Iterator[tuple[_T, Future[_U]]]:
    """Each item in order with its result, or error, while the next ones are worked on; up to so many are begun or wait for their turn."""
    pool = ThreadPoolExecutor(threads, thread_name_prefix="manifestcommit-ahead")
    waiting: deque[tuple[_T, Future[_U]]] = deque()
    try:
        for item in items:
            waiting.append((item, pool.submit(work, item)))
            if len(waiting) >= most:
                yield waiting.popleft()
        while waiting:
            yield waiting.popleft()
    finally:
        pool.shutdown(cancel_futures=True)
