"""Sets of very many names in eight bytes each: by Python's hashes of texts. [GC18] [RD10]

Two names that share a hash (one pair in 2⁶⁴) look like one; callers explain why that is harmless.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.int64]

_BUFFER = 1 << 20
# The hash of a data file's name of this project takes these bits from the folder, and all others
# from the file's own name: so the file is found in any folder. Own names are practically unique: 48
# bits are enough for them.
_FOLDER_BITS = 0xFFFF
_LEAST = 84  # characters of `<task>-<attempt>-<n>-v<birth>-<table>-<random>.parquet`
_TABLE_AT, _RANDOM_AT = -58, -41  # the dashes before the last two parts


def hashes(names: Iterable[str]) -> Hashes:
    """One hash for each name; also for one that UTF-8 cannot encode, which a file system may
    list."""
    return np.fromiter(map(hash, names), np.int64)


def _key(name: str) -> int:
    if len(name) < _LEAST or name[_RANDOM_AT] != "-" or name[_TABLE_AT] != "-":
        return hash(name)
    folder, _, own = name.rpartition("/")
    return hash(own) & ~_FOLDER_BITS | hash(folder) & _FOLDER_BITS


def _keys(names: Iterable[str]) -> Hashes:
    return np.fromiter(map(_key, names), np.int64)


class Names:
    """A set of names. It is sorted, and new names are merged only now and then, so that adding
    stays cheap."""

    def __init__(self) -> None:
        self._sorted: Hashes = np.array([], np.int64)
        self._new: list[Hashes] = []
        self._waiting = 0

    def __len__(self) -> int:
        self._settle()
        return len(self._sorted)

    def add(self, names: Iterable[str]) -> None:
        """Add names."""
        some = _keys(names)
        self._new.append(some)
        self._waiting += len(some)
        if self._waiting > max(_BUFFER, len(self._sorted) // 4):
            self._settle()

    def holds(self, names: Iterable[str]) -> npt.NDArray[np.bool_]:
        """For each name, whether it is in the set."""
        wanted = _keys(names)
        return self._first_from(wanted) == wanted if len(self) else np.zeros(len(wanted), np.bool_)

    def holds_elsewhere(self, name: str) -> bool:
        """Whether the file name of this data file of ours is in the set, in any folder. [GC5]"""
        if not len(self):
            return False
        wanted = _keys((name,)) & ~_FOLDER_BITS
        return bool((self._first_from(wanted) & ~_FOLDER_BITS == wanted)[0])

    def _first_from(self, wanted: Hashes) -> Hashes:
        """For each hash the lowest one of the set that is not below it; any other if there is
        none."""
        at = self._sorted.searchsorted(wanted)
        at[at == len(self._sorted)] = 0
        hashes: Hashes = self._sorted[at]
        return hashes

    def _settle(self) -> None:
        if self._new:
            # np.unique would build a hash table first
            ordered = np.sort(np.concatenate([self._sorted, *self._new]))
            first = np.ones(len(ordered), np.bool_)
            first[1:] = ordered[1:] != ordered[:-1]
            self._sorted = ordered[first]
            self._new, self._waiting = [], 0


class Repeats:
    """Finds names that may have been added twice."""

    def __init__(self) -> None:
        self._hashes: list[Hashes] = []

    def add(self, some: Hashes) -> None:
        """Add the hashes of further names."""
        self._hashes.append(some)

    def repeated(self) -> Hashes:
        """Hashes that were added more than once, in order."""
        ordered = np.sort(np.concatenate([np.array([], np.int64), *self._hashes]))
        return np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
