"""Neighbours put together up to a size: files for a task, row groups for a portion, manifests for one. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

_T = TypeVar("_T")


def filled(sized: Iterable[tuple[_T, int]], capacity: int) -> Iterator[list[_T]]:
    """Neighbours together, as many as fit; what is larger than the capacity is alone."""
    group: list[_T] = []
    total = 0
    for each, size in sized:
        if group and total + size > capacity:
            yield group
            group, total = [], 0
        group.append(each)
        total += size
    if group:
        yield group
