"""Which small files, and which small manifests, are rewritten together: a plan, each part of it with its reason. [GC16] [GC11]

Pure. Not here: reading and writing their rows (engine.compact, spark.rewrite), the commit that replaces them (engine.commit).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

import msgspec

from .manifest import MAX_SOURCES, ManifestRef, SourceRange, WireValue
from .packing import filled

DEFAULT_MAX_BYTES = 64 << 30  # of files that one run rewrites, unless it is told otherwise
BATCH_GROUPS = 64  # groups that one commit replaces, so that a crash costs no more work than theirs
BATCH_BYTES = 16 << 30
MANIFEST_FILES = 65_536  # entries of one merged manifest
MAX_MANIFEST_FILES = 16 * MANIFEST_FILES  # entries of manifests that one run rewrites


class SmallFile(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the plan must know of a live file."""

    path: str
    partition: tuple[WireValue, ...] = ()
    rows: int
    bytes: int
    sources: tuple[SourceRange, ...] = ()


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Files of one partition that become one. sources: of all their rows; left: to the next runs, beyond what one does. [GC16]"""

    partition: tuple[WireValue, ...]
    paths: tuple[str, ...]
    rows: int
    bytes: int
    sources: tuple[SourceRange, ...] = ()
    reason: str
    left: bool = False


def is_small(bytes: int, target: int) -> bool:
    """Whether a file is worth being rewritten with others: it has less than three quarters of the target's bytes. [GC16]"""
    return bytes <= largest_small(target)


def largest_small(target: int) -> int:
    """The most bytes that are less than three quarters of the target. [GC16]"""
    return (3 * target - 1) // 4


def plan_files(files: Iterable[SmallFile], *, target: int, max_bytes: int) -> Iterator[Group]:
    """Two or more small files of one partition at a time, in the order in which they are given, up to the target together. [GC16]

    files: those of a partition one behind the other; of them no more are in memory than groups that have begun hold. Files that name
    their ranges and files that do not are never mixed: the new file could not say what it holds. A run rewrites no more than
    `max_bytes`, but one group at least; the rest is left.
    """
    small = (file for file in files if is_small(file.bytes, target))
    total, is_first, is_full = 0, True, False
    for _, of_partition in groupby(small, key=lambda file: file.partition):
        for members in _packed(of_partition, target):
            if len(members) < 2:
                continue
            group = _group(members, target)
            is_full = is_full or (not is_first and total + group.bytes > max_bytes)
            total, is_first = total + group.bytes, False
            yield msgspec.structs.replace(group, left=True) if is_full else group


def _group(members: Sequence[SmallFile], target: int) -> Group:
    return Group(
        partition=members[0].partition,
        paths=tuple(each.path for each in members),
        rows=sum(each.rows for each in members),
        bytes=sum(each.bytes for each in members),
        sources=unite_ranges(found for each in members for found in each.sources),
        reason=f"{len(members)} files below three quarters of {target:,} bytes become one",
    )


def batches(groups: Sequence[Group]) -> Iterator[tuple[Group, ...]]:
    """The groups by commits, in their order: what is committed stays done whatever becomes of the rest. [GC11]"""
    batch: list[Group] = []
    for group in groups:
        if batch and (len(batch) >= BATCH_GROUPS or sum(each.bytes for each in batch) + group.bytes > BATCH_BYTES):
            yield tuple(batch)
            batch = []
        batch.append(group)
    if batch:
        yield tuple(batch)


def unite_ranges(ranges: Iterable[SourceRange]) -> tuple[SourceRange, ...]:
    """The ranges from which the rows of several files come, and no others: those that touch or overlap are one. [OB8]

    Texts have no order, so that only equal ranges of them are one.
    """
    numbers: dict[str, list[SourceRange]] = {}
    texts: dict[tuple[str, int | str | None, int | str], SourceRange] = {}
    for each in ranges:
        # What a later release says of one file's range need not be true of a wider one.
        plain = SourceRange(source=each.source, start=each.start, end=each.end)
        if isinstance(each.end, int) and not isinstance(each.start, str):
            numbers.setdefault(each.source, []).append(plain)
        else:
            texts[each.source, each.start, each.end] = plain
    return (*(joined for found in numbers.values() for joined in _joined(found)), *texts.values())


