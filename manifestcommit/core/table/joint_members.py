"""Checks what names other tables, in snapshots and prepared jobs: it is read as hostile. [OB16]
[MT11] [SE2]

Pure.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import msgspec

from ..schema.text import shown
from .object_names import is_table_id, parse_job_id
from .snapshot import PENDING_FORMAT_VERSION, HomeRecord, JointRecord, Pending, Snapshot

MAX_ROOT_CHARS = 4096
MOST_TABLES = 32  # of one joint commit [MT2]
_BEYOND = 2**31  # above any attempt, and any rank
_LONGEST = 2**63


class TogetherJob(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """One of the prepared jobs that are committed by one joint commit: the table's path and id, and
    the job. [MT11]"""

    root: str
    table_id: str
    job: str


def check_together(together: Sequence[TogetherJob], job: str) -> None:
    """Check the jobs that are prepared together, of which `job` is one; ValueError says which rule
    does not hold. [MT11]"""
    if not 2 <= len(together) <= MOST_TABLES:
        raise ValueError(f"a joint commit has 2 to {MOST_TABLES} tables, not {len(together)}")
    for each in together:
        _check_root(each.root)
        if parse_job_id(each.job).table_id != each.table_id:
            raise ValueError("it names a job and the id of another table")
    if len({each.table_id for each in together}) < len(together):
        raise ValueError("it names a table of its joint commit twice")
    if job not in {each.job for each in together}:
        raise ValueError("it is not one of the jobs that it is committed together with")


def check_joint(snapshot: Snapshot) -> None:
    """Check `pending`, `joint`, `homes`, `void` and `rank`; ValueError says which rule does not
    hold. [OB16]"""
    if (snapshot.pending is not None) != (snapshot.format_version == PENDING_FORMAT_VERSION):
        raise ValueError("format_version 2 is that of a pending version, and of no other")
    if not -_BEYOND <= snapshot.rank < _BEYOND:
        raise ValueError("rank is no signed integer of 32 bits")
    _check_void(snapshot)
    if snapshot.pending is not None:
        _check_pending(snapshot, snapshot.pending)
    _check_partners("joint", snapshot.joint, snapshot.table_id)
    _check_partners("homes", snapshot.homes, snapshot.table_id)
    for table_id, record in snapshot.joint.items():
        if parse_job_id(record.attempt).table_id != snapshot.table_id:
            raise ValueError(f"joint holds an attempt of another home for table {table_id}")
    if any(record.version > snapshot.version for record in snapshot.homes.values()):
        raise ValueError("homes names a member that is above this version")


def _check_void(snapshot: Snapshot) -> None:
    void = snapshot.void
    if any(lower >= higher for lower, higher in itertools.pairwise(void)):
        raise ValueError("void is not in ascending order")
    if void and not 1 < void[0] <= void[-1] < snapshot.version:
        raise ValueError("void names a version that cannot be one of an aborted joint commit")


def _check_pending(snapshot: Snapshot, pending: Pending) -> None:
    _check_root(pending.home)
    if not is_table_id(pending.table_id) or pending.table_id == snapshot.table_id:
        raise ValueError("a pending version names no other table as its home")
    if parse_job_id(pending.job).table_id != pending.table_id:
        raise ValueError("a pending version names a job that is not one of its home")
    if not 1 <= pending.attempt < _BEYOND:
        raise ValueError("a pending version has an impossible attempt")
    if not snapshot.expired <= pending.base < snapshot.version:
        raise ValueError("a pending version has a base that is not readable below it")
    between = snapshot.version - 1 - pending.base
    if between and snapshot.void[-between:] != tuple(range(pending.base + 1, snapshot.version)):
        raise ValueError("between a pending version and its base are versions that are not void")
    if pending.base in snapshot.void:
        raise ValueError("a pending version has a base that is void")


def _check_partners(
    member: str, partners: Mapping[str, JointRecord] | Mapping[str, HomeRecord], own: str
) -> None:
    for table_id, record in partners.items():
        if not is_table_id(table_id) or table_id == own:
            raise ValueError(f"{member} holds {shown(table_id)}, which is no other table's id")
        if not 1 < record.version < _LONGEST:
            raise ValueError(f"{member} holds an impossible version of table {table_id}")
        _check_root(record.root)


def _check_root(root: str) -> None:
    is_text = all(ord(char) >= 32 and char != "\x7f" for char in root)
    if not is_text or len(root) > MAX_ROOT_CHARS or "://" not in root:
        raise ValueError(f"{shown(root)} is no table path of a joint commit")
