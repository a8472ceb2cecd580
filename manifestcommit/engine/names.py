"""Very many names in eight bytes each: by the hashes that this interpreter has for texts. [GC18] [RD10]

Two names that share a hash (one pair in 2⁶⁴) look like one; whoever asks says why that does no harm. Not here: what a name means
(core.retention).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.int64]

_BUFFER = 1 << 20


def hashes(names: Iterable[str]) -> Hashes:
    """One for each name; also of one that UTF-8 cannot carry, as a file system may list it."""
    return np.fromiter(map(hash, names), np.int64)


class Names:
    """A set of names. Sorted, and merged with what is new only now and then, so that it stays cheap however it grows."""

    def __init__(self) -> None:
        self._sorted: Hashes = np.array([], np.int64)
        self._new: list[Hashes] = []
        self._waiting = 0

    def __len__(self) -> int:
        self._settle()
        return len(self._sorted)

    def add(self, names: Iterable[str]) -> None:
        """They are in the set from now on."""
        some = hashes(names)
        self._new.append(some)
        self._waiting += len(some)
        if self._waiting > max(_BUFFER, len(self._sorted) // 4):
            self._settle()

    def holds(self, names: Iterable[str]) -> npt.NDArray[np.bool_]:
        """Of each name, whether it is in the set."""
        self._settle()
        wanted = hashes(names)
        if not len(self._sorted):
            return np.zeros(len(wanted), np.bool_)
        at = self._sorted.searchsorted(wanted)
        at[at == len(self._sorted)] = 0
        found: npt.NDArray[np.bool_] = self._sorted[at] == wanted
        return found

    def _settle(self) -> None:
        if self._new:
            ordered = np.sort(np.concatenate([self._sorted, *self._new]))  # np.unique makes a hash table first
            first = np.ones(len(ordered), np.bool_)
            first[1:] = ordered[1:] != ordered[:-1]
            self._sorted = ordered[first]
            self._new, self._waiting = [], 0


class Repeats:
    """Which of many names may have been added twice."""

    def __init__(self) -> None:
        self._hashes: list[Hashes] = []

    def add(self, some: Hashes) -> None:
        """The hashes of further names."""
        self._hashes.append(some)

    def repeated(self) -> Hashes:
        """Hashes that were added more than once, in order."""
        ordered = np.sort(np.concatenate([np.array([], np.int64), *self._hashes]))
        return np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