def plan_manifests(manifests: Sequence[ManifestRef], removed: Mapping[str, int]) -> tuple[tuple[ManifestRef, ...], ...]:
    """Manifests that are rewritten as one, neighbours by their paths: small ones, and those that lost a quarter of their rows. [GC11]

    removed: path -> bitmap. One whose removals alone are the reason may stand by itself.
    """
    live = {ref.path: ref.files - removed.get(ref.path, 0).bit_count() for ref in manifests}
    thinned = {ref.path for ref in manifests if 4 * live[ref.path] <= 3 * ref.files}
    wanted = [ref for ref in manifests if ref.path in thinned or is_small(live[ref.path], MANIFEST_FILES)]
    ordered = sorted(wanted, key=lambda ref: (ref.first_path, ref.path))
    groups = filled(((ref, live[ref.path]) for ref in ordered), MANIFEST_FILES)
    return tuple(tuple(group) for group in groups if len(group) > 1 or group[0].path in thinned)


def _packed(files: Iterable[SmallFile], target: int) -> Iterator[list[SmallFile]]:
    """The files of one partition: neighbours within the target and, where they name ranges, within those that one file may name.

    Lists come in the order of their first files: one that is full waits for the other kind's, where that began before it.
    """
    begun: dict[bool, list[tuple[int, SmallFile]]] = {False: [], True: []}
    sizes = {False: 0, True: 0}
    full: list[list[tuple[int, SmallFile]]] = []
    for number, file in enumerate(files):
        kind = bool(file.sources)
        if begun[kind] and sizes[kind] + file.bytes > target:
            full += _told_apart(begun[kind])
            begun[kind], sizes[kind] = [], 0
            first = min((each[0][0] for each in begun.values() if each), default=number)
            yield from _unnumbered(each for each in full if each[0][0] < first)
            full = [each for each in full if each[0][0] > first]
        begun[kind].append((number, file))
        sizes[kind] += file.bytes
    full += (part for group in begun.values() if group for part in _told_apart(group))
    yield from _unnumbered(full)


def _unnumbered(groups: Iterable[list[tuple[int, SmallFile]]]) -> Iterator[list[SmallFile]]:
    """By their first files."""
    return ([file for _, file in group] for group in sorted(groups, key=lambda group: group[0][0]))


def _told_apart(files: list[tuple[int, SmallFile]]) -> Iterator[list[tuple[int, SmallFile]]]:
    """The files in as few lists as name no more ranges each than an entry should carry."""
    if not any(file.sources for _, file in files):
        yield files
        return
    most = max(MAX_SOURCES, *(len(file.sources) for _, file in files))
    group: list[tuple[int, SmallFile]] = []
    known: tuple[SourceRange, ...] = ()
    for number, file in files:
        united = unite_ranges((*known, *file.sources))
        if group and len(united) > most:
            yield group
            group, united = [], file.sources
        group.append((number, file))
        known = united
    yield group


def _joined(ranges: list[SourceRange]) -> Iterator[SourceRange]:
    """Ranges of numbers of one source, those that touch made one; a start that is unknown comes first."""
    ordered = sorted(ranges, key=lambda each: (each.start is not None, each.start or 0, each.end))
    current = ordered[0]
    for each in ordered[1:]:
        assert isinstance(each.end, int) and isinstance(current.end, int) and not isinstance(each.start, str)
        if each.start is None or each.start <= current.end:
            current = msgspec.structs.replace(current, end=max(current.end, each.end))
        else:
            yield current
            current = each
    yield current
