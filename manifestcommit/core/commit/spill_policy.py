"""When inlined parts of a snapshot move to objects of their own, and when small objects are merged.
[CM12] [OB11]

Pure. The budgets keep a snapshot small, however large the table or long its history. The fan-in
bounds what one commit rewrites.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from ..table.entries import Entry, ManifestRef
from ..table.snapshot import RunRef, Snapshot

INLINE_ENTRY_BYTES = 256 * 1024  # bytes of JSON of the inlined entries, before zstd
INLINE_KEYS = 512
INLINE_JOBS = 512
INLINE_REMOVED_BYTES = 64 * 1024
FAN_IN = 8  # number of objects of one size class that are merged into one of the next
PILE = 256  # a commit merges one more group for this many small manifests of a snapshot
MAX_MERGED_FILES = 65_536  # a commit never rewrites more entries than this; `compact` may
MAX_MERGED_ROWS = 65_536  # likewise for keys and jobs

_Ref = TypeVar("_Ref", ManifestRef, RunRef)


def entries_overflow(entries: Sequence[Entry]) -> bool:
    """Whether these entries are too many to inline. [CM12]"""
    return len(entries) > 0 and len(msgspec.json.encode(entries)) > INLINE_ENTRY_BYTES


def inlined_overflow(snapshot: Snapshot) -> bool:
    """Whether the snapshot inlines too many entries: more than the budget, or more than a quarter
    of it from earlier commits. [CM12]

    Every commit reads and writes those again. So a commit of a hundred files takes one create, and
    most commits of one file are cheap.
    """
    size, allowed = len(msgspec.json.encode(snapshot.added)), INLINE_ENTRY_BYTES // 4 + 2
    if not allowed < size <= INLINE_ENTRY_BYTES:
        return size > allowed
    return (
        len(
            msgspec.json.encode(
                [entry for entry in snapshot.added if entry.added < snapshot.version]
            )
        )
        > allowed
    )


def removed_overflow(snapshot: Snapshot) -> bool:
    """Whether the inlined bitmaps are too large. [CM12]"""
    return sum(len(text) for text in snapshot.removed.values()) > INLINE_REMOVED_BYTES


def manifests_to_merge(snapshot: Snapshot) -> tuple[tuple[ManifestRef, ...], ...]:
    """Groups of FAN_IN manifests of one size class each: none if no class is full, one group, and
    more if many small manifests have accumulated. [CM12]

    A version may bring more manifests than one merge removes: those of many tasks, or of many jobs
    in one group commit.
    """
    sized = [(ref, ref.files) for ref in snapshot.manifests]
    allowed = min(FAN_IN, 1 + sum(files * FAN_IN <= MAX_MERGED_FILES for _, files in sized) // PILE)
    groups: list[tuple[ManifestRef, ...]] = []
    left, budget = sized, MAX_MERGED_FILES
    while len(groups) < allowed and (group := _full_tier(left, MAX_MERGED_FILES)):
        budget -= sum(ref.files for ref in group)
        if budget < 0:
            break
        groups.append(group)
        taken = {ref.path for ref in group}
        left = [(ref, files) for ref, files in left if ref.path not in taken]
    return tuple(groups)


def runs_to_merge(runs: Sequence[RunRef]) -> tuple[RunRef, ...]:
    """Up to FAN_IN runs of one size class, or none. [CM12]"""
    return _full_tier([(run, run.rows) for run in runs], MAX_MERGED_ROWS)


def _full_tier(sized: Sequence[tuple[_Ref, int]], limit: int) -> tuple[_Ref, ...]:
    tiers: dict[int, list[tuple[_Ref, int]]] = {}
    for ref, size in sized:
        if size * FAN_IN <= limit:
            tiers.setdefault(_tier(size), []).append((ref, size))
    full = [tier for tier, members in sorted(tiers.items()) if len(members) >= FAN_IN]
    if not full:
        return ()
    return tuple(ref for ref, _ in tiers[full[0]][:FAN_IN])


def _tier(size: int) -> int:
    tier = 0
    while size >= FAN_IN:
        size //= FAN_IN
        tier += 1
    return tier
