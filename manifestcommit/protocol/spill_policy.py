"""When inlined parts of a snapshot move to objects of their own, and when small objects are merged.
[CM12] [OB11]

Pure. `Budgets` keep a snapshot small, however large the table or long its history, and bound what
one commit rewrites. They are passed in (runtime.environment).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from ..format.entries import Entry, ManifestRef
from ..format.snapshot import RunRef, Snapshot

_Ref = TypeVar("_Ref", ManifestRef, RunRef)


class Budgets(msgspec.Struct, frozen=True, kw_only=True):
    """How much a snapshot carries inline, and how much one commit rewrites. [CM12]

    inline_entry_bytes: of JSON of the inlined entries, before zstd; fan_in: number of objects of
    one size class that are merged into one of the next; pile: a commit merges one more group for
    this many small manifests of a snapshot; max_merged_files: a commit never rewrites more entries
    than this, `compact` may; max_merged_rows: likewise for keys and jobs; manifest_entries: of one
    manifest that a commit writes, adopted_entries: that `adopt` writes; batch_groups, batch_bytes:
    what one commit of `compact` replaces, so that a crash costs at most their work; condemned:
    untracked files that one gc condemns by name, which snapshots carry until the files are known to
    be gone.
    """

    inline_entry_bytes: int = 256 * 1024
    inline_keys: int = 512
    inline_jobs: int = 512
    inline_removed_bytes: int = 64 * 1024
    fan_in: int = 8
    pile: int = 256
    max_merged_files: int = 65_536
    max_merged_rows: int = 65_536
    manifest_entries: int = 65_536
    adopted_entries: int = 16_384
    batch_groups: int = 64
    batch_bytes: int = 16 << 30
    condemned: int = 10_000


def entries_overflow(entries: Sequence[Entry], budgets: Budgets) -> bool:
    """Whether these entries are too many to inline. [CM12]"""
    return len(entries) > 0 and len(msgspec.json.encode(entries)) > budgets.inline_entry_bytes


def inlined_overflow(snapshot: Snapshot, budgets: Budgets) -> bool:
    """Whether the snapshot inlines too many entries: more than the budget, or more than a quarter
    of it from earlier commits. [CM12]

    Every commit reads and writes those again. So a commit of a hundred files takes one create, and
    most commits of one file are cheap.
    """
    size, allowed = len(msgspec.json.encode(snapshot.added)), budgets.inline_entry_bytes // 4 + 2
    if not allowed < size <= budgets.inline_entry_bytes:
        return size > allowed
    return (
        len(
            msgspec.json.encode(
                [entry for entry in snapshot.added if entry.added < snapshot.version]
            )
        )
        > allowed
    )


def removed_overflow(snapshot: Snapshot, budgets: Budgets) -> bool:
    """Whether the inlined bitmaps are too large. [CM12]"""
    return sum(len(text) for text in snapshot.removed.values()) > budgets.inline_removed_bytes


def manifests_to_merge(snapshot: Snapshot, budgets: Budgets) -> tuple[tuple[ManifestRef, ...], ...]:
    """Groups of `fan_in` manifests of one size class each: none if no class is full, one group, and
    more if many small manifests have accumulated. [CM12]

    A version may bring more manifests than one merge removes: those of many tasks, or of many jobs
    in one group commit.
    """
    sized = [(ref, ref.files) for ref in snapshot.manifests]
    fan_in, limit = budgets.fan_in, budgets.max_merged_files
    small = sum(files * fan_in <= limit for _, files in sized)
    allowed = min(fan_in, 1 + small // budgets.pile)
    groups: list[tuple[ManifestRef, ...]] = []
    left, files_left = sized, limit
    while len(groups) < allowed and (group := _full_tier(left, limit, fan_in)):
        files_left -= sum(ref.files for ref in group)
        if files_left < 0:
            break
        groups.append(group)
        taken = {ref.path for ref in group}
        left = [(ref, files) for ref, files in left if ref.path not in taken]
    return tuple(groups)


def runs_to_merge(runs: Sequence[RunRef], budgets: Budgets) -> tuple[RunRef, ...]:
    """Up to `fan_in` runs of one size class, or none. [CM12]"""
    return _full_tier([(run, run.rows) for run in runs], budgets.max_merged_rows, budgets.fan_in)


def _full_tier(sized: Sequence[tuple[_Ref, int]], limit: int, fan_in: int) -> tuple[_Ref, ...]:
    tiers: dict[int, list[tuple[_Ref, int]]] = {}
    for ref, size in sized:
        if size * fan_in <= limit:
            tiers.setdefault(_tier(size, fan_in), []).append((ref, size))
    full = [tier for tier, members in sorted(tiers.items()) if len(members) >= fan_in]
    if not full:
        return ()
    return tuple(ref for ref, _ in tiers[full[0]][:fan_in])


def _tier(size: int, fan_in: int) -> int:
    tier = 0
    while size >= fan_in:
        size //= fan_in
        tier += 1
    return tier
