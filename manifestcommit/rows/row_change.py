"""One attempt to delete, update, merge or overwrite rows: from a base version it names the files to
remove and those to add, in one commit. [RC1] [CF16]

No Spark here: `plan` says how files must be written, `take` registers the result.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import msgspec
import pyarrow as pa

from ..commits.commit_loop import BasedOn, below, check_based_on, commit, measured
from ..commits.create_version import found_outcome
from ..commits.prepared_job import put_prepared, seal
from ..errors import UsageError
from ..files.writer import WritePlan, plan_rewrite
from ..format import manifest_table
from ..format.change import MergeManifests, Write, as_begun, declaration
from ..format.entries import MAX_SOURCES, Entry, ManifestRef, SourceRange
from ..format.evolution import SchemaEdit, apply_edits
from ..format.partitioning import PartitionPattern, bounded, dedupe, of_partition
from ..format.snapshot import DEFAULT_ROW_TRIES, ROW_TRIES_PROPERTY, Snapshot
from ..log.table_context import TableContext
from ..log.time_travel import find_key_at
from ..protocol.compaction_plan import unite_ranges
from ..runtime.environment import STARTS, pause
from ..runtime.outcome import InputTotals, JobMetrics, Outcome, WriteTotals, committed_or_raise
from ..runtime.validation import Ranges, advances_of, check_reason, check_work

LOG = logging.getLogger("manifestcommit.jobs")

Operation = Literal["delete", "merge", "overwrite", "update"]
Executor = Literal["arrow", "spark"]
_LOST = ("read_partition_was_touched", "replaced_file_is_gone")


class RowOutcome(Outcome, frozen=True, kw_only=True):
    """The result of a row change: an `Outcome` with the number of rows.

    `kind` may also be "unchanged" if no row had to change, so that nothing was committed, and
    "planned" for a dry run; then `version` is the one that was examined. In a transaction, and with
    publish=False, it is "pending": the transaction commits it, or `staged` opens it by `job_id`.
    All numbers are None where an earlier run did the work.

    Attributes:
        rows_deleted: how many rows were deleted.
        rows_updated: how many rows got new values.
        rows_inserted: how many rows were added.
        rows_rewritten: how many unchanged rows are in new files now.
        files_removed: how many files had no row left.
        files_rewritten: how many files had rows left, which are in new files now.
        executor: what read and rewrote the files: "arrow", in this process, or "spark".
        tries: how often it was done: once, and again each time that others were faster.

    Spec: RC1, RC8, RC11.
    """

    rows_deleted: int | None = None
    rows_updated: int | None = None
    rows_inserted: int | None = None
    rows_rewritten: int | None = None
    files_removed: int | None = None
    files_rewritten: int | None = None
    executor: Executor | None = None
    tries: int = 1


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """What callers declare with any row change. watermarks: ranges of sources whose rows it writes;
    they advance with the commit [RC6] [WM2]; based_on: the version that the rows, or the condition
    and the values, come from, in place of what the rows say [CF17]; hold: takes the change when it
    is complete, for a commit of several tables, in place of its own commit [MT3]; pinned: the
    version of the table that this commit has read as a whole [MT16]."""

    key: str | None = None
    fingerprint: str | None = None
    reason: str | None = None
    watermarks: Ranges | None = None
    based_on: int | None = None
    hold: Callable[[RowChange], None] | None = None
    pinned: int | None = None


NOTHING = Declared()


class LostRaceError(Exception):
    """A row change was overtaken, and may be done again. most: how often in all. [RC11]"""

    def __init__(self, outcome: Outcome, most: int) -> None:
        super().__init__(outcome.reason)
        self.outcome, self.most = outcome, most


def is_lost(outcome: Outcome) -> bool:
    """Whether others were faster, which a look at a newer version resolves."""
    return outcome.conflict is not None and outcome.conflict.rule in _LOST


def until_committed(ctx: TableContext, once: Callable[[], RowOutcome]) -> RowOutcome:
    """Change rows; where others were faster, do it again, as a new job at the newest version.
    once: looks at the rows, rewrites files and commits. [RC11]"""
    tries, limits = 1, ctx.tuning.limits
    while True:
        try:
            return msgspec.structs.replace(once(), tries=tries)
        except LostRaceError as lost:
            if tries >= lost.most:
                committed_or_raise(lost.outcome, ctx.store.url)
            conflict = lost.outcome.conflict
            LOG.info("%r: try %d lost to others: %s", ctx.store.url, tries, conflict)
        pause(ctx.env, tries, limits.first_pause_s, limits.longest_pause_s)
        tries += 1


class RowChange:
    """A row change in progress. Nothing of it is visible before `commit` returns a
    committed outcome. [RC1] [CM10]

    texts: declared with the key, besides the ranges and the fingerprint. [RC6]
    """

    def __init__(
        self,
        ctx: TableContext,
        operation: Operation,
        texts: Sequence[str],
        declared: Declared = NOTHING,
    ) -> None:
        key, fingerprint, reason = declared.key, declared.fingerprint, declared.reason
        check_work(key=key, fingerprint=fingerprint)
        if reason is not None:
            check_reason(operation, reason)
        self._advances = advances_of(declared.watermarks)
        self.ctx, self.hold = ctx, declared.hold
        self._operation, self._key, self._reason = operation, key, reason
        self._ledger = WriteTotals(ctx.tally, ctx.env.now_us)
        self.head, self.record = ctx.open(), None
        if key is not None:
            self.head, self.record = find_key_at(ctx, self.head, key)
        self._state, self._edits = self.head.snapshot, tuple[SchemaEdit, ...]()
        if self.snapshot.schema is None:
            raise UsageError(f"{ctx.store.url} has no columns yet, and no rows")
        self._declared = declaration(
            mode=operation, scope=list(texts), advances=self._advances, fingerprint=fingerprint
        )
        self.id = ctx.new_job(self.head)
        self._reads: tuple[PartitionPattern, ...] = ()
        self._pinned = declared.pinned
        self._told = BasedOn(declared.based_on)
        self._based_on: int | None = None
        if self.record is None:
            self._told.version(self.head, ctx.store.url)
        self._removed: dict[str, int] = {}
        self._entries: list[Entry] = []
        self._manifests: list[ManifestRef] = []
        self._touched: list[PartitionPattern] = []
        self._tasks = 0
        self.is_checked = True  # whether all its files are written by `plan`
        self.is_as_begun = False  # a rerun that declares no more

    @property
    def snapshot(self) -> Snapshot:
        """The state whose rows are examined, with the columns that it is to have."""
        return self._state

    @property
    def already_committed(self) -> bool:
        """Whether an earlier run committed this key, so that nothing is left to do. [KY3]"""
        return self.record is not None

    @property
    def changes(self) -> bool:
        """Whether a commit would change a row or a column, or record a key or a position."""
        return bool(
            self._removed
            or self._entries
            or self._manifests
            or self._edits
            or self._advances
            or self._key is not None
        )

    @property
    def sources(self) -> tuple[SourceRange, ...]:
        """The source ranges of the rows that it adds, as its files record them. [OB8]"""
        return union_of(
            [
                tuple(
                    SourceRange(source=advance.source, start=advance.start, end=advance.end)
                    for advance in self._advances
                )
            ]
        )

    @property
    def metrics(self) -> JobMetrics:
        """The metrics so far."""
        return self.ctx.meter(self.id, self._operation, self._ledger.summary(self._tasks)).metrics(
            "running"
        )

    def evolve(self, edits: tuple[SchemaEdit, ...]) -> None:
        """Change the table's columns together with the rows, which are read and written with the
        new columns from here on. [RC12] [SC5]"""
        assert self._state.schema is not None
        schema = apply_edits(self._state.schema, edits)
        self._edits, self._state = edits, msgspec.structs.replace(self._state, schema=schema)

    def read(self, partitions: Iterable[PartitionPattern]) -> None:
        """Record that rows of these partitions decide what changes: writes to them by others since
        the version that the change is based on conflict, and those that are there do so now. [CF16]
        [CF17]"""
        self._reads = bounded((*self._reads, *partitions))
        versions = (self._told.version(self.head, self.ctx.store.url), self._pinned)
        if self._pinned is not None:
            self._reads = ({},)
        version = min((each for each in versions if each is not None), default=None)
        self._based_on = below(version, self.head.version, None, self._reads)
        check_based_on(self.ctx, self.head, self.change())

    def pin(self, version: int) -> None:
        """Record that the commit has read the whole table at this version. [MT16]"""
        self._pinned = version
        if self.record is None:
            self.read(())

    def rest_on(self, marks: Iterable[str]) -> None:
        """Record what the new rows say of the version that they were read from, before `read`.
        [CF17]"""
        self._told.take(marks)

    def plan(self, *, sources: tuple[SourceRange, ...] = ()) -> WritePlan:
        """Plan how its files are written: with the columns and the partitioning of the snapshot.
        Proves the store first. [DF3] [ST12]"""
        self.ctx.prove(self.snapshot.proven)
        return plan_rewrite(
            self.ctx.store.url, self.snapshot, self.id, sources=sources, is_new=True
        )

    def remove(self, entries: pa.Table) -> None:
        """Remove these files. entries: rows of `scan.planning.entries_table` of this
        snapshot. [CF7]"""
        self._removed |= dict(
            zip(entries.column("path").to_pylist(), entries.column("rows").to_pylist(), strict=True)
        )

    def take(
        self,
        entries: Sequence[Entry],
        manifests: Sequence[ManifestRef] = (),
        *,
        touched: Sequence[PartitionPattern] = (),
        tasks: int = 1,
        intake: InputTotals | None = None,
    ) -> None:
        """Register the files that tasks wrote. touched: the partitions of the manifests; if
        omitted, they are read from these."""
        assert self.snapshot.schema is not None
        self._ledger.take(entries, manifests, intake)
        self._entries += entries
        self._manifests += manifests
        schema, partition_by = self.snapshot.schema, self.snapshot.partition_by
        touched = touched or self.ctx.manifests.touched(
            manifests, schema=schema, partition_by=partition_by
        )
        own = (of_partition(partition_by, entry.partition) for entry in entries)
        self._touched = list(dedupe((*self._touched, *touched, *own)))
        self._tasks += tasks

    def change(self) -> Write:
        """The change that would be committed now."""
        writes = bool(self._entries or self._manifests)
        return Write(
            job=self.id,
            birth=self.head.version,
            operation=self._operation,
            key=self._key,
            declared=self._said(),
            # a change that writes no file fits any columns
            schema=self.snapshot.schema if writes else None,
            partition_by=self.snapshot.partition_by if writes else None,
            edits=self._edits,
            add=tuple(self._entries),
            add_manifests=tuple(self._manifests),
            touched=tuple(self._touched),
            remove=frozenset(self._removed),
            reads=self._reads,
            based_on=self._based_on,
            advances=self._advances,
            reason=self._reason,
            checked=tuple(sorted(each.id for each in self.snapshot.constraints.values()))
            if writes and self.is_checked
            else (),
            summary=self._ledger.summary(self._tasks),
        )

    def _said(self) -> str | None:
        if self._key is None:
            return None
        return as_begun(self._declared) if self.is_as_begun and self.record else self._declared

    def commit_or_lose(self) -> Outcome:
        """Commit everything atomically, or raise the outcome's error; LostRaceError where it may be
        done again: not where rows were read from a version before. [RC11] [CF17]"""
        outcome, url = self.commit(), self.ctx.store.url
        if is_lost(outcome) and self._told.version(self.head, url) is None:
            most = int(self.snapshot.properties.get(ROW_TRIES_PROPERTY, DEFAULT_ROW_TRIES))
            raise LostRaceError(outcome, most)
        return committed_or_raise(outcome, url)

    def stage(self) -> None:
        """Make it durable, for a process that looks at it and publishes it by its id. [CK5]"""
        sealed = seal(self.ctx, self.head, self.change(), self.record, held=True)
        put_prepared(self.ctx, self.id, sealed)

    def commit(self) -> Outcome:
        """Commit everything atomically. [CM1]-[CM8]"""
        change = self.change()
        meter = self.ctx.meter(change.job, change.operation, change.summary)
        if self.record is not None:
            return measured(found_outcome(self.ctx, self.head, change), meter)
        return commit(self.ctx, self.head, change, meter=meter)


def drop_removed(ctx: TableContext) -> int:
    """Rewrite every manifest from which files were removed, so that the latest version names none
    of these; returns how many were rewritten. [GC17]

    A commit for each; it changes no row and conflicts with nothing.
    """
    rewritten = tries = 0
    while True:
        head = ctx.open()
        removed = ctx.manifests.removed(head.snapshot)
        path = next((ref.path for ref in head.snapshot.manifests if removed.get(ref.path)), None)
        if path is None:
            return rewritten
        job = ctx.new_job(head)
        merge = MergeManifests(job=job, birth=head.version, paths=frozenset({path}))
        outcome = commit(ctx, head, merge)
        if outcome.conflict is None or tries >= STARTS:
            committed_or_raise(outcome, ctx.store.url)
            rewritten += 1
        else:  # another commit has merged it meanwhile: read the latest version again
            tries += 1


def union_of(files: Iterable[tuple[SourceRange, ...]]) -> tuple[SourceRange, ...]:
    """The ranges that cover all rows of these files exactly; none if a file does not record its
    ranges, or there are too many. [RC5] [OB8]"""
    ranges: list[SourceRange] = []
    for of_file in files:
        if not of_file:
            return ()
        ranges += of_file
    together = unite_ranges(ranges)
    return together if len(together) <= MAX_SOURCES else ()


def ranges_of(entries: pa.Table) -> tuple[SourceRange, ...]:
    """The source ranges of the rows of all these files; none if a file does not record them.
    [OB8]"""
    return union_of(
        manifest_table.source_ranges(row) for row in entries.column("sources").to_pylist()
    )
