"""Compaction: rewrites many small files as few with the same rows, and merges small manifests, in
commits that stay. [GC11] [GC16]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ...core.commit.change import MergeManifests, Write
from ...core.commit.compaction_plan import (
    DEFAULT_MAX_BYTES,
    MAX_MANIFEST_FILES,
    Group,
    batches,
    plan_files,
    plan_manifests,
)
from ...core.commit.conflict import Conflict, describe_touch
from ...core.filter.arrow_expression import spark_order
from ...core.schema import values
from ...core.schema.wire import WireValue
from ...core.table.bin_packing import pack_bins
from ...core.table.entries import Entry, ManifestRef
from ...core.table.partition_pattern import dedupe, of_partition
from ...core.table.snapshot import REPLACE, Snapshot
from ...errors import CorruptMetadataError, UsageError
from ...terminal.notebook import Shown
from ..commit.commit_loop import commit
from ..commit.conflict_inputs import load_conflict_inputs
from ..commit.group_commit import Committers
from ..datafile.rewrite_plan import check_rows, plan_rewrite
from ..datafile.writer import WritePlan, target_file_size_of
from ..metadata.table_context import TableContext
from ..metadata.version_chain import Head
from ..runtime.job_metrics import InputTotals, WriteTotals
from ..runtime.outcome import Outcome, committed_or_raise
from ..scan.planning import entries_of
from .small_files import SmallFiles

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
_MANIFEST_TRIES = 8  # to merge manifests that other commits merge as well


class NewFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one group: its rows in files that no snapshot lists yet."""

    entries: tuple[Entry, ...] = ()
    manifests: tuple[ManifestRef, ...] = ()
    tasks: int = 1
    intake: InputTotals | None = None


@dataclass(frozen=True)
class Rewriting:
    """One group to rewrite. entries: its files, as rows of `entries_table`."""

    entries: pa.Table
    plan: WritePlan


# the result of each, in their order
Rewrite = Callable[[Snapshot, Sequence[Rewriting]], Iterator[NewFiles]]
# maps partitions, one row each, in the columns' own names, to a mask
Choose = Callable[[pa.Table], Sequence[bool]]
Progress = Callable[[str], None]
_Row = tuple[str, str, int, int, int, str, Sequence[str]]  # of `_DESCRIBED`


class LostGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A group of files that `compact` skipped, because another job changed the table meanwhile.

    Attributes:
        partition: the partition of the files.
        files: how many there are.
        rule: the rule of the conflict.
        why: what the other job did.
    """

    partition: str
    files: int
    rule: str
    why: str


class Compaction(Shown, msgspec.Struct, frozen=True, kw_only=True):
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
        lost: groups that were skipped, because other jobs changed the table meanwhile.
        left_groups: groups beyond the limit of one run, for the next one.
        left_bytes: the size of their files.
        manifests_before: the number of merged manifests.
        manifests_after: the number of manifests that replace them.
        left_manifests: manifests beyond the limit of one run.
    """

    version: int | None = None
    commits: int = 0
    groups: int = 0
    rows: int = 0
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    lost: tuple[LostGroup, ...] = ()
    left_groups: int = 0
    left_bytes: int = 0
    manifests_before: int = 0
    manifests_after: int = 0
    left_manifests: int = 0


class CompactionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The goals of a compaction. target: bytes of a file, None: the table's own; max_bytes: limit
    for the rewritten files."""

    target: int | None = None
    max_bytes: int = DEFAULT_MAX_BYTES


def compact(
    session: TableContext,
    aim: CompactionOptions,
    rewrite: Rewrite,
    *,
    choose: Choose | None = None,
    progress: Progress = lambda _: None,
) -> Compaction:
    """Rewrite small files together and merge small manifests; rows, keys, watermarks and columns
    stay the same. [GC11] [GC16]

    Each batch of groups is one commit, which stays if the run stops; the next run continues from
    there. Groups whose files other jobs replace or remove meanwhile are skipped and reported.
    """
    head = session.open()
    groups, done = [], Compaction()
    for group in find_groups(session, head.snapshot, aim, choose):
        if group.left:
            done = msgspec.structs.replace(
                done, left_groups=done.left_groups + 1, left_bytes=done.left_bytes + group.bytes
            )
        else:
            groups.append(group)
    for batch in batches(groups, session.tuning.budgets):
        progress(f"rewriting: {done.groups:,} of {len(groups):,} groups done")
        done = _rewrite_batch(session, rewrite, batch, done)
    return merge_manifests(session, progress=progress, done=done)


def find_groups(
    session: TableContext, snapshot: Snapshot, aim: CompactionOptions, choose: Choose | None = None
) -> Iterator[Group]:
    """Plan the small files, group by group. Requests and memory: as for `SmallFiles`, plus one
    group. [GC16]"""
    target = target_file_size_of(snapshot) if aim.target is None else aim.target
    if target < 1 or aim.max_bytes < 1:
        raise UsageError("target_file_size and max_bytes are numbers of bytes above 0")
    small = SmallFiles(session, snapshot, target)
    chosen = small.partitions if choose is None else _chosen(snapshot, small.partitions, choose)
    return plan_files(small.files(chosen), target=target, max_bytes=aim.max_bytes)


def choose_by(condition: pc.Expression) -> Choose:
    """The partitions for which a pyarrow expression on partition columns is true. [GC16]"""

    def choose(partitions: pa.Table) -> list[bool]:
        number = max(partitions.column_names, key=len) + "#"  # a name that no column has
        try:
            table = partitions.append_column(
                number, pa.array(range(partitions.num_rows), pa.int64())
            ).filter(spark_order(condition, partitions.schema))
        except (pa.ArrowException, TypeError) as error:
            raise UsageError(misplaced(partitions, str(error))) from None
        hits = set(table.column(number).to_pylist())
        return [row in hits for row in range(partitions.num_rows)]

    return choose


def misplaced(partitions: pa.Table, why: str) -> str:
    """The error for a condition that does not select partitions."""
    return (
        f"where chooses partitions, by the columns {', '.join(partitions.column_names)}; nothing "
        f"was done: {why}"
    )


def describe_plan(session: TableContext, snapshot: Snapshot, groups: Iterable[Group]) -> pa.Table:
    """Describe what a compaction would do: one row per group of files and of manifests, with its
    reason. [GC16]"""
    rows = pack_bins(
        ((row, len(row[-1])) for row in _described_rows(session, snapshot, groups)),
        _DESCRIBED_AT_ONCE,
    )
    pieces, tables = map(_described, rows), [_DESCRIBED.empty_table()]
    while some := list(islice(pieces, _DESCRIBED_TOGETHER)):
        # in as much memory as they need; building each took up to twice that
        tables.append(pa.concat_tables(some).combine_chunks())
    return pa.concat_tables(tables)


def _described(rows: Sequence[_Row]) -> pa.Table:
    """Rows as columns, which take a third of the memory."""
    columns = zip(zip(*rows, strict=True), _DESCRIBED, strict=True)
    return pa.Table.from_arrays(
        [pa.array(column, field.type) for column, field in columns], schema=_DESCRIBED
    )


def _described_rows(
    session: TableContext, snapshot: Snapshot, groups: Iterable[Group]
) -> Iterator[_Row]:
    for group in groups:
        why = "beyond max_bytes: the next run does it" if group.left else group.reason
        name, action = _name(snapshot, group.partition), "left" if group.left else "rewrite"
        yield action, name, len(group.paths), group.rows, group.bytes, why, group.paths
    for refs in _manifest_groups(session, snapshot):
        why = (
            f"{len(refs)} manifests become one"
            if len(refs) > 1
            else "a quarter of what it lists, or more, is no longer live"
        )
        yield (
            "merge",
            "",
            len(refs),
            sum(ref.files for ref in refs),
            sum(ref.bytes for ref in refs),
            why,
            [ref.path for ref in refs],
        )


def merge_manifests(
    session: TableContext, *, progress: Progress = lambda _: None, done: Compaction | None = None
) -> Compaction:
    """Merge small manifests and drop the entries that were removed from them; the same files stay
    listed, with the same versions. [GC11]

    One commit for each merged manifest.
    """
    done = done or Compaction()
    written = tries = 0
    while tries < _MANIFEST_TRIES:
        head = session.open()
        snapshot = head.snapshot
        groups = _manifest_groups(session, snapshot)
        if not groups or written >= MAX_MANIFEST_FILES:
            return msgspec.structs.replace(done, left_manifests=sum(len(group) for group in groups))
        progress(f"merging manifests: {len(groups):,} to go")
        merged = frozenset(ref.path for ref in groups[0])
        job = session.new_job(head)
        outcome = commit(
            session,
            head,
            MergeManifests(job=job, birth=head.version, paths=merged),
        )
        if outcome.conflict is not None:  # other commits have merged them meanwhile: plan again
            tries += 1
            continue
        done = _committed(session, outcome, done)
        written += sum(ref.files for ref in groups[0])
        done = msgspec.structs.replace(
            done,
            manifests_before=done.manifests_before + len(merged),
            manifests_after=done.manifests_after + 1,
        )
    return msgspec.structs.replace(done, left_manifests=sum(len(group) for group in groups))


def _manifest_groups(
    session: TableContext, snapshot: Snapshot
) -> tuple[tuple[ManifestRef, ...], ...]:
    return (
        plan_manifests(
            snapshot.manifests, session.manifests.removed(snapshot), session.tuning.budgets
        )
        if snapshot.manifests
        else ()
    )


def _rewrite_batch(
    session: TableContext, rewrite: Rewrite, groups: Sequence[Group], done: Compaction
) -> Compaction:
    """Rewrite these groups and commit them together, without those whose files are gone. [CF7]
    [GC11]"""
    head = session.open()
    session.prove(head.snapshot.proven)
    job, began_us = session.new_job(head), session.env.now_us()
    kept, done = _still_there(session, head, job, [(group, NewFiles()) for group in groups], done)
    if not kept:
        return done
    tables = _entries_of(session, head.snapshot, [group for group, _ in kept])
    # A group becomes one file, however large its rows are in it: otherwise the number of files
    # would not decrease.
    tasks = [
        Rewriting(
            table,
            plan_rewrite(
                session.store.url,
                head.snapshot,
                job,
                target_file_size=1 << 62,
                sources=group.sources,
            ),
        )
        for (group, _), table in zip(kept, tables, strict=True)
    ]
    parts = [
        (group, new) for (group, _), new in zip(kept, rewrite(head.snapshot, tasks), strict=True)
    ]
    for (group, new), table in zip(parts, tables, strict=True):
        _check(group, table, new)
    base = head
    while parts:
        change = _change(session, head, job, parts, began_us)
        committers = Committers.GROUP if base is head else Committers.ANY_PROCESS
        outcome = commit(session, base, change, committers=committers)
        if outcome.conflict is None:
            return _counted(_committed(session, outcome, done), parts)
        base = session.open()
        left, done = _still_there(session, base, job, parts, done)
        # another kind of conflict, for example with a dropped column
        if len(left) == len(parts):
            return _lost(head.snapshot, parts, outcome.conflict, done)
        parts = left
    return done


def _entries_of(
    session: TableContext, snapshot: Snapshot, groups: Sequence[Group]
) -> list[pa.Table]:
    """The entries of each group's files, all of which are live, in the group's order."""
    entries = entries_of(session, snapshot, [path for group in groups for path in group.paths])
    paths = entries.column("path").combine_chunks()
    return [
        entries.take(pc.index_in(pa.array(group.paths, pa.string()), value_set=paths))
        for group in groups
    ]


_Part = tuple[Group, NewFiles]


def _still_there(
    session: TableContext, head: Head, job: str, parts: Sequence[_Part], done: Compaction
) -> tuple[list[_Part], Compaction]:
    """The groups whose files are all live in this version; the others are recorded as lost.
    [CF7]"""
    removed = frozenset(path for group, _ in parts for path in group.paths)
    gone = load_conflict_inputs(
        session, head, Write(job=job, birth=head.version, operation=REPLACE, remove=removed)
    ).gone
    lost = [part for part in parts if not gone.isdisjoint(part[0].paths)]
    if lost:
        conflict = Conflict(
            rule="replaced_file_is_gone",
            mine="",
            winner="others have removed or replaced some of its files meanwhile",
        )
        done = _lost(head.snapshot, lost, conflict, done)
    return [part for part in parts if gone.isdisjoint(part[0].paths)], done


def _change(
    session: TableContext, head: Head, job: str, parts: Sequence[_Part], began_us: int
) -> Write:
    snapshot = head.snapshot
    ledger = WriteTotals(session.tally, session.env.now_us, began_us=began_us)
    for _, new in parts:
        ledger.take(new.entries, new.manifests, new.intake)
    return Write(
        job=job,
        birth=head.version,
        operation=REPLACE,
        schema=snapshot.schema,
        partition_by=snapshot.partition_by,
        add=tuple(entry for _, new in parts for entry in new.entries),
        add_manifests=tuple(ref for _, new in parts for ref in new.manifests),
        touched=dedupe(of_partition(snapshot.partition_by, group.partition) for group, _ in parts),
        remove=frozenset(path for group, _ in parts for path in group.paths),
        summary=ledger.summary(sum(new.tasks for _, new in parts)),
    )


def _check(group: Group, table: pa.Table, new: NewFiles) -> None:
    """Check that the new files of a group hold exactly its rows, all in its partition; errors come
    before any commit. [GC11] [DF3]"""
    check_rows(
        table,
        group.rows,
        sum(entry.rows for entry in new.entries) + sum(ref.rows for ref in new.manifests),
    )
    stray = next((entry for entry in new.entries if entry.partition != group.partition), None)
    if stray is not None:
        raise CorruptMetadataError(
            f"files of the partition {group.partition!r} hold rows of {stray.partition!r}; "
            "they stay as they are. `manifestcommit verify "
            "--deep` names the file that is not what its entry says.",
            object_name=table.column("path")[0].as_py(),
        )


def _chosen(
    snapshot: Snapshot, partitions: list[tuple[WireValue, ...]], choose: Choose
) -> set[tuple[WireValue, ...]]:
    """The partitions that the caller selects."""
    if not snapshot.partition_by:
        raise UsageError(
            "where chooses partitions, and this table is not partitioned; leave it out"
        )
    assert snapshot.schema is not None
    by_id = {field.id: field for field in snapshot.schema.fields}
    fields = [by_id[field_id] for field_id in snapshot.partition_by]
    columns = {
        field.name: values.to_array([values_of[at] for values_of in partitions], field.type)
        for at, field in enumerate(fields)
    }
    wanted = choose(pa.table(columns))
    return {partition for partition, want in zip(partitions, wanted, strict=True) if want}


def _committed(session: TableContext, outcome: Outcome, done: Compaction) -> Compaction:
    version = committed_or_raise(outcome, session.store.url).version
    return msgspec.structs.replace(done, version=version, commits=done.commits + 1)


def _counted(done: Compaction, parts: Sequence[_Part]) -> Compaction:
    files = [(len(new.entries) + sum(ref.files for ref in new.manifests)) for _, new in parts]
    sizes = [
        sum(e.bytes for e in new.entries) + sum(ref.data_bytes for ref in new.manifests)
        for _, new in parts
    ]
    return msgspec.structs.replace(
        done,
        groups=done.groups + len(parts),
        rows=done.rows + sum(group.rows for group, _ in parts),
        files_before=done.files_before + sum(len(group.paths) for group, _ in parts),
        files_after=done.files_after + sum(files),
        bytes_before=done.bytes_before + sum(group.bytes for group, _ in parts),
        bytes_after=done.bytes_after + sum(sizes),
    )


def _lost(
    snapshot: Snapshot, parts: Sequence[_Part], conflict: Conflict, done: Compaction
) -> Compaction:
    lost = [
        LostGroup(
            partition=_name(snapshot, group.partition),
            files=len(group.paths),
            rule=conflict.rule,
            why=conflict.winner,
        )
        for group, _ in parts
    ]
    return msgspec.structs.replace(done, lost=(*done.lost, *lost))


def _name(snapshot: Snapshot, partition: tuple[WireValue, ...]) -> str:
    return describe_touch(snapshot, of_partition(snapshot.partition_by, partition))
