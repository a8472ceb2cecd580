"""Sets of very many names in eight bytes each: by Python's hashes of texts. [GC18] [RD10]

Two names that share a hash (one pair in 2⁶⁴) look like one; callers explain why that is harmless.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

Hashes: TypeAlias = "array[int]"

_BUFFER = 1 << 20
# The hash of a data file's name of this project takes these bits from the folder, and all others
# from the file's own name: so the file is found in any folder. Own names are practically unique: 48
# bits are enough for them.
_FOLDER_BITS = 0xFFFF
_LEAST = 84  # characters of `<task>-<attempt>-<n>-v<birth>-<table>-<random>.parquet`
_TABLE_AT, _RANDOM_AT = -58, -41  # the dashes before the last two parts


def hashes(names: Iterable[str]) -> Hashes:
    """A hash for each name; also for one that UTF-8 cannot encode, as file systems may have."""
    return array("q", map(hash, names))


def in_arrow(numbers: Hashes) -> pa.Array:
    """The same numbers, whose memory is shared."""
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])


def out_of_arrow(numbers: pa.Array) -> Hashes:
    """The same numbers, none of them null."""
    found = array("q")
    at = numbers.offset * found.itemsize
    found.frombytes(memoryview(numbers.buffers()[1])[at : at + len(numbers) * found.itemsize])
    return found


def _key(name: str) -> int:
    if len(name) < _LEAST or name[_RANDOM_AT] != "-" or name[_TABLE_AT] != "-":
        return hash(name)
    folder, _, own = name.rpartition("/")
    return hash(own) & ~_FOLDER_BITS | hash(folder) & _FOLDER_BITS


class Names:
    """A set of names, sorted; new ones are merged only now and then, to stay cheap."""

    def __init__(self) -> None:
        self._sorted, self._new = array("q"), array("q")

    def __len__(self) -> int:
        self._settle()
        return len(self._sorted)

    def add(self, names: Iterable[str]) -> None:
        """Add names."""
        self._new.extend(map(_key, names))
        if len(self._new) > max(_BUFFER, len(self._sorted) // 4):
            self._settle()

    def holds(self, names: Iterable[str]) -> list[bool]:
        """For each name, whether it is in the set."""
        self._settle()
        ordered, count = self._sorted, len(self._sorted)
        return [
            (at := bisect_left(ordered, key)) < count and ordered[at] == key
            for key in map(_key, names)
        ]

    def holds_elsewhere(self, name: str) -> bool:
        """Whether the file name of this data file of ours is in the set, in any folder. [GC5]"""
        self._settle()
        wanted = _key(name) & ~_FOLDER_BITS
        at = bisect_left(self._sorted, wanted)
        return at < len(self._sorted) and self._sorted[at] & ~_FOLDER_BITS == wanted

    def _settle(self) -> None:
        if self._new:
            self._sorted.extend(self._new)
            ordered = _sorted(self._sorted)
            others = ordered[1:].filter(pc.not_equal(ordered[1:], ordered[:-1]))
            self._sorted = out_of_arrow(pa.concat_arrays([ordered[:1], others]))
            self._new = array("q")


class Repeats:
    """Finds names that may have been added twice."""

    def __init__(self) -> None:
        self._hashes = array("q")

    def add(self, some: Hashes) -> None:
        """Add the hashes of further names."""
        self._hashes.extend(some)

    def repeated(self) -> set[int]:
        """Hashes that were added more than once."""
        ordered = _sorted(self._hashes)
        return set(ordered[1:].filter(pc.equal(ordered[1:], ordered[:-1])).to_pylist())


def _sorted(numbers: Hashes) -> pa.Array:
    every = in_arrow(numbers)
    return every.take(pc.array_sort_indices(every))
