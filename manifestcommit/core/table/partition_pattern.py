"""Patterns of touched partitions, and whether two changes overlap. [CF3] [CF6]

A pattern maps partition field ids to values. An omitted id matches every value, so `{}` is the
whole table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from ..schema.wire import WireValue

PartitionPattern: TypeAlias = dict[int, WireValue]

# more patterns than this are recorded as "everything", which is safe and keeps the record small
MAX_TOUCHED = 10_000


def of_partition(partition_by: Sequence[int], values: Sequence[WireValue]) -> PartitionPattern:
    """The pattern of exactly one partition."""
    return dict(zip(partition_by, values, strict=True))


def dedupe(touched: Iterable[PartitionPattern]) -> tuple[PartitionPattern, ...]:
    """The same patterns without duplicates."""
    return tuple(by_content(touched).values())


def by_content(
    touched: Iterable[PartitionPattern],
) -> dict[tuple[tuple[int, WireValue], ...], PartitionPattern]:
    """The same patterns without duplicates, for collecting them in steps: equal ones have one key,
    in the order of arrival."""
    return {tuple(sorted(touch.items())): touch for touch in touched}


def bounded(touched: Iterable[PartitionPattern]) -> tuple[PartitionPattern, ...]:
    """The same patterns without duplicates; everything, if there are too many to record. [OB10]"""
    patterns = dedupe(touched)
    return ({},) if len(patterns) > MAX_TOUCHED or {} in patterns else patterns


def first_overlap(
    mine: Sequence[PartitionPattern], theirs: Sequence[PartitionPattern]
) -> PartitionPattern | None:
    """A pattern of `theirs` that shares a partition with one of `mine`; None: the two commute.
    [CF6]"""
    matcher = Matcher(mine)
    return next((touch for touch in theirs if matcher.meets(touch)), None)


class Matcher:
    """Tests quickly whether a partition, or another pattern, overlaps any of many patterns."""

    def __init__(self, patterns: Iterable[PartitionPattern]) -> None:
        self._by_ids: dict[tuple[int, ...], set[tuple[WireValue, ...]]] = {}
        for pattern in patterns:
            ids = tuple(sorted(pattern))
            self._by_ids.setdefault(ids, set()).add(_exact(pattern[field_id] for field_id in ids))

    @property
    def everything(self) -> bool:
        """Whether one pattern covers the whole table."""
        return () in self._by_ids

    def holds(self, partition: PartitionPattern) -> bool:
        """Whether the patterns cover this partition, given with a value for every id."""
        return any(
            _exact(partition[field_id] for field_id in ids) in values
            for ids, values in self._by_ids.items()
        )

    def meets(self, other: PartitionPattern) -> bool:
        """Whether some partition matches both one of these patterns and `other`."""
        for ids, values in self._by_ids.items():
            if all(field_id in other for field_id in ids):
                if _exact(other[field_id] for field_id in ids) in values:
                    return True
                continue
            common = [index for index, field_id in enumerate(ids) if field_id in other]
            wanted = _exact(other[ids[index]] for index in common)
            if any(tuple(value[index] for index in common) == wanted for value in values):
                return True
        return False


def _exact(values: Iterable[WireValue]) -> tuple[WireValue, ...]:
    # True == 1 in Python, but the wire keeps booleans and integers apart, and a field has one type.
    # So no type tag is needed.
    return tuple(values)
