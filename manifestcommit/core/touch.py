"""Which partitions a change touches, as patterns, and whether two changes touch the same. [CF3] [CF6]

A pattern maps partition field ids to values; an id that it leaves out stands for every value, so `{}` is the whole table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from .manifest import WireValue

Touch: TypeAlias = dict[int, WireValue]

MAX_TOUCHED = 10_000  # more patterns than this are recorded as "everything": safe, and the record stays small


def of_partition(partition_by: Sequence[int], values: Sequence[WireValue]) -> Touch:
    """The pattern of exactly one partition."""
    return dict(zip(partition_by, values, strict=True))


def once(touched: Iterable[Touch]) -> tuple[Touch, ...]:
    """The same patterns, each once."""
    return tuple(by_content(touched).values())


def by_content(touched: Iterable[Touch]) -> dict[tuple[tuple[int, WireValue], ...], Touch]:
    """The same patterns, each once, for who gathers them bit by bit: equal ones have one key, in the order in which they came."""
    return {tuple(sorted(touch.items())): touch for touch in touched}


def compact(touched: Iterable[Touch]) -> tuple[Touch, ...]:
    """The same patterns once each; everything, where there are too many to record. [OB10]"""
    patterns = once(touched)
    return ({},) if len(patterns) > MAX_TOUCHED or {} in patterns else patterns


def meet(mine: Sequence[Touch], theirs: Sequence[Touch]) -> Touch | None:
    """A pattern of `theirs` that shares a partition with one of `mine`, or None: the two commute. [CF6]"""
    matcher = Matcher(mine)
    return next((touch for touch in theirs if matcher.meets(touch)), None)


class Matcher:
    """Tells fast whether a partition, or another pattern, is met by any of many patterns."""

    def __init__(self, patterns: Iterable[Touch]) -> None:
        self._by_ids: dict[tuple[int, ...], set[tuple[WireValue, ...]]] = {}
        for pattern in patterns:
            ids = tuple(sorted(pattern))
            self._by_ids.setdefault(ids, set()).add(_exact(pattern[each] for each in ids))

    @property
    def everything(self) -> bool:
        """Whether one pattern stands for the whole table."""
        return () in self._by_ids

    def holds(self, partition: Touch) -> bool:
        """Whether the one partition, given with a value for every id, is among those meant."""
        return any(_exact(partition[each] for each in ids) in values for ids, values in self._by_ids.items())

    def meets(self, other: Touch) -> bool:
        """Whether some partition matches both a pattern of mine and `other`."""
        for ids, values in self._by_ids.items():
            if all(each in other for each in ids):
                if _exact(other[each] for each in ids) in values:
                    return True
                continue
            common = [index for index, each in enumerate(ids) if each in other]
            wanted = _exact(other[ids[index]] for index in common)
            if any(tuple(value[index] for index in common) == wanted for value in values):
                return True
        return False


def _exact(values: Iterable[WireValue]) -> tuple[WireValue, ...]:
    # True == 1 in Python; the wire keeps booleans and integers apart, and a field has one type, so a tag is not needed.
    return tuple(values)
