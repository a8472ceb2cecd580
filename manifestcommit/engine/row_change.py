"""One attempt to delete or merge rows: born at a head, it names the files that go and lists those that come, in one commit. [RC1] [CF16]

No Spark here: `plan` says how files must be written, `take` takes what came of it. Not here: which rows change (spark.row_change).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import pyarrow as pa

from ..core import manifest_table
from ..core.change import Change, declaration
from ..core.compaction import unite_ranges
from ..core.manifest import MAX_SOURCES, Entry, ManifestRef, SourceRange
from ..core.snapshot import REPLACE, Snapshot
from ..core.touch import Touch, compact, of_partition, once
from ..errors import UsageError
from .commit import commit, key_outcome, measured
from .figures import Figures, Intake, Ledger
from .files import WritePlan
from .given import Ranges, advances_of, check_reason, check_work
from .lookup import find_key_at
from .outcome import Outcome, committed_or_raise
from .replace import plan_rewrite
from .session import Session

Operation = Literal["delete", "merge"]
_TRIES = 20


class RowOutcome(Outcome, frozen=True, kw_only=True):
    """What became of a deletion or a merge. kind: besides those of an `Outcome` "unchanged" where no row was to be changed, so that
    nothing was committed, and "planned" for a dry run; version: then the one that was looked at. [RC1]

    rows_*: None where an earlier run had done the work; files_removed: those of which no row stays; files_rewritten: those of which some
    do, rows_rewritten of them, in new files.
    """

    rows_deleted: int | None = None
    rows_updated: int | None = None
    rows_inserted: int | None = None
    rows_rewritten: int | None = None
    files_removed: int | None = None
    files_rewritten: int | None = None


class RowChange:
    """A deletion or a merge on its way. Nothing of it is visible before `commit` returns a committed outcome. [RC1] [CM10]

    declared: what is declared with the key, beside the ranges and the fingerprint; watermarks: ranges of sources whose rows are merged:
    they advance with the commit. [RC6] [WM2]
    """

    def __init__(
        self,
        session: Session,
        operation: Operation,
        declared: Sequence[str],
        *,
        key: str | None = None,
        fingerprint: str | None = None,
        reason: str | None = None,
        watermarks: Ranges | None = None,
    ) -> None:
        check_work(key=key, fingerprint=fingerprint)
        if reason is not None:
            check_reason(operation, reason)
        self._advances = advances_of(watermarks)
        self._session, self._operation, self._key, self._reason = session, operation, key, reason
        self._ledger = Ledger(session.tally, session.env.now_us)
        self.head, self._record = session.open(), None
        if key is not None:
            self.head, self._record = find_key_at(session, self.head, key)
        if self.snapshot.schema is None:
            raise UsageError(f"{session.store.url} has no columns yet, and no rows")
        self._declared = declaration(mode=operation, scope=list(declared), advances=self._advances, fingerprint=fingerprint)
        self.id = session.new_job(self.head)
        self._reads: tuple[Touch, ...] = ()
        self._removed: dict[str, int] = {}
        self._entries: list[Entry] = []
        self._manifests: list[ManifestRef] = []
        self._touched: list[Touch] = []
        self._tasks = 0

    @property
    def snapshot(self) -> Snapshot:
        """The state whose rows are looked at."""
        return self.head.snapshot

    @property
    def already_committed(self) -> bool:
        """Whether an earlier run committed this key, so that there is nothing to look at. [KY3]"""
        return self._record is not None

    @property
    def changes(self) -> bool:
        """Whether a commit would change a row, or record a key or a position."""
        return bool(self._removed or self._entries or self._manifests or self._advances or self._key is not None)

    @property
    def sources(self) -> tuple[SourceRange, ...]:
        """The ranges from which the rows come that it adds, as its files tell them. [OB8]"""
        return union_of([tuple(SourceRange(source=each.source, start=each.start, end=each.end) for each in self._advances)])

    @property
    def figures(self) -> Figures:
        """As it stands."""
        return self._session.meter(self.id, self._operation, self._ledger.summary(self._tasks)).figures("running")

    def read(self, partitions: Iterable[Touch]) -> None:
        """Rows of these partitions decide what changes: whoever writes there meanwhile is a conflict. [CF16]"""
        self._reads = compact((*self._reads, *partitions))

    def plan(self, *, sources: tuple[SourceRange, ...] = ()) -> WritePlan:
        """How its files are written: in the columns and the partitioning of the snapshot. Proves the store first. [DF3] [ST12]"""
        self._session.prove(self.snapshot.proven)
        return plan_rewrite(self._session.store.url, self.snapshot, self.id, sources=sources)

    def remove(self, entries: pa.Table) -> None:
        """These files are no longer live. entries: rows of `engine.plan.entries_table` of this snapshot. [CF7]"""
        self._removed |= dict(zip(entries.column("path").to_pylist(), entries.column("rows").to_pylist(), strict=True))

    def take(
        self,
        entries: Sequence[Entry],
        manifests: Sequence[ManifestRef] = (),
        *,
        touched: Sequence[Touch] = (),
        tasks: int = 1,
        intake: Intake | None = None,
    ) -> None:
        """List what tasks wrote. touched: the partitions of what is in the manifests; left out, they are looked for there."""
        assert self.snapshot.schema is not None
        self._ledger.take(entries, manifests, intake)
        self._entries += entries
        self._manifests += manifests
        schema, partition_by = self.snapshot.schema, self.snapshot.partition_by
        touched = touched or self._session.manifests.touched(manifests, schema=schema, partition_by=partition_by)
        own = (of_partition(partition_by, entry.partition) for entry in entries)
        self._touched = list(once((*self._touched, *touched, *own)))
        self._tasks += tasks

    def change(self) -> Change:
        """What would be committed now."""
        writes = bool(self._entries or self._manifests)
        return Change(
            job=self.id,
            birth=self.head.version,
            operation=self._operation,
            key=self._key,
            declared=self._declared if self._key is not None else None,
            schema=self.snapshot.schema if writes else None,  # a change that lays out no file fits any columns
            partition_by=self.snapshot.partition_by if writes else None,
            add=tuple(self._entries),
            add_manifests=tuple(self._manifests),
            touched=tuple(self._touched),
            remove=frozenset(self._removed),
            reads=self._reads,
            advances=self._advances,
            reason=self._reason,
            summary=self._ledger.summary(self._tasks),
        )

    def commit(self) -> Outcome:
        """All of it at once, or nothing. [CM1]-[CM8]"""
        change = self.change()
        meter = self._session.meter(change.job, change.operation, change.summary)
        if self._record is not None:
            return measured(key_outcome(change, self._record), meter)
        return commit(self._session, self.head, change, meter=meter)


def drop_removed(session: Session) -> int:
    """Write each manifest anew from which files were removed, so that the head names none of them; how many were. [GC17]

    A commit for each, which changes no row and stands in nobody's way.
    """
    rewritten = tries = 0
    while True:
        head = session.open()
        removed = session.manifests.removed(head.snapshot)
        path = next((ref.path for ref in head.snapshot.manifests if removed.get(ref.path)), None)
        if path is None:
            return rewritten
        job = session.new_job(head)
        change = Change(job=job, birth=head.version, operation=REPLACE, merge_manifests=frozenset({path}))
        outcome = commit(session, head, change)
        if outcome.conflict is None or tries >= _TRIES:
            committed_or_raise(outcome, session.store.url)
            rewritten += 1
        else:  # another commit has merged it meanwhile: look again
            tries += 1


def union_of(files: Iterable[tuple[SourceRange, ...]]) -> tuple[SourceRange, ...]:
    """The ranges from which all rows of these files come, and no others; none where one does not say, or there are too many. [RC5] [OB8]"""
    ranges: list[SourceRange] = []
    for each in files:
        if not each:
            return ()
        ranges += each
    together = unite_ranges(ranges)
    return together if len(together) <= MAX_SOURCES else ()


def ranges_of(entries: pa.Table) -> tuple[SourceRange, ...]:
    """The source ranges from which the rows of all these files come; none where one does not say. [OB8]"""
    return union_of(manifest_table.source_ranges(each) for each in entries.column("sources").to_pylist())
