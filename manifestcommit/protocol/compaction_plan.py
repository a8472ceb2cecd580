"""Plans compaction: which small files, and which small manifests, are rewritten together, and why.
[GC16] [GC11] Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from ..format.entries import MAX_SOURCES, ManifestRef, SourceRange, pack_bins
from ..format.fields import WireValue
from .apply import Budgets

DEFAULT_MAX_BYTES = 64 << 30  # bytes of files that one run rewrites by default
SORTED_BYTES = 1 << 30  # of files that are sorted together: the values of the columns are in memory


class SmallFile(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the plan knows of a live file. unsorted: not in the order that is asked for."""

    path: str
    partition: tuple[WireValue, ...] = ()
    rows: int
    bytes: int
    sources: tuple[SourceRange, ...] = ()
    unsorted: bool = False


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Files of one partition that become one, or, unsorted, sorted ones of the target size.
    sources: the ranges of all their rows; left: it is more than what this run may still rewrite.
    [GC16] [GC20]"""

    partition: tuple[WireValue, ...]
    paths: tuple[str, ...]
    rows: int
    bytes: int
    sources: tuple[SourceRange, ...] = ()
    reason: str
    unsorted: bool = False
    left: bool = False


def is_small(bytes: int, target: int) -> bool:
    """Whether a file is small enough to rewrite: below three quarters of the target. [GC16]"""
    return bytes <= largest_small(target)


def largest_small(target: int) -> int:
    """The largest size in bytes below three quarters of the target. [GC16]"""
    return (3 * target - 1) // 4


def largest_sorted(target: int) -> int:
    """The most bytes of files sorted together; a larger file is left as it is. [GC20]"""
    return max(target, SORTED_BYTES)


def plan_files(
    files: Iterable[SmallFile], *, target: int, max_bytes: int, min_files: int = 2
) -> Iterator[Group]:
    """Group two or more small files of one partition, in the given order, up to the target size
    together. files: grouped by partition. Files with source ranges and files without are never
    mixed: the new file could not name its ranges. A group above `max_bytes` of the run is left.
    min_files: no group has fewer; if above 2, none has a file larger than its others together.
    Unsorted files are grouped by themselves, where they make more than one file. [GC16] [GC20]"""
    small = (file for file in files if file.unsorted or is_small(file.bytes, target))
    total = 0
    for _, of_partition in itertools.groupby(small, key=lambda file: file.partition):
        for packed in _packed(of_partition, target):
            is_unsorted = packed[0].unsorted
            members = _balanced(packed) if min_files > 2 and not is_unsorted else packed
            is_much = is_unsorted and sum(file.bytes for file in members) > target
            if len(members) < min_files and not is_much:
                continue
            group = _group(members, target)
            fits = total + group.bytes <= max_bytes
            total += group.bytes if fits else 0
            yield group if fits else msgspec.structs.replace(group, left=True)


def _balanced(members: list[SmallFile]) -> list[SmallFile]:
    """Without files that are larger than the rest of the group together, so that a run after the
    other rewrites a row as often as its file can double, and not once for each new file."""
    by_size = sorted(members, key=lambda file: file.bytes)
    total = sum(file.bytes for file in members)
    while by_size and 2 * by_size[-1].bytes > total:
        total -= by_size.pop().bytes
    kept = {file.path for file in by_size}
    return [file for file in members if file.path in kept]


def _group(members: Sequence[SmallFile], target: int) -> Group:
    is_unsorted = members[0].unsorted
    reason = f"{len(members)} files below three quarters of {target:,} bytes become one"
    if is_unsorted:
        reason = f"{len(members)} files not sorted yet become sorted ones of {target:,} bytes"
    return Group(
        partition=members[0].partition,
        paths=tuple(file.path for file in members),
        rows=sum(file.rows for file in members),
        bytes=sum(file.bytes for file in members),
        sources=unite_ranges(span for file in members for span in file.sources),
        reason=reason,
        unsorted=is_unsorted,
    )


def batches(groups: Sequence[Group], budgets: Budgets) -> Iterator[list[Group]]:
    """Split the groups into commits, in order. What is committed stays in any case. [GC11]"""
    sized = ((group, group.bytes) for group in groups)
    return pack_bins(sized, budgets.batch_bytes, budgets.batch_groups)


def unite_ranges(ranges: Iterable[SourceRange]) -> tuple[SourceRange, ...]:
    """Return the ranges that cover the rows of several files exactly: those that touch or overlap
    are joined; positions that are texts have no order. [OB8]"""
    numbers: dict[str, list[SourceRange]] = {}
    texts: dict[tuple[str, int | str | None, int | str], SourceRange] = {}
    for span in ranges:
        # What a later release records about one file's range may not hold for a wider range.
        plain = SourceRange(source=span.source, start=span.start, end=span.end)
        if isinstance(span.end, int) and not isinstance(span.start, str):
            numbers.setdefault(span.source, []).append(plain)
        else:
            texts[span.source, span.start, span.end] = plain
    return (*(joined for spans in numbers.values() for joined in _joined(spans)), *texts.values())


def plan_manifests(
    manifests: Sequence[ManifestRef], removed: Mapping[str, int], budgets: Budgets
) -> tuple[tuple[ManifestRef, ...], ...]:
    """Group manifests to rewrite as one, neighbours by path: small ones, and, also alone, those
    that have lost a quarter of their rows. removed: path -> bitmap. [GC11]"""
    live = {ref.path: ref.files - removed.get(ref.path, 0).bit_count() for ref in manifests}
    thinned = {ref.path for ref in manifests if 4 * live[ref.path] <= 3 * ref.files}
    most = budgets.manifest_entries
    wanted = (ref for ref in manifests if ref.path in thinned or is_small(live[ref.path], most))
    ordered = sorted(wanted, key=lambda ref: (ref.first_path, ref.path))
    groups = pack_bins(((ref, live[ref.path]) for ref in ordered), most)
    return tuple(tuple(group) for group in groups if len(group) > 1 or group[0].path in thinned)


def _packed(files: Iterable[SmallFile], target: int) -> Iterator[list[SmallFile]]:
    """Pack the files of one partition: neighbours up to the target size, or what is sorted
    together, and to the number of ranges that one file may name. A full group waits for an open one
    of the other kind that began earlier."""
    kinds = [*itertools.product((False, True), (False, True))]
    begun: dict[tuple[bool, bool], list[tuple[int, SmallFile]]] = {kind: [] for kind in kinds}
    sizes = dict.fromkeys(kinds, 0)
    full: list[list[tuple[int, SmallFile]]] = []
    for number, file in enumerate(files):
        kind = bool(file.sources), file.unsorted
        most = largest_sorted(target) if file.unsorted else target
        if begun[kind] and sizes[kind] + file.bytes > most:
            full += _told_apart(begun[kind])
            begun[kind], sizes[kind] = [], 0
            first = min((numbered[0][0] for numbered in begun.values() if numbered), default=number)
            yield from _unnumbered(numbered for numbered in full if numbered[0][0] < first)
            full = [numbered for numbered in full if numbered[0][0] > first]
        begun[kind].append((number, file))
        sizes[kind] += file.bytes
    full += (part for group in begun.values() if group for part in _told_apart(group))
    yield from _unnumbered(full)


def _unnumbered(groups: Iterable[list[tuple[int, SmallFile]]]) -> Iterator[list[SmallFile]]:
    """The groups in the order of their first files."""
    return ([file for _, file in group] for group in sorted(groups, key=lambda group: group[0][0]))


def _told_apart(files: list[tuple[int, SmallFile]]) -> Iterator[list[tuple[int, SmallFile]]]:
    """Split the files into few lists, each with no more ranges than an entry should carry."""
    if not any(file.sources for _, file in files):
        yield files
        return
    limit = max(MAX_SOURCES, *(len(file.sources) for _, file in files))
    group: list[tuple[int, SmallFile]] = []
    known: tuple[SourceRange, ...] = ()
    for number, file in files:
        united = unite_ranges((*known, *file.sources))
        if group and len(united) > limit:
            yield group
            group, united = [], file.sources
        group.append((number, file))
        known = united
    yield group


def _joined(ranges: list[SourceRange]) -> Iterator[SourceRange]:
    """Join ranges of integers of one source that touch; a range without a start comes first."""
    ordered = sorted(ranges, key=lambda span: (span.start is not None, span.start or 0, span.end))
    current = ordered[0]
    for span in ordered[1:]:
        assert isinstance(span.end, int) and isinstance(current.end, int)
        assert not isinstance(span.start, str)
        if span.start is None or span.start <= current.end:
            current = msgspec.structs.replace(current, end=max(current.end, span.end))
        else:
            yield current
            current = span
    yield current
