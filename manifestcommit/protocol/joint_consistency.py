"""Consistent versions of several tables: each joint commit is in all of them or in none. [MT12]

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from ..format.snapshot import Snapshot


class Mismatch(msgspec.Struct, frozen=True, kw_only=True):
    """A table whose version does not fit the others.

    table_id: the table; home: the one that decided; version: the member's version; move: "up", the
    table must be read at `version`, which the home has decided; "down", below it, at its base,
    since the home was read before that was decided.
    """

    table_id: str
    home: str
    version: int
    move: Literal["up", "down"]


def find_mismatch(chosen: Mapping[str, Snapshot]) -> Mismatch | None:
    """The first table, in the order of ids, whose version does not fit; None: the versions are
    consistent. chosen: id of a table -> the version that is read of it, homes included. [MT12]"""
    pairs = [(home, table_id) for home in sorted(chosen) for table_id in sorted(chosen)]
    for home, table_id in pairs:
        if (decided := _decided(chosen, home, table_id)) > chosen[table_id].version:
            return Mismatch(table_id=table_id, home=home, version=decided, move="up")
    for home, table_id in pairs:
        record = chosen[table_id].homes.get(home)
        if record is not None and record.version > _decided(chosen, home, table_id):
            return Mismatch(table_id=table_id, home=home, version=record.version, move="down")
    return None


def lowest_allowed(chosen: Mapping[str, Snapshot], table_id: str) -> int:
    """The lowest version at which a table fits what its homes, as they are read, have decided."""
    return max((_decided(chosen, home, table_id) for home in chosen), default=0)


def partners_since(head: Snapshot, target: Snapshot) -> dict[str, str]:
    """The tables with which this one took part in a joint commit after `target`, which has an
    earlier state: id -> root. Of a member only its home, which knows the others. [MT14]"""
    found = {each: now.root for each, now in head.joint.items() if target.joint.get(each) != now}
    return found | {
        each: now.root for each, now in head.homes.items() if target.homes.get(each) != now
    }


def _decided(chosen: Mapping[str, Snapshot], home: str, table_id: str) -> int:
    """The last member of a table that a home, as it is read, has committed; 0: none."""
    record = chosen[home].joint.get(table_id)
    return 0 if record is None else record.version
