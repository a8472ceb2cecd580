"""Work on several objects that need not wait for one another: where a store's answers take their time, or the objects are large."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ..store import Store, is_remote

_T = TypeVar("_T")
_U = TypeVar("_U")

_AT_ONCE = 8
_AT_ONCE_HERE = 4  # where it is the work that takes time


def at_once(store: Store, work: Callable[[_T], _U], items: Sequence[_T], *, is_much: bool = False) -> list[_U]:
    """The work done on each item, results in the items' order: by several threads if the store is behind a network or it is much work."""
    if len(items) < 2 or not (is_remote(store) or is_much):
        return [work(item) for item in items]
    threads = min(_AT_ONCE if is_remote(store) else _AT_ONCE_HERE, len(items))
    with ThreadPoolExecutor(threads, thread_name_prefix="manifestcommit-get") as pool:
        return list(pool.map(work, items))


def a_few_at_once(store: Store, work: Callable[[_T], _U], items: Sequence[_T], *, few: int = _AT_ONCE) -> Iterator[_U]:
    """The same for however many items: no more results than that are in memory beside what the caller keeps."""
    for start in range(0, len(items), few):
        yield from at_once(store, work, items[start : start + few])
