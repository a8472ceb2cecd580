"""Compaction: rewrites many small files as few with the same rows, sorts them where that is asked
for, and merges small manifests, in commits that stay. [GC11] [GC16] [GC20]"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ..commits.commit_loop import Committers, commit, load_conflict_inputs
from ..display import ReprMixin
from ..errors import CorruptMetadataError, UsageError
from ..files.writer import WritePlan, check_rows, plan_for, target_file_size_of
from ..format import values
from ..format.change import MergeManifests, Write
from ..format.entries import ManifestRef, pack_bins
from ..format.fields import Schema, WireValue
from ..format.manifest_table import partition_types, sorted_by, source_ranges
from ..format.partitioning import dedupe, of_partition
from ..format.snapshot import REPLACE, Snapshot, totals_of
from ..format.transforms import partition_fields
from ..format.values import group_numbers
from ..log.table_context import TableContext
from ..log.version_chain import Head, raise_if_expired
from ..protocol import compaction_plan
from ..protocol.compaction_plan import DEFAULT_MAX_BYTES, Group, SmallFile
from ..protocol.conflict import describe_touch
from ..rows.find import ExecutorChoice
from ..rows.row_change import NewFiles, scan, size_of, write_rows
from ..runtime.environment import STARTS, map_in_batches, parallel_writers
from ..runtime.outcome import Outcome, WriteTotals, committed_or_raise
from ..scan.planning import entries_of

WINDOW_FILES = 1 << 16
# parts of a partition, by version, so that a partition larger than a window need not be in memory
# as a whole
_AGES = 64
_VALUES_AT_ONCE = 4096
_MANIFESTS_AT_ONCE = 4  # concurrent requests; eight held 40 % more
_MOST = (1 << 63) - 1
_COUNTED = ("added", "bytes")
_PLANNED = [*_COUNTED, "path", "rows", "sources", "extra"]
_UNSORTED = "unsorted"
_RANK = "#"  # of a partition

Partition = tuple[WireValue, ...]


class _Counted(NamedTuple):
    """The places of the small files in a manifest, each once. ref: None, the entries inlined in the
    snapshot; table: the files, if they are kept."""

    ref: ManifestRef | None
    places: pa.Array
    table: pa.Table | None


class SmallFiles:
    """The live files below three quarters of the target size, and those that are not sorted yet by
    the columns `by` if there are any. partitions: of those files, in order.

    One request per manifest; with more than 65,536 files, another one for each window. Memory: one
    window (65,536 files, more only if one place has more), the planning data of at most four
    manifests, a tuple for each partition. A place is a partition's number, in the order of
    discovery, and a part of its versions.
    """

    def __init__(
        self, ctx: TableContext, snapshot: Snapshot, target: int, by: Sequence[int]
    ) -> None:
        self._ctx, self._snapshot, self._sort_by = ctx, snapshot, by
        self._largest = min(compaction_plan.largest_small(target), _MOST)
        self._largest_sorted = min(compaction_plan.largest_sorted(target), _MOST)
        self._by = tuple(f"partition.{field_id}" for field_id in snapshot.partition_by)
        self._numbers: dict[Partition, int] = {}
        self._files = Counter[int]()  # by place
        self._lock = threading.Lock()
        self._keep = (
            sum(ref.files for ref in snapshot.manifests) + len(snapshot.added) <= WINDOW_FILES
        )
        self._types = partition_types(snapshot)
        with raise_if_expired(ctx.store, snapshot.version):
            self._removed = ctx.manifests.removed(snapshot) if snapshot.manifests else {}
            places = [None, *snapshot.manifests]
            few = _MANIFESTS_AT_ONCE
            self._counted = list(map_in_batches(ctx.store, self._count, places, few=few))
        self.partitions = self._in_order()

    def files(self, chosen: Collection[Partition]) -> Iterator[SmallFile]:
        """The files of these partitions, by partition, version and path; no single ones."""
        begins = self._begins(frozenset(chosen))
        with raise_if_expired(self._ctx.store, self._snapshot.version):
            for window in self._windows(begins):
                matching = [
                    counted
                    for counted in self._counted
                    if pc.any(_between(_moved(counted.places, begins), window)).as_py()
                ]
                put = partial(self._in_window, begins, window)
                found = map_in_batches(self._ctx.store, put, matching, few=_MANIFESTS_AT_ONCE)
                # no variable refers to the window: its unsorted form is freed once it is sorted
                yield from self._in_values(pa.concat_tables(found))

    def _count(self, ref: ManifestRef | None) -> _Counted:
        table = self._table(ref, _PLANNED if self._keep else _COUNTED)
        places, counts = pc.value_counts(self._places(table)).flatten()
        with self._lock:
            self._files.update(dict(zip(places.to_pylist(), counts.to_pylist(), strict=True)))
        return _Counted(ref, places, table if self._keep else None)

    def _table(self, ref: ManifestRef | None, columns: Sequence[str]) -> pa.Table:
        """The small files of a manifest, with their partitions and these columns."""
        names, reader = [*self._by, *columns], self._ctx.manifests
        if self._sort_by and "extra" not in names:
            names.append("extra")
        if ref is None:
            table = reader.inlined(self._snapshot).select(names)
        else:
            table = reader.columns(ref, self._snapshot, self._removed.get(ref.path, 0), names)
        size = table.column("bytes")
        is_wanted = pc.less_equal(size, self._largest)
        if self._sort_by:
            is_unsorted = pc.invert(sorted_by(table.column("extra"), self._sort_by))
            is_unsorted = pc.and_(is_unsorted, pc.less_equal(size, self._largest_sorted))
            is_wanted = pc.or_(is_wanted, is_unsorted)
        else:
            is_unsorted = pc.is_null(size)  # none
        return table.append_column(_UNSORTED, is_unsorted).filter(is_wanted)

    def _places(self, table: pa.Table) -> pa.Array:
        newest = self._snapshot.version
        added = pc.max_element_wise(pc.min_element_wise(table.column("added"), newest), 0)
        ages = pc.divide(added.combine_chunks(), newest // _AGES + 1)
        groups = group_numbers(table.select(self._by).columns, table.num_rows)
        few = table.take(pc.index_in(pc.unique(groups), groups))
        wires = [
            values.from_array(few.column(name), kind)
            for name, kind in zip(self._by, self._types, strict=True)
        ]
        rows = list(zip(*wires, strict=True)) if wires else [()] * few.num_rows
        with self._lock:
            numbers = [self._numbers.setdefault(row, len(self._numbers)) for row in rows]
        return pc.add(pc.multiply(pa.array(numbers, pa.int64()).take(groups), _AGES), ages)

    def _in_order(self) -> list[Partition]:
        every = list(self._numbers)
        if not self._by or not every:
            return every
        arrays = [
            values.to_array([partition[at] for partition in every], kind)
            for at, kind in enumerate(self._types)
        ]
        keys = [(name, "ascending") for name in self._by]
        order = pc.sort_indices(pa.table(arrays, list(self._by)), keys)
        return [every[number] for number in order.to_pylist()]

    def _begins(self, chosen: frozenset[Partition]) -> pa.Array:
        """Where each partition's places begin, by its number; null: it is skipped."""
        files = [0] * len(self._numbers)
        for place, count in self._files.items():
            files[place // _AGES] += count
        begins: list[int | None] = [None] * len(files)
        for rank, partition in enumerate(self.partitions):
            number = self._numbers[partition]
            if partition in chosen and (files[number] > 1 or self._sort_by):
                begins[number] = rank * _AGES
        return pa.array(begins, pa.int64())

    def _windows(self, begins: pa.Array) -> Iterator[tuple[int, int]]:
        """The first and the last place of each window, in order."""
        moved = _moved(pa.array(list(self._files), pa.int64()), begins).to_pylist()
        files = zip(moved, self._files.values(), strict=True)
        windows, before = dict[int, list[int]](), 0
        for place, count in sorted(pair for pair in files if pair[0] is not None):
            windows.setdefault(before // WINDOW_FILES, []).append(place)
            before += count
        for places in windows.values():
            yield places[0], places[-1]

    def _in_window(self, begins: pa.Array, window: tuple[int, int], counted: _Counted) -> pa.Table:
        table = counted.table if counted.table is not None else self._table(counted.ref, _PLANNED)
        places = _moved(self._places(table), begins)
        table = table.select([*_PLANNED, _UNSORTED]).append_column(_RANK, pc.divide(places, _AGES))
        table = table.filter(_between(places, window))
        del places
        _give_back()
        return table

    def _in_values(self, table: pa.Table) -> Iterator[SmallFile]:
        table = table.sort_by([(name, "ascending") for name in (_RANK, "added", "path")])
        _give_back()
        names = (_RANK, "path", "rows", "bytes", "sources", _UNSORTED)
        for start in range(0, table.num_rows, _VALUES_AT_ONCE):
            some = table.slice(start, _VALUES_AT_ONCE)
            columns = (some.column(name).to_pylist() for name in names)
            for rank, path, rows, size, sources, unsorted in zip(*columns, strict=True):
                yield SmallFile(
                    partition=self.partitions[rank],
                    path=path,
                    rows=rows,
                    bytes=size,
                    sources=source_ranges(sources) if sources else (),
                    unsorted=unsorted,
                )


def _give_back() -> None:
    """Return unused memory to the system: the allocator would keep as much as several windows."""
    pa.default_memory_pool().release_unused()


def _moved(places: pa.Array, begins: pa.Array) -> pa.Array:
    """Places in the order, null for those that are skipped."""
    number = pc.divide(places, _AGES)
    return pc.add(begins.take(number), pc.subtract(places, pc.multiply(number, _AGES)))


def _between(places: pa.Array, window: tuple[int, int]) -> pa.BooleanArray:
    return pc.and_(pc.greater_equal(places, window[0]), pc.less_equal(places, window[1]))


_DESCRIBED = pa.schema(
    [
        ("action", pa.string()),
        ("partition", pa.string()),
        ("files", pa.int64()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("reason", pa.string()),
        ("paths", pa.list_(pa.string())),
    ]
)
_DESCRIBED_AT_ONCE = 4096  # paths
_DESCRIBED_TOGETHER = 4  # groups that are described at the same time


class Rewriting(NamedTuple):
    """One group to rewrite. entries: its files, as rows of `entries_table`."""

    entries: pa.Table
    plan: WritePlan


LOG = logging.getLogger("manifestcommit.jobs")
# the result of each, in their order
Rewrite = Callable[[Snapshot, Sequence[Rewriting]], Iterator[NewFiles]]
Progress = Callable[[str], None]
Groups = tuple[tuple[ManifestRef, ...], ...]
_Row = tuple[str, str, int, int, int, str, Sequence[str]]  # of `_DESCRIBED`


class Compaction(ReprMixin, msgspec.Struct, frozen=True, kw_only=True):
    """What one compaction rewrote and merged.

    Attributes:
        version: that of its last commit; None where nothing was left to do.
        commits: how many commits it made.
        groups: how many groups of files it rewrote.
        rows: the rows in these files, the same before and after.
        files_before: the number of rewritten files.
        files_after: the number of files that replace them.
        bytes_before: the size of the rewritten files.
        bytes_after: the size of the files that replace them.
        lost_groups: groups that were skipped, because other jobs changed the table meanwhile.
        left_groups: groups beyond the limit of one run, for the next one.
        left_bytes: the size of their files.
        manifests_before: the number of merged manifests.
        manifests_after: the number of manifests that replace them.
    """

    version: int | None = None
    commits: int = 0
    groups: int = 0
    rows: int = 0
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    lost_groups: int = 0
    left_groups: int = 0
    left_bytes: int = 0
    manifests_before: int = 0
    manifests_after: int = 0


class CompactionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The goals of a compaction. target: bytes of a file, None: the table's own; max_bytes: limit
    for the rewritten files; min_files: of a group; sort_by: ids of the columns by which rows are
    sorted; where: a condition that chooses partitions, evaluated by `choice`; None: all."""

    target: int | None = None
    max_bytes: int = DEFAULT_MAX_BYTES
    min_files: int = 2
    sort_by: tuple[int, ...] = ()
    where: Any = None
    choice: ExecutorChoice | None = None


_Part = tuple[Group, NewFiles]
_NOTHING = Compaction()


class _SoFar:
    """What a compaction has done so far. tell: gets what it does next."""

    def __init__(self, ctx: TableContext, tell: Progress, done: Compaction) -> None:
        self._ctx, self.tell, self.done = ctx, tell, done

    def add(self, **more: Any) -> None:
        """Count these, besides what was counted before."""
        sums = {name: getattr(self.done, name) + value for name, value in more.items()}
        self.done = msgspec.structs.replace(self.done, **sums)

    def committed(self, outcome: Outcome, **more: int) -> None:
        version = committed_or_raise(outcome, self._ctx.store.url).version
        self.done = msgspec.structs.replace(self.done, version=version)
        self.add(commits=1, **more)

    def lost(self, groups: int, why: str) -> None:
        """Note that some groups are left as they are."""
        if groups:
            LOG.info("%r: %d groups are not rewritten: %s", self._ctx.store.url, groups, why)
        self.add(lost_groups=groups)


def compact(
    ctx: TableContext,
    aim: CompactionOptions,
    rewrite: Rewrite,
    *,
    progress: Progress = lambda _: None,
) -> Compaction:
    """Rewrite small files together and merge small manifests; rows, keys, watermarks and columns
    stay the same. [GC11] [GC16]

    Each batch of groups is one commit, which stays if the run stops; the next run continues from
    there. Groups whose files other jobs replace or remove meanwhile are skipped and reported.
    """
    found = list(find_groups(ctx, ctx.open().snapshot, aim))
    groups, left = ([each for each in found if each.left == is_left] for is_left in (False, True))
    so_far = _SoFar(ctx, progress, _NOTHING)
    so_far.add(left_groups=len(left), left_bytes=sum(group.bytes for group in left))
    for batch in compaction_plan.batches(groups, ctx.tuning.budgets):
        progress(f"rewriting: {so_far.done.groups:,} of {len(groups):,} groups done")
        _rewrite_batch(ctx, rewrite, batch, aim, so_far)
    return merge_manifests(ctx, done=so_far.done, progress=progress)


def find_groups(ctx: TableContext, snapshot: Snapshot, aim: CompactionOptions) -> Iterator[Group]:
    """Plan the small files, by group. Costs: as for `SmallFiles`, and one group. [GC16]"""
    target = _target(snapshot, aim)
    if target < 1 or aim.max_bytes < 1:
        raise UsageError("target_file_size and max_bytes are numbers of bytes above 0")
    small = SmallFiles(ctx, snapshot, target, aim.sort_by)
    files = small.files(_chosen(snapshot, small.partitions, aim))
    limits = {"max_bytes": aim.max_bytes, "min_files": aim.min_files}
    return compaction_plan.plan_files(files, target=target, **limits)


def _target(snapshot: Snapshot, aim: CompactionOptions) -> int:
    return target_file_size_of(snapshot) if aim.target is None else aim.target


def describe_plan(ctx: TableContext, snapshot: Snapshot, groups: Iterable[Group]) -> pa.Table:
    """What a compaction would do: a row per group of files and manifests, and why. [GC16]"""
    sized = ((row, len(row[-1])) for row in _described_rows(ctx, snapshot, groups))
    rows = pack_bins(sized, _DESCRIBED_AT_ONCE)
    pieces, tables = map(_described, rows), [_DESCRIBED.empty_table()]
    while some := list(islice(pieces, _DESCRIBED_TOGETHER)):
        # in as much memory as they need; building each took up to twice that
        tables.append(pa.concat_tables(some).combine_chunks())
    return pa.concat_tables(tables)


def _described(rows: Sequence[_Row]) -> pa.Table:
    """Rows as columns, which take a third of the memory."""
    columns = map(pa.array, zip(*rows, strict=True), _DESCRIBED.types)
    return pa.Table.from_arrays(list(columns), schema=_DESCRIBED)


def _described_rows(
    ctx: TableContext, snapshot: Snapshot, groups: Iterable[Group]
) -> Iterator[_Row]:
    for group in groups:
        why = "beyond max_bytes of this run" if group.left else group.reason
        touch = of_partition(snapshot.partition_by, group.partition)
        name, action = describe_touch(snapshot, touch), "left" if group.left else "rewrite"
        yield action, name, len(group.paths), group.rows, group.bytes, why, group.paths
    for refs in manifest_groups(ctx, snapshot):
        why = "a quarter of what it lists, or more, is no longer live"
        why = f"{len(refs)} manifests become one" if len(refs) > 1 else why
        files, size = sum(ref.files for ref in refs), sum(ref.bytes for ref in refs)
        yield "merge", "", len(refs), files, size, why, [ref.path for ref in refs]


def manifest_groups(ctx: TableContext, snapshot: Snapshot) -> Groups:
    """The manifests that compaction makes one of each. [GC11]"""
    if not snapshot.manifests:
        return ()
    removed = ctx.manifests.removed(snapshot)
    return compaction_plan.plan_manifests(snapshot.manifests, removed, ctx.tuning.budgets)


def drop_removed(ctx: TableContext) -> int:
    """Rewrite every manifest from which files were removed, so that the latest version names none
    of these; returns how many were rewritten. [GC17]

    A commit for each; it changes no row and conflicts with nothing.
    """

    def thinned(ctx: TableContext, snapshot: Snapshot) -> Groups:
        removed = ctx.manifests.removed(snapshot)
        return tuple((ref,) for ref in snapshot.manifests if removed.get(ref.path))

    return merge_manifests(ctx, thinned).manifests_before


def merge_manifests(
    ctx: TableContext,
    plan: Callable[[TableContext, Snapshot], Groups] = manifest_groups,
    *,
    done: Compaction = _NOTHING,
    progress: Progress = lambda _: None,
) -> Compaction:
    """Make one manifest of each group, without the entries that were removed from them, in a commit
    each; the same files stay listed, with the same versions. done: what was done before. [GC11]"""
    so_far, tries = _SoFar(ctx, progress, done), 0
    while groups := plan(ctx, (head := ctx.open()).snapshot):
        so_far.tell(f"merging manifests: {len(groups):,} to go")
        merged = frozenset(ref.path for ref in groups[0])
        job = ctx.new_job(head)
        outcome = commit(ctx, head, MergeManifests(job=job, birth=head.version, paths=merged))
        if outcome.conflict is not None and tries < STARTS:
            tries += 1  # other commits have merged them meanwhile: plan again
            continue
        so_far.committed(outcome, manifests_before=len(merged), manifests_after=1)
    return so_far.done


def _rewrite_batch(
    ctx: TableContext,
    rewrite: Rewrite,
    groups: Sequence[Group],
    aim: CompactionOptions,
    so_far: _SoFar,
) -> None:
    """Rewrite and commit these groups, but those whose files are gone. [CF7] [GC11] [GC20]"""
    head = ctx.open()
    ctx.prove(head.snapshot.proven)
    job, began_us = ctx.new_job(head), ctx.env.now_us()
    kept = _still_there(ctx, head, job, [(group, NewFiles()) for group in groups], so_far)
    if not kept:
        return
    plan = partial(plan_for, head.snapshot, url=ctx.store.url, job=job, is_new=False)

    def task(group: Group, entries: pa.Table) -> Rewriting:
        # A group of small files becomes one file, however large its rows are in it: otherwise the
        # number of files would not decrease.
        target = _target(head.snapshot, aim) if group.unsorted else 1 << 62
        return Rewriting(entries, plan(target_file_size=target, sources=group.sources))

    there = [group for group, _ in kept]
    tables = _entries_of(ctx, head.snapshot, there)
    made = rewrite(head.snapshot, list(map(task, there, tables)))
    parts = [(group, _marked(new, aim.sort_by)) for group, new in zip(there, made, strict=True)]
    for (group, new), table in zip(parts, tables, strict=True):
        _check(group, table, new)
    base = head
    while parts:
        change = _change(ctx, head, job, parts, began_us)
        committers = Committers.GROUP if base is head else Committers.ANY_PROCESS
        outcome = commit(ctx, base, change, committers=committers)
        if outcome.conflict is None:
            so_far.committed(outcome, **_counts(parts))
            return
        base = ctx.open()
        left = _still_there(ctx, base, job, parts, so_far)
        # another kind of conflict, for example with a dropped column
        if len(left) == len(parts):
            so_far.lost(len(parts), outcome.reason)
            return
        parts = left


def _marked(new: NewFiles, sort_by: tuple[int, ...]) -> NewFiles:
    """With entries that say by what the rows are sorted. [GC20]"""
    entries = tuple(msgspec.structs.replace(each, sorted=sort_by) for each in new.entries)
    return msgspec.structs.replace(new, entries=entries)


def _entries_of(ctx: TableContext, snapshot: Snapshot, groups: Sequence[Group]) -> list[pa.Table]:
    """The entries of each group's files, all of which are live, in the group's order."""
    entries = entries_of(ctx, snapshot, [path for group in groups for path in group.paths])
    known = entries.column("path").combine_chunks()
    paths = (pa.array(group.paths, pa.string()) for group in groups)
    return [entries.take(pc.index_in(each, value_set=known)) for each in paths]


def _still_there(
    ctx: TableContext, head: Head, job: str, parts: Sequence[_Part], so_far: _SoFar
) -> list[_Part]:
    """The groups whose files are all live in this version; the others are lost. [CF7]"""
    removed = frozenset(path for group, _ in parts for path in group.paths)
    change = Write(job=job, birth=head.version, operation=REPLACE, remove=removed)
    gone = load_conflict_inputs(ctx, head, change).gone
    left = [part for part in parts if gone.isdisjoint(part[0].paths)]
    so_far.lost(len(parts) - len(left), "others have removed or replaced files of them meanwhile")
    return left


def _change(
    ctx: TableContext, head: Head, job: str, parts: Sequence[_Part], began_us: int
) -> Write:
    snapshot = head.snapshot
    ledger = WriteTotals(ctx.tally, began_us)
    for _, new in parts:
        ledger.take(new.intake)
    entries = tuple(entry for _, new in parts for entry in new.entries)
    refs = tuple(ref for _, new in parts for ref in new.manifests)
    return Write(
        job=job,
        birth=head.version,
        operation=REPLACE,
        schema=snapshot.schema,
        partition_by=snapshot.partition_by,
        add=entries,
        add_manifests=refs,
        touched=dedupe(of_partition(snapshot.partition_by, group.partition) for group, _ in parts),
        remove=frozenset(path for group, _ in parts for path in group.paths),
        summary=ledger.summary(sum(new.tasks for _, new in parts), entries, refs),
    )


def _check(group: Group, table: pa.Table, new: NewFiles) -> None:
    """Check that a group's new files hold exactly its rows, before any commit. [GC11] [DF3]"""
    check_rows(table, group.rows, new.rows)
    stray = next((entry for entry in new.entries if entry.partition != group.partition), None)
    if stray is not None:
        raise CorruptMetadataError(
            f"files of the partition {group.partition!r} hold rows of {stray.partition!r}; "
            "they stay as they are. `manifestcommit verify "
            "--deep` names the file that is not what its entry says.",
            object_name=table.column("path")[0].as_py(),
        )


def _chosen(
    snapshot: Snapshot, partitions: list[Partition], aim: CompactionOptions
) -> Collection[Partition]:
    """The partitions for which the condition is true. [GC16]"""
    if aim.where is None:
        return partitions
    by = Schema(fields=partition_fields(snapshot.schema, snapshot.partition_by))
    if not by.fields:
        what = "where chooses partitions, and this table is not partitioned; leave it out"
        raise UsageError(what)
    columns = {
        field.name: values.to_array([values_of[at] for values_of in partitions], field.type)
        for at, field in enumerate(by.fields)
    }
    assert aim.choice is not None
    try:
        executor, condition = aim.choice.by_language(aim.where, by)
        wanted = executor.chosen(pa.table(columns), condition)
    except UsageError as error:
        if error.argument is not None:
            raise
        raise UsageError(
            f"where chooses partitions, by the columns {', '.join(columns)}; nothing was done: "
            f"{error}"
        ) from None
    return {partition for partition, want in zip(partitions, wanted, strict=True) if want}


def _counts(parts: Sequence[_Part]) -> dict[str, int]:
    after = [totals_of(new.entries, new.manifests) for _, new in parts]
    return {
        "groups": len(parts),
        "rows": sum(group.rows for group, _ in parts),
        "files_before": sum(len(group.paths) for group, _ in parts),
        "files_after": sum(each.files for each in after),
        "bytes_before": sum(group.bytes for group, _ in parts),
        "bytes_after": sum(each.bytes for each in after),
    }


_MOST_AT_ONCE = 2  # groups; each takes a reader's and a writer's memory
MOST_SORTED = 128 << 20  # bytes of files whose rows are sorted in memory, several times as many


def rewriter(ctx: TableContext, *, sort_by: Sequence[str] = ()) -> Rewrite:
    """A function that rewrites groups of files in streams. sort_by: columns by which the rows of
    each group are sorted, nulls first: the values of these columns are held in memory, and rows of
    128 MB of files at a time, for each of which the files are read again. [GC11] [GC20]"""

    def rewrite(snapshot: Snapshot, groups: Sequence[Rewriting]) -> Iterator[NewFiles]:
        attempts = [ctx.env.randomness(8).hex() for _ in groups]

        def one(number: int) -> NewFiles:
            (entries, plan), attempt = groups[number], attempts[number]
            size, read = size_of(entries), partial(scan, ctx, snapshot, entries)
            rows = _sorted(read, sort_by, -(-size // MOST_SORTED)) if sort_by else read()
            return write_rows(ctx, plan, rows, task=number, attempt=attempt, size=size)

        largest = max((size_of(group.entries) for group in groups), default=0)
        writers = _MOST_AT_ONCE if ctx.store.is_remote else parallel_writers(largest)
        threads = min(_MOST_AT_ONCE, len(groups), writers)
        if threads < 2:  # a thread has memory of its own; two of a large group fill two cores
            yield from map(one, range(len(groups)))
            return
        with ThreadPoolExecutor(threads, thread_name_prefix="manifestcommit-rewrite") as pool:
            yield from pool.map(one, range(len(groups)))

    return rewrite


def _sorted(
    read: Callable[..., Iterator[pa.RecordBatch]], sort_by: Sequence[str], parts: int
) -> Iterator[pa.RecordBatch]:
    """The rows in order, in this many parts: each holds its own rows only, and reads all. [GC20]"""
    if parts < 2:
        yield from _in_order(list(read()), sort_by)
        return
    order = _order(pa.Table.from_batches(list(read([*sort_by]))), sort_by)
    places = pc.inverse_permutation(order.cast(pa.int64()))
    part_of = pc.divide(places, -(-len(order) // parts))
    del order, places
    for part in range(parts):
        yield from _in_order(list(_of_part(read(), part_of, part)), sort_by)


def _of_part(
    batches: Iterator[pa.RecordBatch], part_of: pa.Array, part: int
) -> Iterator[pa.RecordBatch]:
    start = 0
    for batch in batches:
        yield batch.filter(pc.equal(part_of.slice(start, batch.num_rows), part))
        start += batch.num_rows


def _in_order(batches: list[pa.RecordBatch], sort_by: Sequence[str]) -> Iterator[pa.RecordBatch]:
    if batches:
        table = pa.Table.from_batches(batches)
        batches.clear()
        yield from table.take(_order(table, sort_by)).to_batches()


def _order(table: pa.Table, sort_by: Sequence[str]) -> pa.Array:
    keys: dict[str, pa.ChunkedArray] = {}
    for number, name in enumerate(sort_by):  # nulls first, NaN last, as in Spark
        keys[f"{number} is valid"] = table.column(name).is_valid()
        keys[f"{number}"] = table.column(name)
    return pc.sort_indices(pa.table(keys), sort_keys=[(key, "ascending") for key in keys])
