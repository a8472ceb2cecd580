"""The order of the tables of a joint commit: the first one decides. [MT2]

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ..format.snapshot import MOST_TABLES


class Participant(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """A table that takes part, in the order in which tables decide. [MT2]"""

    rank: int
    table_id: str


def in_order(participants: Iterable[Participant]) -> list[Participant]:
    """The tables of a joint commit, its home first; ValueError where they cannot form one. [MT2]

    The order follows from the tables alone. So of two tables that wait for each other's decision,
    one is the home of both, and no two coordinators that died can block each other's tables.
    """
    ordered = sorted(participants)
    ids = [each.table_id for each in ordered]
    if not 2 <= len(ids) <= MOST_TABLES:
        raise ValueError(f"a joint commit has 2 to {MOST_TABLES} tables, not {len(ids)}")
    for table_id in ids:
        if ids.count(table_id) > 1:
            raise ValueError(f"table {table_id} takes part twice")
    return ordered
