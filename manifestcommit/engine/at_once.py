"""Work on several objects that need not wait for one another: where a store's answers take their time, or the objects are large."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ..store import Store

_T = TypeVar("_T")
_U = TypeVar("_U")

_AT_ONCE = 8
_AT_ONCE_HERE = 4  # where it is the work that takes time


def at_once(store: Store, work: Callable[[_T], _U], items: Sequence[_T], *, is_much: bool = False) -> list[_U]:
    """The work done on each item, results in the items' order: by several threads if the store is behind a network or it is much work."""
    is_remote = getattr(store, "is_remote", False)
    if len(items) < 2 or not (is_remote or is_much):
        return [work(item) for item in items]
    threads = min(_AT_ONCE if is_remote else _AT_ONCE_HERE, len(items))
    with ThreadPoolExecutor(threads, thread_name_prefix="manifestcommit-get") as pool:
        return list(pool.map(work, items))
