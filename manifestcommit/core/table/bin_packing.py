"""Packs neighbours into bins of a given capacity: files of a read into tasks, row groups into
portions, manifests into one manifest.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

_T = TypeVar("_T")


def pack_bins(sized: Iterable[tuple[_T, int]], capacity: int) -> Iterator[list[_T]]:
    """Pack neighbours together, as many as fit. An item larger than the capacity gets a bin of its
    own."""
    group: list[_T] = []
    total = 0
    for item, size in sized:
        if group and total + size > capacity:
            yield group
            group, total = [], 0
        group.append(item)
        total += size
    if group:
        yield group
